"""Table of a replay: what each change would do to the same queries and batches."""

import numpy as np
import xarray as xr

from cocos import results
from cocos.engine.settings import AS_IT_IS
from cocos.reports import summary
from cocos.reports.layout import Step, Table

# Metric of each column: heading, and digits behind the point.
REPLAY_COLUMNS = {
    "contributing": ("count", 1),
    "idle": ("idle %", 1),
    "effective": ("eff.", 1),
    "push": ("push", 2),
    "hardest_share": ("hard", 2),
}
# Of a loss of unknown unit, by the part of the push.
BY_PUSH_COLUMNS = {"relative": ("relative", 1)} | {
    name: column for name, column in REPLAY_COLUMNS.items() if name not in {"contributing", "idle"}
}
# Digits behind the point of a value.
REPLAY_DIGITS = {name: digits for name, (_, digits) in (REPLAY_COLUMNS | BY_PUSH_COLUMNS).items()}
# Words for the value whose change the table shows.
CHANGE_OF = {
    "contributing": "count",
    "idle": "idle %",
    "relative": "relative count",
    "effective": "effective",
    "push": "push",
    "hardest_share": "hardest",
}


def table(data: xr.Dataset) -> Table:
    """Write a row for each variant of each direction: the means, and the paired change of one value."""
    by, level, rows = data.attrs["by"], float(data.attrs["level"]), []
    unknown = data.attrs.get("share") == "unknown"
    shown = BY_PUSH_COLUMNS if unknown else REPLAY_COLUMNS
    several = data.sizes["direction"] > 1
    for side in data["direction"].values:
        one = data.sel(direction=side)
        rows += [(f"{side}:", *[""] * (len(shown) + 1))] if several else []
        for label in one["variant"].values:
            each = one.sel(variant=label)
            cells = [_mean(each, name, digits) for name, (_, digits) in shown.items()]
            indent = "  " if several else ""
            rows.append((f"{indent}{label}", *cells, _change(each.sel(metric=by), label == AS_IT_IS, by)))
    columns = ("", *(head for head, _ in shown.values()), f"change of {CHANGE_OF[by]}")
    head = (*(_sentence(data.sel(direction=side)) for side in data["direction"].values), *summary.about(data))
    notes = (
        (
            f"relative: negatives with {results.above(data.attrs)}; "
            if unknown
            else f"count: contributing negatives per query ({results.above(data.attrs)}); idle %: queries without any; "
        )
        + "eff.: effective number of negatives; push: weight above zero on them, in loss per score, so that it grows "
        "with a scale; hard: part of the push on the heaviest. Change: mean and "
        f"{100 * level:g} % interval over the queries that have a value in both, {_numbers(data, by)}, not adjusted "
        "for the number of rows.",
        data.attrs["frozen"],
    )
    return Table(columns, tuple(rows), head, notes, least=("push",), typed=_next(data))


def _mean(each: xr.Dataset, name: str, digits: int) -> str:
    value = float(each["mean"].sel(metric=name))
    return f"{value:.{digits}f}" if np.isfinite(value) else "none"


def _change(one: xr.Dataset, base: bool, by: str) -> str:
    """The difference with its interval; nothing for the setting as it is."""
    if base:
        return ""
    mean, low, high = (float(one[key]) for key in ("difference", "low", "high"))
    digits = REPLAY_DIGITS.get(by, 2)
    if not np.isfinite(mean):
        return "none"
    if not np.isfinite(low):
        return f"{mean:+.{digits}f} in all" if mean else "0 in all"
    return f"{mean:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"


def _numbers(data: xr.Dataset, by: str) -> str:
    """Numbers of paired queries and of their groups."""
    found = []
    for side in data["direction"].values:
        numbers = data[["pairs", "groups"]].sel(direction=side, metric=by).isel(variant=slice(1, None)).fillna(0)
        some, groups = numbers["pairs"].values, numbers["groups"].values
        told = [f"{int(each.min())} to {int(each.max())}" if np.ptp(each) else f"{int(each[0])}"
                for each in (some, groups)] if len(some) else ["0", "0"]  # fmt: skip
        found.append(f"n = {told[0]}{'' if told[0] == told[1] else f' in {told[1]} groups'} ({side})")
    return ", ".join(found)


def _sentence(one: xr.Dataset) -> str:
    """State the largest change of the value by which variants are compared."""
    by, side = one.attrs["by"], str(one["direction"].item())
    each = one.sel(metric=by)
    away = each["difference"].values.copy()
    unresolved = ~((each["low"].values > 0) | (each["high"].values < 0))
    away[unresolved] = np.nan
    as_it_is = _mean(one.isel(variant=0), by, REPLAY_DIGITS.get(by, 2))
    if not np.isfinite(away).any():
        return f"{side}: {CHANGE_OF[by]} {as_it_is} as it is; no change is resolved."
    digits, most = REPLAY_DIGITS.get(by, 2), one.isel(variant=int(np.nanargmax(np.abs(away)))).sel(metric=by)
    base, change, label = float(most["base"]), float(most["difference"]), most["variant"].item()
    pairs = int(most["pairs"])
    every = int(one["pairs"].sel(metric=by if one.attrs.get("share") == "unknown" else "contributing").max())
    among = "" if pairs == every else f", over the {pairs} queries that have a value in both"
    values = f"from {base:.{digits}f} as it is to {base + change:.{digits}f}"
    return f"{side}: the largest change of {CHANGE_OF[by]} is {values}, for {label}{among}."


def _next(data: xr.Dataset) -> tuple[Step, ...]:
    """The command that compares the gradients of the losses that were replayed."""
    path = str(data.attrs.get("checkpoint_path", ""))
    others = data["loss_name"].values[data["changed"].values == "loss"].tolist()
    if not path or "\n" in path or not others:
        return ()
    options = {"loss": str(data.attrs["loss"]), "against": others}
    return (Step("gradients", (path,), options),)
