"""A folder of shards that are one set: numbered .npy of each side, or numbered .npz, .safetensors or parquet.

Names and headers alone are read until the rows are asked for. Then rows of large sets go, shard by shard, into one
file without a name in the temporary folder, which is mapped and goes with the process: memory stays that of one shard.
"""

import math
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cocos.base import reading, tensor_files
from cocos.base.errors import InputError
from cocos.base.matrices import npy_header
from cocos.checkpoints import Checkpoint, inventory, tables
from cocos.checkpoints.checkpoint import holding
from cocos.checkpoints.files import File, Folder
from cocos.checkpoints.formats import embeddings as single
from cocos.embeddings import Embeddings

# Names of the arrays of shards, as columns of parquet and before the number of a .npy, and what they are here.
MATRICES = {
    **{name: name for name in ("query", "candidate", "embeddings", "proxies")},
    **{"img_emb": "query", "text_emb": "candidate", "embedding": "embeddings"},
}
GROUPS = {**{name: name for name in (*single.GROUP_ARRAYS, *single.LABEL_ARRAYS)}, "label": "labels"}
SCALES = {name: f"{name}_scale" for name in ("embeddings", "query", "candidate", "proxies")}  # of rows of int8
SHARD_ARRAYS = MATRICES | GROUPS | {name: name for name in SCALES.values()}
DIGITS = "0123456789"
# More digits than a number of a shard has.
LONGEST_NUMBER = 12
# Words before the number of a checkpoint of a training, of which each is a set by itself.
NO_SHARD = re.compile(r"(step|iter|iteration|epoch|checkpoint|ckpt|model|seed|run)s?$", re.IGNORECASE)
KINDS = ("npz", "safetensors", "parquet")
# `cocos inspect` takes no sha256: it would read everything.
UNREAD = True
# Bytes of the rows of one side from which on they are mapped and not held in memory.
MIN_MAPPED = 2**30
ROWS_AT_ONCE = 2**16  # rows of a parquet file that are read at once
FLOATS = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class Shard:
    """An array of one file: its name there, rows and width, and dtype."""

    file: str
    name: str
    shape: tuple[int, ...]
    dtype: str


def recognises(file: File | Folder) -> bool:
    """A folder of numbered files whose arrays have names that embeddings have."""
    return isinstance(file, Folder) and file.path.is_dir() and bool(_files(file))


def _files(folder: Folder) -> dict[str, list[tuple[int, str, int | None]]]:
    """Number, name and announced number of the files of each sequence: by array for .npy, and the one of whole sets."""
    found: dict[str, list] = {}
    for name in folder.names:
        # train/query_3-of-8.npy has the path `train/query_` and the stem `query`.
        before, _, kind = name.rpartition(".")
        head, sign, announced = before.rpartition("-of-")
        if not sign or not _is_number(announced):
            head, announced = before, ""
        path = head.rstrip(DIGITS)
        if not _is_number(number := head[len(path) :]):
            continue
        entry = int(number), name, int(announced) if announced else None
        stem = path.rpartition("/")[2]
        stem = stem[:-1] if stem.endswith(("-", "_", ".")) else stem
        if kind == "npy" and stem in SHARD_ARRAYS:
            found.setdefault(stem, []).append(entry)
        elif kind in KINDS and not NO_SHARD.search(stem):
            found.setdefault(f"{path}*.{kind}", []).append(entry)
    if found.keys() & MATRICES.keys():
        return {name: sorted(each) for name, each in found.items() if name in SHARD_ARRAYS}
    whole = {name: sorted(each) for name, each in found.items() if len(each) > 1 or each[0][2]}
    if len(whole) != 1:
        return {}
    ((first, *_),) = whole.values()
    try:
        held = {SHARD_ARRAYS.get(each.name) for each in _headers(folder, first[1])}
    except InputError:
        return {}
    return whole if {"query", "candidate"} <= held or {"embeddings", "labels"} <= held else {}


def _is_number(digits: str) -> bool:
    return 0 < len(digits) <= LONGEST_NUMBER and not digits.strip(DIGITS)


def _whole(folder: Folder, name: str, files: list[tuple[int, str, int | None]]) -> list[str]:
    """The files of a sequence in the order of their numbers; a number that is missing or doubled is named."""
    numbers, announced = [each for each, _, _ in files], next((each for _, _, each in files if each), None)
    begin = min(numbers[0], 1)
    expected = range(begin, begin + (announced or 0) if announced else numbers[-1] + 1)
    missing = sorted(set(expected) - set(numbers))
    if missing:
        raise InputError(
            f"{folder.path}: the shards of {name} go from {expected[0]} to {expected[-1]}, and number {missing[0]} is "
            f"missing ({len(missing)} in all); copy it, or number the others without a gap"
        )
    for (number, one, _), (after, other, _) in zip(files, files[1:], strict=False):
        if number == after:
            raise InputError(f"{folder.path}: {one} and {other} are both shard {number} of {name}; keep one of them")
    return [each for _, each, _ in files]


def _headers(folder: Folder, name: str) -> list[Shard]:
    """The arrays of a file by its header alone."""
    folder.size(name)  # refuses a link out of the folder
    path, kind = folder.path / name, name.rpartition(".")[2]
    try:
        return HEADERS[kind](path, name)
    except InputError:
        raise
    except Exception as error:  # numpy, zipfile and pyarrow each have their own for a damaged file
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{path} is a damaged shard ({reason}); write or copy it again") from None


def _of_npy(path: Path, name: str) -> list[Shard]:
    with reading.stream(path) as stream:
        shape, fortran, dtype = npy_header(stream)
        held = os.fstat(stream.fileno()).st_size - stream.tell()
    if dtype.hasobject or fortran:
        odd = "Python objects, which only a pickle can load" if dtype.hasobject else "columns before rows"
        raise InputError(f"{path} holds {odd}; save numbers, rows first: numpy.save(FILE, array)")
    if held != (said := math.prod(shape) * dtype.itemsize):
        raise ValueError(f"{held} bytes of numbers, of which its header describes {said}")
    return [Shard(name, "", shape, str(dtype))]


def _of_npz(path: Path, name: str) -> list[Shard]:
    return [Shard(name, each.name, each.shape, each.dtype) for each in inventory.tensors(File(path))]


def _of_safetensors(path: Path, name: str) -> list[Shard]:
    with reading.stream(path) as stream:
        places = tensor_files.header(stream, os.fstat(stream.fileno()).st_size).places
    return [Shard(name, each, shape, str(dtype).removeprefix("torch.")) for each, (dtype, shape, *_) in places.items()]


def _columns(path: Path, name: str) -> list[Shard]:
    """The columns of a parquet file that have names of arrays; vectors are lists of a fixed size."""
    parquet, arrow = tables.pyarrow(str(path), "pyarrow.parquet"), tables.pyarrow(str(path))
    file, found = parquet.ParquetFile(reading.regular(path)), []
    for field in file.schema_arrow:
        rows = file.metadata.num_rows
        if arrow.types.is_fixed_size_list(field.type):
            kind = str(field.type.value_type).replace("halffloat", "float16").replace("double", "float64")
            kind = "float32" if kind == "float" else kind
            found.append(Shard(name, field.name, (rows, field.type.list_size), kind))
        elif field.name in MATRICES:
            raise InputError(f"{path}, {field.name}: {field.type}, expected a fixed-size list of floats")
        elif field.name in GROUPS:
            found.append(Shard(name, field.name, (rows,), str(field.type)))
    return found


HEADERS = {"npy": _of_npy, "npz": _of_npz, "safetensors": _of_safetensors, "parquet": _columns}


def _inventory(folder: Folder) -> dict[str, list[Shard]]:
    """The shards of each array, by its name here, in the order of their rows; an odd one is named."""
    found: dict[str, list[Shard]] = {}
    for name, files in _files(folder).items():
        for file in _whole(folder, name, files):
            every = _headers(folder, file)
            held = {name if name in SHARD_ARRAYS else each.name: each for each in every}
            known = {SHARD_ARRAYS[each]: shard for each, shard in held.items() if each in SHARD_ARRAYS}
            before = {role for role in found if found[role][0].file.endswith(file.rpartition(".")[2])}
            if name not in SHARD_ARRAYS and found and known.keys() != before:
                lacking = ", ".join(sorted(known.keys() ^ before))
                raise InputError(f"{folder.path / file}: {lacking} is not in all shards; write it again like the first")
            for role, shard in known.items():
                found.setdefault(role, []).append(shard)
    for role, shards in found.items():
        for each in shards:
            first, wanted = shards[0], 2 if role in MATRICES.values() else 1
            if len(each.shape) != wanted or each.shape[1:] != first.shape[1:] or each.dtype != first.dtype:
                raise InputError(
                    f"{folder.path / each.file}: {role} is {each.dtype} {each.shape}, and {first.dtype} {first.shape} "
                    f"in {first.file}; expected {'(rows, width)' if wanted == 2 else '(rows,)'} of one dtype and width"
                )
    return found


def _values(folder: Folder, shard: Shard) -> Iterator[Any]:
    """The values of a shard, as tensors of some rows; of text, and of numbers of parquet, arrays."""
    folder.size(shard.file)  # refuses a link out of the folder
    path, kind = folder.path / shard.file, shard.file.rpartition(".")[2]
    if [each for each in _headers(folder, shard.file) if each.name == shard.name] != [shard]:
        raise InputError(f"{path} changed while it was read; wait until it is written, and try again")
    if kind == "parquet":
        yield from _of_parquet(path, shard)
    elif kind == "npy":
        with reading.stream(path) as stream:
            shape, _, dtype = npy_header(stream)
            raw = bytearray(math.prod(shape) * dtype.itemsize)
            tensor_files.fill(stream, torch.frombuffer(raw, dtype=torch.uint8)) if raw else None
        yield _native(np.frombuffer(raw, dtype).reshape(shape))
    else:
        value = single.arrays_of(File(path), [shard.name])[shard.name]
        yield _native(value) if isinstance(value, np.ndarray) else value


def _native(values: np.ndarray) -> Any:
    """An array as a tensor, in the byte order of the machine; text stays as it is."""
    if values.dtype.kind not in "fiub":
        return values
    return torch.from_numpy(np.array(values, dtype=values.dtype.newbyteorder("="), copy=None))


def _of_parquet(path: Path, shard: Shard) -> Iterator[Any]:
    parquet = tables.pyarrow(str(path), "pyarrow.parquet")
    file = parquet.ParquetFile(reading.regular(path))
    for some in file.iter_batches(ROWS_AT_ONCE, columns=[shard.name]):
        column = some.column(0)
        values = column.flatten() if len(shard.shape) == 2 else column
        if column.null_count or values.null_count or len(values) != len(column) * math.prod(shard.shape[1:]):
            raise InputError(f"{path}, {shard.name}: a value is missing; write every row whole")
        found = np.asarray(values.to_numpy(zero_copy_only=False))
        found = np.array(values.to_pylist() if found.dtype == object else found)
        yield _native(found.reshape(-1, *shard.shape[1:]))


def _joined(folder: Folder, role: str, shards: list[Shard], scale: Tensor | None) -> Tensor:
    """The rows of all shards in one matrix, mapped where it is large."""
    rows, width = sum(each.shape[0] for each in shards), shards[0].shape[1]
    dtype = FLOATS.get(shards[0].dtype, torch.float32)
    size = rows * width * dtype.itemsize
    made = torch.empty(rows, width, dtype=dtype) if size < MIN_MAPPED else _mapped(folder, role, rows, width, dtype)
    at = 0
    for shard in shards:
        for some in _values(folder, shard):
            into = made[at : at + len(some)]
            if scale is not None:
                torch.mul(some.float(), scale if len(scale) == 1 else scale[at : at + len(some), None], out=into)
            else:
                into.copy_(some)
            at += len(some)
    return made


def _mapped(folder: Folder, role: str, rows: int, width: int, dtype: torch.dtype) -> Tensor:
    """An empty matrix in a file without a name in the temporary folder, which goes with the process."""
    size, place = rows * width * dtype.itemsize, tempfile.gettempdir()
    if (free := shutil.disk_usage(place).free) < size:
        raise InputError(
            f"{folder.path}: {role} has {size:,} bytes, of which {place} has room for {free:,}; "
            "set TMPDIR to a folder of a larger disk"
        )
    with tempfile.TemporaryFile(dir=place) as file:
        os.posix_fallocate(file.fileno(), 0, size)
        held = np.memmap(file, np.uint8, "r+", shape=(size,))
    return torch.from_numpy(held).view(dtype).reshape(rows, width)


def _ids(folder: Folder, shards: list[Shard]) -> Any:
    """Groups, labels or scales of all shards."""
    every = [np.asarray(some) for shard in shards for some in _values(folder, shard)]
    values = np.concatenate(every)
    return values if values.dtype.kind in "US" else _native(values)


def read(file: Folder, data=None) -> Checkpoint:
    """Read the headers of shards; their rows when they are encoded."""
    if data is not None:
        raise InputError(f"data {data}: {file.path} holds embeddings already and needs no data")
    held = _inventory(file)
    labelled = "embeddings" in held
    for name in ("embeddings", "labels") if labelled else single.TWO_SIDED:
        if name not in held:
            raise InputError(f"{file.path} has shards of {', '.join(sorted(held))}, and none of {name}; add them")
    for name, scale in SCALES.items():
        whole = name in held and held[name][0].dtype == "int8"
        if name in held and not whole and held[name][0].dtype not in FLOATS:
            raise InputError(f"{file.path}: {name} is {held[name][0].dtype}, expected floats, or int8 with {scale}")
        if whole and scale not in held:
            raise InputError(f"{file.path}: {name} is int8 without {scale}; a row is its int8 times its scale")
    rows = {name: sum(each.shape[0] for each in shards) for name, shards in held.items()}
    if not labelled and "query_group" not in held and rows["query"] != rows["candidate"]:
        for one, other in zip(held["query"], held["candidate"], strict=False):
            if one.shape[0] != other.shape[0]:
                raise InputError(
                    f"{file.path}: {one.file} has {one.shape[0]:,} rows and {other.file} {other.shape[0]:,}; without "
                    "groups row i of the queries matches row i of the candidates"
                )
    clip = any(each.file.rpartition("/")[2].startswith("img_emb") for each in held.get("query", ()))
    contents = {
        name: f"({', '.join(map(str, (rows[name], *shards[0].shape[1:])))}) {shards[0].dtype} in {len(shards)} shards, "
        f"{shards[0].file} to {shards[-1].file}"
        for name, shards in held.items()
    }
    files = {each.file for shards in held.values() for each in shards}
    contents |= {"rows": f"{max(rows.values()):,}", "bytes": f"{sum(map(file.size, files)):,} in {len(files)} files"}

    def found() -> Embeddings:
        made = {}
        for name, shards in held.items():
            if name in MATRICES.values():
                int8 = shards[0].dtype == "int8"
                made[name] = _joined(file, name, shards, _ids(file, held[SCALES[name]]).float() if int8 else None)
            elif name not in SCALES.values():
                made[name] = _ids(file, shards)
        made |= {"directions": ("i2t", "t2i")} if clip else {}
        return Embeddings.labelled(**made) if labelled else Embeddings(**made)

    return Checkpoint(
        path=file.path,
        sha256="",
        format="shards",
        contents=contents,
        embedder=holding(file.path, "embeddings", found),
        notes=(f"{file.path}: sha256 is not taken: a set of shards is opened by its headers",),
    )
