"""Tables of vectors: CSV, JSON lines and parquet as pandas writes them.

A vector is a list in one column ('[0.1, 0.2]'), or one number in each of the columns `dim_0`, `dim_1`, ...
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cocos.base.errors import InputError
from cocos.checkpoints.checkpoint import Checkpoint
from cocos.checkpoints.files import File
from cocos.checkpoints.formats.embeddings import CLASSES, VECTOR_SUFFIX, open_arrays, role
from cocos.data import tables

LABELS = (*CLASSES, "group", "identity", "category")
DIMENSION = re.compile(r"(.*?)[_ .-]?(\d+)")
MIN_DIMENSIONS = 3  # fewer numbers are not a vector


def sniff(file: File) -> bool:
    """Recognise columns of vectors."""
    return file.kind in {"text", "gzip", "unknown"} and bool(vector_columns(file.path))


def load(file: File, data=None) -> Checkpoint:
    """Read the vectors of a table, as two sides or as a labelled set."""
    columns = vector_columns(file.path)
    return open_arrays(file, "vector_tables", read_table(file.path, columns), columns)


def as_vector(cells: Sequence[Any]) -> np.ndarray | None:
    """Return the cells of a row as a vector: numbers, a list, or a text '[0.1, 0.2]' or '[0.1 0.2]'; None otherwise."""
    value = cells if len(cells) > 1 else cells[0]
    if isinstance(value, str) and value.strip()[:1] == "[" and value.strip()[-1:] == "]":
        value = value.strip()[1:-1].replace(",", " ").split()
    try:
        return np.array(value, dtype=np.float64) if isinstance(value, list | tuple) and len(value) > 1 else None
    except (TypeError, ValueError):
        return None


def vector_columns(path: Path) -> dict[str, list[str]]:
    """Return the columns of each vector by its name: one column of lists, or numbered columns in order."""
    names = tables.column_names(path)
    columns = {name: [name] for name in names if VECTOR_SUFFIX.search(name.lower())}
    numbered: dict[str, dict[int, str]] = {}
    for name in names:
        if match := DIMENSION.fullmatch(name):
            numbered.setdefault(match[1], {})[int(match[2])] = name
    for name, by_number in numbered.items():
        order = sorted(by_number)
        if len(order) >= MIN_DIMENSIONS and order == list(range(order[0], order[0] + len(order))):
            columns[name or "embedding"] = [by_number[number] for number in order]
    table = tables.read(path) if columns else None
    if table is None or not table.rows:
        return {}
    first_rows = {name: [table.column(column)[0] for column in names] for name, names in columns.items()}
    return {name: columns[name] for name, cells in first_rows.items() if as_vector(cells) is not None}


def read_table(path: Path, columns: dict[str, list[str]]) -> dict[str, Any]:
    """Read the arrays of a table: two sides, or embeddings and labels."""
    table = tables.read(path)

    def read_vectors(names: list[str]) -> Tensor:
        rows = list(map(as_vector, zip(*map(table.column, names), strict=True)))
        for number, row in enumerate(rows):
            if row is None or len(row) != len(rows[0]):
                raise InputError(f"{path}, {table.line(number)}: {names[0]} is not a vector as in the first row")
        return torch.from_numpy(np.stack(rows)).float()

    def read_labels(name: str) -> Tensor | list[str]:
        labels = table.column(name)
        try:
            return torch.tensor(list(map(int, labels)))
        except (TypeError, ValueError):
            return list(map(str, labels))

    by_name = {name.lower(): name for name in table.names}
    label = next((by_name[name] for name in LABELS if name in by_name), None)
    sides = {role(name): names for name, names in columns.items()}
    if {"query", "candidate"} <= sides.keys():
        arrays = {side: read_vectors(sides[side]) for side in ("query", "candidate")}
        groups = {f"{side}_group": by_name.get(f"{side}_group", label) for side in arrays}
        return arrays | {group: read_labels(name) for group, name in groups.items() if name}
    if label is None:
        names = ", ".join(table.names[:8])
        raise InputError(f"{path}: column 'label', or two sides such as query_embedding, is missing (columns {names})")
    return {"embeddings": read_vectors(next(iter(columns.values()))), "labels": read_labels(label)}
