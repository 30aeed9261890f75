"""Labelled Datasets: dimensions, units and provenance of the arrays of a measure, and their netCDF files."""

import io
import json
import math
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

import cocos
from cocos.base import writing
from cocos.base.errors import InputError, UnsafeFile, nearest, unreachable
from cocos.counting import shares
from cocos.counting.slices import concat

__all__ = ["concat", "open", "save"]

# Compression of numbers, with a checksum over each chunk so that damage is detected.
PACKING = {"zlib": True, "complevel": 4, "fletcher32": True}
# Attributes that are JSON documents.
JSON_ATTRIBUTES = ("alarms", "findings", "health", "loss_parameters", "watching")


def labelled(variables: Mapping[str, tuple], attrs: dict, measure: str | None = None) -> xr.Dataset:
    """Make a Dataset of arrays with their labels; one whose only dimension has its own name is a coordinate.

    Args:
        variables: name -> (dims, values, long name, units); the units, or both labels, may be left out.
        attrs: provenance and options.
        measure: name of the measure, for `attrs["measure"]`; None: the Dataset is not the result of a measure.
    """
    arrays = {}
    for name, (dims, values, *labels) in variables.items():
        array = values.cpu().numpy() if isinstance(values, torch.Tensor) else values
        arrays[name] = xr.Variable(dims, array, dict(zip(("long_name", "units"), labels, strict=False)))
    return xr.Dataset(arrays, attrs=attrs if measure is None else attrs | {"measure": measure})


def direction(name: str | None, directions: Sequence[str]) -> str:
    """Return a direction by its name; None: the first."""
    if name is not None and name not in directions:
        raise InputError(nearest("direction", name, directions))
    return directions[0] if name is None else name


def sides(data: xr.Dataset) -> dict[str, xr.Dataset]:
    """Return the selection of a Dataset along each direction."""
    return {str(name): data.sel(direction=name) for name in data["direction"].values}


def lines(attrs: Mapping, name: str = "notes") -> list[str]:
    """Return the lines of an attribute, such as the notes of a Dataset."""
    return [line for line in str(attrs.get(name) or "").splitlines() if line]


def by_direction(records: Mapping[str, Mapping[str, torch.Tensor]], labels: Mapping[str, tuple]) -> dict[str, tuple]:
    """Stack the tensors of each direction, for `labelled`, and add the coordinate `direction`.

    Args:
        records: direction -> name -> tensor.
        labels: name -> (dims of one direction, long name, units); along `query`, NaN follows the last query of a
            direction that has fewer.
    """
    variables = {"direction": ("direction", list(records))}
    for name, (dims, *label) in labels.items():
        tensors = [record[name].cpu() for record in records.values()]
        stacked: Any = tensors
        if dims[:1] == ("query",):
            stacked = np.full((len(tensors), max(map(len, tensors)), *tensors[0].shape[1:]), np.nan)
            for row, tensor in zip(stacked, tensors, strict=True):
                row[: len(tensor)] = tensor
        variables[name] = (("direction", *dims), stacked if dims[:1] == ("query",) else torch.stack(tensors), *label)
    return variables


def versions() -> dict[str, str]:
    """Return the versions of cocos and of PyTorch, as attributes."""
    return {"cocos": cocos.__version__, "torch": torch.__version__.split("+")[0]}


def _plain(value):
    """Convert a parameter to a JSON value; infinity and any other type become text."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, Real) and not isinstance(value, bool):
        return float(value) if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, bool | str) else str(value)


def provenance(loss, **more) -> dict:
    """Return the attributes of a Dataset: the loss with all of its parameters, `more` options, the versions.

    There is no date, so that equal runs write equal bytes.
    """
    source = loss.unit_from
    attrs = {
        **versions(),
        "loss": loss.name,
        "loss_parameters": json.dumps({name: _plain(value) for name, value in loss.parameters.items()}),
        "loss_repr": repr(loss),
        "gradient": loss.gradient,
        "metric": loss.metric,
        "unit": f"given: {loss.unit_:g}" if source == "given" else source,
        "share": shares.share(loss),
    }
    return {key: value for key, value in (attrs | more).items() if value is not None}


def save(data: xr.Dataset | Mapping[str, xr.Dataset], path: Path) -> Path:
    """Write a Dataset, or a group for each of several, as a netCDF-4 file, whole or not at all.

    Args:
        data: Dataset, or label -> Dataset.
        path: name ending in `.nc`.

    Raises:
        InputError: the file cannot be written.

    Examples:
        >>> import pathlib, tempfile
        >>> data = cocos.measures.weight_curve("triplet", points=5)
        >>> path = cocos.results.save(data, pathlib.Path(tempfile.mkdtemp(), "curve.nc"))
        >>> cocos.results.open(path).equals(data)
        True
    """
    if Path(path).suffix != ".nc":
        raise InputError(f"output {path}: suffix {Path(path).suffix!r}, expected .nc (netCDF)")
    path = writing.output(path)
    if isinstance(data, xr.Dataset):
        data = _reproducible(data)
        return writing.write(path, data.to_netcdf(engine="h5netcdf", encoding=_encoding(data)))
    groups = {"/": xr.Dataset(attrs={"labels": json.dumps(list(data))})}  # a label is any text, a group is a number
    groups |= {f"/{number}": _reproducible(dataset) for number, dataset in enumerate(data.values())}
    encoding = {group: _encoding(dataset) for group, dataset in groups.items()}
    return writing.write(path, xr.DataTree.from_dict(groups).to_netcdf(engine="h5netcdf", encoding=encoding))


def _reproducible(data: xr.Dataset) -> xr.Dataset:
    """Sort the attributes, so that equal results are equal bytes."""
    data = data.copy(deep=False)
    data.attrs = dict(sorted(data.attrs.items()))
    return data


def _encoding(data: xr.Dataset) -> dict[Any, dict]:
    """Return the encoding of each array of numbers."""
    return {name: PACKING for name, array in data.data_vars.items() if array.ndim and array.dtype.kind in "fiub"}


def open(path: Path) -> xr.Dataset | dict[str, xr.Dataset]:
    """Read the Dataset or Datasets that `save` wrote, or the store of a `cocos.Monitor` (.jsonl), into memory.

    Raises:
        InputError: there is no such file, or it is damaged.
        UnsafeFile: it refers to other files.

    Examples:
        >>> import pathlib, tempfile
        >>> data = cocos.measures.weight_curve("triplet", points=5)
        >>> path = cocos.results.save(data, pathlib.Path(tempfile.mkdtemp(), "curve.nc"))
        >>> cocos.results.open(path).attrs["loss"]
        'triplet'
    """
    path = Path(path)
    if path.suffix == ".jsonl":
        from cocos.monitor import records  # imports results

        data = records.dataset(records.read(path))
        check_attributes(path, data.attrs)
        return data
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder, expected a result of cocos, a file like count.nc") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({unreachable(error)})") from None
    try:
        groups = _groups(path, content)
        root = _load(content, "/")
        if "labels" in root.attrs:
            groups = {label: str(number) for number, label in enumerate(json.loads(root.attrs["labels"]))}
        by_label = {label: _load(content, group) for label, group in groups.items()}
    except UnsafeFile:
        raise
    except Exception as error:  # h5py and xarray raise many types for damaged files
        reason = str(error).partition("\n")[0][:120] or type(error).__name__
        raise InputError(f"{path} is no result of cocos, or a damaged one ({reason}); write it again") from error
    for data in (root, *by_label.values()):
        check_attributes(path, data.attrs)
    return by_label or root


def _load(content: bytes, group: str) -> xr.Dataset:
    return xr.load_dataset(io.BytesIO(content), engine="h5netcdf", group=group, decode_times=False).drop_encoding()


def _groups(path: Path, content: bytes) -> dict[str, str]:
    """Return the groups of an untrusted file by their names, and refuse one that refers to other files."""
    import h5py  # takes a while, and few commands read a result

    def check(group: h5py.Group) -> None:
        for name in group:
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise UnsafeFile(f"{path}: {name} is a link, expected arrays in the file itself")
            array = group[name]
            if isinstance(array, h5py.Dataset) and (array.external or array.is_virtual):
                raise UnsafeFile(f"{path}: the values of {name} are in other files")

    with h5py.File(io.BytesIO(content), "r") as file:
        check(file)
        groups = {name: name for name in file if isinstance(file[name], h5py.Group)}
        for name in groups:
            check(file[name])
    return groups


def check_attributes(path: Path, attrs: Mapping[str, Any]) -> None:
    """Refuse attributes of an untrusted file that are not what cocos writes."""
    for name in (name for name in JSON_ATTRIBUTES if name in attrs):
        try:
            json.loads(attrs[name])
        except (TypeError, ValueError, RecursionError):
            raise InputError(f"{path} is no result of cocos, or a damaged one: {name} is not valid JSON") from None
