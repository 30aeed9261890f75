"""Summarise a plot in numbers: totals of a Dataset, bands over its queries, and a few points of its curves."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from cocos import results
from cocos.counting import findings

# Axes that a figure has many values of: summarised by mean and percentiles.
ITEMS = ("batch", "query")
QUANTILES = {"p5": 0.05, "p50": 0.5, "p95": 0.95}
# Values of an axis up to which all are listed.
SHORT_AXIS = 12
# Places that are listed of a longer axis, at least and at most.
FEWEST_PLACES, MOST_PLACES = 5, 9
ATTRIBUTES = {  # totals that stand in the attributes: what they are, and their unit
    "pr_auc": ("PR-AUC of one threshold for all pairs", "%"),
    "pairs": ("pairs of a query and a candidate", "pairs"),
    "positive_pairs": ("positive pairs", "pairs"),
    "not_reached": ("precisions that no cut-off reaches", "1"),
    "parameter": ("what is changed", ""),
    "own": ("its value in the loss", ""),
}
OPTIONS = (
    "eps",
    "batches",
    "batch_size",
    "sample",
    "copies",
    "same_group",
    "seed",
    "dtype",
    "device",
    "split",
    "metric",
)


def places(size: int) -> np.ndarray:
    """Evenly spaced places of a curve, its ends among them: as many as divide it evenly, and at most nine."""
    if size <= SHORT_AXIS:
        return np.arange(size)
    even = [count for count in range(FEWEST_PLACES, MOST_PLACES + 1) if (size - 1) % (count - 1) == 0]
    return np.linspace(0, size - 1, max(even, default=MOST_PLACES - 2)).round().astype(int)


def plain(value) -> float | int | bool | None:
    """A number as JSON represents it; None where it is not finite."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not np.isfinite(value) else value


def shortest(value) -> float | int | None:
    """A number as JSON represents it, a whole one without a fraction."""
    number = plain(value)
    return int(number) if number is not None and float(number).is_integer() else number


def entries(data: xr.Dataset, names: Iterable[str], *axes: str) -> dict[str, Any]:
    """Numbers of a Dataset as JSON has them: by the labels along some axes, one within the other, then by their names.

    Examples:
        >>> import xarray as xr
        >>> data = xr.Dataset({"part": ("rule", [0.5, float("nan")])}, {"rule": ["group", "text"]})
        >>> cocos.results.summaries.entries(data, ["part"], "rule")
        {'group': {'part': 0.5}, 'text': {'part': None}}
    """
    if not axes:
        return {name: plain(data[name]) for name in names}
    axis, *rest = axes
    return {str(label): entries(data.sel({axis: label}), names, *rest) for label in data[axis].values}


def chosen(attrs: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Some attributes as JSON has them; a file gives them back as numbers of numpy."""
    return {name: plain(attrs[name]) for name in names}


def _by_first_axis(values: xr.DataArray):
    """Nest a variable by the values along its axes; without axes it is a number."""
    if not values.dims:
        return plain(values)
    axis = values.dims[0]
    at = values[axis].values
    keys = [str(key) if isinstance(key, str) else f"{round(float(key), 12) + 0:.6g}" for key in at]
    return {key: _by_first_axis(values.isel({axis: place})) for place, key in enumerate(keys)}


def _summary(values: xr.DataArray):
    """Summarise one variable of one direction for the table; None where only the plot shows it."""
    long = [axis for axis in values.dims if axis not in ITEMS and values.sizes[axis] > SHORT_AXIS]
    indexed = all(axis in values.coords for axis in values.dims if axis not in ITEMS)
    items = [axis for axis in ITEMS if axis in values.dims]
    if not indexed or (long and items) or "bin" in values.dims:
        return None
    if items:
        values = values.astype(np.float64)
        bands = values.quantile(list(QUANTILES.values()), items)
        return {"mean": _by_first_axis(values.mean(items))} | {
            name: _by_first_axis(bands.sel(quantile=part, drop=True)) for name, part in QUANTILES.items()
        }
    some = [places(values.sizes[axis]) for axis in long]
    if len(long) > 1:
        some = [at[[0, len(at) // 2, -1]] for at in some]
    return _by_first_axis(values.isel(dict(zip(long, some, strict=True))))


def numbers(data: xr.Dataset) -> dict:
    """Summarise a Dataset: `directions`, name -> variable -> value, and `values` that belong to no direction.

    A variable over queries is given by its mean and its 5th, 50th and 95th percentile (over the queries that have a
    value), one along an axis by its values there, nested under their coordinates; of a long axis, a few points.
    Histograms, matrices and row numbers are left to the picture.
    """
    names = [str(name) for name in data["direction"].values] if "direction" in data.dims else []
    single = data.attrs.get("direction")
    found = {name: {} for name in names or ([single] if single else [])}
    values = {key: data.attrs[key] for key in ATTRIBUTES if key in data.attrs}
    for key, variable in ((str(name), each) for name, each in data.data_vars.items()):
        banded = f"{key}_band" in data  # the band already says it
        if banded or key.endswith(("_index", "_group")) or variable.dtype.kind not in "fiub":
            continue
        for name in names if "direction" in variable.dims else [single]:
            one = variable.sel(direction=name, drop=True) if "direction" in variable.dims else variable
            told = _summary(one)
            if told is not None:
                (values if name is None else found[name])[key] = told
    return {"directions": found, "values": values}


def about(data: xr.Dataset) -> dict:
    """Version, file, loss and options."""
    attrs, about = data.attrs, results.about(data.attrs)
    about |= {"gradient": attrs["gradient"]} if "loss" in attrs else {}
    if "checkpoint_path" in attrs:
        about["health"] = {"collapsed": findings.collapsed(attrs)}
    else:
        del about["checkpoint"]
    given = {key: attrs[key] for key in OPTIONS if key in attrs}
    return about | {key: value.item() if isinstance(value, np.generic) else value for key, value in given.items()}


def document(data: xr.Dataset) -> dict:
    """The JSON document of a Dataset whose measure has none of its own: version, file, loss, options and `numbers`."""
    return about(data) | numbers(data)
