"""A folder of shards: .npy files of each array, also numbered, or numbered .npz, .safetensors or parquet files.

Names and headers are read first. Rows are then read by their numbers from memory maps (`embeddings/stored.py`).
"""

import itertools
import logging
import math
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cocos.base import machine
from cocos.base.errors import InputError
from cocos.checkpoints.arrays import StoredArray, read_headers
from cocos.checkpoints.checkpoint import Checkpoint
from cocos.checkpoints.files import File
from cocos.checkpoints.formats.embeddings import separate_noise
from cocos.embeddings import Embeddings
from cocos.embeddings.matrices import check_dims
from cocos.embeddings.stored import Stored

# Names of arrays in shards -> names here.
MATRICES = {"query": "query", "candidate": "candidate", "embeddings": "embeddings"}
MATRICES |= {"img_emb": "query", "text_emb": "candidate", "embedding": "embeddings"}
MATRICES |= {"image_embeddings": "query", "text_embeddings": "candidate"}
ARRAYS = MATRICES | {"label": "labels"}
ARRAYS |= {name: name for name in ("query_group", "candidate_group", "labels", "logq", "query_logq")}
# name and number of shards: query_00003.npy, part-3-of-8.safetensors, query.npy
SHARD_FILE = re.compile(r"(.*?)(?:[-_.]?(\d{1,12})(?:-of-\d{1,12})?)?\.(npy|npz|safetensors|parquet)")
# Words before the number of a checkpoint, which is a set by itself.
CHECKPOINT_NAME = re.compile(r"(step|iter|iteration|epoch|checkpoint|ckpt|model|seed|run)s?$", re.IGNORECASE)
FLOATS = {name: getattr(torch, name) for name in ("float16", "bfloat16", "float32", "float64")}
MIN_MAPPED = 2**30  # bytes of one side from which on rows are read from disk batch by batch
logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class ShardRows:
    """The rows of an array in shards, in order."""

    shards: tuple[StoredArray, ...]  # of one width and dtype
    dims: int | None = None  # leading dimensions that are kept; None: all

    @cached_property
    def begins(self) -> np.ndarray:
        """First row of each shard, and the number of all rows."""
        return np.cumsum([0, *(shard.shape[0] for shard in self.shards)])

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and width."""
        return int(self.begins[-1]), self.dims or self.shards[0].shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the rows."""
        return FLOATS[self.shards[0].dtype]

    def truncate(self, dims: int) -> "ShardRows":
        """Keep the first dimensions of every row."""
        check_dims(dims, self.shape[1])
        return replace(self, dims=dims)

    def file(self, row: int) -> Path:
        """Return the file of a row."""
        return self.shards[int(np.searchsorted(self.begins, row, side="right")) - 1].path

    def read(self, index: Tensor) -> Tensor:
        """Read rows by their numbers, in ascending order: (n, width)."""
        rows = index.numpy()
        edges = np.searchsorted(rows, self.begins)
        parts = zip(self.shards, self.begins, edges, edges[1:], strict=False)
        return torch.cat([self.take(shard, rows[i:j] - begin) for shard, begin, i, j in parts if i < j])

    def read_all(self) -> Tensor:
        """Read the rows of all shards into memory."""
        matrix = torch.empty(self.shape, dtype=self.dtype)
        for shard, begin in zip(self.shards, self.begins, strict=False):
            matrix[begin : begin + shard.shape[0]] = self.take(shard, slice(None))
        return matrix

    def take(self, shard: StoredArray, index: np.ndarray | slice) -> Tensor:
        """Read rows of a shard, with the dimensions that are kept."""
        rows = torch.from_numpy(shard.take(index))
        rows = rows.view(torch.bfloat16) if self.dtype == torch.bfloat16 else rows
        return rows if self.dims is None else rows[:, : self.dims].contiguous()


def is_set(names: Iterable[str]) -> bool:
    """Return whether these are the names of two sides or of a labelled set."""
    arrays = {ARRAYS.get(name) for name in names}
    return {"query", "candidate"} <= arrays or {"embeddings", "labels"} <= arrays


def find_files(folder: File) -> dict[str, list[tuple[int, str]]]:
    """Return number and name of the files of each sequence, in order; of .npy files it is named as an array."""
    sequences: dict[str, list[tuple[int, str]]] = {}
    for name in folder.names:
        if match := SHARD_FILE.fullmatch(name):
            stem, number, kind = match[1].rpartition("/")[2], match[2], match[3]
            if kind == "npy" and stem in ARRAYS and (number or "/" not in name):
                sequences.setdefault(stem, []).append((int(number or 0), name))
            elif kind != "npy" and number and not CHECKPOINT_NAME.search(stem):
                sequences.setdefault(f"{match[1]}*.{kind}", []).append((int(number), name))
    is_numbered = any(len(files) > 1 for files in sequences.values())
    if is_set(sequences) or (is_numbered and sequences.keys() & MATRICES.keys()):
        return {name: sorted(files) for name, files in sequences.items() if name in ARRAYS}
    for sequence, files in sequences.items() if len(sequences) == 1 else ():
        for _, name in sorted(files) if len(files) > 1 else ():
            with suppress(InputError):  # a damaged shard is named when the set is read
                return {sequence: sorted(files)} if is_set(read_headers(folder.path / name)) else {}
    return {}


def sniff(file: File) -> bool:
    """Recognise a folder of numbered files whose arrays have names that embeddings have."""
    return file.kind == "folder" and bool(find_files(file))


def read_shards(folder: File) -> dict[str, list[StoredArray]]:
    """Return the shards of each array, by its name here, in order; refuse shards that are missing or do not fit."""
    arrays: dict[str, list[StoredArray]] = {}
    for sequence, files in find_files(folder).items():
        for (number, _), expected in zip(files, itertools.count(min(files[0][0], 1)), strict=False):
            if number != expected:
                raise InputError(f"{folder.path}: shards of {sequence}: number {number}, expected {expected}")
        for _, name in files:
            headers = read_headers(folder.path / name)
            headers = {sequence: headers[""]} if "" in headers else headers
            for key in headers.keys() & ARRAYS.keys():
                arrays.setdefault(ARRAYS[key], []).append(headers[key])
    for role, shards in arrays.items():
        first, is_matrix = shards[0], role in MATRICES.values()
        for shard in shards:
            if len(shard.shape) != 1 + is_matrix or shard.shape[1:] != first.shape[1:] or shard.dtype != first.dtype:
                size = f"{shard.dtype} {shard.shape}, and {first.dtype} {first.shape} in {first.path.name}"
                raise InputError(f"{shard.path}: {role} is {size}; expected one dtype and width")
        if is_matrix and first.dtype not in FLOATS:
            raise InputError(f"{first.path}: {role} is {first.dtype}, expected floats; parquet: fixed-size lists")
    missing = {"embeddings", "labels"} if "embeddings" in arrays else {"query", "candidate"}
    if missing := sorted(missing - arrays.keys()):
        raise InputError(f"{folder.path}: shards of {', '.join(sorted(arrays))}, and none of {missing[0]}; add them")
    return arrays


def load(file: File, data=None) -> Checkpoint:
    """Read the headers of shards; their rows are read when they are counted or encoded."""
    path, arrays = file.path, read_shards(file)
    is_labelled = "embeddings" in arrays
    is_clip = any(shard.path.name.startswith(("img_emb", "image_emb")) for shard in arrays.get("query", ()))
    directions = ("s2s",) if is_labelled else ("i2t", "t2i") if is_clip else ("q2c", "c2q")
    rows = {name: ShardRows(tuple(shards)) for name, shards in arrays.items() if name in MATRICES.values()}
    contents = {}
    for name, shards in arrays.items():
        shape = (sum(shard.shape[0] for shard in shards), *shards[0].shape[1:])
        files = f"{len(shards)} shards, {shards[0].path.name} to {shards[-1].path.name}"
        contents[name] = f"{shape} {shards[0].dtype} in {files}"

    def read_values() -> dict[str, Any]:
        values = {}
        for name in arrays.keys() - rows.keys():
            array = np.concatenate([shard.take(slice(None)) for shard in arrays[name]])
            values[name] = array if array.dtype.kind in "USO" else torch.from_numpy(array)
        if "labels" in values:
            values["labels"], notes = separate_noise(path, values["labels"])
            for note in notes:
                logger.warning("note: %s", note)
        return values

    def embed(*_: Any) -> Embeddings:
        size = sum(math.prod(side.shape) * max(4, side.dtype.itemsize) for side in rows.values())  # float32 at least
        advice = "--batches N reads the rows of these batches only, and evaluate --queries N one section at a time"
        if size > (machine.memory() or math.inf):
            raise InputError(f"{path}: all rows do not fit in memory, {size / 2**30:.1f} GiB; {advice}")
        if is_large:
            logger.warning("note: %s: all rows are read, %.1f GiB; %s", path, size / 2**30, advice)
        values = {name: side.read_all() for name, side in rows.items()} | read_values()
        return Embeddings.labelled(**values) if is_labelled else Embeddings(**values, directions=directions)

    sides = [rows[name] for name in (("embeddings",) if is_labelled else ("query", "candidate"))]
    is_large = max(math.prod(side.shape) * side.dtype.itemsize for side in sides) >= MIN_MAPPED
    ids = read_values if len(arrays) > len(rows) else None
    stored = Stored(str(path), sides[0], None if is_labelled else sides[1], ids, directions, in_memory=not is_large)
    notes = (f"{path}: sha256 is not taken: a set of shards is opened by its headers",)
    return Checkpoint(path, "", "shards", contents, embed, stored=stored, notes=notes)
