"""Tables of the measures that have a layout of their own."""

import csv
import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import xarray as xr

from cocos import results
from cocos.base import terminal, writing
from cocos.counting import findings
from cocos.measures.diff import COMPARED, EQUAL_VALUES
from cocos.reports import documents
from cocos.reports.tables import TEXT_LENGTH, Table, generic, head, next_steps, number, spread

# Columns of the rules and of the filters of an audit.
RULE_COLUMNS = {"share": "of negatives", "push_share": "of push", "placebo": "random", "met": "queries"}
FILTER_COLUMNS = {
    **{"filter_share": "of negatives", "filter_push": "of push"},
    **{"push_precision": "precision", "push_recall": "recall", "emptied": "emptied"},
}
# Columns of the file of suspected pairs.
SUSPECT_COLUMNS = (
    *(
        "query",
        "candidate",
        "query_text",
        "candidate_text",
        "score",
        "guide_score",
        "push",
        "part",
        "drawn",
        "own_hard",
    ),
    *("rules", "label"),
)
# The rule whose pairs are known to belong together, so that they need no reading.
KNOWN_RULE = "group"
# Metrics among samples alone.
RECALL = re.compile("R@|average_recall")
# Units of numbers with two decimals.
TWO_DIGITS = ("%", "candidates", "queries", "rank", "dimensions")
TextOfRow = Callable[[int], str]


def evaluate(data: xr.Dataset) -> list[Table]:
    """Return a row for each metric and a column for each direction, and for each direction with distractors."""
    entries = documents.evaluate(data)
    columns = dict(entries["directions"])
    for side, column in entries.get("with_distractors", {"directions": {}})["directions"].items():
        if entries["directions"][side]["unmatched"]:
            columns[f"{side} + distractors"] = column
    first = next(iter(columns))
    columns[first] = columns[first] | entries  # metrics of no direction
    if "accuracy" in entries:  # recall is among samples; of proxies it is accuracy
        columns["s2p"] = {key: value for key, value in columns["s2p"].items() if not RECALL.match(key)}
    rows, folds = [], entries["folds"]
    for key in map(str, data):
        if data[key].dims[-1] == "fold" and key not in {"queries", "candidates", "tied"}:
            unit, digits = " (%)" if data[key].attrs["units"] == "%" else "", 1 if key.endswith("_rank") else 2
            means = (column.get(key, {}) | ({} if folds > 1 else {"std": None}) for column in columns.values())
            cells = (spread(value, digits) if "mean" in value else "" for value in means)
            rows.append((f"{key.replace('_', ' ')}{unit}", *cells))
    split = f"split {entries['split']}, " if entries["split"] else ""
    lines = [*findings.first(data.attrs), f"{split}{entries['metric'].replace('_', ' ')} scores on {entries['device']}"]
    for name, column in columns.items():
        if "queries" in column:
            lines.append(f"{name}: {column['queries']['mean']:g} queries, {column['candidates']['mean']:g} candidates")
    lines += [f"mean ± standard deviation over {folds} folds, sizes of one fold"] if folds > 1 else []
    notes = [f"{entries['ties'][:1].upper()}{entries['ties'][1:]}."]
    for name, column in columns.items():
        if "tied" in column and column["tied"]["mean"]:
            notes.append(
                f"{name}: the best positive of {column['tied']['mean']:.2f} % of the queries ties with a negative"
            )
    return [Table(("", *columns), tuple(rows), tuple(lines), tuple(notes))]


def audit(data: xr.Dataset, texts: tuple[TextOfRow, TextOfRow] | None = None, top: int = 10) -> list[Table]:
    """Return the rules, the filters if there are any, and the suspected pairs with the largest push.

    Args:
        data: of `cocos.measures.audit`.
        texts: row -> text of the queries and of the candidates; None: no texts.
        top: number of pairs.
    """
    entries = documents.audit(data)
    leading = {"suspected", "no rule"}
    lines = [finding.text for finding in findings.of_audit(data) if finding.kind in leading]
    notes = [f"rules tried: {', '.join(data['rule'].values[:-1])}; a rule without suspects has no row"]
    notes += [finding.text for finding in findings.of_audit(data) if finding.kind not in leading]
    rules, filters, pairs = [], [], []
    for side, direction in entries["directions"].items():
        for name, rule in direction["rules"].items():
            if rule["suspects"]:
                rules.append((f"{side} {name}", str(rule["suspects"]), *(percent(rule[key]) for key in RULE_COLUMNS)))
        if not direction["rules"]["any rule"]["suspects"]:
            lines.append(f"{side}: likely false negatives: none")
        for name, replayed in direction["filters"].items():
            if replayed["filter_share"]:
                filters.append((f"{side} {name}", *(percent(replayed[key]) for key in FILTER_COLUMNS)))
    unread = [pair for pair in documents.suspects(data) if KNOWN_RULE not in pair["rules"]]
    for pair in unread[:top]:
        sides = [str(pair[side]) for side in ("query", "candidate")]
        if texts:
            sides = [f"{row} {terminal.one_line(text(int(row)), 24)}" for row, text in zip(sides, texts, strict=True)]
        suspicion = ", ".join([*pair["rules"], *(["own hard negative"] if pair["own_hard"] else [])])
        pairs.append((
            *sides,
            f"{pair['pair_push']:.3g}",
            percent(pair["pair_part"]),
            f"{pair['score']:.3f}",
            suspicion,
        ))
    whole = {"batch_size": "all"} if int(data.attrs["batches"]) > 1 else {}
    step = next_steps(data.attrs, "audit", {"out": "suspects.csv"} | whole) if rules else ()
    columns = ("suspected by", "pairs", *RULE_COLUMNS.values()) if rules else ()
    tables = [Table(columns, tuple(rules), (*lines, *head(data)), tuple(notes), typed=step)]
    if filters:
        note = "precision, recall: against the known positives, by push; emptied: queries without a negative left"
        tables.append(Table(("filter", *FILTER_COLUMNS.values()), tuple(filters), notes=(note,)))
    if pairs:
        note = f"{len(pairs)} of {len(unread)} pairs with the largest push; of push: fraction of the query's push"
        columns = ("query", "candidate", "push", "of push", "score", "suspected by")
        tables.append(Table(columns, tuple(pairs), notes=(note,), left=True))
    return tables


def write_suspects(path: Path, data: xr.Dataset, texts: tuple[TextOfRow, TextOfRow] | None) -> Path:
    """Write all suspected pairs of an audit as CSV, the largest push first, with a column `label` to fill in.

    The label is 1 for pairs of one group, which need no reading. Spreadsheets compute no cell (`writing.cell`).
    """
    stream = io.StringIO()
    writer = csv.DictWriter(stream, SUSPECT_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for pair in documents.suspects(data):
        row = {key.removeprefix("pair_"): value for key, value in pair.items()}
        row["rules"] = " ".join(name.replace(" ", "_") for name in pair["rules"])
        row["label"] = 1 if KNOWN_RULE in pair["rules"] else None
        for side, text in zip(("query", "candidate"), texts or (), strict=bool(texts)):
            row[f"{side}_text"] = text(row[side])
        writer.writerow({name: writing.cell(value) for name, value in row.items()})
    return writing.write(path, stream.getvalue().encode())


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
        rows.append((name, entries["verdict"], *("" if value is None else f"{value:.1e}" for value in numbers)))
        notes += [f"FAULT: {name}: {line}" for line in entries["faults"]]
        notes += [f"{name}: {line}" for line in entries["notes"]]
    notes.append(
        "largest differences relative to the largest weight; gap: closed form and torch.func; error: float32 and "
        "float64; slope: finite differences"
    )
    return [Table(("loss", "verdict", "gap 64", "gap 32", "error 32", "slope"), tuple(rows), (), tuple(notes))]


def diff(data: xr.Dataset) -> list[Table]:
    """Return a row for each number that changed: both means, the paired difference, its p-value; and the queries."""
    names, by = [str(name) for name in data["version"].values], data.attrs.get("by")
    rows, lines, unchanged = [], [], []
    for side, metric in ((side, metric) for side in data["direction"].values for metric in data["metric"].values):
        values = data.sel(direction=side, metric=metric)
        unit = COMPARED.get(metric, (metric, ""))[1]
        digits, label = 2 if unit in TWO_DIGITS else 3, f"{side} {metric}{' (%)' if unit == '%' else ''}"
        before, after = values["value"].values
        if np.nanmax(np.abs(after - before), initial=0.0) <= EQUAL_VALUES * np.nanmax(np.abs([before, after])):
            unchanged += [label] if float(values["pairs"]) > 0 else []
        elif np.isfinite(values["difference"]):
            means = [f"{float(mean):.{digits}f}" for mean in values["mean"]]
            change, p = paired_change(values, digits), float(values["p_holm"])
            counts = [str(int(values[key])) for key in ("increased", "decreased")]
            rows.append((label, *means, change, "" if np.isnan(p) else "<0.0001" if p < 1e-4 else f"{p:.4f}", *counts))
            if metric == by and np.isfinite(values["low"]):
                verdict = "changed" if p <= 1 - float(data.attrs["level"]) else "no significant change"
                lines.append(
                    f"{side}: {metric} {verdict}, {means[0]} -> {means[1]}, {change}, n = {int(values['pairs'])}"
                )
    lines.append(f"A: {names[0]}; B: {names[1]}")
    notes = [*results.lines(data.attrs), *([f"unchanged: {', '.join(unchanged)}"] if unchanged else [])]
    notes.append(
        "change: mean paired difference with its interval; p: Holm's method; up, down: queries that rise, fall"
    )
    columns = ("", "A", "B", f"change, {100 * float(data.attrs['level']):g} %", "p", "up", "down") if rows else ()
    tables = [Table(columns, tuple(rows), tuple(lines), tuple(notes))]
    for side, single in results.sides(data).items() if "changed" in data.dims else ():
        queries = []
        for place in np.flatnonzero(single["changed_index"].values >= 0):  # -1 where a direction has fewer
            query = single.isel(changed=place)
            name = query["changed_name"].item() if "changed_name" in query else ""
            label = terminal.one_line(f"{int(query['changed_index'])} {name}".strip(), TEXT_LENGTH)
            queries.append((label, *(number(value) for value in query["changed_value"].values)))
        if queries:
            title = f"{side}: queries whose {by} changed most"
            tables.append(Table(("query", f"{by} A", f"{by} B"), tuple(queries), (title,)))
    return tables


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
