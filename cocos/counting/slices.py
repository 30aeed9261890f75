"""Concatenate the counts of slices of one draw, each counted on any machine: see `concat`."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import xarray as xr

from cocos.base.errors import InputError
from cocos.counting import averages
from cocos.counting.statistics import BY_NAME, SOURCE_STATISTICS
from cocos.embeddings.sources import SOURCES

# Attributes in which slices of one count may differ: the batches, the path of a file, and the findings of the batches.
OF_A_SLICE = {"batch_slice", "device", "checkpoint_path", "data_path", "share", "unit", "notes", "findings"}
# Attribute of the batches of a count, such as 40:80.
BATCH_SLICE = "batch_slice"


def concat(datasets: Sequence[Any]) -> Any:
    """Concatenate counts of adjacent slices of the same batches, such as `batches="0:40"` and `"40:80"`.

    The result is identical to the count of the whole slice, bit for bit on processors of one type.

    Args:
        datasets: results of `cocos.measures.count` with a slice as `batches`, in any order; of several losses, dicts
            of label -> Dataset.

    Returns:
        One Dataset, or a dict of them, as in `datasets`.

    Raises:
        InputError: a dataset is not the count of a slice, or of another loss, seed, batch size, convention or file;
            slices overlap, or batches between them are missing.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(8), 2 * torch.eye(8))
        >>> slices = [cocos.measures.count(embeddings, batch_size=2, batches=each) for each in ("0:1", "1:4")]
        >>> whole = cocos.measures.count(embeddings, batch_size=2, batches="0:4")
        >>> cocos.results.concat(slices).identical(whole)
        True
    """
    if not datasets:
        raise InputError("concat: no datasets, expected at least one")
    first = datasets[0]
    if isinstance(first, dict):
        return {label: concat(_of_label(datasets, label)) for label in first}
    for place, data in enumerate(datasets):
        _check_slice(data, place)
    for place, data in enumerate(datasets):
        if difference := _difference(first, data):
            raise InputError(f"concat: datasets[{place}] and datasets[0] are of different counts: {difference}")
    return _in_order(datasets)


def _of_label(datasets: Sequence[Mapping], label: str) -> list[xr.Dataset]:
    """Take one loss from each dict."""
    for place, each in enumerate(datasets):
        if list(each) != list(datasets[0]):
            raise InputError(f"concat: datasets[{place}] has the losses {list(each)}, expected {list(datasets[0])}")
    return [each[label] for each in datasets]


def _check_slice(data: xr.Dataset, place: int) -> None:
    """Refuse anything but the count of a slice, with all of its batches."""
    if not re.fullmatch(r"\d+:\d+", str(data.attrs.get(BATCH_SLICE))) or not {"batch", "query"} <= set(data.dims):
        raise InputError(f"concat: datasets[{place}] is not a count of a slice; count it with batches A:B, like 40:80")
    start, stop = _ends(data)
    if data.sizes["batch"] != stop - start:
        raise InputError(f"concat: datasets[{place}] has {data.sizes['batch']} of the batches {start}:{stop}")


def _ends(data: xr.Dataset) -> tuple[int, int]:
    """Numbers of the first batch of a slice, and of the batch behind the last one."""
    start, stop = map(int, data.attrs[BATCH_SLICE].split(":"))
    return start, stop


def _difference(one: xr.Dataset, other: xr.Dataset) -> str:
    """Name the first difference that slices of one count cannot have; empty if there is none."""
    names = (one.attrs.keys() | other.attrs.keys()) - OF_A_SLICE
    if one.attrs.get("checkpoint_sha256"):
        names -= {"health"}  # follows from the file, up to rounding on another processor
    for name in sorted(names, key=lambda each: (each == "health", each)):
        if not np.array_equal(np.asarray(one.attrs.get(name)), np.asarray(other.attrs.get(name))):
            return f"{name} is {str(other.attrs.get(name))[:60]}, expected {str(one.attrs.get(name))[:60]}"
    if set(one.variables) != set(other.variables):
        some = sorted(map(str, set(one.variables) ^ set(other.variables)))
        return f"only one of them has {', '.join(some)[:60]}"
    for name in one.variables:
        if name not in {"query", "source"} and not {"batch", "source"} & set(one[name].dims):
            if not one[name].variable.identical(other[name].variable):
                return f"their values of {name} differ"
    return ""


def _in_order(datasets: Sequence[xr.Dataset]) -> xr.Dataset:
    """Put slices of one count in order, refuse gaps and overlaps, and concatenate them."""
    places = sorted(range(len(datasets)), key=lambda place: _ends(datasets[place]))
    for before, after in pairwise(places):
        stop, start = _ends(datasets[before])[1], _ends(datasets[after])[0]
        if start < stop:
            raise InputError(
                f"concat: datasets[{before}] has the batches {datasets[before].attrs[BATCH_SLICE]}, datasets[{after}] "
                f"{datasets[after].attrs[BATCH_SLICE]}, expected each batch once"
            )
        if start > stop:
            raise InputError(f"concat: the batches {stop}:{start} are missing")
    whole = concatenated([datasets[place] for place in places])
    start, stop = _ends(datasets[places[0]])[0], _ends(datasets[places[-1]])[1]
    return whole.assign_attrs({BATCH_SLICE: f"{start}:{stop}"})


def concatenated(parts: Sequence[xr.Dataset]) -> xr.Dataset:
    """Put the batches of parts behind each other; NaN follows the last query of a batch that has fewer."""
    parts = _with_the_same_sources(parts)
    widest = max(part.sizes["query"] for part in parts)
    unknown = [part for part in parts if part.attrs.get("share") == "unknown"]
    first, made = (unknown or parts)[0], {}
    for name, held in parts[0].variables.items():
        if "batch" not in held.dims:
            made[name] = held
            continue
        arrays = [part[name].transpose(*held.dims).values for part in parts]
        if "query" in held.dims:
            axis = held.dims.index("query")
            for place, array in enumerate(arrays):
                if array.shape[axis] < widest:
                    more = [(0, widest - size if at == axis else 0) for at, size in enumerate(array.shape)]
                    arrays[place] = np.pad(array.astype(np.float64), more, constant_values=np.nan)
        values = np.concatenate(arrays, axis=held.dims.index("batch"))
        made[name] = xr.Variable(held.dims, np.arange(len(values)) if name == "batch" else values, held.attrs)
    made["query"] = xr.Variable("query", np.arange(widest), parts[0]["query"].attrs)
    for name, values in _over_all(made, zero_when_idle=first.attrs["convention"] != "standard").items():
        made[name] = xr.Variable(made[name].dims, values, made[name].attrs)
    return xr.Dataset(made, attrs=first.attrs)


def _with_the_same_sources(parts: Sequence[xr.Dataset]) -> list[xr.Dataset]:
    """Give all parts the sources of candidates of any of them: a source that a part lacks has no negatives there."""
    labels = [part["source"].values.tolist() if "source" in part.dims else [] for part in parts]
    every = [name for name in SOURCES if any(name in own for own in labels)]
    if all(own == every for own in labels):
        return list(parts)
    made = []
    for part, own in zip(parts, labels, strict=True):
        none = np.where(part["negatives"].isnull().values, np.nan, 0.0)
        variables = {
            name: ((values := part[name]).dims, np.stack([
                values.values[own.index(label)] if label in own else none for label in every
            ]), values.attrs)
            for name in SOURCE_STATISTICS
        }  # fmt: skip
        source = xr.Variable("source", every, part["source"].attrs)
        made.append(part.drop_dims("source").assign(variables).assign_coords(source=source))
    return made


def _over_all(made: dict[Any, xr.Variable], *, zero_when_idle: bool) -> dict[str, np.ndarray]:
    """Return the numbers shared by all batches: unknown if unknown in one batch, and the largest pull."""
    values = {str(name): held.values for name, held in made.items() if held.dims == averages.QUERY_DIMS}
    if "contributing" in values and np.isnan(values["contributing"][averages.present(values)]).any():
        unknown = {BY_NAME[name].variable for name in averages.BY_SHARE if name in BY_NAME}
        values |= {name: np.full(values[name].shape, np.nan) for name in unknown & values.keys()}
    found = averages.of_batches(values, 2)
    if zero_when_idle and "eq7_mean" in found:
        found["eq7_mean"] = np.nan_to_num(found["eq7_mean"], nan=0.0)
    return {name: each for name, each in (values | found).items() if name in made}
