"""A folder of shards: numbered .npy files of each array, or numbered .npz, .safetensors or parquet files.

Names and headers are read first. Rows are then read by their numbers from memory maps (`embeddings/stored.py`).
"""

import json
import logging
import math
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cocos.base import machine
from cocos.base.errors import InputError
from cocos.checkpoints.checkpoint import Checkpoint, holding
from cocos.checkpoints.files import File
from cocos.checkpoints.formats import embeddings as single
from cocos.data import tables
from cocos.data.training_set import TextOf
from cocos.embeddings import Embeddings
from cocos.embeddings.matrices import check_dims
from cocos.embeddings.stored import Stored

# Names of arrays in shards -> names here.
MATRICES = {name: name for name in ("query", "candidate", "embeddings", "proxies")}
MATRICES |= {"img_emb": "query", "text_emb": "candidate", "embedding": "embeddings"}
GROUPS = {name: name for name in (*single.GROUP_ARRAYS, *single.LABEL_ARRAYS)} | {"label": "labels"}
TEXTS = {name: name for name in single.NAME_ARRAYS} | {"query_text": "query_name", "candidate_text": "candidate_name"}
TEXTS |= {"text": "row_name", "name": "row_name"}  # of a labelled set
LOGQ = {name: name for name in single.LOGQ_ARRAYS}
ARRAYS = MATRICES | GROUPS | TEXTS | LOGQ
SIDES = {"labels": "embeddings", "row_name": "embeddings", "proxy_labels": "proxies", "logq": "candidate"}
KINDS = ("npy", "npz", "safetensors", "parquet")
# name, number and announced number of shards: query_00003.npy, part-3-of-8.safetensors
SHARD_FILE = re.compile(
    r"(?P<name>.*?)(?P<number>\d{1,12})(-of-(?P<count>\d{1,12}))?\.(?P<kind>npy|npz|safetensors|parquet)"
)
# Words before the number of a checkpoint, which is a set by itself.
CHECKPOINT_NAME = re.compile(r"(step|iter|iteration|epoch|checkpoint|ckpt|model|seed|run)s?$", re.IGNORECASE)
FLOATS = {name: getattr(torch, name) for name in ("float16", "bfloat16", "float32", "float64")}
SAFETENSORS_DTYPES = {"F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64", "I64": "int64",
                      "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8"}  # fmt: skip
PARQUET_DTYPES = {"halffloat": "float16", "float": "float32", "double": "float64"}
MIN_MAPPED = 2**30  # bytes of one side from which on rows are read from disk batch by batch
logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Shard:
    """An array in one file.

    Args:
        path: of the file.
        name: of the array in it; empty in .npy.
        shape: rows, and width of a matrix.
        dtype: its name.
        layout: dtype in the file (uint16 for bfloat16), and offset in bytes; None for parquet.
    """

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: str
    layout: tuple[np.dtype, int] | None = None

    def take(self, rows: np.ndarray | slice) -> np.ndarray:
        """Read rows by their numbers, in the byte order of the machine; bfloat16 as uint16.

        Each read maps the file again, which frees the pages of earlier reads.
        """
        with tables.readable(self.path):
            if self.layout is None:
                values = self.take_column(rows)
            else:
                dtype, offset = self.layout
                values = np.array(np.memmap(self.path, dtype, "r", offset, self.shape)[rows])
        return values.astype(values.dtype.newbyteorder("="), copy=False)

    def take_column(self, rows: np.ndarray | slice) -> np.ndarray:
        """Read rows of a parquet column."""
        (dataset,) = tables.require("pyarrow.dataset", path=self.path)
        index = np.arange(self.shape[0])[rows]
        column = dataset.dataset(self.path).take(index, columns=[self.name]).column(0).combine_chunks()
        flat = column.flatten() if len(self.shape) == 2 else column
        if column.null_count or flat.null_count:
            raise InputError(f"{self.path}, {self.name}: a value is missing; write every row whole")
        values = np.array(flat.to_pylist() if len(self.shape) == 1 else flat.to_numpy())
        return values.reshape(-1, *self.shape[1:])


def read_header(path: Path) -> list[Shard]:
    """Return the arrays of a file without reading their values."""
    with tables.readable(path):
        if path.suffix == ".parquet":
            return read_parquet_header(path)
        if path.suffix == ".safetensors":
            return read_safetensors_header(path)
        if path.suffix == ".npy":
            arrays = {"": np.load(path, mmap_mode="r")}
        else:
            arrays = {}
            with zipfile.ZipFile(path) as archive:
                for member in archive.namelist():
                    name = member.removesuffix(".npy")
                    arrays[name] = single.map_array(path, archive, name, large=False)
                    if arrays[name] is None:
                        raise InputError(f"{path}: {name} is compressed or no array, expected numpy.savez of numbers")
    return [
        Shard(path, name, array.shape, dtype_name(array.dtype), (array.dtype, array.offset))
        for name, array in arrays.items()
    ]


def read_safetensors_header(path: Path) -> list[Shard]:
    """Return the tensors of a .safetensors file: eight bytes of length, a JSON header, and the values."""
    with open(path, "rb") as stream:
        begin = 8 + int.from_bytes(stream.read(8), "little")
        tensors = json.loads(stream.read(begin - 8))
    tensors.pop("__metadata__", None)
    end = max((about["data_offsets"][1] for about in tensors.values()), default=0)
    if path.stat().st_size != begin + end:
        raise ValueError(f"{path.stat().st_size - begin} bytes of tensors, expected {end}")
    shards = []
    for name, about in tensors.items():
        dtype = SAFETENSORS_DTYPES.get(about["dtype"], about["dtype"])
        layout = np.dtype(dtype.replace("bfloat16", "uint16")), begin + about["data_offsets"][0]
        shards.append(Shard(path, name, tuple(about["shape"]), dtype, layout))
    return shards


def dtype_name(dtype: np.dtype) -> str:
    """Return the name of a dtype without its byte order."""
    return dtype.name if dtype.kind in "fiub" else str(dtype)


def read_parquet_header(path: Path) -> list[Shard]:
    """Return the columns of a parquet file that have names of arrays; vectors are lists of a fixed size."""
    parquet, arrow = tables.require("pyarrow.parquet", "pyarrow", path=path)
    file, shards = parquet.ParquetFile(path), []
    for field in file.schema_arrow:
        rows = file.metadata.num_rows
        if arrow.types.is_fixed_size_list(field.type):
            dtype = str(field.type.value_type)
            shards.append(Shard(path, field.name, (rows, field.type.list_size), PARQUET_DTYPES.get(dtype, dtype)))
        elif field.name in MATRICES:
            raise InputError(f"{path}, {field.name}: {field.type}, expected a fixed-size list of floats")
        elif field.name in ARRAYS:
            shards.append(Shard(path, field.name, (rows,), str(field.type)))
    return shards


@dataclass(frozen=True, eq=False)
class ShardRows:
    """The rows of an array in shards, in order.

    Args:
        shards: of one width and dtype.
        dims: leading dimensions that are kept; None: all.
    """

    shards: tuple[Shard, ...]
    dims: int | None = None

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

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Read rows by their numbers, in ascending order."""
        edges = np.searchsorted(rows, self.begins)
        parts = [
            shard.take(rows[start:stop] - begin)
            for shard, begin, start, stop in zip(self.shards, self.begins, edges, edges[1:], strict=False)
            if start < stop
        ]
        return np.concatenate(parts) if len(parts) != 1 else parts[0]

    def read(self, index: Tensor) -> Tensor:
        """Read rows of vectors by their numbers, in ascending order: (n, width)."""
        return self.as_tensor(self.take(index.numpy()))

    def as_tensor(self, values: np.ndarray) -> Tensor:
        """Return the dimensions of rows that are kept."""
        rows = torch.from_numpy(values)
        rows = rows.view(torch.bfloat16) if self.dtype == torch.bfloat16 else rows
        return rows if self.dims is None else rows[:, : self.dims].contiguous()

    def text(self, row: int) -> str:
        """Read one text."""
        return str(self.take(np.array([row]))[0])


def read_all(rows: ShardRows) -> Tensor:
    """Read the rows of all shards into memory."""
    matrix = torch.empty(rows.shape, dtype=rows.dtype)
    for shard, begin in zip(rows.shards, rows.begins, strict=False):
        matrix[begin : begin + shard.shape[0]] = rows.as_tensor(shard.take(slice(None)))
    return matrix


def read_values(shards: Sequence[Shard]) -> Any:
    """Read the groups, labels, texts or logq of all shards."""
    values = np.concatenate([shard.take(slice(None)) for shard in shards])
    return values if values.dtype.kind in "USO" else torch.from_numpy(values)


@dataclass(frozen=True, eq=False)
class StoredTexts:
    """Texts of rows in shards, read on demand.

    Args:
        sides: texts of queries and of candidates; rows of a side without texts are described by their numbers.
        first: the direction in which the queries ask.
    """

    sides: tuple[TextOf | None, ...]
    first: str

    def texts(self, direction: str) -> tuple[TextOf, TextOf]:
        """Return functions that map a row to the text of a query and of a candidate."""
        query, candidate = (side or "row {}".format for side in self.sides)
        return (query, candidate) if direction == self.first else (candidate, query)

    def pictures(self, direction: str) -> tuple[None, None]:
        """Return no pictures."""
        return None, None


def find_files(folder: File) -> dict[str, list[tuple[int, str, int | None]]]:
    """Return number, name and announced number of the files of each sequence, in order.

    A sequence has the name of an array if its files are .npy.
    """
    sequences: dict[str, list[tuple[int, str, int | None]]] = {}
    for name in folder.names:
        match = SHARD_FILE.fullmatch(name)
        if match is None:
            continue
        stem = match["name"].rpartition("/")[2]
        stem = stem[:-1] if stem.endswith(("-", "_", ".")) else stem
        entry = int(match["number"]), name, int(match["count"]) if match["count"] else None
        if match["kind"] == "npy" and stem in ARRAYS:
            sequences.setdefault(stem, []).append(entry)
        elif match["kind"] != "npy" and not CHECKPOINT_NAME.search(stem):
            sequences.setdefault(f"{match['name']}*.{match['kind']}", []).append(entry)
    if sequences.keys() & MATRICES.keys():
        return {name: sorted(files) for name, files in sequences.items() if name in ARRAYS}
    complete = {name: sorted(files) for name, files in sequences.items() if len(files) > 1 or files[0][2]}
    if len(complete) != 1:
        return {}
    for _, name, _ in next(iter(complete.values())):
        try:
            arrays = {ARRAYS.get(shard.name) for shard in read_header(folder.path / name)}
        except InputError:
            continue  # a damaged shard is named when the set is read
        return complete if {"query", "candidate"} <= arrays or {"embeddings", "labels"} <= arrays else {}
    return {}


def sniff(file: File) -> bool:
    """A folder of numbered files whose arrays have names that embeddings have."""
    return file.kind == "folder" and bool(find_files(file))


def check_sequence(folder: Path, name: str, files: list[tuple[int, str, int | None]]) -> None:
    """Refuse a missing or repeated number."""
    numbers, announced = [number for number, *_ in files], next((count for *_, count in files if count), None)
    begin = min(numbers[0], 1)
    expected = range(begin, begin + announced if announced else numbers[-1] + 1)
    if missing := sorted(set(expected) - set(numbers)):
        raise InputError(
            f"{folder}: shards of {name} have the numbers {expected[0]} to {expected[-1]}, and {missing[0]} is missing "
            f"({len(missing)} in all); copy it, or number the others without a gap"
        )
    for (number, one, _), (following, other, _) in zip(files, files[1:], strict=False):
        if number == following:
            raise InputError(f"{folder}: {one} and {other} are both shard {number} of {name}; keep one of them")


def read_headers(folder: File) -> dict[str, list[Shard]]:
    """Return the shards of each array, by its name here, in order."""
    arrays: dict[str, list[Shard]] = {}
    for sequence, files in find_files(folder).items():
        check_sequence(folder.path, sequence, files)
        first = None
        for _, name, _ in files:
            shards = {
                sequence if sequence in ARRAYS else shard.name: shard for shard in read_header(folder.path / name)
            }
            known = {ARRAYS[key]: shard for key, shard in shards.items() if key in ARRAYS}
            if first is not None and known.keys() != first:
                odd = ", ".join(sorted(known.keys() ^ first))
                raise InputError(f"{folder.path / name}: {odd} is not in all shards; write it again like the first")
            first = known.keys()
            for role, shard in known.items():
                arrays.setdefault(role, []).append(shard)
    return arrays


def check_arrays(path: Path, arrays: dict[str, list[Shard]], sizes: dict[str, int]) -> None:
    """Refuse arrays that are missing, or differ in width, dtype or length."""
    for role, shards in arrays.items():
        first, dimensions = shards[0], 2 if role in MATRICES.values() else 1
        for shard in shards:
            is_text = dimensions == 1 and shard.dtype[:2] == first.dtype[:2] and "U" in shard.dtype[:2]
            fits = len(shard.shape) == dimensions and shard.shape[1:] == first.shape[1:]
            if not fits or (shard.dtype != first.dtype and not is_text):
                raise InputError(
                    f"{shard.path}: {role} is {shard.dtype} {shard.shape}, and {first.dtype} {first.shape} in "
                    f"{first.path.name}; expected {'(rows, width)' if dimensions == 2 else '(rows,)'} of one dtype and "
                    "width"
                )
        if dimensions == 2 and first.dtype not in FLOATS:
            raise InputError(f"{path}: {role} is {first.dtype}, expected floats")
    for name in ("embeddings", "labels") if "embeddings" in arrays else single.TWO_SIDED:
        if name not in arrays:
            raise InputError(f"{path}: shards of {', '.join(sorted(arrays))}, and none of {name}; add them")
    for name in arrays.keys() - MATRICES.values():
        side = SIDES.get(name, name.rpartition("_")[0])
        if side in sizes and sizes[name] != sizes[side]:
            raise InputError(f"{path}: {name} has {sizes[name]:,} rows and {side} {sizes[side]:,}; give one a row")
    if "query" in arrays and "query_group" not in arrays and sizes["query"] != sizes["candidate"]:
        for one, other in zip(arrays["query"], arrays["candidate"], strict=False):
            if one.shape[0] != other.shape[0]:
                raise InputError(
                    f"{path}: {one.path.name} has {one.shape[0]:,} rows and {other.path.name} {other.shape[0]:,}; "
                    "without groups row i of the queries matches row i of the candidates"
                )


def refuse_size(path: Path, rows: Mapping[str, ShardRows]) -> None:
    """Refuse to read all rows of a set that is larger than memory."""
    size = sum(math.prod(side.shape) * max(4, side.dtype.itemsize) for side in rows.values())
    memory = machine.memory()
    advice = "--batches N reads the rows of these batches only, and evaluate --queries N one section at a time"
    if memory is not None and size > memory:
        raise InputError(
            f"{path}: all rows take {size / 2**30:.1f} GiB of memory, available {memory / 2**30:.1f}; {advice}"
        )
    if max(math.prod(side.shape) * side.dtype.itemsize for side in rows.values()) >= MIN_MAPPED:
        logger.warning("note: %s: all rows are read, %.1f GiB; %s", path, size / 2**30, advice)


def load(file: File, data=None) -> Checkpoint:
    """Read the headers of shards; their rows are read when they are counted or encoded."""
    if data is not None:
        raise InputError(f"data {data}: {file.path} holds embeddings already and needs no data")
    path, arrays = file.path, read_headers(file)
    sizes = {name: sum(shard.shape[0] for shard in shards) for name, shards in arrays.items()}
    check_arrays(path, arrays, sizes)
    is_labelled = "embeddings" in arrays
    is_clip = any(shard.path.name.startswith("img_emb") for shard in arrays.get("query", ()))
    directions = ("s2s",) if is_labelled else ("i2t", "t2i") if is_clip else ("q2c", "c2q")
    sides = ("embeddings",) if is_labelled else single.TWO_SIDED
    name_arrays = ("row_name",) if is_labelled else single.NAME_ARRAYS
    rows = {name: ShardRows(tuple(shards)) for name, shards in arrays.items() if name in MATRICES.values()}
    files = {shard.path for shards in arrays.values() for shard in shards}
    contents = {
        name: f"({', '.join(map(str, (sizes[name], *shards[0].shape[1:])))}) {shards[0].dtype} in {len(shards)} "
        f"shards, {shards[0].path.name} to {shards[-1].path.name}"
        for name, shards in arrays.items()
    }
    contents |= {
        "rows": f"{max(sizes.values()):,}",
        "bytes": f"{sum(path.stat().st_size for path in files):,} in {len(files)} files",
        "layout": " and ".join(sorted({path.suffix[1:] for path in files})),
    }

    def read_ids(names: Sequence[str]) -> dict[str, Any]:
        return {name: read_values(arrays[name]) for name in names if name in arrays}

    def embed() -> Embeddings:
        refuse_size(path, rows)
        values = {name: read_all(side) for name, side in rows.items()} | read_ids([*GROUPS.values(), *LOGQ])
        texts = [[str(text) for text in read_values(arrays[name])] if name in arrays else None for name in name_arrays]
        if not is_labelled:
            return Embeddings(**values, names=tuple(texts) if any(texts) else None, directions=directions)
        return Embeddings.labelled(**values, names=texts[0] and ((texts[0], None) if "proxies" in arrays else texts[0]))

    def stored() -> Stored | None:
        if "proxies" in arrays:
            return None
        ids = [name for name in (*(("labels",) if is_labelled else single.GROUP_ARRAYS), *LOGQ) if name in arrays]
        return Stored(
            name=str(path),
            query=rows[sides[0]],
            candidate=None if is_labelled else rows["candidate"],
            ids=partial(read_ids, ids) if ids else None,
            directions=directions,
            held=max(math.prod(rows[name].shape) * rows[name].dtype.itemsize for name in sides) < MIN_MAPPED,
        )

    def texts(_split: str) -> StoredTexts | None:
        by_side = [ShardRows(tuple(arrays[name])).text if name in arrays else None for name in name_arrays]
        return StoredTexts(tuple(by_side * 2 if is_labelled else by_side), directions[0]) if any(by_side) else None

    return Checkpoint(
        path=path,
        sha256="",
        format="shards",
        contents=contents,
        embedder=holding(path, "embeddings", embed),
        rows=texts,
        stored=stored,
        notes=(f"{path}: sha256 is not taken: a set of shards is opened by its headers",),
    )
