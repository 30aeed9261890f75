"""Tables of contributing negatives: of one loss, of several losses, and the published columns in LaTeX."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import xarray as xr

from cocos import results
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
METRICS = {"R@1": "R@1, %", "R@5": "R@5, %", "R@10": "R@10, %", "median_rank": "median rank", "mAP@R": "mAP@R, %"}
# Findings on a direction that are listed for each of several losses.
OF_A_DIRECTION = ("clamped", "below zero", "pulled")
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
    reported = "relative" if summary["share"] == "unknown" else REPORTED.get(summary["convention"], "")
    rows = [(f"{'* ' if name == reported else '  '}{label}", *cells) for name, label, cells in _rows(summary)]
    head = [_loss_line(data), *findings.first(data.attrs)]
    head += [f"{name}: {_contributing({name: entry}, summary)}" for name, entry in directions.items()]
    notes = []
    for finding in findings.of_count(data):
        if not _leads(finding):
            notes.append(finding.text)
        else:  # the next command is the cure of a gradient
            head.append(finding.sentence if finding.kind in findings.GRADIENTS else finding.text)
    loss = f"{summary['loss']['name']}({', '.join(parameter_values(summary['loss']['parameters']))})"
    weights = shares.about_weights(data.attrs)
    provenance = [
        f"{loss}, {shares.above(summary)} (eps = {summary['eps']:g}), {summary['convention']} convention",
        f"{_batches(data)}; {summary['dtype']} on {summary['device']}",
        _averaging(summary, "C^B, C^0"),
        f"weights {weights}" if weights and summary["gradient"] == "autograd" else weights,
        shares.about_unit(summary),
    ]
    notes += ["; ".join(filter(None, provenance)), REPORTED_NOTE]
    return Table(("", *directions), tuple(rows), tuple(head), tuple(notes), typed=_next([data]))


def compare(datasets: Mapping[str, xr.Dataset]) -> Table:
    """Return a row for each of several losses and directions; the names of the losses are their labels or short."""
    several = list(datasets.values())
    summaries = [documents.count(data) for data in several]
    columns = _columns(summaries)
    loss_names, calls = ([str(data.attrs[key]) for data in several] for key in ("loss", "loss_repr"))
    rows, lines, notes, plans = [], [], [], {}
    for label, data, summary in zip(datasets, several, summaries, strict=True):
        name, call = summary["loss"]["name"], data.attrs["loss_repr"]
        if loss_names.count(name) > 1 or label not in calls:
            name = label
        metrics = summary.get("metrics", {}).get("directions", {})
        for direction, entry in summary["directions"].items():
            cells = [_cell(entry.get(number.name), number) for number in columns]
            cells += [f"{metrics[direction][key]:.2f}" for key in list(METRICS)[:3] if metrics]
            rows.append((f"{name} {direction}", *cells))
        plans.setdefault(_batches(data), []).append(call)
        kinds = findings.kinds_of_directions(data)
        status = {direction: STATUS.get(kind, kind) for direction, kind in kinds.items()}
        shared = next(iter(status.values())) if len(set(status.values())) == 1 else findings.by_direction(status)
        lines.append(f"{name}: {shared}, {_contributing(summary['directions'], summary)}")
        for finding in findings.of_count(data):
            if finding.kind in OF_A_DIRECTION:
                (lines if _leads(finding) else notes).append(f"{name}, {finding.text}")
    urgent = dict.fromkeys(line for data in several for line in findings.first(data.attrs))
    file = summaries[0]["checkpoint"]
    source = f"{Path(file['path']).name}, sha256 {file['sha256'][:12]}, " if file["path"] else ""
    notes.append(f"{REPORTED_NOTE}; none %: queries without any; their pull %: fraction of the pull on these queries")
    notes.append(f"{source}eps = {summaries[0]['eps']:g}; {_averaging(summaries[0])}")
    notes += [f"{', '.join(dict.fromkeys(names))}: {plan}" for plan, names in plans.items()]
    headings = [f"{number.column}{'*' if number.name == REPORTED['standard'] else ''}" for number in columns]
    headings += list(METRICS)[:3] if "metrics" in summaries[0] else []
    head = (*map(_loss_line, several), *urgent, *lines)
    return Table(("", *headings), tuple(rows), head, tuple(notes), typed=_next(several))


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
    comments = [
        f"cocos {summary['cocos']}: {data.attrs['loss_repr']}, eps {summary['eps']:g}, {summary['convention']} "
        f"convention, {_batches(data)}",
        *findings.first(data.attrs),
        f"{_averaging(summary, 'C^B, C^0')}; C^0 of {_batch_queries(summary)} queries in a batch",
        *([f"{file['path']} sha256 {file['sha256']}"] if file["path"] else []),
        *filter(None, [shares.about_weights(data.attrs)]),
        *results.lines(data.attrs, "footnotes"),
    ]
    tops = (rf"\multicolumn{{{len(columns)}}}{{c}}{{{_escaped(name)}}}" for name in directions)
    return "\n".join([
        *(f"% {line}" for line in comments),
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


def _columns(summaries: Sequence[dict]) -> list[Number]:
    """Return the columns of several losses: numbers by the unit of the loss first, optional ones last if counted."""
    entries = [entry for summary in summaries for entry in summary["directions"].values()]
    columns = []
    for number in BATCH_NUMBERS.values():
        if number.column:
            counted = any((entry.get(number.name) or UNKNOWN)["mean"] is not None for entry in entries)
            columns += [number] if counted or not BY_NAME[number.of].asked else []
    return sorted(columns, key=lambda number: (not BY_NAME[number.of].by_unit, BY_NAME[number.of].asked))


def _rows(summary: dict) -> Iterator[tuple[str, str, list[str]]]:
    """Yield name, label and cells of each row: of the queries, of a full batch, of one loss, of sources, of marks."""
    directions = list(summary["directions"].values())
    for rare in (False, True):
        numbers = [number for number in BATCH_NUMBERS.values() if number.row and BY_NAME[number.of].rare == rare]
        for number in sorted(numbers, key=lambda number: (BY_NAME[number.of].own, number.how == "sum")):
            means = [(entry.get(number.name) or UNKNOWN)["mean"] for entry in directions]
            shown = any(means) if rare else any(mean is not None for mean in means)
            if shown or (number.name == "contributing_mean" and summary["share"] != "unknown"):
                label = number.row.format(batch=_batch_queries(summary), percent=f"{100 * summary['eps']:.6g} %")
                yield number.name, label, [_cell(entry.get(number.name), number) for entry in directions]
    for source in dict.fromkeys(name for entry in directions for name in entry.get("sources", {})):
        parts = [entry.get("sources", {}).get(source, {}) for entry in directions]
        for number in (number for statistic in OF_SOURCES for number in statistic.numbers):
            values = [part.get(number.name) for part in parts]
            if number.name != "pulled" or any(value and value["mean"] for value in values):
                yield source, f"{source}: {number.row}", [_cell(value, number) if value else "" for value in values]
    for mark in directions[0].get("marks", {}):
        for key, number in MARKED_PARTS.items():
            yield mark, f"{mark}: {number.row}", [_cell(entry["marks"][mark][key], number) for entry in directions]
    metrics = summary.get("metrics", {}).get("directions", {})
    for key, label in METRICS.items() if metrics else ():
        yield key, label, [f"{metrics[name][key]:.2f}" for name in summary["directions"]]


def _cell(value: dict | None, number: Number) -> str:
    """Write a mean and its deviation; a percentage with one decimal."""
    scaled = {key: None if part is None else number.scale * part for key, part in (value or UNKNOWN).items()}
    return spread(scaled, None if number.scale == 1 else 1)


def _batch_queries(summary: dict) -> str:
    """Write the number of queries in a batch, once if it is the same in all directions."""
    return " and ".join(dict.fromkeys(f"{round(e['batch_queries'], 1):g}" for e in summary["directions"].values()))


def _averaging(summary: dict, batch_columns: str = "") -> str:
    """Describe means and deviations; `batch_columns` are those over full batches."""
    if summary["convention"] != "standard":
        return "mean ± deviation over batches"
    full, batches = summary["full_batches"], summary["batches"]
    over = "batches" if full == batches else "the one full batch" if full == 1 else f"the {full} full batches"
    parts = [batch_columns] if batch_columns and batches > 1 else []
    parts += ["deviations (±)"] if full > 1 else []
    return f"means over all queries; {' and '.join(parts)} over {over}" if parts else "means over all queries"


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
