"""Tables of vectors: CSV, JSON lines and parquet as pandas writes them, TSV of the embedding projector, .npy folders.

A vector is a list in one column ('[0.1, 0.2]'), or one number in each of the columns `dim_0`, `dim_1`, ...
"""

import csv
import io
import json
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cocos.base.errors import InputError, prefixed
from cocos.checkpoints.checkpoint import Checkpoint, holding
from cocos.checkpoints.files import File
from cocos.checkpoints.formats.embeddings import separate_noise
from cocos.data import tables
from cocos.embeddings import Embeddings

LABELS = ("label", "labels", "class", "class_id", "target", "group", "identity", "category", "y")
QUERIES = ("query", "queries", "anchor", "anchors", "question", "image", "images", "img")
CANDIDATES = ("candidate", "candidates", "positive", "positives", "document", "passage", "answer", "text", "caption")
VECTOR_SUFFIX = re.compile(r"[_ ]?(embeddings?|embs?|vectors?|vec|features?|feats?)$")
DIMENSION = re.compile(r"(.*?)[_ .-]?(\d+)")
MIN_DIMENSIONS = 3  # fewer numbered columns are not a vector
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
        return folder_arrays(file) is not None
    if file.kind not in {"text", "gzip", "unknown"}:
        return False
    row = first_row(file.path)
    return bool(vector_columns(row) or is_projector(row) or describe_words(file))


def load(file: File, data=None) -> Checkpoint:
    """Read the vectors of a table, as two sides or as a labelled set."""
    if data is not None:
        raise InputError(f"data {data}: {file.path} contains embeddings already and needs no data")
    if words := describe_words(file):
        raise InputError(words)
    if file.kind == "folder":
        arrays = {array: np.load(file.path / name) for name, array in (folder_arrays(file) or {}).items()}
        columns: Iterable[str] = file.names
    else:
        row = first_row(file.path)
        columns = vector_columns(row)
        arrays = read_projector(file.path) if is_projector(row) else read_table(file.path)
    matrices = {
        name: torch.as_tensor(array) if array.dtype.kind in "fiu" else array.tolist() for name, array in arrays.items()
    }
    noise = 0
    with prefixed(str(file.path)):
        if "embeddings" in matrices:
            labels, noise = separate_noise(matrices["labels"])
            embeddings = Embeddings.labelled(matrices["embeddings"], labels)
        else:
            has_images = any(name.lower().startswith(("image", "img")) for name in columns)
            embeddings = Embeddings(**matrices, directions=("i2t", "t2i") if has_images else ("q2c", "c2q"))
    return Checkpoint.of(
        file,
        "vector_tables",
        {name: f"{array.shape} {array.dtype}" for name, array in arrays.items()},
        embedder=holding(file.path, "embeddings", lambda: embeddings),
        notes=(f"{file.path}: {noise} samples have the label -1, noise, and no positive",) if noise else (),
    )


def folder_arrays(file: File) -> dict[str, str] | None:
    """Return the .npy files of a folder that are one set, with their arrays, or None."""
    return next((arrays for arrays in FOLDERS if all(name in file for name in arrays)), None)


def first_row(path: Path) -> dict[str | int, Any]:
    """Return the first row of a table by column; of text without a header, its fields by number. Empty otherwise."""
    with suppress(OSError, EOFError, ValueError, csv.Error, StopIteration):
        head = tables.read_bytes(path, tables.HEAD)
        if head.startswith(b"PAR1"):
            (parquet,) = tables.require("pyarrow.parquet", path=path)
            return next(parquet.ParquetFile(path).iter_batches(1)).to_pylist()[0]
        text = head.decode("utf-8-sig", "ignore").lstrip()
        if text[:1] == "{":
            return json.loads(text.partition("\n")[0])
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=tables.delimiter_of(head) or "\t")
        names, row = next(rows), next(rows, [])
        has_header = len(row) == len(names) and not all(map(is_number, names))
        return dict(zip(names, row, strict=True)) if has_header else dict(enumerate(names))
    return {}


def is_projector(row: dict) -> bool:
    """Return whether a row without column names is a vector, as in files of the embedding projector."""
    return len(row) >= MIN_DIMENSIONS and 0 in row and all(map(is_number, row.values()))


def is_number(value: Any) -> bool:
    """Return whether a cell is a number."""
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return not isinstance(value, bool)


def as_vector(value: Any) -> list[float] | None:
    """Return a cell as a vector: a list, or text such as '[0.1, 0.2]' and '[0.1 0.2]'; None if it is something else."""
    if isinstance(value, str) and value.strip()[:1] == "[" and value.strip()[-1:] == "]":
        value = value.strip()[1:-1].replace(",", " ").split()
    if not isinstance(value, list | tuple) or len(value) < 2 or not all(map(is_number, value)):
        return None
    return [float(number) for number in value]


def vector_columns(row: dict) -> dict[str, list[str]]:
    """Return the columns of each vector by its name: one column of lists, or numbered columns in order."""
    columns = {name: [name] for name, value in row.items() if isinstance(name, str) and as_vector(value)}
    numbered: dict[str, dict[int, str]] = {}
    for name, value in row.items():
        match = DIMENSION.fullmatch(name) if isinstance(name, str) and is_number(value) else None
        if match:
            numbered.setdefault(match[1], {})[int(match[2])] = name
    for name, by_number in numbered.items():
        order = sorted(by_number)
        if len(order) >= MIN_DIMENSIONS and order == list(range(order[0], order[0] + len(order))):
            columns[name or "embedding"] = [by_number[number] for number in order]
    return columns


def read_table(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of a table: two sides, or embeddings and labels."""
    table = tables.read(path)
    columns = vector_columns(first_row(path))
    roles = {}
    for name in columns:
        stem = VECTOR_SUFFIX.sub("", name.lower())
        roles.setdefault("query" if stem in QUERIES else "candidate" if stem in CANDIDATES else "embeddings", name)
    names = {role: roles[role] for role in ("query", "candidate")} if {"query", "candidate"} <= roles.keys() else {}
    arrays = {role: read_vectors(path, table, columns[name]) for role, name in names.items()}
    by_name = {name.lower(): name for name in table.names}
    label = next((by_name[name] for name in LABELS if name in by_name), None)
    if names:
        groups = {role: by_name.get(f"{role}_group", label) for role in names}
        return arrays | {f"{role}_group": as_labels(table.column(name)) for role, name in groups.items() if name}
    if label is None:
        raise InputError(
            f"{path}: column 'label' is missing (columns {', '.join(table.names[:8])}), which lists the class of each "
            "vector; two sides have columns such as query_embedding and candidate_embedding"
        )
    return {
        "embeddings": read_vectors(path, table, next(iter(columns.values()))),
        "labels": as_labels(table.column(label)),
    }


def read_vectors(path: Path, table: tables.Table, names: list[str]) -> np.ndarray:
    """Return a matrix of the vectors in one column, or in numbered columns."""
    values = [table.column(name) for name in names]
    rows = [as_vector(value) for value in values[0]] if len(names) == 1 else list(zip(*values, strict=True))
    for number, row in enumerate(rows):
        if row is None or len(row) != len(rows[0]) or not all(map(is_number, row)):
            size = f"{len(rows[0])} numbers as in the first row" if rows[0] else "numbers such as [0.1, 0.2]"
            raise InputError(f"{path}, {table.line(number)}: {names[0]} is not a vector, expected {size}")
    return np.array(rows, dtype=np.float64).astype(np.float32)


def as_labels(values: list) -> np.ndarray:
    """Return labels as integers if all are, and as text otherwise."""
    try:
        return np.array([int(value) for value in values])
    except (TypeError, ValueError):
        return np.array([str(value) for value in values])


def read_projector(path: Path) -> dict[str, np.ndarray]:
    """Read the vectors of the embedding projector, and their labels in the metadata next to them."""
    with tables.readable(path):
        vectors = np.loadtxt(io.StringIO(tables.read_text(path)), delimiter="\t", ndmin=2)
    metadata = path.with_name("metadata.tsv")
    if not metadata.is_file():
        raise InputError(f"{path}: vectors without labels; add metadata.tsv with a column 'label', one row per vector")
    rows = [line.split("\t") for line in tables.read_text(metadata).splitlines() if line]
    header = [name.strip().lower() for name in rows.pop(0)] if len(rows) == len(vectors) + 1 else rows[0]
    column = 0 if len(header) == 1 else next((header.index(name) for name in LABELS if name in header), None)
    if len(rows) != len(vectors) or column is None:
        problem = "column 'label' is missing" if column is None else f"{len(rows)} rows, expected {len(vectors)}"
        raise InputError(f"{metadata}: {problem}, one label for each vector of {path.name}")
    return {"embeddings": vectors, "labels": as_labels([row[column] for row in rows])}


def describe_words(file: File) -> str:
    """Return the message for word2vec or GloVe text, which has no labels; empty for other files."""
    if file.kind != "text":
        return ""
    with open(file.path, "rb") as stream:
        lines = [stream.readline(2**20).decode("utf-8", "replace").split() for _ in range(2)]
    counts = lines.pop(0) if len(lines[0]) == 2 and all(map(str.isdecimal, lines[0])) else []
    word, *vector = lines[0] or [""]
    is_vector = len(vector) == int(counts[1]) if counts else len(vector) >= MIN_WORD_DIMENSIONS
    if not is_vector or is_number(word) or not all(map(is_number, vector)):
        return ""
    options = f"usecols=range(1, {len(vector) + 1}), comments=None{', skiprows=1' if counts else ''}"
    return (
        f"{file.path} contains vectors of words without labels; save them with the class of each word: "
        f"numpy.savez('{file.path.stem}.npz', embeddings=numpy.loadtxt({str(file.path)!r}, {options}), labels=...)"
    )
