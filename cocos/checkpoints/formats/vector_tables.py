"""Tables of vectors: CSV, JSON lines and parquet as pandas writes them, TSV of the embedding projector, .npy folders.

A vector is a list in one column ('[0.1, 0.2]'), or one number in each of the columns `dim_0`, `dim_1`, ...
"""

import csv
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cocos.base.errors import InputError, prefixed
from cocos.checkpoints.checkpoint import Checkpoint
from cocos.checkpoints.files import File
from cocos.checkpoints.formats.embeddings import CLASSES, IMAGES, role, separate_noise
from cocos.data import tables
from cocos.embeddings import Embeddings

LABELS = (*CLASSES, "group", "identity", "category")
DIMENSION = re.compile(r"(.*?)[_ .-]?(\d+)")
MIN_DIMENSIONS = 3  # fewer numbers are not a vector
MIN_WORD_DIMENSIONS = 10  # of a line of a word and its vector
# Files of one set in a folder -> its arrays.
FOLDERS = (
    {"embeddings.npy": "embeddings", "labels.npy": "labels"},
    {"query.npy": "query", "candidate.npy": "candidate"},
    {"image_embeddings.npy": "query", "text_embeddings.npy": "candidate"},
    {"img_embeddings.npy": "query", "text_embeddings.npy": "candidate"},
)


def sniff(file: File) -> bool:
    """Recognise columns of vectors, text of vectors alone, and folders of .npy files."""
    if file.kind == "folder":
        return any(all(name in file for name in arrays) for arrays in FOLDERS)
    return file.kind in {"text", "gzip", "unknown"} and bool(vector_columns(first_row(file)) or convert_text(file))


def load(file: File, data=None) -> Checkpoint:
    """Read the vectors of a table, as two sides or as a labelled set."""
    if file.kind == "folder":
        columns = next(arrays for arrays in FOLDERS if all(name in file for name in arrays))
        arrays = {array: np.load(file.path / name) for name, array in columns.items()}
    else:
        columns = vector_columns(first_row(file))
        if not columns:
            raise InputError(f"{file.path} contains {convert_text(file)}")
        arrays = read_table(file.path, columns)
    values = {name: torch.as_tensor(array) if array.dtype.kind in "fiu" else array for name, array in arrays.items()}
    notes: list[str] = []
    with prefixed(str(file.path)):
        if "embeddings" in values:
            values["labels"], notes = separate_noise(file.path, values["labels"])
            embeddings = Embeddings.labelled(**values)
        else:
            has_images = any(name.lower().startswith(IMAGES) for name in columns)
            embeddings = Embeddings(**values, directions=("i2t", "t2i") if has_images else ("q2c", "c2q"))
    return Checkpoint(file.path, file.sha256, "vector_tables", arrays, lambda *_: embeddings, notes=tuple(notes))


def first_row(file: File) -> dict[str, Any]:
    """Return the first row of a table by column; empty if the file is not one."""
    with suppress(OSError, EOFError, ValueError, StopIteration, InputError):
        head = tables.read_bytes(file.path, tables.HEAD)
        if head.startswith(b"PAR1"):
            (parquet,) = tables.require("pyarrow.parquet", path=file.path)
            return next(parquet.ParquetFile(file.path).iter_batches(1)).to_pylist()[0]
        lines = head.decode("utf-8-sig", "ignore").lstrip().splitlines()
        if lines[0].startswith("{"):
            return json.loads(lines[0])
        names, values = csv.reader(lines[:2], delimiter=tables.delimiter_of(head) or "\t")
        return dict(zip(names, values, strict=True))
    return {}


def as_vector(value: Any) -> np.ndarray | None:
    """Return a cell as a vector: a list, or text such as '[0.1, 0.2]' and '[0.1 0.2]'; None if it is something else."""
    if isinstance(value, str) and value.strip()[:1] == "[" and value.strip()[-1:] == "]":
        value = value.strip()[1:-1].replace(",", " ").split()
    return as_numbers(value) if isinstance(value, list | tuple) and len(value) > 1 else None


def as_numbers(values: Sequence[Any]) -> np.ndarray | None:
    """Return cells as numbers; None if one is something else."""
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        return None


def vector_columns(row: dict) -> dict[str, list[str]]:
    """Return the columns of each vector by its name: one column of lists, or numbered columns in order."""
    columns = {name: [name] for name, value in row.items() if as_vector(value) is not None}
    numbered: dict[str, dict[int, str]] = {}
    for name, value in row.items():
        if (match := DIMENSION.fullmatch(name)) and as_numbers([value]) is not None:
            numbered.setdefault(match[1], {})[int(match[2])] = name
    for name, by_number in numbered.items():
        order = sorted(by_number)
        if len(order) >= MIN_DIMENSIONS and order == list(range(order[0], order[0] + len(order))):
            columns[name or "embedding"] = [by_number[number] for number in order]
    return columns


def read_table(path: Path, columns: dict[str, list[str]]) -> dict[str, np.ndarray]:
    """Read the arrays of a table: two sides, or embeddings and labels."""
    table = tables.read(path)

    def read_vectors(names: list[str]) -> np.ndarray:
        values = [table.column(name) for name in names]
        rows = list(map(as_vector, values[0] if len(names) == 1 else zip(*values, strict=True)))
        for number, row in enumerate(rows):
            if row is None or len(row) != len(rows[0]):
                raise InputError(f"{path}, {table.line(number)}: {names[0]} is not a vector as in the first row")
        return np.stack(rows).astype(np.float32)

    def read_labels(name: str) -> np.ndarray:
        try:
            return np.array(list(map(int, table.column(name))))
        except (TypeError, ValueError):
            return np.array(list(map(str, table.column(name))))

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


def convert_text(file: File) -> str:
    """Return the line that converts vectors of word2vec, GloVe or the embedding projector; empty for other files."""
    if file.kind != "text":
        return ""
    with open(file.path, encoding="utf-8", errors="replace") as stream:
        lines = [stream.readline(2**20).split() for _ in range(2)]
    has_counts = len(lines[0]) == 2 and all(map(str.isdecimal, lines[0]))
    word, *vector = lines[has_counts] or [""]
    is_word = as_numbers([word]) is None
    shortest = 2 if has_counts else MIN_WORD_DIMENSIONS if is_word else MIN_DIMENSIONS
    if as_numbers(vector) is None or len(vector) < shortest:
        return ""
    options = f", usecols=range(1, {len(vector) + 1}), comments=None" if is_word else ""
    options += ", skiprows=1" if has_counts else ""
    labels = "..." if is_word else "numpy.loadtxt('metadata.tsv', dtype=str, delimiter='\\t')"
    return (
        "vectors without their labels; save both: "
        f"numpy.savez('{file.path.stem}.npz', embeddings=numpy.loadtxt({str(file.path)!r}{options}), labels={labels})"
    )
