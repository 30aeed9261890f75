"""Tables of a comparison query by query: the values with their intervals, and the queries that changed most."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import xarray as xr

from cocos import results
from cocos.measures.diff import COMPARED
from cocos.reports import terminal
from cocos.reports.layout import Table
from cocos.results import records

# Characters of the name of a row in a table.
ROW_NAME = 36
# Largest difference that rounding makes, in parts of the largest value.
EQUAL_VALUES = 1e-6
# Values that readers know by their short names.
RANKED = re.compile(r"(R|nDCG|recall)@\d+|MRR|MAP")
# Longest name of a result that heads a column.
COLUMN_NAME = 6


def tables(data: xr.Dataset) -> list[Table]:
    """The comparison, and for each direction the queries that changed most."""
    sides = results.sides(data).values() if "changed" in data.dims else ()
    return [table(data), *(_changed(one) for one in sides if (one["changed_index"] >= 0).any())]


def _versions(data: xr.Dataset) -> tuple[list[str], str]:
    """Column heads, with a legend for long names."""
    names = [str(each) for each in data["version"].values]
    if max(map(len, names)) <= COLUMN_NAME:
        return names, f"change: {names[1]} less {names[0]}"
    return ["A", "B"], f"A: {names[0]}; B: {names[1]}; change: B less A"


def table(data: xr.Dataset) -> Table:
    """Write a row for each value of each direction: both means, the difference with its interval, and its p-value.

    Values that are the same everywhere are named below.
    """
    (names, said), rows, still = _versions(data), [], []
    several, steps = data.sizes["direction"] > 1, "step" in data.dims
    tested = bool(np.isfinite(data["p"]).any())
    sides = results.sides(data)
    for side, metric in itertools.product(sides, map(str, data["metric"].values)):
        one, label = sides[side].sel(metric=metric), f"{side} {metric}" if several else metric
        before, after = one["value"].values
        largest = np.nanmax(np.abs(one["value"].values), initial=0.0)
        if np.nanmax(np.abs(after - before), initial=0.0) <= EQUAL_VALUES * largest:
            still += [label] if float(one["pairs"]) > 0 else []
        elif np.isfinite(one["difference"]):
            rows.append((label, *_cells(one, metric, tested)))
    if not rows:
        return Table(("",), (), (said, _counted(data.attrs)), tuple(results.lines(data.attrs)))
    columns = ("", *([f"{name}, last" for name in names] if steps else names), "change")
    columns += (f"{100 * data.attrs['level']:g} %", "p") if tested else ()
    columns += ("n", "since") if steps else ("n", "up", "down")
    head = [said] if steps else [_sentence(one, names) for one in sides.values()]
    head.append(_counted(data.attrs))
    notes = [f"equal in both: {', '.join(still)}"] if still and steps else []  # of queries, a note says it with n
    notes += [*results.lines(data.attrs), _steps_line(data) if steps else f"{said}. {_queries_line(data)}"]
    return Table(columns, tuple(rows), tuple(filter(None, head)), tuple(notes), least=("down", "up", "since"))


def in_words(shown: Table, data: xr.Dataset) -> Table:
    """The comparison with the values of its rows in words, and their units, where a table of a page has the room."""
    known, rows = COMPARED | records.DIRECTION_METRICS | records.STEP_METRICS, []
    for head, *cells in shown.rows:
        side, space, metric = head.rpartition(" ")
        long_name, unit = known.get(metric, (metric, ""))
        words = metric if RANKED.fullmatch(metric) else long_name.partition(", ")[0]
        rows.append((f"{side}{space}{words}{' (%)' if unit == '%' else ''}", *cells))
    return replace(shown, rows=tuple(rows))


def _counted(attrs: dict) -> str:
    """State the loss that is counted, and when a negative contributes; empty for ranks alone."""
    if "loss" not in attrs or "eps" not in attrs:
        return ""
    return f"{attrs.get('loss_repr', attrs['loss'])}, {results.above(attrs)} (eps = {float(attrs['eps']):g})"


def _digits(metric: str) -> int:
    """Digits behind the point: fewer for numbers up to 100 than for parts of one."""
    unit = (COMPARED | records.DIRECTION_METRICS | records.STEP_METRICS).get(metric, ("", "%"))[1]
    return 2 if unit in {"%", "candidates", "queries", "rank", "dimensions"} else 4


def _cells(one: xr.Dataset, metric: str, tested: bool) -> tuple[str, ...]:
    """The cells of a row behind its name; interval and p-value where any row has them."""
    digits, steps = _digits(metric), "since" in one
    shown = [f"{float(each):.{digits}f}" for each in one["last" if steps else "mean"]]
    shown.append(f"{float(one['difference']):+.{digits}f}")
    p, low, high = (float(one[key]) for key in ("p_holm", "low", "high"))
    if tested:
        shown.append(f"[{low:+.{digits}f}, {high:+.{digits}f}]" if np.isfinite(low) else "none")
        shown.append("" if not np.isfinite(p) else "<0.0001" if p < 1e-4 else f"{p:.4f}")
    if steps:
        return (*shown, f"{int(one['pairs'])}", f"{int(one['since'])}" if np.isfinite(one["since"]) else "none")
    return (*shown, *(f"{int(one[key])}" for key in ("pairs", "increased", "decreased")))


def _sentence(one: xr.Dataset, names: Sequence[str]) -> str:
    """State the change of the value that queries are compared by; none is claimed where it is not resolved."""
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
    if (p := float(each["p_holm"])) > 1 - float(one.attrs["level"]):
        return f"{said}a change that is not resolved, [{low}, {high}] and p = {p:.2g}; {changed}."
    return f"{said}{float(each['difference']):+.{digits}f} [{low}, {high}]; {changed}."


def _steps_line(data: xr.Dataset) -> str:
    """State what the numbers of two runs are."""
    blocks = sorted({int(each) for each in data["groups"].values.ravel() if np.isfinite(each)})
    tests = int(np.isfinite(data["p"]).sum())
    how = f"Intervals: paired t over {blocks[-1]} blocks of steps, which may depend on each other within a block; p: " \
          f"adjusted by Holm's method for {tests} tests. " if blocks else ""  # fmt: skip
    return (
        f"{how}last: at step {int(data['step'][-1])}; change: mean over the n common steps; since: step from which on "
        "the change keeps its sign, none where both are equal at the last step."
    )


def _queries_line(data: xr.Dataset) -> str:
    """State what the intervals and p-values are."""
    counts = sorted({int(each) for each in data["groups"].values.ravel() if np.isfinite(each)})
    alone = bool((data["groups"] == data["pairs"]).where(np.isfinite(data["groups"]), True).all())
    groups = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}" if counts else "no"
    tests = int(np.isfinite(data["p"]).sum())
    over = (
        "over queries" if alone else f"over {groups} groups of queries, which may depend on each other within a group"
    )
    return (
        f"Intervals: paired t {over}; p: adjusted by Holm's method for {tests} tests; n: queries with a value in both; "
        "up, down: queries whose value rises, falls."
    )


def _changed(one: xr.Dataset) -> Table:
    """Write the queries of one direction that changed most, each with its pushers and neighbours in both versions."""
    names, rows, by = _versions(one)[0], [], one.attrs["by"]
    side, known, ranked = str(one["direction"].item()), "pusher" in one, "best_rank" in one
    for place in range(one.sizes["changed"]):
        query = one.isel(changed=place)
        if (row := int(query["changed_index"])) < 0:
            continue
        title = str(query["changed_name"].item()) if "changed_name" in query else ""
        for version, name in enumerate(names):
            each = query.isel(version=version)
            cells = [f"{float(each['changed_value']):.{_digits(by)}f}"]
            cells += [f"{rank:.0f}" if np.isfinite(rank := float(each["best_rank"])) else "none"] if ranked else []
            cells += [_listed(each, "pusher"), _listed(each, "nearest")] if known else []
            rows.append((_label(row, title) if version == 0 else "", name, *cells))
    more = (*(("best rank",) if ranked else ()), *(("pushed by", "ranked first") if known else ()))
    notes = (
        ("pushed by: heaviest negatives and their part of the push; ranked first: + marks a positive",) if known else ()
    )
    head = (f"{side}: the queries whose {by} changed most",)
    return Table(("query", "", by, *more), tuple(rows), head, notes, left=True)


def _label(row: int, name: str) -> str:
    """A row with its name, bounded."""
    return f"{row} {terminal.one_line(name, ROW_NAME)}".strip()


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
