"""Tables of the measures that have a layout of their own."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import xarray as xr

from cocos import results
from cocos.base import terminal
from cocos.counting import averages, findings
from cocos.reports import documents
from cocos.reports.tables import Table, from_variables, generic, head, next_steps, number, spread

# Fractions of an audit that its tables show in percent, by rule and by filter.
FRACTIONS = ("share", "push_share", "placebo", "met", "filter_share", "filter_push", "push_precision", "push_recall")
# The rule whose pairs are known to belong together, so that they need no reading.
KNOWN_RULE = "group"
TextOfRow = Callable[[int], str]


def evaluate(data: xr.Dataset) -> list[Table]:
    """Return a row for each metric and a column for each direction, and for each direction with distractors."""
    columns, rows, folds = {}, [], data.sizes["fold"]
    for condition in map(str, data["distractors"].values):
        for side, single in results.sides(data.sel(distractors=condition)).items():
            if condition == "without" or single["unmatched"]:
                columns[side if condition == "without" else f"{side} + distractors"] = single
    for key in (key for key in map(str, data) if data[key].dims[-1] == "fold"):
        means = [averages.entry(float("nan"), single[key].values, standard=False) for single in columns.values()]
        cells = (spread(mean if folds > 1 else {**mean, "std": None}, 2) for mean in means)
        rows.append((f"{key.replace('_', ' ')}{' (%)' if data[key].attrs['units'] == '%' else ''}", *cells))
    notes = [f"mean ± standard deviation over {folds} folds, sizes of one fold"] if folds > 1 else []
    return [Table(("", *columns), tuple(rows), head(data), (*notes, data.attrs["ties"]))]


def audit(data: xr.Dataset, texts: tuple[TextOfRow, TextOfRow] | None = None, top: int = 10) -> list[Table]:
    """Return the rules, the filters if there are any, and the `top` suspected pairs with the largest push.

    The `texts` are functions, row -> text, of the queries and of the candidates.
    """
    lines = [finding.text for finding in findings.of_audit(data) if finding.kind in {"suspected", "no rule"}]
    notes = [finding.text for finding in findings.of_audit(data) if finding.text not in lines]
    suspected = data["suspects"].sel(rule="any rule")
    lines += [f"{side}: likely false negatives: none" for side in data["direction"].values[suspected == 0]]
    percent = {
        name: (100 * data[name]).assign_attrs(data[name].attrs | {"units": "%"}) for name in FRACTIONS if name in data
    }
    shown = data.assign(percent).isel(rule=(data["suspects"] > 0).any("direction"))
    first, *filters = from_variables(shown, ("suspects", *percent, "emptied"))
    whole = {"batch_size": "all"} if int(data.attrs["batches"]) > 1 else {}
    step = next_steps(data.attrs, "audit", {"out": "suspects.json"} | whole) if suspected.any() else ()
    pairs, unread = [], [pair for pair in documents.suspects(data) if KNOWN_RULE not in pair["rules"]]
    for pair in unread[:top]:
        sides = [str(pair[side]) for side in ("query", "candidate")]
        if texts:
            sides = [f"{row} {terminal.one_line(text(int(row)), 24)}" for row, text in zip(sides, texts, strict=True)]
        suspicion = ", ".join([*pair["rules"], *(["own hard negative"] if pair["own_hard"] else [])])
        numbers = f"{pair['pair_push']:.3g}", findings.percent(pair["pair_part"]), f"{pair['score']:.3f}"
        pairs.append((*sides, *numbers, suspicion))
    columns = ("query", "candidate", "push", "of push", "score", "suspected by")
    note = f"{len(pairs)} of {len(unread)} pairs with the largest push; of push: fraction of the query's push"
    listed = [Table(columns, tuple(pairs), notes=(note,), left=True)] if pairs else []
    return [replace(first, head=(*lines, *head(data)), notes=tuple(notes), typed=step), *filters, *listed]


def verify(datasets: Sequence[xr.Dataset]) -> list[Table]:
    """Return a row for each loss with its verdict and its largest differences, and its faults and notes below."""
    rows, notes = [], []
    for data in datasets:
        entries = documents.verify(data)
        name, gap = entries["loss"]["name"], entries["gap"]
        numbers = gap["float64"], gap["float32"], entries["error"]["float32"], entries["finite_difference"]
        rows.append((name, entries["verdict"], *("" if value is None else f"{value:.1e}" for value in numbers)))
        notes += [f"FAULT: {name}: {line}" for line in entries["faults"]]
        notes += [f"{name}: {line}" for line in entries["notes"]]
    legend = "largest differences relative to the largest weight; gap: closed form and torch.func; error: float32 and "
    columns = ("loss", "verdict", "gap 64", "gap 32", "error 32", "slope")
    return [Table(columns, tuple(rows), (), (*notes, f"{legend}float64; slope: finite differences"))]


def diff(data: xr.Dataset) -> list[Table]:
    """Return a row for each number: both means, the paired difference, its p-value."""
    names, by, lines = [str(name) for name in data["version"].values], data.attrs.get("by"), []
    shown = data.assign(A=data["mean"].isel(version=0), B=data["mean"].isel(version=1), change=changes(data))
    for side, single in results.sides(shown).items() if by in data["metric"] else ():
        values = single.sel(metric=by)
        if values["low"].notnull():
            verdict = "changed" if values["p_holm"] <= 1 - float(data.attrs["level"]) else "no significant change"
            before, after = number(values["A"]), number(values["B"])
            change = f"{values['change'].item()}, n = {int(values['pairs'])}"
            lines.append(f"{side}: {by} {verdict}, {before} -> {after}, {change}")
    shown["A"].attrs, shown["B"].attrs = {"long_name": "A"}, {"long_name": "B"}
    p = data["p_holm"]
    texts = xr.where(p < 1e-4, "<0.0001", p.round(4).astype(str)).where(p.notnull(), "-").astype(str)
    shown["p_holm"] = texts.assign_attrs(p.attrs)
    first, *more = from_variables(shown, ("A", "B", "change", "p_holm", "increased", "decreased"))
    head = (*lines, f"A: {names[0]}; B: {names[1]}")
    return [replace(first, head=head, notes=tuple(results.lines(data.attrs))), *more]


def changes(data: xr.Dataset) -> xr.DataArray:
    """Write paired differences with their intervals."""

    def write(difference: float, low: float, high: float) -> str:
        interval = f" [{low:+.4g}, {high:+.4g}]" if np.isfinite(low) else ""
        return f"{difference:+.4g}{interval}" if np.isfinite(difference) else "-"

    columns = (data[name] for name in ("difference", "low", "high"))
    cells = xr.apply_ufunc(write, *columns, vectorize=True, output_dtypes=[object]).astype(str)
    return cells.assign_attrs(long_name=f"change, {100 * float(data.attrs['level']):g} %")


def replay(data: xr.Dataset) -> list[Table]:
    """Return the means of each variant, and the paired change of the number by which variants are compared."""
    means = data["mean"].drop_attrs().to_dataset("metric").assign_attrs(data.attrs)
    return generic(means.assign(change=changes(data.sel(metric=data.attrs["by"], drop=True))))
