"""Tables of Datasets for a terminal: labels, numbers, units.

A measure with a layout of its own has a function here; all others have the generic tables.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import xarray as xr

from cocos import results
from cocos.base import terminal
from cocos.base.layout import Table, following, given
from cocos.counting import findings, shares
from cocos.reports.document import ATTRIBUTES, coordinate, plain, thinned

# Variables in the tables of a measure that has more than a line holds; documents have all.
SHOWN = {
    "contributors": ("positive", "score", "share", "part", "contributes"),
    "thresholds": ("chosen", "global_precision", "global_recall", "returned_band", "precision_band", "recall_band"),
    "retrievals": ("candidate", "score", "positive", "best_rank", "best_score", "positives"),
    "weight_map": ("negatives", "weighed", "contributing", "pulled"),
    "dtp": ("average", "low", "high", "alpha"),
    "landscape": ("predicted", "found"),
    "solve": ("value", "effective"),
    "temperature": ("equilibrium_temperature", "low", "high", "effective", "effective_own"),
}
# Where a learned scale ends without an equilibrium.
STATES = {
    "clipped": "grows to its largest value",
    "grows": "grows to its largest value",
    "falls": "falls towards 0",
    "flat": "has no effect",
}
# Headings of the numbers that `replay` compares, and their digits.
REPLAYED = {
    "contributing": ("count", 1),
    "idle": ("idle %", 1),
    "relative": ("relative", 1),
    "effective": ("effective", 1),
    "push": ("push", 2),
    "hardest_share": ("heaviest", 2),
}
# Characters of a text in a table.
TEXT_LENGTH = 40


def generic(data: xr.Dataset) -> list[Table]:
    """Return a table of the variables along each set of axes, and one of the numbers of each direction.

    A variable over queries is given by its mean, or its median, and its 5th to 95th percentile; of a long axis, a few
    places are listed.
    """
    columns = [str(name) for name in data["direction"].values] if "direction" in data.dims else [""]
    rows, notes = [], {}
    for key, about in ATTRIBUTES.items():
        if isinstance(value := data.attrs.get(key), str):
            notes[key] = f"{about[0]}: {value}"
        elif value is not None:
            rows.append((_label(*about), number(value), *[""] * (len(columns) - 1)))
    groups: dict[tuple, dict[str, xr.DataArray]] = {}
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
        lines.append(f"{attrs['loss_repr']}{f', {shares.above(attrs)}' if 'eps' in attrs else ''}")
    where = f" on {attrs['device']}" if "device" in attrs else ""
    if "batch_size" in attrs:
        count = attrs.get("batches", data.sizes.get("batch", 1))
        batches = f"{count} batches" if count > 1 else "one batch"
        lines.append(
            f"{batches} of {attrs['batch_size']} {attrs['sample']}, seed {attrs['seed']}; {attrs['dtype']}{where}"
        )
    elif "seed" in attrs:
        lines.append(f"{attrs.get('metric', 'given').replace('_', ' ')} scores; seed {attrs['seed']}{where}")
    if about := shares.about_weights(attrs) if "gradient" in attrs else "":
        lines.append(about)
    return tuple(lines)


def replay(data: xr.Dataset) -> list[Table]:
    """Return the means of each variant, and the paired change of the number by which variants are compared."""
    by = data.attrs["by"]
    label, digits = REPLAYED[by]
    hidden = ("contributing", "idle") if data.attrs.get("share") == "unknown" else ("relative",)
    metrics = [name for name in REPLAYED if name == by or name not in {*hidden, "push"}]
    rows, lines = [], []
    for side, one in results.sides(data).items():
        for variant in one["variant"].values:
            means = one["mean"].sel(variant=variant)
            cells = [f"{float(means.sel(metric=name)):.{REPLAYED[name][1]}f}" for name in metrics]
            cells = ["-" if cell == "nan" else cell for cell in cells]
            rows.append((f"{side} {variant}", *cells, _change(one.sel(variant=variant, metric=by), digits)))
        compared = one.sel(metric=by)
        change = abs(compared["difference"]).where((compared["low"] > 0) | (compared["high"] < 0))
        if change.notnull().any():
            most = compared.isel(variant=int(np.nanargmax(change.values)))
            before, after = (
                f"{float(value):.{digits}f}" for value in (most["base"], most["base"] + most["difference"])
            )
            lines.append(f"{side}: largest change at {most['variant'].item()}, {label} {before} -> {after}")
        else:
            lines.append(f"{side}: no significant change of {label}")
    notes = (
        f"count: contributing negatives per query ({shares.above(data.attrs)}); idle: queries without any; effective: "
        "effective number of negatives; heaviest: push fraction of the heaviest negative; change: mean paired "
        f"difference of {label} with its {100 * data.attrs['level']:g} % interval, not "
        "adjusted for the number of rows",
        data.attrs["frozen"],
    )
    columns = ("", *(REPLAYED[name][0] for name in metrics), "change")
    return [Table(columns, tuple(rows), (*lines, *head(data)), notes)]


def _change(one: xr.Dataset, digits: int) -> str:
    """Write a paired difference with its interval; nothing for the setting that others are compared with."""
    difference, low, high = (float(one[key]) for key in ("difference", "low", "high"))
    if not np.isfinite(difference) or (difference == 0 and not np.isfinite(low)):
        return ""
    return f"{difference:+.{digits}f}" + (f" [{low:+.{digits}f}, {high:+.{digits}f}]" if np.isfinite(low) else "")


def solve(data: xr.Dataset) -> list[Table]:
    """Return the value of the parameter with the effective number of negatives there, and the count to type next."""
    table, *rest = generic(data)
    parameter, value = data.attrs["parameter"], f"{float(data['value']):.6g}"
    effective, target = float(data["effective_mean"]), float(data.attrs["target"])
    line = f"{parameter} {value}: {effective:.5g} effective negatives (requested: {target:g})"
    parameters = given(results.about_loss(data.attrs)["parameters"] | {parameter: value})
    step = following(data.attrs, "count", {"loss": data.attrs["loss"], "param": parameters})
    return [replace(table, head=(line, *table.head), typed=step), *rest]


def temperature(data: xr.Dataset) -> list[Table]:
    """Return the equilibrium of each batch size, and the count to type next."""
    table, *rest = generic(data)
    own, lines, steps = float(data.attrs["own_temperature"]), [], ()
    for size in data["batch_size"].values.tolist():
        one = data.sel(batch_size=size)
        equilibrium, state = float(one["equilibrium_temperature"]), str(one["state"].item())
        found = f"no equilibrium, the scale {STATES.get(state, state)} (at most {data.attrs['clip']:g})"
        if state == "settles":
            current = f"scale {1 / equilibrium:.4g}, current {1 / own:.4g}"
            if trained := data.attrs.get("trained_temperature"):
                current += f", trained with temperature {trained:.4g}"
            found = f"equilibrium temperature {equilibrium:.4g} ({current})"
        lines.append(f"batch size {size}: {found}")
        if np.isfinite(held := float(one["held_temperature"])):
            loss = results.about_loss(data.attrs)
            name = "scale" if "scale" in loss["parameters"] else "temperature"
            changed = {name: f"{held if name == 'temperature' else 1 / held:.6g}"}
            if "equilibrium_bias" in one and np.isfinite(bias := float(one["equilibrium_bias"])):
                changed["bias"] = f"{bias:.6g}"
            options = {"loss": loss["name"], "param": given(loss["parameters"] | changed), "batch_size": size}
            steps = following(data.attrs, "count", options)
    return [replace(table, head=(*lines, *table.head), typed=steps), *rest]


# Measures with tables of their own.
TABLES: dict[str, Callable[[xr.Dataset], list[Table]]] = {
    "replay": replay,
    "solve": solve,
    "temperature": temperature,
}
