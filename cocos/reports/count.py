"""Tables of contributing negatives: of one loss, and of several losses beside each other.

The first lines are the answer: two numbers for each direction, one sentence on them, and one command to type next. The
row to report is marked; `explain` defines all of them, and adds the health of the embeddings.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import xarray as xr

from cocos import measures, results
from cocos.counting import health, verdicts
from cocos.reports import _by_source
from cocos.reports._phrases import averaging, drawn, geometry, has_images, loss_call, mean, number, queries_per_batch
from cocos.reports.layout import Step, Table, given
from cocos.results import several

# Rows of a count: key in the JSON, label, factor, and definition for `explain`.
COUNT_ROWS = (
    ("contributing_all", "contributing negatives per query", 1, "negatives above eps, mean over all queries"),
    ("contributing_mean", "of the queries with any (C^A)", 1, "the same over the queries that have at least one (C^q)"),
    ("idle_fraction", "queries without any, %", 100, "queries of which no negative is above eps"),
    ("idle_pull", "part of the pull that they hold, %", 100, "sum of their pull over that of all queries: they still "
     "move, where it is not 0"),
    ("relative", "negatives with more than {percent} of the push", 1, "negatives with more than eps of the query's own "
     "push, the sum of its weights above zero; it compares losses of any kind"),
    ("effective", "effective number of negatives", 1, "exp of the entropy of the push, free of any threshold; over the "
     "queries with any push, and so are the rows below on the push"),
    ("participation", "participation ratio of the negatives", 1, "1 over the sum of squared parts of the push"),
    ("n90", "negatives that carry 90 % of the push", 1, "fewest negatives with 90 % of the push"),
    ("hardest_share", "part of the push on the heaviest negative", 1, "largest part of the query's own push, 0 to 1"),
    ("weight_above", "share of the negatives above eps (W-)", 1, "summed |weight| / unit of these negatives"),
    ("weight_below", "share of the negatives not above eps", 1, "the same of the negatives that the count leaves out"),
    ("weight_positive", "share of the positives (W+)", 1, "the same of the positives: 1 - p(match) for one softmax"),
    ("contributing_sum", "full batch of {batch}: contributing (C^B)", 1, "mean over the full batches"),
    ("idle", "full batch of {batch}: queries without any (C^0)", 1, "mean over the full batches"),
    ("eq7_mean", "Eq. 7 count, queries with any (C^q)", 1, "pairs of a positive and a candidate above it"),
    ("eq7_sum", "full batch of {batch}: Eq. 7 count", 1, "mean over the full batches"),
    ("eq7_idle", "full batch of {batch}: Eq. 7 count of 0", 1, "mean over the full batches"),
    ("clamped", "full batch of {batch}: queries on the clamp", 1, "they push nothing"),
)  # fmt: skip
# Row to quote, by convention: one mean over all queries, or the one that the published tables print.
REPORTED = {"standard": "contributing_all", "ecir2022": "contributing_mean"}
MARK = "* "
# Part of the queries from which the first lines say what queries without a contributing negative hold.
NOTABLE = 0.1
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
    ("contributing_all", "* contributing", 1),
    ("contributing_mean", "C^A", 1),
    ("idle_fraction", "none %", 100),
    ("idle_pull", "their pull %", 100),
    ("weight_above", "W-", 1),
    ("weight_positive", "W+", 1),
    ("effective", "effective", 1),
    ("hardest_share", "heaviest", 1),
)
# Retrieval metrics that stand beside the counts of several losses.
OVERVIEW_METRICS = ("R@1", "R@5", "R@10")
# What becomes of two rows of one group in a batch of pairs, by the option `same_group`.
SAME_GROUP_FATES = {
    "ignore": "left out of the gradient",
    "negative": "kept as negatives of each other",
    "positive": "positives of each other for a loss that reads labels",
}


def table(data: xr.Dataset, *, explain: bool = False) -> Table:
    """Write the counts of one loss: a row for each statistic, a column for each direction; of several, `overview`."""
    if "loss" in data.dims:
        return overview(several.each(data), explain=explain)
    summary = measures.document("count", data)
    directions = summary["directions"]
    marked = "relative" if summary["share"] == "unknown" else REPORTED.get(summary["convention"], "")
    rows = tuple(
        (
            f"{MARK if key == marked else '  '}{label}",
            *(_cell(entry[key], factor) for entry in directions.values()),
        )
        for key, label, factor, _ in _known(summary)
    )
    rows += tuple((f"  {label}", *cells) for label, *cells in (*_by_source.rows(directions), *_marked(directions)))
    metrics = summary.get("metrics", {}).get("directions", {})
    rows += tuple(
        (f"  {label}", *(f"{metrics[name][key]:.2f}" for name in directions)) for key, label in METRIC_ROWS if metrics
    )
    head = (*health.first(data.attrs["notes"]), *_reading(summary), *_so_what(summary), *_more(summary))
    return Table(
        ("", *directions), rows, head, (*_notes(data, summary), *_about(data, summary, explain=explain)),
        typed=_next([summary]),
    )  # fmt: skip


def overview(datasets: Sequence[xr.Dataset] | Mapping[str, xr.Dataset], *, explain: bool = False) -> Table:
    """Write the counts of several losses on the same embeddings: a row for each loss and direction.

    Labels of the losses, if they are given, replace their names where a name occurs twice or a label is no loss.
    """
    labels = dict(datasets) if isinstance(datasets, Mapping) else {}
    datasets = list(labels.values()) if labels else list(datasets)
    summaries = [measures.document("count", data) for data in datasets]
    columns = [*OVERVIEW_COLUMNS, *([("n90", "n90", 1)] if any(_has(each, "n90") for each in summaries) else [])]
    rows, readings, plans = [], [], {}
    names = _called(datasets, list(labels))
    for name, data, summary in zip(names, datasets, summaries, strict=True):
        metrics = summary.get("metrics", {}).get("directions", {})
        for direction, entry in summary["directions"].items():
            ranked = [f"{metrics[direction][key]:.2f}" for key in OVERVIEW_METRICS if metrics]
            cells = (_cell(entry[key], factor) for key, _, factor in columns)
            rows.append((f"{name} {direction}", *cells, *ranked))
        plans.setdefault(drawn(data), []).append(data.attrs["loss_repr"])
        readings += [_line(name, summary), *(f"{name}, {sentence}" for sentence in _more(summary))]
    first = summaries[0]
    file = first["checkpoint"]
    source = f"{Path(file['path']).name}, sha256 {file['sha256'][:12]}, " if file["path"] else ""
    head = (*dict.fromkeys(line for each in datasets for line in health.first(each.attrs["notes"])), *readings)
    notes = [
        "* report this one, with eps, loss and batch size: contributing negatives, mean over all queries; none %: "
        "queries without any; their pull %: part of the pull that they hold"
        + ("" if explain else "; --explain defines the rest"),
        f"{source}eps = {first['eps']:g}; means over all queries; deviations (±) over full batches",
        *(f"{', '.join(dict.fromkeys(some))}: {plan}" for plan, some in plans.items()),
    ]
    if explain:
        known = {key: definition for key, _, _, definition in COUNT_ROWS}
        notes += [f"{label.removeprefix(MARK)}: {known[key]}" for key, label, _ in columns]
        notes += _health(first["health"] | {"directions": {}})  # pull and push of a direction differ from loss to loss
    columns = ("", *(label for _, label, _ in columns), *(OVERVIEW_METRICS if "metrics" in first else ()))
    least = ("W+", "W-", "C^A", "their pull %", "heaviest")
    return Table(columns, tuple(rows), head, tuple(notes), least=least, typed=_next(summaries))


def _known(summary: dict) -> list[tuple[str, str, float, str]]:
    """Rows of `COUNT_ROWS` that a count has, with its numbers in their labels."""
    directions, percent = summary["directions"], f"{100 * summary['eps']:.6g} %"
    batch = queries_per_batch(directions)
    return [
        (key, label.format(batch=batch, percent=percent), factor, definition)
        for key, label, factor, definition in COUNT_ROWS
        if any((entry.get(key) or {}).get("mean") is not None for entry in directions.values())
        or (key == "contributing_mean" and summary["share"] != "unknown" and key in next(iter(directions.values())))
    ]


def _about(data: xr.Dataset, summary: dict, *, explain: bool) -> Iterator[str]:
    """Yield the provenance of a count, the meaning of the mark, and with `explain` all definitions."""
    parts = [
        f"{loss_call(summary['loss'])}, {results.above(summary)} (eps = {summary['eps']:g}), {summary['convention']} "
        "convention",
        f"{drawn(data)}; {summary['dtype']} on {summary['device']}",
        averaging(summary, "C^B, C^0"),
    ]
    if about := results.about_weights(data.attrs):
        parts.append(f"weights {about}" if about.startswith("by") else about)
    if about := results.about_unit(summary):
        parts.append(about)
    yield "; ".join(parts)
    if not explain:
        yield f"{MARK}report this one, with loss, eps and batch size; --explain defines every row"
        return
    yield f"{MARK}report this one, with loss, eps and batch size (docs/concepts.md)"
    for _, label, _, definition in _known(summary):
        yield f"{label}: {definition}"
    yield f"a negative contributes with {results.above(summary)} (eps); a negative that is pulled is counted"
    yield from _health(summary["health"])


def _marked(directions: dict) -> list[tuple[str, ...]]:
    """Rows of the marked candidates: their parts of negatives and push, beside as many random negatives."""
    marks = next(iter(directions.values())).get("marks", {})
    return [
        (f"{name}: {label}", *(number(_times(entry["marks"][name][key], factor)) for entry in directions.values()))
        for name in marks
        for key, label, factor in MARK_ROWS
    ]


def _cell(value: dict, factor: float) -> str:
    """A mean and its deviation; in percent with one decimal, as the sentence has it."""
    return number(_times(value, factor), digits=None if factor == 1 else 1)


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


def _percent(value: float) -> str:
    """A part in percent, one decimal."""
    return f"{100 * value:.1f} %"


def _whole(value: float) -> str:
    """A number of negatives: as it is where it is whole, with two decimals elsewhere."""
    return f"{value:.0f}" if value == int(value) else f"{value:.2f}"


def _counted(entry: dict, summary: dict, *, first: bool) -> str:
    """State how many negatives contribute to a query, and how many queries have none."""
    negatives, counted, idle = (entry[name]["mean"] for name in ("negatives", "contributing_all", "idle_fraction"))
    if counted is None or idle is None:  # the unit of the loss is not known
        above = f"{100 * summary['eps']:.6g} % of the push"
        return f"{mean(entry['relative'])} of {_whole(negatives)} negatives have more than {above}"
    above = f" ({results.above(summary)})" if first else ""
    said = f"{mean(entry['contributing_all'])} of {_whole(negatives)} negatives contribute{above}"
    said += f"; {_percent(idle)} of the queries have none"
    if idle < NOTABLE or entry["idle_pull"]["mean"] is None:
        return said
    return f"{said}, and hold {_percent(entry['idle_pull']['mean'])} of the pull"


def _reading(summary: dict) -> list[str]:
    """State the two numbers of each direction."""
    directions = summary["directions"]
    return [
        f"{name}: {_counted(entry, summary, first=not place)}."
        for place, (name, entry) in enumerate(directions.items())
    ]


def _joined(values: Sequence[str]) -> str:
    """Values of the directions, once where they agree."""
    return " and ".join(dict.fromkeys(values))


def _line(name: str, summary: dict) -> str:
    """One of several losses in a line: its two numbers for each direction, and its verdict."""
    entries = list(summary["directions"].values())
    kinds = _joined([verdict["kind"] for verdict in summary["verdicts"].values()])
    if any(entry["contributing_all"]["mean"] is None for entry in entries):
        return f"{name}: {_counted(entries[0], summary, first=True)}: {kinds}."
    counted = _joined([mean(entry["contributing_all"]) for entry in entries])
    negatives = _joined([_whole(entry["negatives"]["mean"]) for entry in entries])
    idle = _joined([f"{100 * entry['idle_fraction']['mean']:.1f}" for entry in entries])
    return f"{name}: {counted} of {negatives} negatives contribute, {idle} % of the queries have none: {kinds}."


def _so_what(summary: dict) -> Iterator[str]:
    """Yield the verdict as a sentence: one for all directions of a kind."""
    kinds: dict[str, list[str]] = {}
    for name, verdict in summary["verdicts"].items():
        kinds.setdefault(verdict["kind"], []).append(name)
    for kind, names in kinds.items():
        sentence = _sentence(kind, [summary["verdicts"][name]["numbers"] for name in names], summary)
        where = "" if len(kinds) == 1 else f"{' and '.join(names)}: "
        if sentence:
            yield f"{where}{sentence[0].lower() if where else sentence[0]}{sentence[1:]}"


def _sentence(kind: str, numbers: Sequence[Mapping], summary: dict) -> str:
    """Write a verdict of `cocos.verdicts`; of a collapse the warning above speaks."""

    def said(name: str, write=lambda value: f"{value:.2f}") -> str:
        return _joined([write(each[name]) for each in numbers if each[name] is not None])

    spread, negatives = said("effective"), said("negatives", _whole)
    pull, rest = said("idle_pull", _percent), said("idle_fraction", lambda value: _percent(1 - value))
    percent = f"{100 * summary['eps']:.6g} %"
    return {
        "collapsed": "",  # the warning above says it
        "mispaired": "",  # and so does the caution
        "silent": "Silent: no negative pushes any query, so that the count has nothing to describe.",
        "flat": f"Flat: the push is spread as if over {spread} of {negatives} negatives, so hard ones weigh little "
        "more than easy ones.",
        "thin": f"Thin: most queries have no negative above {percent}, yet hold {pull} of the pull: many light "
        f"negatives share the push, as if {spread}. Report the effective number, or a smaller eps.",
        "starved": f"Starved: most queries have no negative that contributes; the other {rest} hold "
        f"{said('idle_pull', lambda value: _percent(1 - value))} of the pull.",
        "sharp": f"Sharp: the push of a query is spread as if over {spread} negatives, so that a single false negative "
        "would have most of it.",
        "wasteful": f"Wasteful: the push of a query is spread as if over {spread} of {negatives} negatives; the others "
        "are scored and hardly push.",
        "fine": f"Fine: the push of a query is spread as if over {spread} of {negatives} negatives, neither one alone "
        "nor the whole batch.",
    }[kind]


def _next(summaries: Sequence[dict]) -> tuple[Step, ...]:
    """The command that looks further into the direction, and the loss, with the gravest verdict."""
    order = list(verdicts.SEVERITY)
    grave = min(
        ((verdict, summary) for summary in summaries for verdict in summary["verdicts"].values()),
        key=lambda each: order.index(each[0]["kind"]),
    )
    (verdict, summary), path = grave, grave[1]["checkpoint"]["path"]
    if not path or "\n" in path:
        return ()
    options = dict(verdict["options"])
    if len(summaries) > 1 and verdict["command"] != "evaluate":
        options |= {"loss": summary["loss"]["name"], "param": given(summary["loss"]["parameters"])}
    return (Step(verdict["command"], (path,), options),)


def _more(summary: dict) -> list[str]:
    """State what else a reader must know: a clamp, sources, filters, and marked candidates."""
    sentences = []
    for name, entry in summary["directions"].items():
        if (entry.get("clamped") or {}).get("mean"):
            sentences.append(
                f"{name}: {_percent(entry['clamped']['mean'] / entry['batch_queries'])} of the queries in a batch are "
                f"on the clamp of the loss and push nothing; raise temperature "
                f"({summary['loss']['parameters']['temperature']:g}) or lower prior "
                f"({summary['loss']['parameters']['prior']:g})."
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
    without = {name: entry["batches_without_active_queries"] for name, entry in directions.items()}
    if any(without.values()):
        each = ", ".join(f"{number} ({name})" for name, number in without.items() if number)
        notes.append(f"batches without any contributing negative: {each}, left out of C^A")
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
    if copied := {name: entry["repeated"] for name, entry in directions.items() if entry.get("repeated")}:
        number = " and ".join(f"{each} of {name}" for name, each in copied.items())
        fate = "each stands in its batch once" if summary["copies"] == "once" else "kept, each one more candidate"
        notes.append(f"copies of candidates among the pairs drawn: {number}; {fate} (published: kept)")
    for name, each in summary["health"]["sides"].items():
        if each["near_duplicates"]:
            notes.append(f"{name}: {each['near_duplicates']} of {each['rows']} rows repeat another, up to rounding")
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
