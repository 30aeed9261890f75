"""Tables of contributing negatives: of one loss, and of several losses beside each other.

The first lines name the loss and its parameters, two numbers for each direction, one verdict, and one command to type
next. The row to report is marked; `explain` defines all of them, and adds the health of the embeddings.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import xarray as xr

from cocos.counting import findings, shares
from cocos.counting.findings import Finding
from cocos.counting.statistics import BATCH_NUMBERS, BY_NAME, MARKED_PARTS, OF_SOURCES, Number
from cocos.reports import documents
from cocos.reports.phrases import (
    averaging,
    drawn,
    geometry,
    loss_call,
    mean_of,
    number,
    part_in_percent,
    percent,
    queries_per_batch,
    times,
)
from cocos.reports.tables import Step, Table, next_steps, parameter_values

# Row to quote, by convention: one mean over all queries, or the one that the published tables print.
REPORTED = {"standard": "contributing_all", "ecir2022": "contributing_mean"}
MARK = "* "
# Status of a loss among several, where it is not the kind of its gradient.
STATUS = {"shared": "OK", "mispaired": "mismatched", "alike": "nearly collapsed"}
METRIC_ROWS = (
    ("R@1", "R@1, % of the queries with a positive at rank 1"),
    ("R@5", "R@5"),
    ("R@10", "R@10"),
    ("median_rank", "median rank of the best positive"),
    ("mAP@R", "mAP@R, %"),
)
# Findings on a direction that are listed for each of several losses.
OF_A_DIRECTION = ("clamped", "below zero", "pulled")
# Retrieval metrics that stand beside the counts of several losses.
OVERVIEW_METRICS = ("R@1", "R@5", "R@10")


def table(data: xr.Dataset | dict[str, xr.Dataset], *, explain: bool = False) -> Table:
    """Write the counts of one loss: a row for each statistic, a column for each direction; of several, `overview`."""
    if isinstance(data, dict):
        return overview(data, explain=explain)
    summary = documents.count(data)
    directions = summary["directions"]
    reported = "relative" if summary["share"] == "unknown" else REPORTED.get(summary["convention"], "")
    rows = [
        (f"{MARK if each.name == reported else '  '}{label}", *cells)
        for each, label, *cells in (*_rows(summary), *_rows(summary, rare=True))
    ]
    rows += [(f"  {label}", *cells) for label, *cells in (*_of_sources(directions), *_of_marks(directions))]
    metrics = summary.get("metrics", {}).get("directions", {})
    rows += [
        (f"  {label}", *(f"{metrics[name][key]:.2f}" for name in directions)) for key, label in METRIC_ROWS if metrics
    ]
    checked = findings.of_count(data)
    numbers = (f"{name}: {_contributing(entry, summary)}" for name, entry in directions.items())
    head = (
        *(_loss_line(data), *findings.first(data.attrs), *numbers),
        *(_line(finding) for finding in checked if _leads(finding)),
    )
    remarks = (finding.text for finding in checked if not _leads(finding))
    notes = (*remarks, *_about(data, summary, explain=explain))
    return Table(("", *directions), tuple(rows), head, notes, typed=_next([data]))


def with_origins(
    counted: xr.Dataset | dict[str, xr.Dataset], origins: Sequence[str]
) -> xr.Dataset | dict[str, xr.Dataset]:
    """Return counts with the origin of the parameters of each loss, which their table prints in its first lines."""
    if not isinstance(counted, dict):
        return counted.assign_attrs(loss_origin=origins[0])
    named = zip(counted.items(), origins, strict=True)
    return {label: data.assign_attrs(loss_origin=origin) for (label, data), origin in named}


def _leads(finding: Finding) -> bool:
    """Whether a finding is among the first lines: repeated rows are known before any training."""
    return finding.severity != "note" and finding.kind != "repeated rows"


def _line(finding: Finding) -> str:
    """A finding among the first lines; the command to type next is the cure of a gradient."""
    return finding.sentence if finding.kind in findings.GRADIENTS else finding.text


def _loss_line(data: xr.Dataset) -> str:
    """The loss, its parameters, and where these come from, if it is known."""
    loss = documents.about_loss(data.attrs)
    parameters = ", ".join(parameter_values(loss["parameters"])).replace("=", " ")
    return f"loss: {loss['name']}, {data.attrs.get('loss_origin') or parameters or 'no parameters'}"


def overview(datasets: Sequence[xr.Dataset] | Mapping[str, xr.Dataset], *, explain: bool = False) -> Table:
    """Write the counts of several losses on the same embeddings: a row for each loss and direction.

    Labels of the losses, if they are given, replace their names where a name occurs twice or a label is no loss.
    """
    labels = dict(datasets) if isinstance(datasets, Mapping) else {}
    datasets = list(labels.values()) if labels else list(datasets)
    summaries = [documents.count(data) for data in datasets]
    columns = _columns(summaries)
    rows, readings, remarks, plans = [], [], [], {}
    names = _called(datasets, list(labels))
    for name, data, summary in zip(names, datasets, summaries, strict=True):
        metrics = summary.get("metrics", {}).get("directions", {})
        for direction, entry in summary["directions"].items():
            ranked = [f"{metrics[direction][key]:.2f}" for key in OVERVIEW_METRICS if metrics]
            cells = (_cell(entry[each.name], each.scale) for each in columns)
            rows.append((f"{name} {direction}", *cells, *ranked))
        plans.setdefault(drawn(data), []).append(data.attrs["loss_repr"])
        readings.append(_summary(name, data, summary))
        for finding in findings.of_count(data):
            if finding.kind in OF_A_DIRECTION:
                (readings if _leads(finding) else remarks).append(f"{name}, {finding.text}")
    first = summaries[0]
    file = first["checkpoint"]
    source = f"{Path(file['path']).name}, sha256 {file['sha256'][:12]}, " if file["path"] else ""
    urgent = dict.fromkeys(line for data in datasets for line in findings.first(data.attrs))
    head = (*map(_loss_line, datasets), *urgent, *readings)
    notes = [
        *remarks,
        "* value to report, with loss, eps and batch size: contributing negatives, mean over all queries; none %: "
        "queries without any; their pull %: part of the pull that they hold"
        + ("" if explain else "; --explain defines the rest"),
        f"{source}eps = {first['eps']:g}; means over all queries; deviations (±) over full batches",
        *(f"{', '.join(dict.fromkeys(some))}: {plan}" for plan, some in plans.items()),
    ]
    if explain:
        notes += [f"{each.column}: {each.words}" for each in columns]
        notes += _health(first["health"] | {"directions": {}})  # pull and push of a direction differ from loss to loss
    labels = [f"{each.column}{'*' if each.name == REPORTED['standard'] else ''}" for each in columns]
    labels = ("", *labels, *(OVERVIEW_METRICS if "metrics" in first else ()))
    return Table(labels, tuple(rows), head, tuple(notes), typed=_next(datasets))


def _columns(summaries: Sequence[dict]) -> list[Number]:
    """Numbers in the columns of the overview: those by the unit of the loss first, what is asked for last."""
    entries = [entry for each in summaries for entry in each["directions"].values()]
    columns = sorted(
        (each for each in BATCH_NUMBERS.values() if each.column),
        key=lambda each: (not BY_NAME[each.of].by_unit, BY_NAME[each.of].asked),
    )
    return [
        each
        for each in columns
        if not BY_NAME[each.of].asked or any(mean_of(entry, each.name) is not None for entry in entries)
    ]


def _rows(summary: dict, *, rare: bool = False) -> Iterator[tuple]:
    """Yield number, label and cells of the rows that a count has.

    Numbers of the queries come before those of a full batch, and those that one loss has after the others.
    """
    directions = summary["directions"]
    batch, above = queries_per_batch(directions), percent(summary["eps"])

    shown = [each for each in BATCH_NUMBERS.values() if each.row and BY_NAME[each.of].rare == rare]
    for each in sorted(shown, key=lambda each: (BY_NAME[each.of].own, each.how == "sum")):
        means = [mean_of(entry, each.name) for entry in directions.values()]
        there = any(means) if rare else any(value is not None for value in means)
        if there or (each.name == "contributing_mean" and summary["share"] != "unknown"):
            cells = (entry.get(each.name) for entry in directions.values())
            label = each.row.format(batch=batch, percent=above)
            yield each, label, *((number(times(v, each.scale)) if rare else _cell(v, each.scale)) for v in cells)


def _of_sources(directions: Mapping[str, dict]) -> Iterator[tuple[str, ...]]:
    """Yield label and cells of the rows of each source, empty where a direction has no such source."""
    rows = [each for rare in (False, True) for own in OF_SOURCES if own.rare == rare for each in own.numbers]
    for source in dict.fromkeys(name for entry in directions.values() for name in entry.get("sources", {})):
        parts = [entry.get("sources", {}).get(source, {}) for entry in directions.values()]
        for each in rows:
            if each.name != "pulled" or any(mean_of(part, each.name) for part in parts):
                cells = (number(times(part[each.name], each.scale)) if part else "" for part in parts)
                yield f"{source}: {each.row}", *cells


def _of_marks(directions: Mapping[str, dict]) -> Iterator[tuple[str, ...]]:
    """Yield label and cells of the rows of marked candidates, beside as many random negatives."""
    for name in next(iter(directions.values())).get("marks", {}):
        for key, each in MARKED_PARTS.items():
            parts = (entry["marks"][name][key] for entry in directions.values())
            yield f"{name}: {each.row}", *(number(times(part, each.scale)) for part in parts)


def _about(data: xr.Dataset, summary: dict, *, explain: bool) -> Iterator[str]:
    """Yield the provenance of a count, the meaning of the mark, and with `explain` all definitions."""
    parts = [
        f"{loss_call(summary['loss'])}, {shares.above(summary)} (eps = {summary['eps']:g}), {summary['convention']} "
        "convention",
        f"{drawn(data)}; {summary['dtype']} on {summary['device']}",
        averaging(summary, "C^B, C^0"),
    ]
    if about := shares.about_weights(data.attrs):
        parts.append(f"weights {about}" if summary["gradient"] == "autograd" else about)
    if about := shares.about_unit(summary):
        parts.append(about)
    yield "; ".join(parts)
    if not explain:
        yield f"{MARK}value to report, with loss, eps and batch size. Definitions: --explain"
        return
    yield f"{MARK}value to report, with loss, eps and batch size (docs/concepts.md)"
    yield from (f"{label}: {each.words}" for each, label, *_ in _rows(summary))
    yield f"a negative contributes with {shares.above(summary)} (eps); a negative that is pulled is counted"
    yield from _health(summary["health"])


def _cell(value: dict, factor: float) -> str:
    """A mean and its deviation; in percent with one decimal, as the sentence has it."""
    return number(times(value, factor), digits=None if factor == 1 else 1)


def _called(datasets: Sequence[xr.Dataset], labels: Sequence[str]) -> list[str]:
    """Names of several losses: their own, or their labels where a name occurs twice or a label is no loss."""
    names = [str(data.attrs["loss"]) for data in datasets]
    own = [data.attrs["loss_repr"] for data in datasets]
    return [
        label if names.count(name) > 1 or label != loss else name
        for name, label, loss in zip(names, labels or own, own, strict=True)
    ]


def _contributing(entry: dict, summary: dict) -> str:
    """The two numbers of a direction: contributing negatives, and queries without any."""
    if entry["contributing_all"]["mean"] is None:  # the unit of the loss is not known
        above = f"negatives with more than {percent(summary['eps'])} of the push"
        return f"{above} {_of_negatives(entry, 'relative')}"
    idle = part_in_percent(entry["idle_fraction"]["mean"])
    return f"contributing negatives {_of_negatives(entry, 'contributing_all')}, idle queries {idle}"


def _of_negatives(entry: dict, name: str) -> str:
    """A number of negatives, and that of all negatives of a query."""
    return f"{findings.rounded(entry[name]['mean'] or 0.0)} of {findings.rounded(entry['negatives']['mean'])}"


def _summary(name: str, data: xr.Dataset, summary: dict) -> str:
    """One of several losses in a line: its status, and its two numbers for each direction."""
    entries, kinds = summary["directions"], findings.kinds_of_directions(data)
    words = {direction: STATUS.get(kind, kind) for direction, kind in kinds.items()}
    alike = len(set(words.values())) == 1
    status = next(iter(words.values())) if alike else findings.by_direction(words)
    if any(entry["contributing_all"]["mean"] is None for entry in entries.values()):
        counts = {direction: _of_negatives(entry, "relative") for direction, entry in entries.items()}
        above = f"negatives with more than {percent(summary['eps'])} of the push"
        return f"{name}: {status}, {above} {findings.by_direction(counts)}"
    counts = {direction: _of_negatives(entry, "contributing_all") for direction, entry in entries.items()}
    idle = {direction: part_in_percent(entry["idle_fraction"]["mean"]) for direction, entry in entries.items()}
    return (
        f"{name}: {status}, contributing negatives {findings.by_direction(counts)}, idle queries "
        f"{findings.by_direction(idle)}"
    )


def _next(datasets: Sequence[xr.Dataset]) -> tuple[Step, ...]:
    """The command that looks further into the loss with the gravest kind of gradient."""
    kinds = [min(findings.kinds_of_directions(data).values(), key=findings.GRADIENT_KINDS.index) for data in datasets]
    kind = min(kinds, key=findings.GRADIENT_KINDS.index)
    data = datasets[kinds.index(kind)]
    loss = documents.about_loss(data.attrs)
    command, options = findings.next_command(kind, loss["name"])
    if len(datasets) > 1 and command != "evaluate":
        options |= {"loss": loss["name"], "param": parameter_values(loss["parameters"])}
    return next_steps(data.attrs, command, options)


def _health(found: dict) -> list[str]:
    """Describe the embeddings: one line for both sides, and one for each direction."""
    sides = []
    for name, each in found["sides"].items():
        repeated = f"{each['duplicates']} of {each['rows']} rows repeat another"
        if each["near_duplicates"] > each["duplicates"]:
            repeated += f" ({each['near_duplicates']} up to rounding)"
        sides.append(
            f"{name} spread {each['spread']:.3f}, effective rank {each['effective_rank']:.1f} of {each['dimensions']}, "
            f"{repeated}"
        )
    lines = [f"health: {'; '.join(sides)}", *geometry(found)] if sides else []
    for name, each in found["directions"].items():
        if each is None:
            continue
        if each["cancellation"] is None:
            parts = ["nothing pulls or pushes the embeddings"]
        else:
            parts = [f"pull and push cancel by {100 * each['cancellation']:.1f} %"]
            parts += [f"{100 * each['reaching']:.1f} % reaches the embeddings"]
        if each["tied"] is not None:
            parts.append(f"{100 * each['tied']:.1f} % of the queries tie with a negative")
        some = f"{each['queries']} queries and {each['candidates']} candidates of the first batch"
        lines.append(f"health, {name}: {', '.join(parts)} ({some})")
    return lines
