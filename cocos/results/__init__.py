"""Tensors become Datasets here, and only here: dims, units, long names, provenance; summaries, saving, opening."""

import hashlib
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

import cocos
from cocos import losses
from cocos.base import writing
from cocos.base.errors import InputError, nearest, unreachable
from cocos.base.matrices import Mapped
from cocos.base.untrusted import parsed
from cocos.counting import averages, findings
from cocos.losses.external import units
from cocos.results.slices import BATCH_SLICE, concat

__all__ = ["concat", "open", "save"]

# Kinds of weights that are not the derivative of the loss by a closed form: name, and what it means.
KINDS_OF_WEIGHTS = {
    "stop_gradient": ("stop-gradient", "what training uses; a factor of the loss is held fixed in it"),
    "pseudo": ("pseudo-gradient", "made up by the backward pass of its authors, not the derivative of the loss"),
    "autograd": ("by autograd", "no closed form"),
}
# Compressed, with a checksum over each chunk: a damaged file is noticed where it is read.
PACKING = {"compression": "gzip", "compression_opts": 4, "fletcher32": True}
# Bytes of the largest result that is read.
LARGEST = 2**31
# Values of an attribute that is a list, and digits of a cut-off of R@k.
MOST_ENTRIES, LONGEST_CUTOFF = 1000, 9
# Maximum sizes of dimensions whose entries are read one by one.
MOST_ALONG = {"direction": 100, "loss": 100, "width": 100, "distractors": 1000, "checkpoint": 10_000, "run": 100_000}


def _is_number(value: Any) -> bool:
    # Not isfinite: a whole number may be larger than any float.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _is_whole(value: Any) -> bool:
    return _is_number(value) and value == int(value) and abs(value) < 2**63


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_document(right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Whether a value is a JSON document that is right."""

    def check(value: Any) -> bool:
        try:
            return _is_text(value) and right(parsed(value))
        except ValueError:
            return False

    return check


def _are_entries(*texts: str) -> Callable[[Any], bool]:
    """Whether a value is a JSON list of objects with a step, and perhaps a width, and with some texts."""

    def one(each: Any) -> bool:
        return (
            isinstance(each, dict)
            and _is_whole(each.get("step"))
            and all(_is_text(each.get(name)) for name in texts)
            and (each.get("width") is None or _is_whole(each["width"]))
        )

    return _is_document(lambda value: isinstance(value, list) and all(map(one, value)))


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_health(value: Any) -> bool:
    """Whether a value says how the sides of embeddings are."""
    sides = value.get("sides", {}) if isinstance(value, dict) else None
    return isinstance(sides, dict) and all(isinstance(e, dict) and _is_whole(e.get("rows")) for e in sides.values())


# What an attribute of a result is, by its name.
RIGHT: dict[str, Callable[[Any], bool]] = (
    dict.fromkeys(
        (
            *("measure", "title", "notes", "cocos", "torch", "loss", "loss_repr", "gradient"),
            *("metric", "unit", "share", "sample", "same_group", "dtype", "device", "split", "convention", "ties"),
            *("checkpoint_path", "checkpoint_sha256", "checkpoint_format", BATCH_SLICE, "undrawn", "by", "verdict"),
        ),
        _is_text,
    )
    | dict.fromkeys(
        ("seed", "batch_size", "batches", "folds", "detectors", "row", "group", "rows", "checkpoint_dims"), _is_whole
    )
    | {
        "eps": _is_number,
        "level": lambda value: _is_number(value) and 0 < value < 1,
        "k": lambda value: (
            _is_text(value) and all(each.isdecimal() and len(each) < LONGEST_CUTOFF for each in value.split(","))
        ),
        "loss_parameters": _is_document(lambda value: isinstance(value, dict)),
        "health": _is_document(_is_health),
        "findings": _is_document(findings.right),
        "alarms": _are_entries("detector", "sentence"),
        "left_out": _are_entries("file", "reason"),
        "table_notes": _is_document(lambda value: isinstance(value, dict) and all(map(_are_texts, value.values()))),
        "comparisons": _is_document(
            lambda value: isinstance(value, list) and all(_are_texts(each) and len(each) == 2 for each in value)
        ),
        "watching": _is_document(
            lambda value: isinstance(value, dict) and all(each is None or _is_text(each) for each in value.values())
        ),
        # A mapped file is hashed when its result is saved: no file may ask for that of another one.
        "checkpoint_mapped": lambda value: False,
    }
)


def labelled(variables: Mapping[str, tuple], attrs: dict, measure: str | None = None) -> xr.Dataset:
    """Make a Dataset of arrays with their labels; one whose only dimension has its own name is a coordinate.

    Args:
        variables: name -> (dims, values, long name, units); the units, or both labels, may be left out.
        attrs: provenance and options.
        measure: name of the measure, for `attrs["measure"]`; None: the Dataset is not the result of a measure.
    """
    made = {}
    for name, (dims, values, *about) in variables.items():
        array = values.cpu().numpy() if isinstance(values, torch.Tensor) else values
        made[name] = xr.Variable(dims, array, dict(zip(("long_name", "units"), about, strict=False)))
    return xr.Dataset(made, attrs=attrs if measure is None else attrs | {"measure": measure})


def direction(name: str | None, known: Sequence[str]) -> str:
    """A direction by its name; None: the first."""
    if name is not None and name not in known:
        raise InputError(nearest("direction", name, known))
    return known[0] if name is None else name


def sides(data: xr.Dataset) -> dict[str, xr.Dataset]:
    """The parts of a Dataset by the names of its directions."""
    return {str(name): data.sel(direction=name) for name in data["direction"].values}


def lines(attrs: Mapping, name: str = "notes") -> list[str]:
    """Lines of an attribute, such as the notes of a Dataset."""
    return [line for line in str(attrs.get(name) or "").splitlines() if line]


def by_direction(records: Mapping[str, Mapping[str, torch.Tensor]], labels: Mapping[str, tuple]) -> dict[str, tuple]:
    """Variables of several directions, as `labelled` takes them, and their coordinate.

    Args:
        records: direction -> name -> tensor.
        labels: name -> (dims of one direction, long name, units); along `query`, NaN follows the last query of a
            direction that has fewer.
    """
    variables = {"direction": ("direction", list(records))}
    for name, (dims, *about) in labels.items():
        values = [record[name].cpu() for record in records.values()]
        if dims[:1] == ("query",):
            whole = np.full((len(values), max(map(len, values)), *values[0].shape[1:]), np.nan)
            for row, each in zip(whole, values, strict=True):
                row[: len(each)] = each
        variables[name] = (("direction", *dims), whole if dims[:1] == ("query",) else torch.stack(values), *about)
    return variables


def versions() -> dict[str, str]:
    """Versions of cocos and of PyTorch, as attributes."""
    return {"cocos": cocos.__version__, "torch": torch.__version__.split("+")[0]}


def _plain(value):
    """Convert a parameter to a JSON value; infinity and any other type become text."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, Real) and not isinstance(value, bool):
        return float(value) if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, bool | str) else str(value)


def kind_of_weights(attrs: Mapping) -> tuple[str, str]:
    """Name and meaning of the weights of a Dataset; both empty where they are the derivative by a closed form."""
    return KINDS_OF_WEIGHTS.get(attrs.get("gradient", ""), ("", ""))


def about_weights(attrs: Mapping) -> str:
    """Describe the weights of a Dataset in one sentence; empty where they are the derivative by a closed form."""
    return ": ".join(filter(None, kind_of_weights(attrs)))


def above(attrs: dict, eps: float | None = None) -> str:
    """Say in words when a negative contributes, like `probability above 1 %`, by the kind of share (docs/eps.md)."""
    eps = float(attrs["eps"] if eps is None else eps)
    percent = f"{100 * eps:.6g} %"
    return {
        "probability": f"probability above {percent}",
        "violations": "any violation" if eps < 1 else f"more than {eps:g} violations",
        "unknown": f"more than {percent} of the push",
    }.get(attrs.get("share"), f"weight above {percent} of its unit")


def about_unit(attrs: dict) -> str:
    """One sentence on the unit of a share; empty where it is the loss's own natural one."""
    unit = attrs.get("unit", "natural")
    said = {"own": "the unit is the loss's own", "sum": "the unit is the sum of the terms' units"}
    said |= {form: f"the unit is measured: the weights are those of a {form} of the scores" for form in units.SHARES}
    said |= {"unknown": "the unit of this loss is not known: parts of the query's own push are counted", "natural": ""}
    return said.get(unit, "the unit is " + (unit if unit.startswith("given") else f"that of {unit}, the same loss"))


def heading(data: xr.Dataset) -> str:
    """Title of a figure: the loss, the kind of weights where they are not the derivative, and a word on collapse."""
    kind, _ = kind_of_weights(data.attrs)
    said = f"{data.attrs['loss_repr']}, {kind}" if kind else data.attrs["loss_repr"]
    return f"{said}\ncollapsed embeddings" if findings.collapsed(data.attrs) else said


def provenance(loss, **more) -> dict:
    """Attributes of a Dataset: the loss with all of its parameters, the options, the versions.

    There is no date among them: the same run writes the same bytes.
    """
    source = losses.traits(loss).unit_from
    attrs = {
        **versions(),
        "loss": losses.name_of(loss),
        "loss_parameters": json.dumps({name: _plain(value) for name, value in losses.parameters(loss).items()}),
        "loss_repr": repr(loss),
        "gradient": loss.gradient,
        "metric": loss.metric,
        "unit": f"given: {loss.unit_:g}" if source == "given" else source,
        "share": share(loss),
    }
    return {key: value for key, value in (attrs | more).items() if value is not None}


def share(loss) -> str:
    """Kind of a share: a `probability`, a number of `violations`, a part of the `unit`, or `unknown`."""
    traits = losses.traits(loss)
    if traits.unit_from == "unknown":
        return "unknown"
    loss = traits.twin or loss
    return losses.traits(loss).share or ("violations" if losses.traits(loss).hinge else "unit")


def about(attrs: dict) -> dict:
    """Version, checkpoint and loss, as the JSON documents begin."""
    return {
        "cocos": attrs["cocos"],
        "checkpoint": {key: attrs.get(f"checkpoint_{key}", "") for key in ("path", "sha256", "format")}
        | ({"dims": int(attrs["checkpoint_dims"])} if "checkpoint_dims" in attrs else {}),
        **({"loss": about_loss(attrs)} if "loss" in attrs else {}),
    }


def about_loss(attrs: dict) -> dict:
    """Return the name and parameters of the loss.

    Examples:
        >>> cocos.results.about_loss({"loss": "triplet", "loss_parameters": '{"margin": 0.2}'})
        {'name': 'triplet', 'parameters': {'margin': 0.2}}
    """
    return {"name": attrs["loss"], "parameters": json.loads(attrs["loss_parameters"])}


def mean_std(values: xr.DataArray) -> dict[str, float | None]:
    """Mean and population standard deviation of the finite values, as plain data; None where there is none."""
    return averages.entry(np.nan, values.values, standard=False)


def writable(path: Path) -> Path:
    """Refuse an output before anything is computed."""
    if (suffix := Path(path).suffix) != ".nc":
        raise InputError(f"output {path}: suffix {suffix!r}, expected .nc (netCDF)")
    return writing.output(path)


def _with_hash(data: xr.Dataset) -> xr.Dataset:
    """Add the sha256 of a file that was mapped, and so not read, when it was opened."""
    if "checkpoint_mapped" not in data.attrs:
        return data
    attrs = dict(data.attrs)
    size, time = map(int, attrs.pop("checkpoint_mapped").split())
    file = Mapped(Path(attrs["checkpoint_path"]), size, time)
    file.unchanged()
    with file.path.open("rb") as stream:
        attrs["checkpoint_sha256"] = hashlib.file_digest(stream, "sha256").hexdigest()
    file.unchanged()
    made = data.copy(deep=False)
    made.attrs = attrs
    return made


def save(data: xr.Dataset, path: Path) -> Path:
    """Write a Dataset as netCDF-4, whole or not at all: under a temporary name first, then moved into place.

    Of a mapped file of embeddings the sha256 is taken here.

    Raises:
        InputError: the file cannot be written.

    Examples:
        >>> import pathlib, tempfile
        >>> data = cocos.measures.weight_curve("triplet", points=5)
        >>> path = cocos.results.save(data, pathlib.Path(tempfile.mkdtemp(), "curve.nc"))
        >>> cocos.results.open(path).equals(data)
        True
    """
    path, data = writable(path), _with_hash(data)
    data = data.copy(deep=False)
    data.attrs = dict(sorted(data.attrs.items()))  # their order would be in the bytes, and says nothing
    from cocos.base import hdf5  # loads h5py

    return writing.write(path, hdf5.image(data, PACKING))


def open(path: Path) -> xr.Dataset:
    """Read a Dataset that `save` wrote, or the store of a `cocos.Monitor` (.jsonl), into memory.

    Raises:
        InputError: there is no such file, or it is damaged.

    Examples:
        >>> import pathlib, tempfile
        >>> data = cocos.measures.weight_curve("triplet", points=5)
        >>> path = cocos.results.save(data, pathlib.Path(tempfile.mkdtemp(), "curve.nc"))
        >>> cocos.results.open(path).attrs["loss"]
        'triplet'
    """
    path = Path(path)
    if path.suffix == ".jsonl":
        from cocos.monitor import records  # the one step back: a store is opened as any other result

        return sound(path, records.dataset(records.read(path)))
    image = _image(path)
    try:
        from cocos.base import hdf5  # loads h5py

        hdf5.check(image)
        found = hdf5.read(image)
    except Exception as error:  # h5py and xarray each have their own for each kind of damage
        reason = str(error).partition("\n")[0][:120] or type(error).__name__
        raise InputError(f"{path} is no result of cocos, or a damaged one ({reason}); write it again") from error
    return sound(path, found)


def _image(path: Path) -> bytes:
    """Read the bytes of a result, so that those that are checked are those that are read."""
    try:
        with path.open("rb") as stream:
            size = min(os.fstat(stream.fileno()).st_size, LARGEST)
            image = stream.read(size + 1)  # memory for all that is asked for is taken at once
    except IsADirectoryError:
        raise InputError(f"{path} is a folder, expected a result of cocos, a file like count.nc") from None
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({unreachable(error)})") from None
    if len(image) > LARGEST:
        raise InputError(f"{path} has more than {LARGEST:,} bytes, the most that a result may have")
    return image


def sound(path: Path, data: xr.Dataset) -> xr.Dataset:
    """The Dataset, if its attributes, and the sizes of its dimensions, are of the kinds that results have."""
    for name, value in data.attrs.items():
        listed = isinstance(value, np.generic) or isinstance(value, np.ndarray) and value.size <= MOST_ENTRIES
        plain = value.tolist() if listed else value
        values = plain if isinstance(plain, list) else [plain]  # any other attribute: texts or numbers
        if not (RIGHT[name](plain) if name in RIGHT else all(isinstance(one, str | int | float) for one in values)):
            shown = " ".join(str(value).split())[:60]
            raise InputError(f"{path} is no result of cocos, or a damaged one: attribute {name} is {shown!r}")
    for name, size in data.sizes.items():
        if size > MOST_ALONG.get(str(name), size):
            raise InputError(f"{path}: {size:,} along {name}, expected at most {MOST_ALONG[str(name)]:,}")
    for variable, each in data.variables.items():
        for name in ("long_name", "units"):
            if not isinstance(each.attrs.get(name, ""), str):
                raise InputError(f"{path} is no result of cocos, or a damaged one: {name} of {str(variable)[:40]!r}")
    return data
