"""Table of a replay: what each change would do to the same queries and batches."""

import numpy as np
import xarray as xr

from cocos import results
from cocos.engine.settings import AS_IT_IS
from cocos.measures.replay import REPLAYED
from cocos.reports import summary
from cocos.reports.layout import Table, following


def table(data: xr.Dataset) -> Table:
    """Write a row for each variant of each direction: the means, and the paired change of one value."""
    by, level, rows = data.attrs["by"], float(data.attrs["level"]), []
    unknown = data.attrs.get("share") == "unknown"
    shown = [name for name in REPLAYED if name not in (("contributing", "idle") if unknown else ("relative",))]
    several = data.sizes["direction"] > 1
    for side, one in results.sides(data).items():
        rows += [(f"{side}:", *[""] * (len(shown) + 1))] if several else []
        for label in one["variant"].values:
            each = one.sel(variant=label)
            change = "" if label == AS_IT_IS else _change(each.sel(metric=by), by)
            rows.append((f"{'  ' * several}{label}", *(_mean(each, name) for name in shown), change))
    columns = ("", *(REPLAYED[name][0] for name in shown), f"change of {REPLAYED[by][1]}")
    head = (*map(_sentence, results.sides(data).values()), *summary.about(data))
    counted = (
        f"relative: negatives with {results.above(data.attrs)}"
        if unknown
        else (f"count: contributing negatives per query ({results.above(data.attrs)}); idle %: queries without any")
    )
    notes = (
        f"{counted}; eff.: effective number of negatives; push: weight above zero on them, in loss per score, so that "
        "it grows with a scale; hard: part of the push on the heaviest. Change: mean and "
        f"{100 * level:g} % interval over the queries that have a value in both, {_numbers(data, by)}, not adjusted "
        "for the number of rows.",
        data.attrs["frozen"],
    )
    others = data["loss_name"].values[data["changed"].values == "loss"].tolist()
    compared = following(data.attrs, "gradients", {"loss": str(data.attrs["loss"]), "against": others})
    return Table(columns, tuple(rows), head, notes, least=("push",), typed=compared if others else ())


def _mean(each: xr.Dataset, name: str) -> str:
    value = float(each["mean"].sel(metric=name))
    return f"{value:.{REPLAYED[name][2]}f}" if np.isfinite(value) else "none"


def _change(one: xr.Dataset, by: str) -> str:
    """The difference with its interval."""
    mean, low, high = (float(one[key]) for key in ("difference", "low", "high"))
    digits = REPLAYED[by][2]
    if not np.isfinite(mean):
        return "none"
    if not np.isfinite(low):
        return f"{mean:+.{digits}f} in all" if mean else "0 in all"
    return f"{mean:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"


def _numbers(data: xr.Dataset, by: str) -> str:
    """Numbers of paired queries and of their groups."""
    found = []
    for side, one in results.sides(data[["pairs", "groups"]]).items():
        numbers = one.sel(metric=by).isel(variant=slice(1, None)).fillna(0)
        pairs, groups = (
            "0" if not len(each) else f"{int(each.min())} to {int(each.max())}" if np.ptp(each) else f"{int(each[0])}"
            for each in (numbers["pairs"].values, numbers["groups"].values)
        )
        found.append(f"n = {pairs}{'' if pairs == groups else f' in {groups} groups'} ({side})")
    return ", ".join(found)


def _sentence(one: xr.Dataset) -> str:
    """State the largest change of the value by which variants are compared."""
    by, side = one.attrs["by"], str(one["direction"].item())
    (_, words, digits), each = REPLAYED[by], one.sel(metric=by)
    away = np.where((each["low"] > 0) | (each["high"] < 0), each["difference"], np.nan)
    if not np.isfinite(away).any():
        return f"{side}: {words} {_mean(one.isel(variant=0), by)} as it is; no change is resolved."
    most = each.isel(variant=int(np.nanargmax(np.abs(away))))
    base, change, pairs = float(most["base"]), float(most["difference"]), int(most["pairs"])
    every = int(one["pairs"].sel(metric=by if one.attrs.get("share") == "unknown" else "contributing").max())
    among = "" if pairs == every else f", over the {pairs} queries that have a value in both"
    values = f"from {base:.{digits}f} as it is to {base + change:.{digits}f}"
    return f"{side}: the largest change of {words} is {values}, for {most['variant'].item()}{among}."
