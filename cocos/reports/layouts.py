"""Tables of the measures that have a layout of their own."""

import re
from collections.abc import Callable, Sequence

import numpy as np
import xarray as xr

from cocos import results
from cocos.base import terminal
from cocos.counting import findings, shares
from cocos.measures.diff import COMPARED, EQUAL_VALUES
from cocos.reports import documents
from cocos.reports.tables import TEXT_LENGTH, Table, generic, head, next_steps, number, spread

# Columns of the rules and of the filters of an audit.
RULE_COLUMNS = {"share": "of negatives", "push_share": "of push", "placebo": "random", "met": "queries"}
FILTER_COLUMNS = {
    **{"filter_share": "of negatives", "filter_push": "of push", "filter_left": "kept"},
    **{"push_precision": "precision", "push_recall": "recall", "emptied": "emptied"},
}
# The rule whose pairs are known to belong together, so that they need no reading.
KNOWN_RULE = "group"
# Metrics among samples alone.
RECALL = re.compile("R@|average_recall")
# Units of numbers with two decimals.
TWO_DIGITS = ("%", "candidates", "queries", "rank", "dimensions")
TextOfRow = Callable[[int], str]


def evaluate(data: xr.Dataset) -> list[Table]:
    """Return a row for each metric, a column for each direction, with distractors, and for members of an ensemble."""
    entries = documents.evaluate(data)
    columns = {}
    for mark, block in (("", entries), (" + distractors", entries.get("with_distractors", {"directions": {}}))):
        sides = [side for side in block["directions"] if not mark or entries["directions"][side]["unmatched"]]
        for place, side in enumerate(sides):  # metrics of no direction are in the first column
            column = block["directions"][side] | (block if place == 0 else {})
            if "accuracy" in entries and side.startswith("s2p"):  # recall is among samples; of proxies it is accuracy
                column = {key: value for key, value in column.items() if not RECALL.match(key)}
            columns[f"{side}{mark}"] = column
    folds, health = entries["folds"], entries["health"]
    for side, member in entries.get("aggregate", {"directions": {}})["directions"].items():
        columns[f"{side}, members"] = member
    rows = []
    for key in map(str, data):
        if data[key].dims[-1] == "fold" and key not in {"queries", "candidates", "tied"}:
            digits, unit = 1 if key.endswith("_rank") else 2, " (%)" if data[key].attrs["units"] == "%" else ""
            cells = []
            for name, column in columns.items():
                alone = {} if folds > 1 or name.endswith("members") else {"std": None}
                cells.append(spread(column[key] | alone, digits) if key in column else "")
            rows.append((f"{key.replace('_', ' ')}{unit}", *cells))
    split = f"split {entries['split']}, " if entries["split"] else ""
    lines = [*findings.first(data.attrs), f"{split}{entries['metric'].replace('_', ' ')} scores on {entries['device']}"]
    notes = [f"{entries['ties'][:1].upper()}{entries['ties'][1:]}."]
    for name, column in columns.items():
        if "queries" in column:
            sizes = column["queries"]["mean"], column["candidates"]["mean"]
            lines.append("{}: {:g} queries, {:g} candidates".format(name, *sizes))
        if "tied" in column and (tied := column["tied"]["mean"]):
            notes.append(f"{name}: the best positive of {tied:.2f} % of the queries ties with a negative")
    lines += [f"mean ± standard deviation over {folds} folds, sizes of one fold"] if folds > 1 else []
    if "members" in entries:
        lines.append(
            f"ensemble of {entries['members']}, concatenated; members: mean ± standard deviation of each alone"
        )
    geometry = [] if health.get("alignment") is None else [f"alignment {health['alignment']:.3f}"]
    for name, side in health["sides"].items():
        if side.get("uniformity") is not None:
            geometry.append(f"uniformity {side['uniformity']:.2f} ({name})")
            geometry.append(f"effective rank {side['effective_rank']:.1f} of {side['dimensions']} ({name})")
    notes += [f"health: {', '.join(geometry)}"] if geometry else []
    return [Table(("", *columns), tuple(rows), tuple(lines), tuple(notes))]


def audit(data: xr.Dataset, texts: tuple[TextOfRow, TextOfRow] | None = None, top: int = 10) -> list[Table]:
    """Return the rules, the filters if there are any, and the suspected pairs with the largest push.

    Args:
        data: of `cocos.measures.audit`.
        texts: row -> text of the queries and of the candidates; None: no texts.
        top: number of pairs.
    """
    entries = documents.audit(data)
    lines, notes, rules, filters = [], [], [], []
    for finding in findings.of_audit(data):
        if finding.kind in {"suspected", "no rule"}:
            lines.append(finding.sentence if finding.kind == "suspected" else finding.text)
        else:
            notes.append(finding.text)
    for side, direction in entries["directions"].items():
        for name, rule in direction["rules"].items():
            if rule["suspects"]:
                rules.append((f"{side} {name}", str(rule["suspects"]), *(percent(rule[key]) for key in RULE_COLUMNS)))
        if not rule["suspects"]:  # the last rule is any of them
            lines.append(f"{side}: likely false negatives: none")
        for name, replayed in direction["filters"].items():
            if replayed["filter_share"]:
                mark = "*" if replayed["published"] else ""
                filters.append((f"{side} {name}{mark}", *(percent(replayed[key]) for key in FILTER_COLUMNS)))
    tried = ", ".join(name for name in data["rule"].values[:-1])
    legend = "; random: push fraction of as many random negatives; queries: those with a suspect" if rules else ""
    notes.insert(0, f"rules tried: {tried}; a rule without suspects has no row{legend}")
    whole = {"batch_size": "all"} if int(data.attrs["batches"]) > 1 else {}
    step = next_steps(data.attrs, "audit", {"out": "suspects.csv"} | whole) if rules else ()
    columns = ("suspected by", "pairs", *RULE_COLUMNS.values()) if rules else ()
    tables = [Table(columns, tuple(rules), (*lines, *head(data)), tuple(notes), typed=step)]
    if filters:
        columns, rows = ("filter", *FILTER_COLUMNS.values()), filters
        note = "*: published threshold; kept: push fraction that the removed negatives keep; emptied: queries without "
        note += "a negative left"
        if entries["known"]:
            note += "; precision, recall: against the known positives, by push"
        else:
            shown = [place for place, name in enumerate(columns) if name not in {"precision", "recall"}]
            columns, *rows = (tuple(row[place] for place in shown) for row in (columns, *filters))
        tables.append(Table(columns, tuple(rows), notes=(note,)))
    pairs = [pair for pair in documents.suspects(data) if KNOWN_RULE not in pair["rules"]]
    rows = []
    for pair in pairs[:top]:
        sides = [str(pair[side]) for side in ("query", "candidate")]
        if texts:
            sides = [f"{row} {terminal.one_line(text(int(row)), 24)}" for row, text in zip(sides, texts, strict=True)]
        suspicion = ", ".join([*pair["rules"], *(["own hard negative"] if pair["own_hard"] else [])])
        numbers = f"{pair['pair_push']:.3g}", percent(pair["pair_part"]), f"{pair['score']:.3f}"
        rows.append((*sides, *numbers, suspicion))
    if rows:
        note = f"{len(rows)} of {len(pairs)} pairs with the largest push; of push: fraction of the query's push"
        columns = ("query", "candidate", "push", "of push", "score", "suspected by")
        tables.append(Table(columns, tuple(rows), notes=(note,), left=True))
    return tables


def percent(value: float | None) -> str:
    """Write a fraction in percent with one decimal, or the first digit of a small one."""
    if value is None:
        return ""
    return f"{100 * value:.1g} %" if 0 < 100 * value < 0.05 else f"{100 * value:.1f} %"


def verify(datasets: Sequence[xr.Dataset]) -> list[Table]:
    """Return a row for each loss with its verdict and its largest differences, and its faults and notes below."""
    rows, notes = [], []
    for data in datasets:
        entries = documents.verify(data)
        name, gap = entries["loss"]["name"], entries["gap"]
        numbers = gap["float64"], gap["float32"], entries["error"]["float32"], entries["finite_difference"]
        rows.append((name, entries["verdict"], *map(difference, numbers)))
        notes += [f"FAULT: {name}: {line}" for line in entries["faults"]]
        notes += [f"note: {name}: {line}" for line in entries["notes"]]
    columns = ("loss", "verdict", "gap 64", "gap 32", "error 32", "slope")
    legend = (
        "largest differences over all inputs, relative to the largest weight of the input. gap: closed form and "
        "torch.func, in float64 and float32; error: float32 and float64; slope: finite differences"
    )
    return [Table(columns, tuple(rows), (), (*notes, legend))]


def difference(value: float | None) -> str:
    """Write a relative difference; nothing if it was not measured."""
    return "" if value is None else "0" if value == 0 else f"{value:.1e}"


def diff(data: xr.Dataset) -> list[Table]:
    """Return a row for each number that changed: both means, the paired difference and its p-value; and the queries."""
    first, second = (str(name) for name in data["version"].values)
    names = (first, second) if max(len(first), len(second)) <= 6 else ("A", "B")
    rows, unchanged, lines, changes = [], [], [], []
    by, level = data.attrs.get("by"), float(data.attrs["level"])
    for side, metric in ((side, metric) for side in data["direction"].values for metric in data["metric"].values):
        values = data.sel(direction=side, metric=metric)
        unit = COMPARED.get(metric, (metric, ""))[1]
        digits = 2 if unit in TWO_DIGITS else 3
        label = f"{side} {metric}{' (%)' if unit == '%' else ''}"
        before, after = values["value"].values
        if np.nanmax(np.abs(after - before), initial=0.0) <= EQUAL_VALUES * np.nanmax(np.abs([before, after])):
            unchanged += [label] if float(values["pairs"]) > 0 else []
            continue
        if not np.isfinite(values["difference"]):
            continue
        means = [f"{float(mean):.{digits}f}" for mean in values["mean"]]
        change, p = paired_change(values, digits), float(values["p_holm"])
        counts = [str(int(values[key])) for key in ("increased", "decreased")]
        rows.append((label, *means, change, "" if np.isnan(p) else "<0.0001" if p < 1e-4 else f"{p:.4f}", *counts))
        if metric == by and np.isfinite(values["low"]):
            verdict = "changed" if p <= 1 - level else "no significant change"
            lines.append(f"{side}: {metric} {verdict}, {means[0]} -> {means[1]}, {change}, n = {int(values['pairs'])}")
    lines += [f"A: {first}; B: {second}"] if names != (first, second) else []
    if "loss" in data.attrs and "eps" in data.attrs:
        lines.append(f"{data.attrs.get('loss_repr', data.attrs['loss'])}, {shares.above(data.attrs)}")
    columns = ("", *names, f"change, {100 * level:g} %", "p", "up", "down") if rows else ()
    notes = [*results.lines(data.attrs), *([f"unchanged: {', '.join(unchanged)}"] if unchanged else [])]
    notes.append(
        "change: mean paired difference with its interval (paired t, by groups of queries); p: adjusted by Holm's "
        "method; up, down: queries whose value rises, falls"
    )
    for side, single in results.sides(data).items() if "changed" in data.dims else ():
        digits = 2 if COMPARED.get(by, ("", ""))[1] in TWO_DIGITS else 3
        cells = []
        for place in np.flatnonzero(single["changed_index"].values >= 0):  # -1 where a direction has fewer
            query = single.isel(changed=place)
            name = query["changed_name"].item() if "changed_name" in query else ""
            label = terminal.one_line(f"{int(query['changed_index'])} {name}".strip(), TEXT_LENGTH)
            ranks = [number(rank) for rank in query["best_rank"].values] if "best_rank" in query else []
            cells.append((label, *(f"{value:.{digits}f}" for value in query["changed_value"].values), *ranks))
        if cells:
            ranked = [f"rank {name}" for name in names] if "best_rank" in single else []
            headings = ("query", *(f"{by} {name}" for name in names), *ranked)
            changes.append(Table(headings, tuple(cells), (f"{side}: queries whose {by} changed most",)))
    return [Table(columns, tuple(rows), tuple(lines), tuple(notes)), *changes]


def paired_change(values: xr.Dataset, digits: int) -> str:
    """Write a paired difference with its interval; nothing for the baseline."""
    change, low, high = (float(values[key]) for key in ("difference", "low", "high"))
    if not np.isfinite(change) or (change == 0 and not np.isfinite(low)):
        return ""
    return f"{change:+.{digits}f}" + (f" [{low:+.{digits}f}, {high:+.{digits}f}]" if np.isfinite(low) else "")


def replay(data: xr.Dataset) -> list[Table]:
    """Return the means of each variant, and the paired change of the number by which variants are compared."""
    by = data.attrs["by"]
    digits = 2 if by in {"push", "hardest_share"} else 1
    hidden = ("contributing", "idle") if data.attrs.get("share") == "unknown" else ("relative",)
    means = data["mean"].sel(metric=[name for name in data["metric"].values if name == by or name not in hidden])
    sides = [single.sel(metric=by) for single in results.sides(data).values()]
    variants = range(data.sizes["variant"])
    changes = [[paired_change(single.isel(variant=k), digits) for k in variants] for single in sides]
    small = means.drop_attrs().to_dataset("metric").assign_attrs(data.attrs)
    small["idle"].attrs["units"] = "%"
    return generic(small.assign(change=(("direction", "variant"), changes, {"long_name": f"change of {by}"})))


LAYOUTS: dict[str, Callable[..., list[Table]]] = {
    **{"audit": audit, "diff": diff, "evaluate": evaluate, "replay": replay, "verify": verify},
}
