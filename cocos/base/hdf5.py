"""HDF5 files of strangers: the structure of one is checked before anything of it is read.

HDF5 is a file system in a file. A dataset can lie in other files (external storage, virtual datasets), a name can be a
link to another file, a chunk of a few bytes can unpack to gigabytes, and a dataset of any size can exist without a byte
of its own. A result of cocos has none of these: datasets of numbers and text, each behind hard links of the root.

Source: HDF5 file format specification 3.0 (docs.hdfgroup.org/hdf5); variable-length text is stored as its length, four
bytes, and its place in a heap, an address and four bytes.
"""

import io
import math
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import h5py
import numpy as np
import xarray as xr

SIGNATURE = b"\x89HDF\r\n\x1a\n"
# Filters that a dataset may have, each once: deflate, shuffle, Fletcher's checksum.
DEFLATE, FILTERS = 1, {1, 2, 3}
# Bytes of memory that the arrays of a file may take: in any file, and for each of its own bytes.
ALWAYS_ALLOWED, MAX_EXPANSION = 2**27, 50
# Datasets of a file; attributes of all its objects, bytes of all
# attributes, dimensions of an array, and chunks.
MAX_DATASETS, MAX_ATTRIBUTES, MAX_ATTRIBUTE_BYTES, MAX_DIMENSIONS, MAX_CHUNKS = 600, 20_000, 2**24, 8, 50_000
# Bytes that the texts of one attribute may take if each is as long as the file.
MAX_LISTED_BYTES = 2**28
# Attributes of dimension scales, with the classes of their types (9: lists, here of references; 6: pairs of a reference
# and a number), which only the library for netCDF reads.
SCALES = {b"DIMENSION_LIST": 9, b"REFERENCE_LIST": 6}
# Attributes that ask for numbers to be computed from those of the file; no result has them.
COMPUTED = {b"scale_factor", b"add_offset", b"_Unsigned"}
# Attributes of netCDF-4 itself, and the name of a scale, as HDF5 calls a dimension, that has no numbers of its own.
HIDDEN = {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "_Netcdf4Dimid", "_Netcdf4Coordinates", "_NCProperties"}
BARE = b"This is a netCDF dimension but not a netCDF variable."
TEXT_BYTES = 64  # bytes of memory of a text beside its characters
MAX_NUMBER = 8  # bytes of the largest number
CHECKSUM = 4  # bytes that Fletcher's checksum adds to a chunk


def read(image: bytes) -> xr.Dataset:
    """The Dataset of a netCDF-4 file whose structure is checked, in memory."""
    found, unnamed = {}, 0
    with h5py.File(io.BytesIO(image), "r") as file:
        for name, dataset in file.items():
            attrs = dataset.attrs
            if "DIMENSION_LIST" in attrs:
                scales = (h5py.h5r.get_name(places[-1], file.id) for places in attrs["DIMENSION_LIST"])
                dims = [scale.decode().removeprefix("/") for scale in scales]
            elif attrs.get("CLASS") == b"DIMENSION_SCALE":
                if attrs["NAME"].startswith(BARE):
                    continue
                dims = [name]
            else:
                dims = [f"phony_dim_{unnamed + k}" for k in range(dataset.ndim)]
                unnamed += len(dims)
            text = h5py.check_string_dtype(dataset.dtype)
            values = np.asarray(dataset.asstr()[()]).astype(str) if text and text.length is None else dataset[()]
            found[name] = xr.Variable(dims, values, _attributes(attrs))
        whole = _attributes(file.attrs)
    return xr.decode_cf(xr.Dataset(found, attrs=whole)).load()


def _attributes(attrs: h5py.AttributeManager) -> dict[str, Any]:
    """Texts, numbers and lists of them; a list of one is that one."""
    found = {}
    for name in (name for name in attrs if name not in HIDDEN):
        value = attrs[name]
        if isinstance(value, h5py.Empty):
            value = np.array([], value.dtype)
        elif isinstance(value, np.ndarray):
            value = value.tolist() if value.dtype.kind in "SO" else value
            value = value[0] if len(value) == 1 else value
        found[name] = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
    return found


def image(data: xr.Dataset, packing: Mapping[str, Any]) -> bytes:
    """The bytes of a Dataset as a netCDF-4 file, whose arrays of numbers are packed."""
    made = io.BytesIO()
    variables, attrs = xr.conventions.cf_encoder(*xr.conventions.encode_dataset_coordinates(data))
    with h5py.File(made, "w", track_order=True) as file:  # the order in which netCDF-4 lists its variables
        for name, value in attrs.items():
            file.attrs[name] = _listed(value)
        for name, each in variables.items():
            text = each.dtype.kind in "OU"
            values, kind = (each.values.astype(object), h5py.string_dtype()) if text else (each.values, each.dtype)
            packed = packing if each.ndim and not text and name in data.data_vars else {}
            fill = each.attrs.get("_FillValue")
            stored = file.create_dataset(name, each.shape, kind, values, fillvalue=fill, track_order=True, **packed)
            for key, value in each.attrs.items():
                stored.attrs[key] = _listed(value)
        for number, (dim, size) in enumerate(data.sizes.items()):
            bare = dim not in variables
            scale = file.create_dataset(dim, (size,), ">f4", track_order=True) if bare else file[dim]
            scale.make_scale(f"{BARE.decode()}{size:10}" if bare else dim)
            scale.attrs["_Netcdf4Dimid"] = np.int32(number)
            for name, place in ((name, k) for name, each in variables.items() for k, other in enumerate(each.dims)
                                if other == dim != name):  # fmt: skip
                file[name].dims[place].attach_scale(scale)
    return made.getvalue()


def _listed(value: Any) -> Any:
    """An attribute as netCDF-4 has it: a number is a list of one."""
    return value if isinstance(value, str) else np.atleast_1d(value)


def check(image: bytes) -> None:
    """Check the structure of an HDF5 file.

    Raises:
        ValueError: it holds anything but datasets of numbers and text in its root, or asks for more memory than its
            bytes explain. The library raises errors of its own for a damaged file.
    """
    if not image.startswith(SIGNATURE):
        raise ValueError("it does not begin as an HDF5 file")
    file = h5py.h5f.open_file_image(image)
    try:
        root, attributes = h5py.h5g.open(file, b"/"), _Attributes()
        attributes.check(root, len(image))
        needed, chunks = 0, 0
        for name in _names(root):
            dataset = _dataset(root, name)
            attributes.check(dataset, len(image))
            stored: list = []  # its chunks; none of a dataset in one piece
            if dataset.get_create_plist().get_layout() == h5py.h5d.CHUNKED:
                # The library looks for the first chunks of an empty dataset in places that do not exist.
                if math.prod(dataset.shape) and dataset.get_storage_size():
                    dataset.chunk_iter(
                        lambda chunk, into=stored: into.append(chunk) if len(into) <= MAX_CHUNKS else True
                    )
            needed, chunks = needed + _bytes_in_memory(dataset, image, stored), chunks + len(stored)
            most = max(ALWAYS_ALLOWED, MAX_EXPANSION * len(image))
            if needed > most:
                raise ValueError(f"its arrays would take {needed:,} bytes of memory, expected at most {most:,}")
            if chunks > MAX_CHUNKS:
                raise ValueError(f"more than {MAX_CHUNKS:,} chunks")
            _unpack(dataset, image, stored)
    finally:
        file.close()


def _names(root: h5py.h5g.GroupID) -> Iterator[bytes]:
    if (number := root.get_num_objs()) > MAX_DATASETS:
        raise ValueError(f"{number:,} datasets, expected at most {MAX_DATASETS:,}")
    for name in list(root):
        if root.links.get_info(name).type != h5py.h5l.TYPE_HARD:
            raise ValueError(f"{_readable(name)} is a link to another place")
        yield name


def _readable(name: bytes) -> str:
    return repr(name[:40].decode("utf-8", "replace"))


def _dataset(root: h5py.h5g.GroupID, name: bytes) -> h5py.h5d.DatasetID:
    if h5py.h5o.get_info(root, name).type != h5py.h5o.TYPE_DATASET:
        raise ValueError(f"{_readable(name)} is no dataset")
    dataset = h5py.h5d.open(root, name)
    made = dataset.get_create_plist()
    if made.get_external_count() or made.get_layout() not in {h5py.h5d.COMPACT, h5py.h5d.CONTIGUOUS, h5py.h5d.CHUNKED}:
        raise ValueError(f"{_readable(name)} lies in other files")
    filters = [made.get_filter(k)[0] for k in range(made.get_nfilters())]
    if not set(filters) <= FILTERS or len(set(filters)) < len(filters):
        raise ValueError(
            f"{_readable(name)} has filters {filters[:8]}, expected deflate, shuffle and Fletcher's checksum"
        )
    if dataset.get_space().get_simple_extent_ndims() > MAX_DIMENSIONS:
        raise ValueError(f"{_readable(name)} has more than {MAX_DIMENSIONS} dimensions")
    if not _is_plain(dataset.get_type()):
        raise ValueError(f"{_readable(name)} holds neither numbers nor text")
    return dataset


def _is_plain(kind: h5py.h5t.TypeID) -> bool:
    """Whether a type is of numbers or text."""
    number = kind.get_class() in {h5py.h5t.INTEGER, h5py.h5t.FLOAT} and kind.get_size() <= MAX_NUMBER
    return number or kind.get_class() == h5py.h5t.STRING


def _is_text_of_any_length(kind: h5py.h5t.TypeID) -> bool:
    """Whether a type is text of any length, which lies in a heap."""
    return kind.get_class() == h5py.h5t.STRING and kind.is_variable_str()


def _bytes_in_memory(dataset: h5py.h5d.DatasetID, image: bytes, chunks: list) -> int:
    """Bytes of memory that a dataset takes once it is read, and one chunk of it while it is read."""
    kind, made = dataset.get_type(), dataset.get_create_plist()
    number, size = math.prod(dataset.shape), kind.get_size()
    layout, piece = made.get_layout(), 0
    if layout == h5py.h5d.CHUNKED:
        piece = math.prod(made.get_chunk()) * size
    if not _is_text_of_any_length(kind):
        text = kind.get_class() == h5py.h5t.STRING
        return piece + number * (TEXT_BYTES + 4 * size if text else max(size, MAX_NUMBER))
    if layout == h5py.h5d.COMPACT or made.get_nfilters():
        raise ValueError("text of any length that is packed or lies among its attributes")
    if layout == h5py.h5d.CHUNKED:
        places = [(each.byte_offset, each.size) for each in chunks]
    else:
        places = [(dataset.get_offset(), number * size)] if dataset.get_storage_size() else []
    characters = sum(_lengths_of_texts(image, begin, length, size) for begin, length in places)
    return piece + number * TEXT_BYTES + 4 * characters


def _lengths_of_texts(image: bytes, begin: int | None, length: int, size: int) -> int:
    """Sum of the lengths of texts, which stand before their places in a heap."""
    if begin is None or begin + length > len(image) or size < 4 or length % size:
        raise ValueError("text outside of the file")
    entries = np.frombuffer(image, np.uint8, length, begin).reshape(-1, size)
    return int(entries[:, :4].copy().view("<u4").sum(dtype=np.int64))


def _unpack(dataset: h5py.h5d.DatasetID, image: bytes, chunks: list) -> None:
    """Unpack the packed chunks of a dataset, as far as their sizes go."""
    made = dataset.get_create_plist()
    filters = [made.get_filter(k)[0] for k in range(made.get_nfilters())]
    if DEFLATE not in filters:
        return
    skipped, size = 1 << filters.index(DEFLATE), math.prod(made.get_chunk()) * dataset.get_type().get_size() + CHECKSUM
    for each in chunks:
        if not each.filter_mask & skipped:
            packed = image[each.byte_offset : each.byte_offset + each.size]
            if len(zlib.decompressobj().decompress(packed, size + 1)) > size:
                raise ValueError(f"a chunk of {each.size:,} bytes that unpacks to more than {size:,}")


class _Attributes:
    """Counts the attributes of all objects of a file, and their bytes."""

    def __init__(self) -> None:
        self.number = self.size = 0

    def check(self, thing: h5py.h5d.DatasetID | h5py.h5g.GroupID, size: int) -> None:
        """Check the attributes of one object of a file, given its size in bytes."""
        self.number += h5py.h5a.get_num_attrs(thing)
        if self.number > MAX_ATTRIBUTES:
            raise ValueError(f"more than {MAX_ATTRIBUTES:,} attributes")
        for place in range(h5py.h5a.get_num_attrs(thing)):
            one = h5py.h5a.open(thing, index=place)
            name, kind, number = one.get_name(), one.get_type(), one.get_space().get_simple_extent_npoints()
            if name in COMPUTED:
                raise ValueError(f"attribute {_readable(name)}: numbers that are computed")
            if not _is_plain(kind) and kind.get_class() != SCALES.get(name):
                raise ValueError(f"attribute {_readable(name)} holds neither numbers nor text")
            self.size += len(name) + number * kind.get_size()
            # Each text may be as long as the file; one alone is read, and then counted.
            if number > 1 and _is_text_of_any_length(kind) and number * size > MAX_LISTED_BYTES:
                raise ValueError(f"attribute {_readable(name)} holds {number:,} texts, in a file of {size:,} bytes")
            self.size += _bytes_of_texts(one) if number and _is_text_of_any_length(kind) else 0
            if self.size > MAX_ATTRIBUTE_BYTES:
                raise ValueError(f"attributes of more than {MAX_ATTRIBUTE_BYTES:,} bytes")


def _bytes_of_texts(one: h5py.h5a.AttrID) -> int:
    found = np.empty(one.shape, dtype=one.dtype)
    one.read(found)
    return sum(len(each) for each in found.reshape(-1) if isinstance(each, bytes | str))
