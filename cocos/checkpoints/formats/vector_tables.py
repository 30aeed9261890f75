"""Tables of vectors: CSV, JSON lines and parquet as pandas writes them, TSV of the embedding projector, .npy folders.

A vector is a list in one column ('[0.1, 0.2]'), or one number in each of the columns `dim_0`, `dim_1`, ...
"""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cocos.base.errors import InputError
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
MIN_WORD_DIMENSIONS = 10
# Names of .npy files that are one set: its arrays.
FOLDERS = (
    {"embeddings.npy": "embeddings", "labels.npy": "labels"},
    {"query.npy": "query", "candidate.npy": "candidate"},
    {"image_embeddings.npy": "query", "text_embeddings.npy": "candidate"},
    {"img_embeddings.npy": "query", "text_embeddings.npy": "candidate"},
)


def sniff(file: File) -> bool:
    """A column of lists of numbers, numbered columns of numbers, text of nothing but numbers, or two .npy files."""
    if file.kind == "folder":
        return folder_arrays(file) is not None
    if file.kind not in {"text", "gzip", "unknown"}:
        return False
    row = first_row(file.path)
    return bool(vector_columns(row)) or is_projector(row) or word_dimensions(file) > 0


def load(file: File, data=None) -> Checkpoint:
    """Read the vectors of a table, as two sides or as a labelled set."""
    if data is not None:
        raise InputError(f"data {data}: {file.path} contains embeddings already and needs no data")
    if file.kind == "folder":
        arrays = {name: np.load(file.path / path) for path, name in (folder_arrays(file) or {}).items()}
    elif word_dimensions(file):
        raise InputError(describe_words(file))
    elif is_projector(first_row(file.path)):
        with tables.readable(file.path):
            rows = np.loadtxt(io.StringIO(tables.read_text(file.path)), delimiter="\t", ndmin=2)
        arrays = {"embeddings": rows, "labels": projector_labels(file.path, len(rows))}
    else:
        arrays = table_arrays(file.path)
    matrices = {
        name: torch.as_tensor(array) if array.dtype.kind in "fiu" else array.tolist() for name, array in arrays.items()
    }
    noise = 0
    try:
        if "embeddings" in matrices:
            labels, noise = separate_noise(matrices["labels"])
            embeddings = Embeddings.labelled(matrices["embeddings"], labels)
        else:
            embeddings = Embeddings(**matrices, directions=directions_of(file))
    except InputError as error:
        raise type(error)(f"{file.path}: {error}") from None
    return Checkpoint.of(
        file,
        "vector_tables",
        {name: f"{array.shape} {array.dtype}" for name, array in arrays.items()},
        embedder=holding(file.path, "embeddings", lambda: embeddings),
        notes=(f"{file.path}: {noise} samples have the label -1, noise, and no positive",) if noise else (),
    )


def directions_of(file: File) -> tuple[str, str]:
    """Return the names of the directions: of images and texts if a file or column is named so."""
    names = file.names if file.kind == "folder" else vector_columns(first_row(file.path))
    return ("i2t", "t2i") if any(name.lower().startswith(("image", "img")) for name in names) else ("q2c", "c2q")


def folder_arrays(file: File) -> dict[str, str] | None:
    """Return the .npy files of a folder that are one set, with their arrays, or None."""
    return next((arrays for arrays in FOLDERS if all(name in file for name in arrays)), None)


def first_row(path: Path) -> dict[str | int, Any]:
    """Return the first row of a table by column; of text without a header, its fields by number. Empty otherwise."""
    try:
        return read_first_row(path)
    except (OSError, EOFError, ValueError, csv.Error, StopIteration, InputError):
        return {}


def read_first_row(path: Path) -> dict[str | int, Any]:
    """Read the first row of parquet, JSON lines or delimited text."""
    head = tables.read_bytes(path, tables.HEAD)
    if head.startswith(b"PAR1"):
        (parquet,) = tables.require("pyarrow.parquet", path=path)
        return next(parquet.ParquetFile(path).iter_batches(1)).to_pylist()[0]
    text = head.decode("utf-8-sig", "ignore")
    if text.lstrip()[:1] == "{":
        row = json.loads(text.lstrip().partition("\n")[0])
        return row if isinstance(row, dict) else {}
    if (delimiter := tables.delimiter_of(head)) is None:
        return {}
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    names, row = next(rows), next(rows, [])
    has_header = len(row) == len(names) and not all(map(is_number, names))
    return dict(zip(names, row, strict=True)) if has_header else dict(enumerate(names))


def is_number(value: Any) -> bool:
    """Return whether a cell is a number."""
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return not isinstance(value, bool)


def is_projector(row: dict) -> bool:
    """Return whether a row without column names is a vector."""
    return len(row) >= MIN_DIMENSIONS and 0 in row and all(map(is_number, row.values()))


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


def table_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a table: two sides, or embeddings and labels."""
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


def projector_labels(path: Path, rows: int) -> np.ndarray:
    """Return the labels in the metadata of an embedding projector, the TSV file next to its vectors."""
    names = ("metadata.tsv", path.name.replace("vectors", "metadata"), path.name.replace("vecs", "meta"))
    paths = [path.with_name(name) for name in names if name != path.name]
    metadata = next((other for other in paths if other.is_file()), None)
    if metadata is None:
        raise InputError(f"{path}: vectors without labels; add metadata.tsv with a column 'label', one row per vector")
    lines = [line.split("\t") for line in tables.read_text(metadata).splitlines() if line]
    header = [name.strip().lower() for name in lines.pop(0)] if len(lines) == rows + 1 else []
    column = next((header.index(name) for name in LABELS if name in header), None if len(lines[0]) > 1 else 0)
    if len(lines) != rows or column is None:
        problem = f"{len(lines)} rows, expected {rows}" if len(lines) != rows else "column 'label' is missing"
        raise InputError(f"{metadata}: {problem}, one label for each vector of {path.name}")
    return as_labels([line[column] for line in lines])


def word_dimensions(file: File) -> int:
    """Return the dimensions of word2vec or GloVe text, or 0."""
    if file.kind != "text":
        return 0
    with open(file.path, "rb") as stream:
        lines = [stream.readline(2**20).decode("utf-8", "replace").split(" ") for _ in range(2)]
    counts, row = (lines[0], lines[1]) if len(lines[0]) == 2 else (None, lines[0])
    row = [part for part in row if part.strip()]
    if counts and not (counts[0].isdecimal() and counts[1].strip().isdecimal()):
        return 0
    numeric = len(row) > MIN_WORD_DIMENSIONS or bool(counts and len(row) - 1 == int(counts[1]))
    return len(row) - 1 if numeric and all(map(is_number, row[1:])) and not is_number(row[0]) else 0


def describe_words(file: File) -> str:
    """Return the message for the vectors of words, which have no labels."""
    with open(file.path, "rb") as stream:
        skipped = ", skiprows=1" if len(stream.readline(2**20).split()) == 2 else ""
    columns = f"usecols=range(1, {word_dimensions(file) + 1}), comments=None{skipped}"
    numbers = f"numpy.loadtxt({str(file.path)!r}, {columns})"
    return (
        f"{file.path} contains vectors of words without labels; save them with the class of each word: "
        f"numpy.savez('{file.path.stem}.npz', embeddings={numbers}, labels=...)"
    )
