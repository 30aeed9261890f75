"""Tables of a comparison query by query: the values with their intervals, and the queries that changed most."""

from collections.abc import Sequence

import numpy as np
import xarray as xr

from cocos.measures._paired_queries import COMPARED
from cocos.reports import terminal
from cocos.reports.layout import Table

# Characters of the name of a row in a table.
ROW_NAME = 36


def tables(data: xr.Dataset) -> list[Table]:
    """The comparison, and for each direction the queries that changed most."""
    found = [table(data)]
    return found + [_changed(data.sel(direction=side)) for side in data["direction"].values if _any(data, side)]


def _any(data: xr.Dataset, side: str) -> bool:
    return bool((data["changed_index"].sel(direction=side) >= 0).any())


def table(data: xr.Dataset) -> Table:
    """Write a row for each value of each direction: both means, the difference with its interval, and its p-value."""
    names, rows = [str(each) for each in data["version"].values], []
    several = data.sizes["direction"] > 1
    for side in data["direction"].values:
        for metric in data["metric"].values:
            one = data.sel(direction=side, metric=metric)
            if np.isfinite(one["difference"]):
                rows.append((f"{side} {metric}" if several else str(metric), *_cells(one, str(metric))))
    percent = f"{100 * data.attrs['level']:g} %"
    columns = ("", *names, f"{names[1]} - {names[0]}", percent, "p (Holm)", "n", "up", "down")
    head = [_sentence(data.sel(direction=side), names) for side in data["direction"].values]
    return Table(columns, tuple(rows), tuple(filter(None, head)), (*_notes(data), *_lines(data)),
                 least=("down", "up"))  # fmt: skip


def _digits(metric: str) -> int:
    """Digits behind the point: fewer for numbers up to 100 than for parts of one."""
    return 2 if COMPARED[metric][1] in {"%", "candidates"} else 4


def _cells(one: xr.Dataset, metric: str) -> tuple[str, ...]:
    digits = _digits(metric)
    interval = "none"
    if np.isfinite(one["low"]):
        interval = f"[{float(one['low']):+.{digits}f}, {float(one['high']):+.{digits}f}]"
    p = float(one["p_holm"])
    written = "" if not np.isfinite(p) else "< 0.0001" if p < 1e-4 else f"{p:.4f}"
    return (
        *(f"{float(each):.{digits}f}" for each in one["mean"]),
        f"{float(one['difference']):+.{digits}f}",
        interval,
        written,
        *(f"{int(one[key])}" for key in ("pairs", "increased", "decreased")),
    )


def _sentence(one: xr.Dataset, names: Sequence[str]) -> str:
    """State the change of the value that queries are compared by."""
    metric = one.attrs["by"]
    each = one.sel(metric=metric)
    if not np.isfinite(each["low"]):
        return ""
    before, after = (f"{float(value):.{_digits(metric)}f}" for value in each["mean"])
    digits, unit = _digits(metric), COMPARED[metric][1]
    side = str(one["direction"].item())
    changed = f"{int(each['increased'])} of {int(each['pairs'])} queries rise and {int(each['decreased'])} fall"
    low, high = (f"{float(each[key]):+.{digits}f}" for key in ("low", "high"))
    said = f"{side}: {metric} goes from {before} ({names[0]}) to {after} {unit} ({names[1]}), "
    if float(each["low"]) <= 0 <= float(each["high"]):
        return f"{said}a difference that is not resolved, [{low}, {high}]; {changed}."
    return f"{said}{float(each['difference']):+.{digits}f} [{low}, {high}]; {changed}."


def _lines(data: xr.Dataset) -> list[str]:
    """State what the intervals and p-values are."""
    counts = sorted({int(each) for each in data["groups"].values.ravel() if np.isfinite(each)})
    alone = bool((data["groups"] == data["pairs"]).where(np.isfinite(data["groups"]), True).all())
    groups = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}" if counts else "no"
    tests = int(np.isfinite(data["p"]).sum())
    over = (
        "over queries" if alone else f"over {groups} groups of queries, which may depend on each other within a group"
    )
    return [
        f"Intervals: paired t {over}; p: adjusted by Holm's method for {tests} tests; n: queries with a value in both; "
        "up, down: queries whose value rises, falls."
    ]


def _notes(data: xr.Dataset) -> list[str]:
    return [line for line in data.attrs["notes"].splitlines() if line]


def _changed(one: xr.Dataset) -> Table:
    """Write the queries of one direction that changed most, each with its pushers and neighbours in both versions."""
    names, rows, by = [str(each) for each in one["version"].values], [], one.attrs["by"]
    side, known = str(one["direction"].item()), "pusher" in one
    for place in range(one.sizes["changed"]):
        query = one.isel(changed=place)
        if (row := int(query["changed_index"])) < 0:
            continue
        title = str(query["changed_name"].item()) if "changed_name" in query else ""
        for version, name in enumerate(names):
            each = query.isel(version=version)
            cells = [f"{float(each['changed_value']):.{_digits(by)}f}"]
            if known:
                cells += [_rank(float(each["best_rank"])), _listed(each, "pusher"), _listed(each, "nearest")]
            rows.append((_label(row, title) if version == 0 else "", name, *cells))
    more = ("best rank", "pushed by", "ranked first") if known else ()
    notes = (
        ("pushed by: heaviest negatives and their part of the push; ranked first: + marks a positive",) if known else ()
    )
    head = (f"{side}: the queries whose {by} changed most",)
    return Table(("query", "", by, *more), tuple(rows), head, notes, left=True)


def _rank(value: float) -> str:
    return f"{value:.0f}" if np.isfinite(value) else "none"


def _label(row: int, name: str) -> str:
    """A row with its name, bounded."""
    text = terminal.clean(name)
    text = text if len(text) <= ROW_NAME else f"{text[: ROW_NAME - 1]}…"
    return f"{row} {text}".strip()


def _listed(each: xr.Dataset, key: str) -> str:
    """List pushers with their parts, or neighbours, a positive with a plus."""
    found = []
    for k, row in enumerate(each[key].values.tolist()):
        if row < 0:
            continue
        name = str(each[f"{key}_name"].values[k]) if f"{key}_name" in each else ""
        if key == "pusher":
            found.append(f"{_label(row, name)} ({100 * float(each['pusher_part'][k]):.0f} %)")
        else:
            found.append(f"{_label(row, name)}{' +' if bool(each['nearest_positive'][k]) else ''}")
    return ", ".join(found) or "none"
