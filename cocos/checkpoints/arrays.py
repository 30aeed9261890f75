"""Arrays in .npy, .npz, .safetensors and parquet files: their headers, and rows that are read by their numbers."""

import json
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cocos.base.errors import InputError
from cocos.data import tables

# Header of a member of a zip archive: its mark, and the lengths of its name and extra field.
LOCAL_HEADER = struct.Struct("<4s22xHH")
# Dtypes of safetensors and of parquet; bfloat16 is read as uint16.
DTYPES = {"F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64", "I32": "int32", "I64": "int64"}
DTYPES |= {"halffloat": "float16", "float": "float32", "double": "float64"}


@dataclass(frozen=True, eq=False)
class StoredArray:
    """An array in a file."""

    path: Path  # of the file
    name: str  # of the array in it; empty in .npy
    shape: tuple[int, ...]  # rows, and width of a matrix
    dtype: str  # its name
    # Dtype in the file, offset in bytes, and `C` or `F` order; None if it cannot be mapped.
    layout: tuple[np.dtype, int, str] | None = None

    def take(self, rows: np.ndarray | slice) -> np.ndarray:
        """Read rows by their numbers, in the byte order of the machine; bfloat16 as uint16.

        Each read maps the file again, which frees the pages of earlier reads.
        """
        with tables.readable(self.path):
            if self.path.suffix == ".parquet":
                (dataset,) = tables.require("pyarrow.dataset", path=self.path)
                index = np.arange(self.shape[0])[rows]
                column = dataset.dataset(self.path).take(index, columns=[self.name]).column(0).combine_chunks()
                flat = column.flatten() if len(self.shape) == 2 else column
                values = np.array(flat.to_numpy(zero_copy_only=False)).reshape(len(index), *self.shape[1:])
            elif self.layout is None:
                raise InputError(f"{self.path}, {self.name}: compressed, expected numpy.savez of numbers")
            else:
                dtype, offset, order = self.layout
                values = np.array(np.memmap(self.path, dtype, "r", offset, self.shape, order)[rows])
        return values.astype(values.dtype.newbyteorder("="), copy=False)


def read_headers(path: Path) -> dict[str, StoredArray]:
    """Return the arrays of a file by their names without reading their values."""
    readers = {".npz": npz_headers, ".safetensors": safetensors_headers, ".parquet": parquet_headers}
    with tables.readable(path):
        if path.suffix in readers:
            return readers[path.suffix](path)
        array = np.load(path, mmap_mode="r")
        order = "C" if array.flags.c_contiguous else "F"
        return {"": StoredArray(path, "", array.shape, array.dtype.name, (array.dtype, array.offset, order))}


def npz_headers(path: Path) -> dict[str, StoredArray]:
    """Return the arrays of an .npz file; those that are compressed have no layout."""
    arrays = {}
    with zipfile.ZipFile(path) as archive, open(path, "rb") as stream:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            with archive.open(member) as content:
                is_first = np.lib.format.read_magic(content) == (1, 0)
                read = np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
                shape, fortran, dtype = read(content)
                header = content.tell()
            layout = None
            if member.compress_type == zipfile.ZIP_STORED and not dtype.hasobject:
                stream.seek(member.header_offset)
                name_length, extra_length = LOCAL_HEADER.unpack(stream.read(LOCAL_HEADER.size))[1:]
                offset = member.header_offset + LOCAL_HEADER.size + name_length + extra_length + header
                layout = dtype, offset, "F" if fortran else "C"
            arrays[name] = StoredArray(path, name, shape, dtype.name, layout)
    return arrays


def safetensors_headers(path: Path) -> dict[str, StoredArray]:
    """Return the tensors of a .safetensors file: eight bytes of length, a JSON header, and the values."""
    with open(path, "rb") as stream:
        begin = 8 + int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(begin - 8))
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        dtype = DTYPES.get(entry["dtype"], entry["dtype"])
        layout = np.dtype(dtype.replace("bfloat16", "uint16")), begin + entry["data_offsets"][0], "C"
        tensors[name] = StoredArray(path, name, tuple(entry["shape"]), dtype, layout)
    return tensors


def parquet_headers(path: Path) -> dict[str, StoredArray]:
    """Return the columns of a parquet file; vectors are lists of a fixed size."""
    parquet, arrow = tables.require("pyarrow.parquet", "pyarrow", path=path)
    file, columns = parquet.ParquetFile(path), {}
    for field in file.schema_arrow:
        is_vector = arrow.types.is_fixed_size_list(field.type)
        dtype, size = (str(field.type.value_type), (field.type.list_size,)) if is_vector else (str(field.type), ())
        shape = (file.metadata.num_rows, *size)
        columns[field.name] = StoredArray(path, field.name, shape, DTYPES.get(dtype, dtype))
    return columns
