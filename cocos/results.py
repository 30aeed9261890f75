"""Labelled Datasets: dimensions, units and provenance of the arrays of a measure, and their netCDF files."""

import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
import xarray as xr
from torch.nn.utils.rnn import pad_sequence

import cocos
from cocos.base import writing
from cocos.base.errors import InputError, UnsafeFile, nearest
from cocos.counting import shares
from cocos.counting.slices import concat

__all__ = ["concat", "open", "save"]

# Compression of numbers, with a checksum over each chunk so that damage is detected.
PACKING = {"zlib": True, "complevel": 4, "fletcher32": True}
JSON_ATTRIBUTES = ("alarms", "findings", "health", "loss_parameters", "watching")


def labelled(variables: Mapping[str, tuple], attrs: dict, measure: str | None = None) -> xr.Dataset:
    """Make a Dataset of name -> (dims, values, long name, units); one or both labels may be left out.

    A variable along its own name is a coordinate. Only the result of a measure has `attrs["measure"]`.
    """
    arrays = {}
    for name, (dims, values, *labels) in variables.items():
        array = values.cpu().numpy() if isinstance(values, torch.Tensor) else values
        arrays[name] = xr.Variable(dims, array, dict(zip(("long_name", "units"), labels, strict=False)))
    return xr.Dataset(arrays, attrs=attrs if measure is None else attrs | {"measure": measure})


def by_direction(records: Mapping[str, Mapping[str, torch.Tensor]], labels: Mapping[str, tuple]) -> dict[str, tuple]:
    """Stack direction -> name -> tensor, for `labelled`; along `query`, shorter directions are padded by NaN.

    `labels` has name -> (dims of one direction, long name, units).
    """
    variables: dict[str, tuple] = {"direction": ("direction", list(records))}
    for name, (dims, *label) in labels.items():
        tensors = [record[name].cpu() for record in records.values()]
        if dims[:1] == ("query",):
            stacked = pad_sequence([tensor.double() for tensor in tensors], batch_first=True, padding_value=math.nan)
        else:
            stacked = torch.stack(tensors)
        variables[name] = (("direction", *dims), stacked, *label)
    return variables


def direction(name: str | None, directions: Sequence[str]) -> str:
    """Return a direction by its name; None: the first."""
    if name is not None and name not in directions:
        raise InputError(nearest("direction", name, directions))
    return directions[0] if name is None else name


def sides(data: xr.Dataset) -> dict[str, xr.Dataset]:
    """Return the selection of a Dataset along each direction; empty without directions."""
    names = map(str, data["direction"].values if "direction" in data.dims else ())
    return {name: data.sel(direction=name) for name in names}


def lines(attrs: Mapping, name: str = "notes") -> list[str]:
    """Return the lines of an attribute, such as the notes of a Dataset."""
    return [line for line in str(attrs.get(name) or "").splitlines() if line]


def versions() -> dict[str, str]:
    """Return the versions of cocos and of PyTorch, as attributes."""
    return {"cocos": cocos.__version__, "torch": torch.__version__.split("+")[0]}


def provenance(loss, **more) -> dict:
    """Return the attributes of a Dataset: the loss with all of its parameters, `more` options, the versions.

    There is no date, so that equal runs write equal bytes.
    """
    infinite = {name: str(value) for name, value in loss.parameters.items() if value in (math.inf, -math.inf)}
    attrs = {
        **versions(),
        "loss": loss.name,
        "loss_parameters": json.dumps(loss.parameters | infinite, default=str),  # JSON has no infinity
        "loss_repr": repr(loss),
        "gradient": loss.gradient,
        "metric": loss.metric,
        "unit": f"given: {loss.unit_:g}" if loss.unit_from == "given" else loss.unit_from,
        "share": shares.share(loss),
    }
    return {key: value for key, value in (attrs | more).items() if value is not None}


def save(data: xr.Dataset | Mapping[str, xr.Dataset], path: Path) -> Path:
    """Write a Dataset, or a group for each of label -> Dataset, as a netCDF-4 file (.nc), whole or not at all.

    Attributes are sorted, so that equal results are equal bytes.

    Raises:
        InputError: the file cannot be written, or has another suffix.

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
    groups = {"/": data}
    if not isinstance(data, xr.Dataset):  # a label is any text, the name of a group is not
        groups = {f"/{index}": dataset for index, dataset in enumerate(data.values())}
        groups["/"] = xr.Dataset(attrs={"labels": json.dumps(list(data))})
    encoding = {}
    for group, dataset in groups.items():
        groups[group] = dataset.drop_attrs(deep=False).assign_attrs(sorted(dataset.attrs.items()))
        numbers = [name for name, array in dataset.data_vars.items() if array.ndim and array.dtype.kind in "fiub"]
        encoding[group] = dict.fromkeys(numbers, PACKING)
    return writing.write(path, xr.DataTree.from_dict(groups).to_netcdf(engine="h5netcdf", encoding=encoding))


def open(path: Path) -> xr.Dataset | dict[str, xr.Dataset]:
    """Read the Dataset or Datasets that `save` wrote, or the store of a `cocos.Monitor` (.jsonl), into memory.

    Raises:
        OSError: the file cannot be read.
        InputError: it is damaged, or not a result of cocos.
        UnsafeFile: it refers to other files.

    Examples:
        >>> import pathlib, tempfile
        >>> curves = {name: cocos.measures.weight_curve(name, points=5) for name in ("triplet", "ntxent")}
        >>> path = cocos.results.save(curves, pathlib.Path(tempfile.mkdtemp(), "curves.nc"))
        >>> list(cocos.results.open(path))
        ['triplet', 'ntxent']
    """
    path, labels = Path(path), []
    if path.suffix == ".jsonl":
        from cocos.monitor import records  # imports results

        datasets = [records.dataset(records.read(path))]
    else:
        content = io.BytesIO(path.read_bytes())
        try:
            refuse_links(path, content)
            tree = xr.load_datatree(content, engine="h5netcdf", decode_times=False)
            datasets = [node.to_dataset().drop_encoding() for node in (tree, *tree.children.values())]
            labels = json.loads(tree.attrs.get("labels", "[]"))
        except UnsafeFile:
            raise
        except Exception as error:  # h5py and xarray raise many types for damaged files
            reason = str(error).partition("\n")[0][:120] or type(error).__name__
            raise InputError(f"{path} is no result of cocos, or a damaged one ({reason}); write it again") from error
    for data in datasets:
        check_attributes(path, data.attrs)
    return dict(zip(labels, datasets[1:], strict=False)) or datasets[0]


def check_attributes(path: Path, attrs: Mapping[str, object]) -> None:
    """Refuse attributes of an untrusted file that are not JSON."""
    for name in JSON_ATTRIBUTES:
        try:
            json.loads(attrs.get(name, "{}"))
        except (TypeError, ValueError, RecursionError):
            raise InputError(f"{path} is no result of cocos, or a damaged one: {name} is not JSON") from None


def refuse_links(path: Path, content: io.BytesIO) -> None:
    """Refuse an untrusted file with links, external storage or virtual arrays, which refer to other files."""
    import h5py  # takes a while, and few commands read a result

    def refused(name: str, link: object) -> str | None:
        if not isinstance(link, h5py.HardLink):
            return name
        item = file[name]
        elsewhere = isinstance(item, h5py.Dataset) and (item.external or item.is_virtual)
        return name if elsewhere or h5py.h5o.get_info(item.id).rc > 1 else None  # or a group that contains itself

    with h5py.File(content, "r") as file:
        if name := file.visititems_links(refused):
            raise UnsafeFile(f"{path}: {name} is a link or in another file, expected arrays in the file itself")
