"""Tables of the measures that have a layout of their own, and counts in LaTeX."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import xarray as xr

from cocos import results
from cocos.base import terminal
from cocos.counting import averages, findings, shares
from cocos.counting.statistics import BATCH_NUMBERS, BY_NAME, MARKED_PARTS, OF_SOURCES
from cocos.measures.run import AMONG_SAMPLES, axis, episodes, widest
from cocos.monitor import detectors as shelf
from cocos.monitor import records
from cocos.reports import documents
from cocos.reports.documents import parameter_values
from cocos.reports.text import Step, Table, batches, from_variables, generic, head, next_steps, number, spread

# Variables in the tables of an audit, by rule and by filter.
AUDIT_SHOWN = (
    "suspects share push_share placebo met filter_share filter_push push_precision push_recall emptied"
).split()
MOST_PAIRS = 10  # suspected pairs in the table; --out writes all
KNOWN_RULE = "group"  # its pairs belong together, so that they need no reading
CHANGE = ("difference", "low", "high")  # paired difference and its interval
# Variables in the table of a run.
RUN_SHOWN = (
    *("contributing", "relative", "idle", "unpushed", "effective", *(f"push_{key}" for key in records.SOURCE_KEYS)),
    *("R@1", f"R@1{AMONG_SAMPLES}", "value", "scale", "dtp", "alarm"),
)
# Statistic to report, by convention: the mean over all queries, or the one that the published tables print.
REPORTED = {"standard": "contributing_all", "ecir2022": "contributing_mean"}
REPORTED_NOTE = "* value to report, with loss, eps and batch size. Definitions: docs/concepts.md"
# Columns of each loss, and their symbols: Bleeker & de Rijke 2022, Tables 3 (triplet), 4 (NT-Xent) and 5 (SmoothAP).
TRIPLET_COLUMNS = (("contributing_mean", "C^{A}"), ("contributing_sum", "C^{B}"), ("idle", "C^{0}"))
PUBLISHED_COLUMNS = {
    "ntxent": (("contributing_all", "C^{qv-}"), ("weight_above", "W^{qv-}"), ("weight_positive", "W^{qv+}")),
    "smoothap": (("eq7_mean", "C^{q}"), ("eq7_idle", "C^{0}")),
}
ESCAPES = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
ESCAPES |= {character: f"\\{character}" for character in "&%$#_{}"}


def count(data: xr.Dataset | Mapping[str, xr.Dataset]) -> list[Table]:
    """Return a row for each statistic and a column for each direction, or for each loss and direction."""
    datasets = {"": data} if isinstance(data, xr.Dataset) else data
    names = {single.attrs["loss"]: single for single in datasets.values()}
    datasets = names if len(names) == len(datasets) else datasets  # labels have the parameters
    columns, lines, notes, kinds = {}, [], [], []
    for name, single in datasets.items():
        summary, attrs = documents.count(single), single.attrs
        parameters = ", ".join(parameter_values(summary["loss"]["parameters"])).replace("=", " ")
        lines.append(f"loss: {attrs['loss']}, {attrs.get('loss_origin') or parameters or 'no parameters'}")
        lines += findings.first(attrs)
        metrics = summary.get("metrics", {"directions": {}})["directions"]
        for side, entry in summary["directions"].items():
            columns[f"{name} {side}" if len(datasets) > 1 else side] = entry | {"metrics": metrics.get(side, {})}
            keys = ("negatives", "contributing_all", "relative")
            negatives, contributing, relative = (findings.rounded(findings.mean(entry, key)) for key in keys)
            idle = findings.percent(findings.mean(entry, "idle_fraction"))
            text = f"contributing negatives {contributing} of {negatives}, idle queries {idle}"
            if entry["contributing_all"]["mean"] is None:  # the unit of the loss is unknown
                text = f"negatives with more than {100 * summary['eps']:.6g} % of the push {relative} of {negatives}"
            lines.append(f"{side}: {text}")
        for finding in findings.of_count(single):
            if finding.severity == "note" or finding.kind == "repeated rows":
                notes.append(finding.text)
            else:  # the next command is the cure of a gradient
                lines.append(finding.sentence if finding.kind in findings.GRADIENTS else finding.text)
        means = "mean ± deviation over batches"
        if attrs["convention"] == "standard":
            deviations = "deviations (±) and " if summary["full_batches"] > 1 else ""
            means = f"means over all queries; {deviations}sums over full batches"
        rules = f"{shares.above(attrs)} (eps = {float(attrs['eps']):g}), {attrs['convention']} convention"
        weights = filter(None, [shares.about_weights(attrs), shares.about_unit(summary)])
        notes.append("; ".join([rules, f"{batches(single)} on {attrs['device']}", means, *weights]))
        kinds += [(kind, attrs) for kind in findings.kinds_of_directions(single).values()]
    # The next command examines the loss with the gravest kind of gradient.
    kind, attrs = min(kinds, key=lambda pair: findings.GRADIENT_KINDS.index(pair[0]))
    loss = documents.loss_entry(attrs)
    command, options = findings.next_command(kind, loss["name"])
    if len(datasets) > 1 and command != "evaluate":
        options |= {"loss": loss["name"], "param": parameter_values(loss["parameters"])}
    step, notes = next_steps(attrs, command, options), dict.fromkeys((*notes, REPORTED_NOTE))
    return [Table(("", *columns), tuple(_rows(summary, columns.values())), tuple(lines), tuple(notes), typed=step)]


def _rows(summary: dict, directions: Collection[dict]) -> Iterator[tuple[str, ...]]:
    """Yield label and cells of each row: numbers that a direction has, sources, marks, metrics."""
    reported = "relative" if summary["share"] == "unknown" else REPORTED.get(summary["convention"], "")
    batch = " and ".join(dict.fromkeys(f"{round(entry['batch_queries'], 1):g}" for entry in directions))
    for quantity in BATCH_NUMBERS.values():
        means = [(entry.get(quantity.name) or {}).get("mean") for entry in directions]
        if quantity.row and (any(means) if BY_NAME[quantity.of].rare else means != [None] * len(means)):
            label = quantity.row.format(batch=batch, percent=f"{100 * summary['eps']:.6g} %")
            mark = "*" if quantity.name == reported else " "
            yield f"{mark} {label}", *(spread(entry.get(quantity.name), scale=quantity.scale) for entry in directions)
    of_sources = {quantity.name: quantity for statistic in OF_SOURCES for quantity in statistic.numbers}
    for part, numbers in (("sources", of_sources), ("marks", MARKED_PARTS)):
        for name in dict.fromkeys(name for entry in directions for name in entry.get(part, {})):
            entries = [entry.get(part, {}).get(name, {}) for entry in directions]
            for key, quantity in numbers.items():
                yield f"  {name}: {quantity.row}", *(spread(entry.get(key), scale=quantity.scale) for entry in entries)
    for key in dict.fromkeys(name for entry in directions for name in entry["metrics"]):
        yield f"  {key.replace('_', ' ')}", *(f"{entry['metrics'][key]:.2f}" for entry in directions)


def latex(data: xr.Dataset | Mapping[str, xr.Dataset], label: str) -> str:
    """Write the published columns of a loss as LaTeX, by default those of triplet; one tabular per loss."""
    if not isinstance(data, xr.Dataset):
        return "\n\n".join(latex(single, label) for single in data.values())
    summary, escapes = documents.count(data), str.maketrans(ESCAPES)
    directions, sha256 = summary["directions"], summary["checkpoint"]["sha256"] or "unknown"
    source = f"cocos {summary['cocos']}, {summary['convention']} convention, eps {summary['eps']:g}, sha256 {sha256}"
    columns = PUBLISHED_COLUMNS.get(summary["loss"]["name"], TRIPLET_COLUMNS)
    cells = [f"${spread(entry[key], 2, sign=chr(92) + 'pm')}$" for entry in directions.values() for key, _ in columns]
    tops = (rf"\multicolumn{{{len(columns)}}}{{c}}{{{name.translate(escapes)}}}" for name in directions)
    return "\n".join([
        *(f"% {line}" for line in (source, *head(data))),
        rf"\begin{{tabular}}{{l{'r' * len(cells)}}}",
        r"\toprule",
        rf" & {' & '.join(tops)} \\",
        rf" & {' & '.join(f'${symbol}$' for _ in directions for _, symbol in columns)} \\",
        r"\midrule",
        rf"{terminal.clean(label).translate(escapes)} & {' & '.join(cells)} \\",
        r"\bottomrule",
        r"\end{tabular}",
    ])


def evaluate(data: xr.Dataset) -> list[Table]:
    """Return a row for each metric and a column for each direction, and for each direction with distractors."""
    columns, rows, folds = {}, [], data.sizes["fold"]
    for condition in map(str, data["distractors"].values):
        for side, single in results.sides(data.sel(distractors=condition)).items():
            if condition == "without" or single["unmatched"]:
                columns[side if condition == "without" else f"{side} + distractors"] = single
    for key in (key for key in map(str, data) if data[key].dims[-1] == "fold"):
        numbers = (single[key] for single in columns.values())
        digits = 0 if key in ("queries", "candidates") and folds == 1 else 2
        cells = (spread(averages.entry(values.mean().item(), values.values), digits) for values in numbers)
        rows.append((f"{key.replace('_', ' ')}{' (%)' if data[key].attrs['units'] == '%' else ''}", *cells))
    notes = [f"mean ± standard deviation over {folds} folds, sizes of one fold"] if folds > 1 else []
    return [Table(("", *columns), tuple(rows), head(data), (*notes, data.attrs["ties"]))]


def audit(data: xr.Dataset, texts: Sequence[Callable[[int], str]] | None = None) -> list[Table]:
    """Return the rules, the filters, and the suspected pairs with the largest push; `texts`: row -> text by side."""
    urgent, notes = [], []
    for finding in findings.of_audit(data):
        (urgent if finding.kind in {"suspected", "no rule"} else notes).append(finding.text)
    suspected = data["suspects"].sel(rule="any rule")
    urgent += [f"{side}: likely false negatives: none" for side in data["direction"].values[suspected == 0]]
    first, *filters = from_variables(data.isel(rule=(data["suspects"] > 0).any("direction")), AUDIT_SHOWN)
    options = {"out": "suspects.json", "batch_size": "all"}
    step = next_steps(data.attrs, "audit", options) if suspected.any() else ()
    rows, unread = [], [pair for pair in documents.suspects(data) if KNOWN_RULE not in pair["rules"]]
    for pair in unread[:MOST_PAIRS]:
        names = [str(pair[side]) for side in ("query", "candidate")]
        if texts:
            names = [f"{row} {terminal.one_line(text(int(row)), 24)}" for row, text in zip(names, texts, strict=True)]
        suspicion = ", ".join([*pair["rules"], *(["own hard negative"] if pair["own_hard"] else [])])
        push, fraction = number(pair["pair_push"]), findings.percent(pair["pair_part"])
        rows.append((*names, push, fraction, number(pair["score"]), suspicion))
    columns = ("query", "candidate", "push", "of push", "score", "suspected by")
    note = f"{len(rows)} of {len(unread)} pairs with the largest push"
    pairs = [Table(columns, tuple(rows), notes=(note,), left=True)] if rows else []
    return [replace(first, head=(*urgent, *head(data)), notes=tuple(notes), typed=step), *filters, *pairs]


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
    """Return both means, the paired difference, and its p-value for each number; then the most changed queries."""
    by, (before, after), p = data.attrs["by"], data["version"].values, data["p_holm"]
    data = data.assign(data["mean"].drop_attrs().assign_coords(version=["A", "B"]).to_dataset("version"))
    lines = []
    for side, single in results.sides(data.sel(metric=by)).items():
        if single["low"].notnull():
            verdict = "changed" if single["p_holm"] <= 1 - float(data.attrs["level"]) else "no significant change"
            a, b, change, low, high = (number(single[name]) for name in ("A", "B", *CHANGE))
            lines.append(f"{side}: {by} {verdict}, {a} -> {b}, {change} [{low}, {high}], n = {int(single['pairs'])}")
    texts = xr.where(p < 1e-4, "<0.0001", p.round(4).astype(str)).where(p.notnull(), "-").astype(str)
    index, values = data["changed_index"], data["changed_value"].drop_attrs()
    values = values.assign_coords(version=[f"{by} A", f"{by} B"]).to_dataset("version")
    row = xr.where(index >= 0, index.astype(str), "-")  # -1 if a direction has fewer
    shown = data.assign(values).assign(p_holm=texts.assign_attrs(p.attrs), row=row)
    names = ("A", "B", *CHANGE, "p_holm", "increased", "decreased", "row", "changed_name", *values)
    first, *more = from_variables(shown, names)
    return [replace(first, head=(*lines, f"A: {before}; B: {after}"), notes=tuple(results.lines(data.attrs))), *more]


def replay(data: xr.Dataset) -> list[Table]:
    """Return the means of each variant, and the paired change of the number by which variants are compared."""
    means = data["mean"].drop_attrs().to_dataset("metric")
    return generic(means.assign(data[list(CHANGE)].sel(metric=data.attrs["by"], drop=True)).assign_attrs(data.attrs))


def solve(data: xr.Dataset) -> list[Table]:
    """Return the value that was solved, and the command that counts with it."""
    solved = documents.loss_entry(data.attrs)["parameters"] | {data.attrs["parameter"]: f"{data['value'].item():.6g}"}
    first, *more = generic(data)
    return [replace(first, typed=next_steps(data.attrs, "count", {"param": parameter_values(solved)})), *more]


def run(data: xr.Dataset) -> list[Table]:
    """Return the numbers of a run, of a long one at a few steps, below the sentences of the detectors."""
    lines = [finding.sentence for finding in findings.of(data) if finding.severity in {"stop", "look"}]
    lines.append(watched(data))
    data = widest(data)
    attrs, steps = data.attrs, data[axis(data)].values
    lines.append(f"{axis(data)}s: {len(steps)}, from step {int(steps[0])} to {int(steps[-1])}")
    loss = attrs.get("loss_repr", attrs["loss"]) if "loss_repr" not in data else attrs["loss"]
    lines.append(f"loss {loss}, {shares.above(attrs)} (eps = {float(attrs['eps']):g})")
    recorded = [name for name in RUN_SHOWN if name in data and data[name].notnull().any()]
    hidden = {push for unit, push in records.BY_PUSH.items() if unit in recorded}  # one of the two is shown
    first, *more = from_variables(data, [name for name in recorded if name not in hidden])
    return [replace(first, head=tuple(lines)), *more]


def watched(data: xr.Dataset) -> str:
    """Count the detectors that watched a run, and whether any fired."""
    summary = shelf.summary(json.loads(data.attrs.get("watching", "{}")))
    return summary if episodes(data) else f"no detector fires: {summary}"


def following(data: xr.Dataset, paths: Sequence[Path], *, saved: bool = False) -> tuple[Step, ...]:
    """Return the commands that draw the curves of a run, without options if `saved`, and compare its first and last."""
    step = Step("run", tuple(map(str, paths)), {"out": "run.png"}, carry=not saved)
    files = [str(file) for file in data["file"].values if str(file)] if "file" in data else []
    return (step, Step("diff", (files[0], files[-1]))) if len(files) > 1 else (step,)


# Measures with a layout of their own.
LAYOUTS = {layout.__name__: layout for layout in (audit, count, diff, evaluate, replay, run, solve, verify)}
