"""Summarise a plot in numbers: totals of a Dataset, bands over its queries, and a few points of its curves."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from cocos import results
from cocos.base.layout import Table
from cocos.counting import findings

# Axes that a figure has many values of: summarised by mean and percentiles.
ITEMS = ("batch", "query")
QUANTILES = {"p5": 0.05, "p50": 0.5, "p95": 0.95}
# Percentiles over queries in a Dataset that does not name its own.
USUAL_PERCENTILES = ("5th", "95th")
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
        >>> cocos.reports.summaries.entries(data, ["part"], "rule")
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


def table(data: xr.Dataset) -> Table:
    """Write the numbers of a Dataset, as `numbers` selects them: a column for each direction."""
    told = numbers(data)
    columns = told["directions"] or {"": {}}
    first, rows, curves, banded = next(iter(columns)), [], [], False
    for key in dict.fromkeys((*told["values"], *(key for entry in columns.values() for key in entry))):
        label, axes = _named(data, key)
        cells = {name: _by_place(entry[key], axes) for name, entry in columns.items() if key in entry}
        cells |= {first: _by_place(told["values"][key], axes)} if key in told["values"] else {}
        if not cells:
            continue
        places = list(next(iter(cells.values())))
        banded = banded or any(isinstance(cell, dict) for one in cells.values() for cell in one.values())
        texts = [[_cell(cells[name][place]) if name in cells else "" for name in columns] for place in places]
        if places == [""]:
            rows.append((label, *texts[0]))
        else:
            curves.append((label, *[""] * len(columns)))
            curves += [(f"  {place}", *one) for place, one in zip(places, texts, strict=True)]
    ends = USUAL_PERCENTILES
    if "percentile" in data.coords:
        ends = tuple(f"{float(each):g}th" for each in data["percentile"].values[[0, -1]])
    notes = (f"over queries: the mean, if given, and the median ({' to '.join(ends)} percentile)",) if banded else ()
    return Table(("", *columns), (*rows, *curves), head(data), notes)


def head(data: xr.Dataset) -> tuple[str, ...]:
    """State the measure, the loss, and the batches or queries of a Dataset."""
    attrs = data.attrs
    lines = [attrs["title"], *findings.first(attrs)]
    if "loss_repr" in attrs:
        eps = f", {results.above(attrs)}" if "eps" in attrs else ""
        lines.append(f"{attrs['loss_repr']}{eps}")
    where = f" on {attrs['device']}" if "device" in attrs else ""
    if "batch_size" in attrs:
        number = attrs.get("batches", data.sizes.get("batch", 1))
        batches = f"{number} batches" if number > 1 else "one batch"
        lines.append(
            f"{batches} of {attrs['batch_size']} {attrs['sample']}, seed {attrs['seed']}; {attrs['dtype']}{where}"
        )
    elif "seed" in attrs:
        drawn = ""
        if "query_index" in data:  # the array is padded to the direction with the most
            numbers = np.atleast_1d(data["query_index"].notnull().sum("query"))
            drawn = f"{' and '.join(map(str, dict.fromkeys(numbers.tolist())))} queries, "
        lines.append(f"{attrs['metric'].replace('_', ' ')} scores; {drawn}seed {attrs['seed']}{where}")
    if weights := results.about_weights(attrs) if "gradient" in attrs else "":
        lines.append(weights)
    return tuple(lines)


def _cell(value) -> str:
    """Write a number to four digits, or the mean and the percentiles of many."""
    if isinstance(value, dict):
        if value["p50"] is None:
            return "none"
        bands = {key: "none" if part is None else f"{part:.4g}" for key, part in value.items()}
        mean = f"{bands['mean']}: " if "mean" in value else ""
        low, high = (bands[key] for key in bands if key not in {"mean", "p50"})
        return f"{mean}{bands['p50']} ({low} to {high})"
    return "none" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _by_place(value, axes: tuple[str, ...]) -> dict[str, object]:
    """Flatten a nested variable to place -> cell; its percentiles share one cell."""
    if not isinstance(value, dict) or ("p50" in value and not isinstance(value["p50"], dict)):
        return {"": value}
    if "p50" in value or axes[0] == "percentile":
        rest = axes if "p50" in value else axes[1:]
        parts = {key if key[0] in "mp" else f"p{key}": _by_place(one, rest) for key, one in value.items()}
        return {place: {key: one[place] for key, one in parts.items()} for place in parts["p50"]}
    found = {}
    for at, one in value.items():
        for place, cell in _by_place(one, axes[1:]).items():
            found[", ".join(filter(None, (f"{axes[0]} {at}", place)))] = cell
    return found


def _named(data: xr.Dataset, key: str) -> tuple[str, tuple[str, ...]]:
    """Name a number, and the axes along which it varies."""
    if key not in data:
        label, units = ATTRIBUTES[key]
        return f"{label}, %" if units == "%" else label, ()
    one = data[key]
    axes = [axis for axis in one.dims if axis not in {"direction", *ITEMS}]
    names = [one[axis].attrs.get("long_name", axis) if axis in one.coords else axis for axis in axes]
    short = (axis if " " in name and axis != "percentile" else name for axis, name in zip(axes, names, strict=True))
    label, units = one.attrs.get("long_name", key), one.attrs.get("units", "1")
    return f"{label}, %" if units == "%" else label, tuple("percentile" if n.startswith("perc") else n for n in short)
