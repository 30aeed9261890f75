"""Tables of contributing negatives: of one loss, of several losses, and in LaTeX; and of a solved parameter."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import xarray as xr

from cocos.base import terminal
from cocos.counting import findings, shares
from cocos.counting.statistics import BATCH_NUMBERS, BY_NAME, MARKED_PARTS, OF_SOURCES, Number
from cocos.reports import documents
from cocos.reports.tables import Step, Table, batches, generic, next_steps, parameter_values, spread

# Row to report, by convention: the mean over all queries, or the one that the published tables print.
REPORTED = {"standard": "contributing_all", "ecir2022": "contributing_mean"}
REPORTED_NOTE = "* value to report, with loss, eps and batch size. Definitions: docs/concepts.md"
# Columns of each loss, and their symbols: Bleeker & de Rijke 2022, Tables 3 (triplet), 4 (NT-Xent) and 5 (SmoothAP).
TRIPLET_COLUMNS = (("contributing_mean", "C^{A}"), ("contributing_sum", "C^{B}"), ("idle", "C^{0}"))
PUBLISHED_COLUMNS = {
    "ntxent": (("contributing_all", "C^{qv-}"), ("weight_above", "W^{qv-}"), ("weight_positive", "W^{qv+}")),
    "smoothap": (("eq7_mean", "C^{q}"), ("eq7_idle", "C^{0}")),
}
UNKNOWN = {"mean": None, "std": None}


def table(data: xr.Dataset | Mapping[str, xr.Dataset]) -> Table:
    """Return a row for each statistic and a column for each direction, or for each loss and direction."""
    datasets = {"": data} if isinstance(data, xr.Dataset) else data
    names = {single.attrs["loss"]: single for single in datasets.values()}
    datasets = names if len(names) == len(datasets) else datasets  # labels have the parameters
    columns, head, notes = {}, [], []
    for name, single in datasets.items():
        summary, attrs = documents.count(single), single.attrs
        parameters = ", ".join(parameter_values(summary["loss"]["parameters"])).replace("=", " ")
        head.append(f"loss: {attrs['loss']}, {attrs.get('loss_origin') or parameters or 'no parameters'}")
        head += findings.first(attrs)
        metrics = summary.get("metrics", {"directions": {}})["directions"]
        for side, entry in summary["directions"].items():
            columns[f"{name} {side}" if len(datasets) > 1 else side] = entry | {"metrics": metrics.get(side, {})}
            head.append(f"{side}: {_contributing(entry, summary)}")
        for finding in findings.of_count(single):
            if finding.severity == "note" or finding.kind == "repeated rows":
                notes.append(finding.text)
            else:  # the next command is the cure of a gradient
                head.append(finding.sentence if finding.kind in findings.GRADIENTS else finding.text)
        notes.append(_plan(single, summary))
    rows = tuple(_rows(summary, columns.values()))
    return Table(("", *columns), rows, tuple(head), (*notes, REPORTED_NOTE), typed=_next([*datasets.values()]))


def latex(data: xr.Dataset | Mapping[str, xr.Dataset], label: str) -> str:
    """Write the published columns of a loss, or those of the triplet loss, as LaTeX; of several, a tabular each."""
    if not isinstance(data, xr.Dataset):
        return "\n\n".join(latex(single, label) for single in data.values())
    summary = documents.count(data)
    directions, sha256 = summary["directions"], summary["checkpoint"]["sha256"]
    source = f"{data.attrs['loss_repr']}, {_plan(data, summary)}{f'; sha256 {sha256}' if sha256 else ''}"
    columns = PUBLISHED_COLUMNS.get(summary["loss"]["name"], TRIPLET_COLUMNS)
    cells = [f"${spread(entry[key], 2, sign=chr(92) + 'pm')}$" for entry in directions.values() for key, _ in columns]
    tops = (rf"\multicolumn{{{len(columns)}}}{{c}}{{{_escaped(name)}}}" for name in directions)
    return "\n".join([
        f"% cocos {summary['cocos']}: {source}",
        *(f"% {line}" for line in findings.first(data.attrs)),
        rf"\begin{{tabular}}{{l{'r' * len(cells)}}}",
        r"\toprule",
        rf" & {' & '.join(tops)} \\",
        rf" & {' & '.join(f'${symbol}$' for _ in directions for _, symbol in columns)} \\",
        r"\midrule",
        rf"{_escaped(label)} & {' & '.join(cells)} \\",
        r"\bottomrule",
        r"\end{tabular}",
    ])


def _escaped(text: str) -> str:
    """Escape a text so that LaTeX prints it literally."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in terminal.clean(text))


def _contributing(entry: dict, summary: dict) -> str:
    """Write the number of contributing negatives of a direction, and its queries without any."""
    negatives = findings.rounded(entry["negatives"]["mean"])
    if entry["contributing_all"]["mean"] is None:  # the unit of the loss is unknown
        relative = findings.rounded(entry["relative"]["mean"] or 0.0)
        return f"negatives with more than {100 * summary['eps']:.6g} % of the push {relative} of {negatives}"
    contributing = findings.rounded(entry["contributing_all"]["mean"])
    idle = f"{100 * entry['idle_fraction']['mean']:.1f} %"
    return f"contributing negatives {contributing} of {negatives}, idle queries {idle}"


def _rows(summary: dict, directions: Collection[dict]) -> Iterator[tuple[str, ...]]:
    """Yield label and cells of each row: numbers that a direction has, sources, marks, metrics."""
    reported = "relative" if summary["share"] == "unknown" else REPORTED.get(summary["convention"], "")
    batch = " and ".join(dict.fromkeys(f"{round(entry['batch_queries'], 1):g}" for entry in directions))
    for number in BATCH_NUMBERS.values():
        means = [(entry.get(number.name) or UNKNOWN)["mean"] for entry in directions]
        if number.row and (any(means) if BY_NAME[number.of].rare else means != [None] * len(means)):
            label = number.row.format(batch=batch, percent=f"{100 * summary['eps']:.6g} %")
            mark = "*" if number.name == reported else " "
            yield f"{mark} {label}", *(_cell(entry.get(number.name), number) for entry in directions)
    for source in dict.fromkeys(name for entry in directions for name in entry.get("sources", {})):
        for number in (number for statistic in OF_SOURCES for number in statistic.numbers):
            parts = [entry.get("sources", {}).get(source, {}) for entry in directions]
            yield f"  {source}: {number.row}", *(_cell(part.get(number.name), number) for part in parts)
    for mark in dict.fromkeys(name for entry in directions for name in entry.get("marks", {})):
        for key, number in MARKED_PARTS.items():
            yield f"  {mark}: {number.row}", *(_cell(entry["marks"][mark][key], number) for entry in directions)
    for key in dict.fromkeys(name for entry in directions for name in entry["metrics"]):
        yield f"  {key.replace('_', ' ')}", *(f"{entry['metrics'][key]:.2f}" for entry in directions)


def _cell(value: dict | None, number: Number) -> str:
    """Write a mean and its deviation; a percentage with one decimal."""
    scaled = {key: None if part is None else number.scale * part for key, part in (value or UNKNOWN).items()}
    return spread(scaled, None if number.scale == 1 else 1)


def _plan(data: xr.Dataset, summary: dict) -> str:
    """Describe when a negative contributes, the convention, the batches, the weights, and the means and deviations."""
    attrs, means = data.attrs, "mean ± deviation over batches"
    if attrs["convention"] == "standard":
        deviations = "deviations (±) and " if summary["full_batches"] > 1 else ""
        means = f"means over all queries; {deviations}sums over full batches"
    rules = f"{shares.above(attrs)} (eps = {float(attrs['eps']):g}), {attrs['convention']} convention"
    text = f"{rules}; {batches(data)} on {attrs['device']}; {means}"
    return "; ".join(filter(None, [text, shares.about_weights(attrs), shares.about_unit(summary)]))


def _next(datasets: Sequence[xr.Dataset]) -> tuple[Step, ...]:
    """Return the command that looks further into the loss with the gravest kind of gradient."""
    kinds = [(kind, data) for data in datasets for kind in findings.kinds_of_directions(data).values()]
    kind, data = min(kinds, key=lambda pair: findings.GRADIENT_KINDS.index(pair[0]))
    loss = documents.loss_entry(data.attrs)
    command, options = findings.next_command(kind, loss["name"])
    if len(datasets) > 1 and command != "evaluate":
        options |= {"loss": loss["name"], "param": parameter_values(loss["parameters"])}
    return next_steps(data.attrs, command, options)


def solve(data: xr.Dataset) -> list[Table]:
    """Return the value that was solved, and the command that counts with it."""
    solved = documents.loss_entry(data.attrs)["parameters"] | {data.attrs["parameter"]: f"{data['value'].item():.6g}"}
    first, *more = generic(data)
    return [replace(first, typed=next_steps(data.attrs, "count", {"param": parameter_values(solved)})), *more]
