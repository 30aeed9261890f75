"""Tables of contributing negatives: of one loss, of several losses, and the published columns in LaTeX."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import xarray as xr

from cocos.base import terminal
from cocos.counting import findings, shares
from cocos.counting.findings import Finding
from cocos.counting.statistics import BATCH_NUMBERS, BY_NAME, MARKED_PARTS, OF_SOURCES, Number
from cocos.reports import documents
from cocos.reports.tables import Step, Table, next_steps, parameter_values, spread

# Row to report, by convention: the mean over all queries, or the one that the published tables print.
REPORTED = {"standard": "contributing_all", "ecir2022": "contributing_mean"}
# Status of a loss among several, if it is not the kind of its gradient.
STATUS = {"shared": "OK", "no samples": "no verdict", "mispaired": "mismatched", "alike": "nearly collapsed"}
REPORTED_NOTE = "* value to report, with loss, eps and batch size. Definitions: docs/concepts.md"
TRIPLET_COLUMNS = (("contributing_mean", "C^{A}"), ("contributing_sum", "C^{B}"), ("idle", "C^{0}"))
# Columns of each loss, and their symbols: Bleeker & de Rijke 2022, Tables 3 (triplet), 4 (NT-Xent) and 5 (SmoothAP).
PUBLISHED_COLUMNS = {
    "ntxent": (("contributing_all", "C^{qv-}"), ("weight_above", "W^{qv-}"), ("weight_positive", "W^{qv+}")),
    "smoothap": (("eq7_mean", "C^{q}"), ("eq7_idle", "C^{0}")),
}
UNKNOWN = {"mean": None, "std": None}


def table(data: xr.Dataset | Mapping[str, xr.Dataset]) -> Table:
    """Return a row for each statistic and a column for each direction; of several losses, see `compare`."""
    if not isinstance(data, xr.Dataset):
        return compare(data)
    summary = documents.count(data)
    directions = summary["directions"]
    head = [_loss_line(data), *findings.first(data.attrs)]
    head += [f"{name}: {_contributing({name: entry}, summary)}" for name, entry in directions.items()]
    notes = []
    for finding in findings.of_count(data):
        if not _leads(finding):
            notes.append(finding.text)
        else:  # the next command is the cure of a gradient
            head.append(finding.sentence if finding.kind in findings.GRADIENTS else finding.text)
    weights = filter(None, (shares.about_weights(data.attrs), shares.about_unit(summary)))
    notes += ["; ".join([*_rules(data), *weights]), _averaging(summary), REPORTED_NOTE]
    return Table(("", *directions), tuple(_rows(summary)), tuple(head), tuple(notes), typed=_next([data]))


def compare(datasets: Mapping[str, xr.Dataset]) -> Table:
    """Return a row for each of several losses and directions, and a status line for each loss."""
    names = [data.attrs["loss"] for data in datasets.values()]
    rows, urgent, status, plans = [], {}, [], {}
    columns = [number for number in BATCH_NUMBERS.values() if number.column and not BY_NAME[number.of].asked]
    for label, data in datasets.items():
        summary, loss = documents.count(data), data.attrs["loss"]
        name = loss if names.count(loss) == 1 and label == data.attrs["loss_repr"] else label
        for side, entry in summary["directions"].items():
            rows.append((f"{name} {side}", *(_cell(entry.get(number.name), number) for number in columns)))
        urgent |= dict.fromkeys(findings.first(data.attrs))
        kinds = {side: STATUS.get(kind, kind) for side, kind in findings.kinds_of_directions(data).items()}
        verdict = kinds.popitem()[1] if len(set(kinds.values())) == 1 else findings.by_direction(kinds)
        status.append(f"{name}: {verdict}, {_contributing(summary['directions'], summary)}")
        plans.setdefault("; ".join([*_rules(data), _averaging(summary)]), []).append(name)
    headings = [f"{number.column}{'*' if number.name == REPORTED['standard'] else ''}" for number in columns]
    head = [*map(_loss_line, datasets.values()), *urgent, *status]
    notes = [f"{', '.join(losses)}: {plan}" for plan, losses in plans.items()]
    notes.append(f"{REPORTED_NOTE}; none %: queries without any; their pull %: fraction of the pull on these queries")
    return Table(("", *headings), tuple(rows), tuple(head), tuple(notes), typed=_next([*datasets.values()]))


def with_origins(
    counted: xr.Dataset | dict[str, xr.Dataset], origins: Sequence[str]
) -> xr.Dataset | dict[str, xr.Dataset]:
    """Return counts with the origin of the parameters of each loss, which their table prints in its first lines."""
    if not isinstance(counted, dict):
        return counted.assign_attrs(loss_origin=origins[0])
    pairs = zip(counted.items(), origins, strict=True)
    return {label: data.assign_attrs(loss_origin=origin) for (label, data), origin in pairs}


def latex(data: xr.Dataset | Mapping[str, xr.Dataset], label: str) -> str:
    r"""Write the published columns of a loss as a LaTeX tabular, of several losses one each.

    Losses without published columns get those of the triplet loss.
    """
    if not isinstance(data, xr.Dataset):
        return "\n\n".join(latex(single, label) for single in data.values())
    summary = documents.count(data)
    directions, file = summary["directions"], summary["checkpoint"]
    columns = PUBLISHED_COLUMNS.get(summary["loss"]["name"], TRIPLET_COLUMNS)
    entries = [spread(entry[key], 2, sign=r"\pm") for entry in directions.values() for key, _ in columns]
    tops = (rf"\multicolumn{{{len(columns)}}}{{c}}{{{_escaped(name)}}}" for name in directions)
    source = f"; sha256 {file['sha256']}" if file["path"] else ""
    return "\n".join([
        f"% cocos {summary['cocos']}: {data.attrs['loss_repr']}, {'; '.join(_rules(data))}{source}",
        *(f"% {line}" for line in findings.first(data.attrs)),
        rf"\begin{{tabular}}{{l{'r' * len(entries)}}}",
        r"\toprule",
        rf" & {' & '.join(tops)} \\",
        rf" & {' & '.join(f'${symbol}$' for _ in directions for _, symbol in columns)} \\",
        r"\midrule",
        rf"{_escaped(label)} & {' & '.join(f'${entry}$' for entry in entries)} \\",
        r"\bottomrule",
        r"\end{tabular}",
    ])


def _escaped(text: str) -> str:
    """Escape a text so that LaTeX prints it literally."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in terminal.clean(text))


def _leads(finding: Finding) -> bool:
    """Whether a finding is among the first lines: repeated rows are known before any training."""
    return finding.severity != "note" and finding.kind != "repeated rows"


def _loss_line(data: xr.Dataset) -> str:
    """Write the loss, its parameters, and their origin if it is known."""
    loss = documents.loss_entry(data.attrs)
    parameters = ", ".join(parameter_values(loss["parameters"])).replace("=", " ")
    return f"loss: {loss['name']}, {data.attrs.get('loss_origin') or parameters or 'no parameters'}"


def _contributing(directions: Mapping[str, dict], summary: dict) -> str:
    """Write the numbers of contributing negatives and of queries without any, by direction if there are several."""
    key = "relative" if any(entry["contributing_all"]["mean"] is None for entry in directions.values()) else ""
    texts = {}
    for name, entry in directions.items():
        counted = entry[key or "contributing_all"]["mean"] or 0.0
        texts[name] = f"{findings.rounded(counted)} of {findings.rounded(entry['negatives']['mean'])}"
    numbers = findings.by_direction(texts) if len(texts) > 1 else next(iter(texts.values()))
    if key:  # the unit of the loss is not known
        return f"negatives with more than {100 * summary['eps']:.6g} % of the push {numbers}"
    texts = {name: f"{100 * entry['idle_fraction']['mean']:.1f} %" for name, entry in directions.items()}
    idle = findings.by_direction(texts) if len(texts) > 1 else next(iter(texts.values()))
    return f"contributing negatives {numbers}, idle queries {idle}"


def _rows(summary: dict) -> Iterator[tuple[str, ...]]:
    """Yield label and cells of each row: numbers that a direction has, sources, marks, metrics."""
    directions = list(summary["directions"].values())
    reported = "relative" if summary["share"] == "unknown" else REPORTED.get(summary["convention"], "")
    for number in BATCH_NUMBERS.values():
        means = [(entry.get(number.name) or UNKNOWN)["mean"] for entry in directions]
        if number.row and (any(means) if BY_NAME[number.of].rare else means != [None] * len(means)):
            label = number.row.format(batch=_batch_queries(summary), percent=f"{100 * summary['eps']:.6g} %")
            mark = "*" if number.name == reported else " "
            yield f"{mark} {label}", *(_cell(entry.get(number.name), number) for entry in directions)
    for source in dict.fromkeys(name for entry in directions for name in entry.get("sources", {})):
        parts = [entry.get("sources", {}).get(source, {}) for entry in directions]
        for number in (number for statistic in OF_SOURCES for number in statistic.numbers):
            yield f"  {source}: {number.row}", *(_cell(part.get(number.name), number) for part in parts)
    for mark in directions[0].get("marks", {}):
        for key, number in MARKED_PARTS.items():
            yield f"  {mark}: {number.row}", *(_cell(entry["marks"][mark][key], number) for entry in directions)
    metrics = summary.get("metrics", {}).get("directions", {})
    for key in next(iter(metrics.values()), {}):
        yield f"  {key.replace('_', ' ')}", *(f"{metrics[name][key]:.2f}" for name in summary["directions"])


def _cell(value: dict | None, number: Number) -> str:
    """Write a mean and its deviation; a percentage with one decimal."""
    scaled = {key: None if part is None else number.scale * part for key, part in (value or UNKNOWN).items()}
    return spread(scaled, None if number.scale == 1 else 1)


def _batch_queries(summary: dict) -> str:
    """Write the number of queries in a batch, once if it is the same in all directions."""
    return " and ".join(dict.fromkeys(f"{round(e['batch_queries'], 1):g}" for e in summary["directions"].values()))


def _averaging(summary: dict) -> str:
    """Describe means and deviations."""
    if summary["convention"] != "standard":
        return "mean ± deviation over batches"
    deviations = "deviations (±) and " if summary["full_batches"] > 1 else ""
    return f"means over all queries; {deviations}sums over the full batches ({summary['full_batches']})"


def _rules(data: xr.Dataset) -> list[str]:
    """Describe when a negative contributes, the convention and the batches."""
    attrs = data.attrs
    rules = f"{shares.above(attrs)} (eps = {float(attrs['eps']):g}), {attrs['convention']} convention"
    return [rules, f"{_batches(data)}; {attrs['dtype']} on {attrs['device']}"]


def _batches(data: xr.Dataset) -> str:
    """Describe the batches: how many of which size, with the range of sizes if they differ."""
    rows = {"s2s": "samples", "s2p": "samples, with all proxies"}.get(str(data["direction"].values[0]))
    rows = rows or ("pairs" if data.attrs["sample"] == "pairs" else "queries, each with its candidates")
    sizes = data["queries"].isel(direction=0).values
    size, last = str(sizes[0]), ""
    if len(np.unique(sizes[:-1])) > 1:
        size = f"{sizes.min()} to {sizes.max()}"
    elif sizes[-1] != sizes[0]:
        last = f" (the last of {sizes[-1]})"
    batches = "1 batch" if len(sizes) == 1 else f"{len(sizes)} batches"
    return f"{batches} of {size} {rows}{last}, seed {data.attrs['seed']}"


def _next(datasets: Sequence[xr.Dataset]) -> tuple[Step, ...]:
    """Return the command that looks further into the loss with the gravest kind of gradient."""
    kinds = [min(findings.kinds_of_directions(data).values(), key=findings.GRADIENT_KINDS.index) for data in datasets]
    kind = min(kinds, key=findings.GRADIENT_KINDS.index)
    data = datasets[kinds.index(kind)]
    loss = documents.loss_entry(data.attrs)
    command, options = findings.next_command(kind, loss["name"])
    if len(datasets) > 1 and command != "evaluate":
        options |= {"loss": loss["name"], "param": parameter_values(loss["parameters"])}
    return next_steps(data.attrs, command, options)
