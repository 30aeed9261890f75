"""Tables of Datasets for a terminal: labels, numbers, units.

A measure with a layout of its own has a function here; all others have the generic tables.
"""

from dataclasses import replace

import numpy as np
import xarray as xr

from cocos import results
from cocos.base import terminal
from cocos.base.layout import Table
from cocos.counting import findings
from cocos.reports.document import ATTRIBUTES, coordinate, plain, thinned

# Variables in the tables of a measure that has more than a line holds; documents have all.
SHOWN = {
    "contributors": ("positive", "score", "share", "part", "contributes"),
    "thresholds": ("chosen", "global_precision", "global_recall", "returned_band", "precision_band", "recall_band"),
    "retrievals": ("candidate", "score", "positive", "best_rank", "best_score", "positives"),
    "weight_map": ("negatives", "weighed", "contributing", "pulled"),
    "dtp": ("average", "low", "high", "alpha"),
}
# Characters of a text in a table.
TEXT_LENGTH = 40


def generic(data: xr.Dataset) -> list[Table]:
    """Return a table of the variables along each set of axes, and one of the numbers of each direction.

    A variable over queries is given by its mean, or its median, and its 5th to 95th percentile; of a long axis, a few
    places are listed.
    """
    columns = [str(name) for name in data["direction"].values] if "direction" in data.dims else [""]
    rows = [
        (_label(*ATTRIBUTES[key]), number(data.attrs[key]), *[""] * (len(columns) - 1))
        for key in ATTRIBUTES
        if key in data.attrs
    ]
    groups: dict[tuple, dict[str, xr.DataArray]] = {}
    notes = {}
    for key in SHOWN.get(data.attrs["measure"], map(str, data.data_vars)):
        values = thinned(data, key) if key in data else None
        if values is None:
            continue
        for axis, middle in (("quantile", "mean"), ("percentile", "median")):
            if axis in values.dims:
                notes[axis] = f"over queries: {middle} (5th to 95th percentile)"
        cells = _cells(values)
        if axes := tuple(str(axis) for axis in cells.dims if axis != "direction"):
            groups.setdefault((axes, "direction" in cells.dims), {})[key] = cells
        else:
            texts = cells.sel(direction=columns).values.tolist() if "direction" in cells.dims else [cells.item()]
            rows.append((_label(*_described(data, key)), *texts, *[""] * (len(columns) - len(texts))))
    tables = [_along(data, axes, variables) for (axes, _), variables in groups.items()]
    tables += [Table(("", *columns), tuple(rows))] if rows or not tables else []
    tables[0] = replace(tables[0], head=head(data))
    tables[-1] = replace(tables[-1], notes=(*tables[-1].notes, *notes.values()))
    return tables


def _along(data: xr.Dataset, axes: tuple[str, ...], variables: dict[str, xr.DataArray]) -> Table:
    """Return the table of variables along the same axes: a row for each direction and place, a column for each."""
    first = next(iter(variables.values()))
    sides = data["direction"].values.tolist() if "direction" in first.dims else [None]
    rows = []
    for side in sides:
        arrays = [cells if side is None else cells.sel(direction=side) for cells in variables.values()]
        for places in np.ndindex(*(first.sizes[axis] for axis in axes)):
            at = dict(zip(axes, places, strict=True))
            keys = [coordinate(first[axis].values[place]) for axis, place in at.items()]
            if "candidate_index" in data and axes == ("candidate",):
                row = data.isel(at)
                keys = [str(int(row["candidate_index"])) + (f"  {number(row['text'])}" if "text" in row else "")]
            rows.append((*([str(side)] if len(sides) > 1 else []), *keys, *(cells.isel(at).item() for cells in arrays)))
    legend = [f"{name}: {label}" for name in (*axes, *variables) if (label := _label(*_described(data, name))) != name]
    names = (*(["direction"] if len(sides) > 1 else []), *axes, *variables)
    return Table(names, tuple(rows), notes=("; ".join(legend),))


def _cells(values: xr.DataArray) -> xr.DataArray:
    """Write each number, or the mean and the percentiles of many in one cell."""
    for axis in ("quantile", "percentile"):
        if axis in values.dims:
            ends = [0, 1, -1] if axis == "quantile" else [len(values[axis]) // 2, 0, -1]
            parts = (values.isel({axis: end}, drop=True) for end in ends)
            return xr.apply_ufunc(_band, *parts, vectorize=True)
    return xr.apply_ufunc(number, values, vectorize=True)


def _band(middle: float, low: float, high: float) -> str:
    """Write the middle and the ends of a range, or one number where they agree."""
    if not np.isfinite(middle) or middle == low == high:
        return number(middle)
    return f"{number(middle)} ({number(low, 3)} to {number(high, 3)})"


def number(value: object, digits: int = 4) -> str:
    """Write a number to a few digits; a dash if it does not exist."""
    value = plain(value)
    if value is None or isinstance(value, bool):
        return {None: "-", True: "yes", False: "no"}[value]
    return (
        f"{round(value, 12) + 0:.{digits}g}" if isinstance(value, float) else terminal.one_line(str(value), TEXT_LENGTH)
    )


def _described(data: xr.Dataset, name: str) -> tuple[str, str]:
    """Return the label and the unit of a variable or an axis."""
    attrs = data[name].attrs if name in data.variables else {}
    return attrs.get("long_name", name), attrs.get("units", "1")


def _label(label: str, units: str) -> str:
    return f"{label} (%)" if units == "%" else label


def head(data: xr.Dataset) -> tuple[str, ...]:
    """Return the title, the loss, and the batches or queries of a Dataset."""
    attrs = data.attrs
    side = str(attrs.get("direction", ""))
    lines = [attrs["title"] if side in attrs["title"] else f"{attrs['title']}, {side}", *findings.first(attrs)]
    if "loss_repr" in attrs:
        lines.append(f"{attrs['loss_repr']}{f', {results.above(attrs)}' if 'eps' in attrs else ''}")
    where = f" on {attrs['device']}" if "device" in attrs else ""
    if "batch_size" in attrs:
        count = attrs.get("batches", data.sizes.get("batch", 1))
        batches = f"{count} batches" if count > 1 else "one batch"
        lines.append(
            f"{batches} of {attrs['batch_size']} {attrs['sample']}, seed {attrs['seed']}; {attrs['dtype']}{where}"
        )
    elif "seed" in attrs:
        lines.append(f"{attrs.get('metric', 'given').replace('_', ' ')} scores; seed {attrs['seed']}{where}")
    if about := results.about_weights(attrs) if "gradient" in attrs else "":
        lines.append(about)
    return tuple(lines)
