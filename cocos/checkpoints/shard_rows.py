"""The rows of one array that is cut into shards: described by headers alone, read by their numbers.

A shard is an array of a .npy, .npz, .safetensors or parquet file. Where its numbers lie side by side in the file, rows
are read from their places, and short gaps between them are read too; packed .npz are read whole, and parquet by row
groups.
"""

import math
import os
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cocos.base import tensor_files
from cocos.base.errors import InputError
from cocos.base.matrices import npy_header
from cocos.checkpoints import inventory
from cocos.checkpoints.files import File
from cocos.checkpoints.formats import embeddings as single
from cocos.data import tables

ROWS_AT_ONCE = 2**16  # rows of a parquet file that are read at once
# Bytes between two rows that are read with them: a disk needs longer to begin again.
SHORT_GAP = 2**16
FLOATS = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class Shard:
    """An array of one file.

    Args:
        path: of the file.
        name: of the array there; empty in .npy.
        shape: rows, and width of a matrix.
        dtype: by its name.
    """

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def kind(self) -> str:
        """The suffix of the file."""
        return self.path.name.rpartition(".")[2]


def headers(path: Path, texts: Sequence[str] = (), matrices: Sequence[str] = ()) -> list[Shard]:
    """The arrays of a file by its header alone.

    Args:
        path: of the file.
        texts: names of columns of parquet that have a text or a number a row.
        matrices: names of columns of parquet that must be vectors.

    Raises:
        InputError: a damaged or odd file.
    """
    kind = path.name.rpartition(".")[2]
    try:
        if kind == "parquet":
            return _columns(path, texts, matrices)
        return HEADERS[kind](path)
    except InputError:
        raise
    except Exception as error:  # numpy, zipfile and pyarrow each have their own for a damaged file
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{path} is a damaged shard ({reason}); write or copy it again") from None


def _of_npy(path: Path) -> list[Shard]:
    with open(path, "rb") as stream:
        shape, fortran, dtype = npy_header(stream)
        held = os.fstat(stream.fileno()).st_size - stream.tell()
    if dtype.hasobject or fortran:
        odd = "Python objects, which only a pickle can load" if dtype.hasobject else "columns before rows"
        raise InputError(f"{path} holds {odd}; save numbers, rows first: numpy.save(FILE, array)")
    if held != (said := math.prod(shape) * dtype.itemsize):
        raise ValueError(f"{held} bytes of numbers, of which its header describes {said}")
    return [Shard(path, "", shape, dtype.name if dtype.kind == "f" else str(dtype))]


def _of_npz(path: Path) -> list[Shard]:
    return [Shard(path, each.name, each.shape, each.dtype) for each in inventory.tensors(File(path))]


def _of_safetensors(path: Path) -> list[Shard]:
    with open(path, "rb") as stream:
        places = tensor_files.header(stream, os.fstat(stream.fileno()).st_size).places
    return [Shard(path, each, shape, str(dtype).removeprefix("torch.")) for each, (dtype, shape, *_) in places.items()]


def _columns(path: Path, texts: Sequence[str], matrices: Sequence[str]) -> list[Shard]:
    """The columns of a parquet file that have names of arrays; vectors are lists of a fixed size."""
    parquet, arrow = tables.require("pyarrow.parquet", "pyarrow", path=path)
    file, found = parquet.ParquetFile(path), []
    for field in file.schema_arrow:
        rows = file.metadata.num_rows
        if arrow.types.is_fixed_size_list(field.type):
            kind = str(field.type.value_type).replace("halffloat", "float16").replace("double", "float64")
            kind = "float32" if kind == "float" else kind
            found.append(Shard(path, field.name, (rows, field.type.list_size), kind))
        elif field.name in matrices:
            raise InputError(f"{path}, {field.name}: {field.type}, expected a fixed-size list of floats")
        elif field.name in texts:
            found.append(Shard(path, field.name, (rows,), str(field.type)))
    return found


HEADERS: dict[str, Callable[[Path], list[Shard]]] = {
    "npy": _of_npy,
    "npz": _of_npz,
    "safetensors": _of_safetensors,
}
KINDS = (*HEADERS, "parquet")


def values(shard: Shard) -> Iterator[Any]:
    """The values of a shard, as tensors of some rows; of text, and of numbers of parquet, arrays."""
    path = shard.path
    if shard.kind == "parquet":
        yield from _of_parquet(shard)
    elif shard.kind == "npy":
        with open(path, "rb") as stream:
            shape, _, dtype = npy_header(stream)
            raw = bytearray(math.prod(shape) * dtype.itemsize)
            tensor_files.fill(stream, torch.frombuffer(raw, dtype=torch.uint8)) if raw else None
        yield native(np.frombuffer(raw, dtype).reshape(shape))
    else:
        value = single.arrays_of(File(path), [shard.name])[shard.name]
        yield native(value) if isinstance(value, np.ndarray) else value


def native(found: np.ndarray) -> Any:
    """An array as a tensor, in the byte order of the machine; text stays as it is."""
    if found.dtype.kind not in "fiub":
        return found
    return torch.from_numpy(np.array(found, dtype=found.dtype.newbyteorder("="), copy=None))


def _of_parquet(shard: Shard, groups: Sequence[int] | None = None) -> Iterator[Any]:
    """The values of a column, of all row groups or of some."""
    (parquet,) = tables.require("pyarrow.parquet", path=shard.path)
    file = parquet.ParquetFile(shard.path)
    for some in file.iter_batches(ROWS_AT_ONCE, columns=[shard.name], row_groups=groups):
        column = some.column(0)
        flat = column.flatten() if len(shard.shape) == 2 else column
        if column.null_count or flat.null_count or len(flat) != len(column) * math.prod(shard.shape[1:]):
            raise InputError(f"{shard.path}, {shard.name}: a value is missing; write every row whole")
        found = np.asarray(flat.to_numpy(zero_copy_only=False))
        found = np.array(flat.to_pylist() if found.dtype == object else found)
        yield native(found.reshape(-1, *shard.shape[1:]))


@dataclass(frozen=True, eq=False)
class ShardRows:
    """The rows of a matrix in shards, in their order.

    Args:
        shards: of one width and dtype.
    """

    shards: tuple[Shard, ...]

    @cached_property
    def begins(self) -> np.ndarray:
        """Number of the first row of each shard, and then of all rows."""
        return np.cumsum([0, *(each.shape[0] for each in self.shards)])

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and width."""
        return int(self.begins[-1]), self.shards[0].shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the rows as they are read."""
        return FLOATS[self.shards[0].dtype]

    def file(self, row: int) -> str:
        """The file in which a row stands."""
        return str(self.shards[int(np.searchsorted(self.begins, row, side="right")) - 1].path)

    def read(self, index: Tensor) -> Tensor:
        """Rows by their numbers, which ascend and differ.

        Raises:
            InputError: naming a file that is shorter than it was.
        """
        at = index.numpy()
        edges = np.searchsorted(at, self.begins)
        found = torch.empty(len(at), self.shape[1], dtype=self.dtype)
        for place, shard in enumerate(self.shards):
            start, stop = int(edges[place]), int(edges[place + 1])
            if start < stop:
                self._reader(place)(shard, at[start:stop] - self.begins[place], found[start:stop])
        return found

    @cached_property
    def _places(self) -> dict[int, tuple[int, np.dtype | None] | None]:
        """First byte, and dtype where NumPy has it, of shards that were looked at; None where rows are packed."""
        return {}

    def _reader(self, place: int) -> Callable[[Shard, np.ndarray, Tensor], None]:
        shard = self.shards[place]
        if shard.kind == "parquet":
            return _from_row_groups
        if place not in self._places:
            try:
                self._places[place] = begin_of(shard)
            except InputError:
                raise
            except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
                raise InputError(f"{shard.path} is a damaged shard ({error}); write or copy it again") from None
        known = self._places[place]
        if known is None:
            return _from_whole
        return lambda shard, rows, into: _from_places(shard, *known, rows, into)


def begin_of(shard: Shard) -> tuple[int, np.dtype | None] | None:
    """First byte of the numbers of a shard, and their dtype where NumPy has it; None where they are packed."""
    with open(shard.path, "rb") as stream:
        if shard.kind == "npy":
            _, _, dtype = npy_header(stream)
            return stream.tell(), np.dtype(dtype)
        if shard.kind == "safetensors":
            about = tensor_files.header(stream, os.fstat(stream.fileno()).st_size)
            return about.begin + about.places[shard.name][2], None
        with zipfile.ZipFile(shard.path) as archive:
            info = archive.getinfo(f"{shard.name}.npy")
        if info.compress_type != zipfile.ZIP_STORED:
            return None
        stream.seek(info.header_offset)
        mark, name, extra = single.LOCAL_HEADER.unpack(stream.read(single.LOCAL_HEADER.size))
        stream.seek(info.header_offset + single.LOCAL_HEADER.size + name + extra)
        _, fortran, dtype = npy_header(stream)
        return None if fortran or mark != b"PK\x03\x04" else (stream.tell(), np.dtype(dtype))


@dataclass(frozen=True, eq=False)
class ShardTexts:
    """Texts of the rows of one side in shards, each read when it is asked for.

    Args:
        shards: in the order of their rows.
    """

    shards: Sequence[Shard]

    def __call__(self, row: int) -> str:
        """The text of a row."""
        begins = np.cumsum([0, *(each.shape[0] for each in self.shards)])
        place = int(np.searchsorted(begins, row, side="right")) - 1
        shard, own = self.shards[place], row - int(begins[place])
        if shard.kind == "parquet":
            group, begin = _row_group(shard, np.array([own]))
            return str(_texts(shard, int(group[0]))[own - int(begin[0])])
        begin, dtype = begin_of(shard) or (0, None)
        if dtype is None:
            return str(_texts(shard, None)[own])
        found = torch.empty(1, dtype.itemsize, dtype=torch.uint8)
        _from_places(shard, begin, None, np.array([own]), found)
        return str(found.numpy().view(dtype)[0, 0])


@lru_cache(maxsize=8)
def _texts(shard: Shard, group: int | None) -> np.ndarray:
    """The texts of a shard that is packed, or of a row group of parquet."""
    return np.concatenate(list(values(shard) if group is None else _of_parquet(shard, [group])))


def _from_places(shard: Shard, begin: int, dtype: np.dtype | None, rows: np.ndarray, into: Tensor) -> None:
    """Read rows from their places, with the short gaps between them."""
    width = into.shape[1] * into.dtype.itemsize
    cuts = np.flatnonzero((np.diff(rows) - 1) * width > SHORT_GAP) + 1
    bytes_of = into.view(torch.uint8).numpy()
    with open(shard.path, "rb") as stream:
        for start, stop in zip([0, *cuts], [*cuts, len(rows)], strict=True):
            first, number = int(rows[start]), int(rows[stop - 1] - rows[start]) + 1
            direct = number == stop - start
            buffer = bytes_of[start:stop] if direct else np.empty((number, width), np.uint8)
            stream.seek(begin + first * width)
            view, done = memoryview(buffer.reshape(-1)), 0
            while done < len(view):
                got = stream.readinto(view[done:])  # type: ignore[attr-defined]
                if not got:
                    raise InputError(f"{shard.path} is shorter than it was; wait until it is written, and try again")
                done += got
            if not direct:
                np.take(buffer, rows[start:stop] - first, axis=0, out=bytes_of[start:stop])
    if dtype is not None and not dtype.isnative:
        swapped = bytes_of.view(dtype)
        bytes_of[:] = swapped.astype(dtype.newbyteorder("=")).view(np.uint8)


def _from_whole(shard: Shard, rows: np.ndarray, into: Tensor) -> None:
    (whole,) = values(shard)
    torch.index_select(whole, 0, torch.from_numpy(rows), out=into)


def _from_row_groups(shard: Shard, rows: np.ndarray, into: Tensor) -> None:
    """Read the row groups of a parquet file in which the rows stand."""
    number, begin = _row_group(shard, rows)
    for group in np.unique(number):
        mine = np.flatnonzero(number == group)
        found = torch.cat(list(_of_parquet(shard, [int(group)])))
        into[mine[0] : mine[-1] + 1] = found[torch.from_numpy(rows[mine] - begin[mine])].to(into.dtype)


def _row_group(shard: Shard, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The row group of a parquet file in which each row stands, and the first row of that group."""
    (parquet,) = tables.require("pyarrow.parquet", path=shard.path)
    about = parquet.ParquetFile(shard.path).metadata
    begins = np.cumsum([0, *(about.row_group(k).num_rows for k in range(about.num_row_groups))])
    number = np.searchsorted(begins, rows, side="right") - 1
    return number, begins[number]
