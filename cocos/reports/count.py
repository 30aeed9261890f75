"""Tables of contributing negatives: of one loss, and of several losses beside each other."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import xarray as xr

from cocos import health, measures, results, several
from cocos.reports import _by_source
from cocos.reports._phrases import averaging, drawn, geometry, has_images, loss_call, mean, number, queries_per_batch
from cocos.reports.layout import Table

COUNT_ROWS = (
    ("contributing_mean", "contributing negatives, queries with any (C^A)"),
    ("contributing_all", "contributing negatives, all queries"),
    ("contributing_sum", "contributing negatives, sum over a batch (C^B)"),
    ("idle", "idle queries, of {batch} in a batch (C^0)"),
    ("relative", "negatives with more than {percent} of the push"),
    ("weight_above", "share of the negatives above eps (W-)"),
    ("weight_below", "share of the negatives not above eps"),
    ("weight_positive", "share of the positives (W+)"),
    ("effective", "effective number of negatives (exp entropy)"),
    ("participation", "participation ratio of the negatives"),
    ("n90", "negatives that carry 90 % of the push"),
    ("hardest_share", "part of the push on the heaviest negative"),
    ("eq7_mean", "Eq. 7 count, queries with any (C^q)"),
    ("eq7_sum", "Eq. 7 count, sum over a batch"),
    ("eq7_idle", "queries with an Eq. 7 count of 0, of {batch}"),
    ("clamped", "queries on the clamp, of {batch}: they push nothing"),
)
# Rows of each kind of marked candidates, in percent except the last.
MARK_ROWS = (
    ("negatives", "part of the negatives, %", 100),
    ("push", "part of the push, %", 100),
    ("placebo", "part of the push of as many random negatives, %", 100),
    ("enrichment", "part of the push over part of the negatives", 1),
)
METRIC_ROWS = (
    ("R@1", "R@1, % of the queries with a positive at rank 1"),
    ("R@5", "R@5"),
    ("R@10", "R@10"),
    ("median_rank", "median rank of the best positive"),
    ("mAP@R", "mAP@R, %"),
)
OVERVIEW_COLUMNS = (
    ("contributing_mean", "contributing"),
    ("contributing_sum", "batch sum"),
    ("idle", "idle"),
    ("weight_above", "W-"),
    ("weight_positive", "W+"),
    ("effective", "effective"),
    ("hardest_share", "heaviest"),
)
# Retrieval metrics that stand beside the counts of several losses.
OVERVIEW_METRICS = ("R@1", "R@5", "R@10")
# What becomes of two rows of one group in a batch of pairs, by the option `same_group`.
SAME_GROUP_FATES = {
    "ignore": "left out of the gradient",
    "negative": "kept as negatives of each other",
    "positive": "positives of each other for a loss that reads labels",
}


def table(data: xr.Dataset) -> Table:
    """Write the counts of one loss: a row for each statistic, a column for each direction; of several, `overview`."""
    if "loss" in data.dims:
        return overview(several.each(data))
    summary = measures.document("count", data)
    directions, percent = summary["directions"], f"{100 * summary['eps']:.6g} %"
    batch = queries_per_batch(directions)
    rows = tuple(
        (label.format(batch=batch, percent=percent), *(number(entry[key]) for entry in directions.values()))
        for key, label in COUNT_ROWS
        if next(iter(directions.values())).get(key) is not None
    )
    rows += (*_by_source.rows(directions), *_marked(directions))
    metrics = summary.get("metrics", {}).get("directions", {})
    rows += tuple(
        (label, *(f"{metrics[name][key]:.2f}" for name in directions)) for key, label in METRIC_ROWS if metrics
    )
    head = [
        *health.first(data.attrs["notes"]),
        *_reading(data, summary),
        f"{loss_call(summary['loss'])}, {results.above(summary)} (eps = {summary['eps']:g}), "
        f"{summary['convention']} convention",
        f"{drawn(data)}; {summary['dtype']} on {summary['device']}",
        averaging(summary, "C^B, C^0"),
    ]
    if about := results.about_weights(data.attrs):
        head.append(f"weights {about}" if about.startswith("by") else about)
    if about := results.about_unit(summary):
        head.append(about)
    return Table(("", *directions), rows, tuple(head), (*_notes(data, summary), *_health(summary["health"])))


def overview(datasets: Sequence[xr.Dataset] | Mapping[str, xr.Dataset]) -> Table:
    """Write the counts of several losses on the same embeddings: a row for each loss and direction.

    Labels of the losses, if they are given, replace their names where a name occurs twice or a label is no loss.
    """
    labels = dict(datasets) if isinstance(datasets, Mapping) else {}
    datasets = list(labels.values()) if labels else list(datasets)
    summaries = [measures.document("count", data) for data in datasets]
    columns = [*OVERVIEW_COLUMNS, *([("n90", "n90")] if any(_has(each, "n90") for each in summaries) else [])]
    rows, notes, readings = [], [], []
    for name, data, summary in zip(_called(datasets, list(labels)), datasets, summaries, strict=True):
        metrics = summary.get("metrics", {}).get("directions", {})
        for direction, entry in summary["directions"].items():
            ranked = [f"{metrics[direction][key]:.2f}" for key in OVERVIEW_METRICS if metrics]
            rows.append((f"{name} {direction}", *(number(entry[key]) for key, _ in columns), *ranked))
        batch = queries_per_batch(summary["directions"])
        notes.append(f"{data.attrs['loss_repr']}: {drawn(data)}; C^0 of {batch} queries")
        readings += [f"{name}, {sentence}" for sentence in _reading(data, summary)]
    first = summaries[0]
    file = first["checkpoint"]
    source = f"{Path(file['path']).name}, sha256 {file['sha256'][:12]}, " if file["path"] else ""
    head = (
        *dict.fromkeys(line for each in datasets for line in health.first(each.attrs["notes"])),
        *readings,
        f"{source}eps = {first['eps']:g}",
        "means over all queries; batch sum, idle and deviations (±) over full batches",
    )
    notes += [
        "contributing: negatives of a query that has any (C^A); batch sum: their sum over a batch (C^B); idle: "
        "queries of a batch without any (C^0)",
        "W-: share of the negatives above eps; W+: share of the positives",
        "effective: exp of the entropy of the push; heaviest: part of the push on the heaviest negative",
        *_health(first["health"] | {"directions": {}}),  # pull and push of a direction differ from loss to loss
    ]
    names = ("", *(label for _, label in columns), *(OVERVIEW_METRICS if "metrics" in first else ()))
    return Table(names, tuple(rows), head, tuple(notes), least=("batch sum", "W+", "W-"))


def _marked(directions: dict) -> list[tuple[str, ...]]:
    """Rows of the marked candidates: their parts of negatives and push, beside as many random negatives."""
    marks = next(iter(directions.values())).get("marks", {})
    return [
        (f"{name}: {label}", *(number(_times(entry["marks"][name][key], factor)) for entry in directions.values()))
        for name in marks
        for key, label, factor in MARK_ROWS
    ]


def _times(value: dict, factor: float) -> dict:
    """A mean and its deviation, multiplied."""
    return {key: None if each is None else factor * each for key, each in value.items()}


def _has(summary: dict, key: str) -> bool:
    """Whether the directions of a document have an entry."""
    return any((entry.get(key) or {}).get("mean") is not None for entry in summary["directions"].values())


def _called(datasets: Sequence[xr.Dataset], labels: Sequence[str]) -> list[str]:
    """Names of several losses: their own, or their labels where a name occurs twice or a label is no loss."""
    names = [str(data.attrs["loss"]) for data in datasets]
    own = [data.attrs["loss_repr"] for data in datasets]
    return [
        label if names.count(name) > 1 or label != loss else name
        for name, label, loss in zip(names, labels or own, own, strict=True)
    ]


def _reading(data: xr.Dataset, summary: dict) -> list[str]:
    """State the main numbers of the table, one sentence a direction."""
    sentences = []
    for name, entry in summary["directions"].items():
        counted, active, total = entry["contributing_all"], entry["active_queries"], entry["queries"]
        negatives = float(data["negatives"].sel(direction=name).mean())
        sentence = f"{name}: of {negatives:.0f} negatives per query, {mean(counted)} contribute"
        sentence += f" ({results.above(summary)})"
        if 0 < active < total:
            sentence += f" ({mean(entry['contributing_mean'])} for the {active} of {total} queries with any)"
        if data.attrs.get("share") != "push" and entry.get("relative", {}).get("mean") is not None:
            sentence += f"; {mean(entry['relative'])} have more than {100 * summary['eps']:.6g} % of the push"
        if entry["effective"]["mean"]:
            sentence += f"; the push is spread as if over {mean(entry['effective'])}"
        whole, idle = entry["batch_queries"], entry["idle"]
        sentence += f"; {100 * idle['mean'] / whole:.1f} % of the queries in a batch have none"
        sentences.append(f"{sentence} ({mean(idle)} of {round(whole, 1):g}).")
        if (entry.get("clamped") or {}).get("mean"):
            sentences.append(
                f"{name}: {100 * entry['clamped']['mean'] / whole:.1f} % of the queries in a batch are on the clamp of "
                f"the loss and push nothing; raise temperature ({summary['loss']['parameters']['temperature']:g}) or "
                f"lower prior ({summary['loss']['parameters']['prior']:g})."
            )
        sentences += _by_source.sentences(name, entry)
        for label, marked in entry.get("marks", {}).items():
            if marked["push"]["mean"] is not None:
                parts = [mean(_times(marked[key], 100)) for key in ("negatives", "push", "placebo")]
                sentences.append(
                    f"{name}, {label}: {parts[0]} % of the negatives and {parts[1]} % of the push (as many random "
                    f"negatives: {parts[2]} %)."
                )
    return sentences


def _notes(data: xr.Dataset, summary: dict) -> list[str]:
    """List what qualifies the counts: batches left out, undecided candidates, rows of one group, footnotes."""
    directions, notes = summary["directions"], []
    for name, entry in directions.items():
        if without := entry["batches_without_active_queries"]:
            notes.append(f"batches without any contributing negative: {without} ({name}), left out of C^A")
    if metrics := summary.get("metrics"):
        singles = [f"{name.replace('_', ' ')} {value:.2f}" for name, value in metrics.items() if name != "directions"]
        notes.append(f"R@k and ranks: all queries of the set against all of its candidates; {', '.join(singles)}")
    for name, entry in directions.items():
        if entry["uncertain"]:
            queries = int((data["uncertain"].sel(direction=name) > 0).sum())
            notes.append(
                f"{name}: {entry['uncertain']} candidates of {queries} queries are too near eps to decide, so the sum "
                "of their counts is uncertain by that number"
            )
        if entry.get("relative_uncertain"):
            notes.append(
                f"{name}: {entry['relative_uncertain']} candidates have a part of the push too near "
                f"{100 * summary['eps']:.6g} % to decide"
            )
    if summary["same_group_pairs"]:
        fate = SAME_GROUP_FATES[summary["same_group"]]
        alike = "show the same image" if has_images(directions) else "are of one group"
        notes.append(f"{summary['same_group_pairs']} pairs of rows in the batches {alike}, {fate} (published: kept)")
    return notes + [line for line in (data.attrs.get("footnotes") or "").splitlines() if line]


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
    lines = [f"health: {'; '.join(sides)}", *geometry(found)]
    for name, each in found["directions"].items():
        if each is None:
            continue
        if each["cancellation"] is None:
            parts = ["nothing pulls or pushes the embeddings"]
        else:
            parts = [f"{100 * each['cancellation']:.1f} % of pull and push cancels"]
            parts += [f"{100 * each['reaching']:.1f} % reaches the embeddings"]
        if each["tied"] is not None:
            parts.append(f"{100 * each['tied']:.1f} % of the queries tie with a negative")
        some = f"{each['queries']} queries and {each['candidates']} candidates of the first batch"
        lines.append(f"health, {name}: {', '.join(parts)} ({some})")
    return lines
