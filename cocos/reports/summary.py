"""Table of the numbers of any Dataset, for measures without a table of their own."""

import numpy as np
import xarray as xr

from cocos import results
from cocos.counting import findings
from cocos.reports.layout import Table
from cocos.results import summaries

# Percentiles over queries in a Dataset that does not name its own.
USUAL_PERCENTILES = ("5th", "95th")


def table(data: xr.Dataset) -> Table:
    """Write the numbers of a Dataset, as `cocos.summaries.numbers` selects them: a column for each direction."""
    told = summaries.numbers(data)
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
    return Table(("", *columns), (*rows, *curves), about(data), notes)


def about(data: xr.Dataset) -> tuple[str, ...]:
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
        label, units = summaries.ATTRIBUTES[key]
        return f"{label}, %" if units == "%" else label, ()
    one = data[key]
    axes = [axis for axis in one.dims if axis not in {"direction", *summaries.ITEMS}]
    names = [one[axis].attrs.get("long_name", axis) if axis in one.coords else axis for axis in axes]
    short = (axis if " " in name and axis != "percentile" else name for axis, name in zip(axes, names, strict=True))
    label, units = one.attrs.get("long_name", key), one.attrs.get("units", "1")
    return f"{label}, %" if units == "%" else label, tuple("percentile" if n.startswith("perc") else n for n in short)
