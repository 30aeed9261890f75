"""HDF5 files of strangers: the structure of one is checked before anything of it is read.

HDF5 is a file system in a file. A dataset can lie in other files (external storage, virtual datasets), and a name can
be a link to another file. A result of cocos has none of these: datasets of numbers and text, each behind hard links of
the root.

Source: HDF5 file format specification 3.0 (docs.hdfgroup.org/hdf5).
"""

import io
from collections.abc import Iterator, Mapping
from typing import Any

import h5py
import numpy as np
import xarray as xr

SIGNATURE = b"\x89HDF\r\n\x1a\n"
# Filters that a dataset may have, each once: deflate, shuffle, Fletcher's checksum.
FILTERS = {1, 2, 3}
# Attributes of dimension scales, with the classes of their types (9: lists, here of references; 6: pairs of a reference
# and a number), which only the library for netCDF reads.
SCALES = {b"DIMENSION_LIST": 9, b"REFERENCE_LIST": 6}
# Attributes that ask for numbers to be computed from those of the file; no result has them.
COMPUTED = {b"scale_factor", b"add_offset", b"_Unsigned"}
# Attributes of netCDF-4 itself, and the name of a scale, as HDF5 calls a dimension, that has no numbers of its own.
HIDDEN = {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "_Netcdf4Dimid", "_Netcdf4Coordinates", "_NCProperties"}
BARE = b"This is a netCDF dimension but not a netCDF variable."
MAX_NUMBER = 8  # bytes of the largest number


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
        ValueError: it holds anything but datasets of numbers and text in its root. The library raises errors of its
            own for a damaged file.
    """
    if not image.startswith(SIGNATURE):
        raise ValueError("it does not begin as an HDF5 file")
    file = h5py.h5f.open_file_image(image)
    try:
        root = h5py.h5g.open(file, b"/")
        _check_attributes(root)
        for name in _names(root):
            _check_attributes(_dataset(root, name))
    finally:
        file.close()


def _names(root: h5py.h5g.GroupID) -> Iterator[bytes]:
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
    if not _is_plain(dataset.get_type()):
        raise ValueError(f"{_readable(name)} holds neither numbers nor text")
    return dataset


def _is_plain(kind: h5py.h5t.TypeID) -> bool:
    """Whether a type is of numbers or text."""
    number = kind.get_class() in {h5py.h5t.INTEGER, h5py.h5t.FLOAT} and kind.get_size() <= MAX_NUMBER
    return number or kind.get_class() == h5py.h5t.STRING


def _check_attributes(thing: h5py.h5d.DatasetID | h5py.h5g.GroupID) -> None:
    """Check the attributes of one object of a file."""
    for place in range(h5py.h5a.get_num_attrs(thing)):
        one = h5py.h5a.open(thing, index=place)
        name, kind = one.get_name(), one.get_type()
        if name in COMPUTED:
            raise ValueError(f"attribute {_readable(name)}: numbers that are computed")
        if not _is_plain(kind) and kind.get_class() != SCALES.get(name):
            raise ValueError(f"attribute {_readable(name)} holds neither numbers nor text")
