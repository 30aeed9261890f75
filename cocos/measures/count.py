"""How many negatives contribute to the gradient of each query?"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Unpack

import numpy as np
import xarray as xr
from torch import Tensor

from cocos import engine, losses, results
from cocos.base import processes
from cocos.base.errors import InputError
from cocos.checkpoints import Checkpoint
from cocos.counting import conventions, statistics, verdicts
from cocos.embeddings import Embeddings
from cocos.engine import devices, fused, retrieval
from cocos.engine.prepared import Run, prepare_all
from cocos.engine.readers.precision_recall import PrecisionRecall
from cocos.engine.readers.ranks import Ranks
from cocos.engine.sampling import Progress, Sampling, sampled
from cocos.measures import _felt, _marked, _per_query, _sourced
from cocos.measures._counting import Counting, QueryRecords
from cocos.results import several

FLOAT32_COUNTS = "float32: a candidate within about 1e-6 of its threshold may fall on either side; float64 decides it"
CHANGED_FORM = (
    "in other batches its weights are of no form whose unit can be measured, so that the unit is not known after all "
    "(-p unit= gives it)"
)
NO_KERNEL = "no compiled kernel, so that PyTorch reads the scores, several times as slowly: {}"
QUERY_LABELS = {
    "contributing": ("contributing negatives", "candidates"),
    "relative_per_query": ("negatives with a part above eps of the query's own push", "candidates"),
    "relative_uncertain": ("candidates whose part of the push is too near eps to tell", "candidates"),
    "uncertain": ("candidates too near eps to tell: the count is uncertain by this number", "candidates"),
    "weight_above_per_query": ("summed share of the negatives above eps", "share"),
    "weight_below_per_query": ("summed share of the negatives not above eps", "share"),
    "weight_positive_per_query": ("summed share of the positives", "share"),
    "pulled_negatives_per_query": ("contributing negatives that are pulled", "candidates"),
    "pushed_positives_per_query": ("positives that are pushed, with a share above eps", "candidates"),
    "masked_per_query": ("negatives that the filter of the loss suspects", "candidates"),
    "below_zero_per_query": ("whether the positive scores below 0, so that `percent` keeps negatives above it", "1"),
    "masked_push_per_query": ("their part of the query's push without the filter", "1"),
    "unfiltered_push": ("total weight above zero of the negatives without the filter", "weight"),
    "negative_push": ("total weight above zero of the negatives", "weight"),
    "push": ("total weight above zero", "weight"),
    "pull": ("total weight below zero", "weight"),
    "effective_per_query": ("effective number of negatives (exp of entropy)", "candidates"),
    "participation_per_query": ("participation ratio of the negatives", "candidates"),
    "n90_per_query": ("negatives that hold 90 % of the push", "candidates"),
    "hardest_share_per_query": ("part of the push that the heaviest negative holds", "1"),
    "eq7_per_query": ("count of Eq. 7 (SmoothAP)", "pairs per positive"),
    "clamped_per_query": ("part of the positives on the clamp (HCL), for which nothing is pushed", "1"),
}
BATCH_LABELS = {
    "contributing_mean": ("contributing negatives, mean over the queries with at least one (C^A)", "candidates"),
    "contributing_sum": ("contributing negatives, sum over the batch (C^B)", "candidates"),
    "contributing_all": ("contributing negatives, mean over all queries", "candidates"),
    "idle": ("queries without any contributing negative (C^0)", "queries"),
    "idle_fraction": ("part of the queries without any contributing negative", "1"),
    "idle_pull": ("part of the pull that the queries without any contributing negative hold", "1"),
    "relative": ("negatives with a part above eps of the query's own push, mean over all queries", "candidates"),
    "weight_above": ("share of the negatives above eps, mean over the queries (W^{qv-})", "share"),
    "weight_below": ("share of the negatives not above eps, mean over the queries", "share"),
    "weight_positive": ("share of the positives, mean over the queries (W^{qv+})", "share"),
    "pulled_negatives": ("contributing negatives that are pulled, mean over all queries", "candidates"),
    "pushed_positives": ("positives that are pushed, with a share above eps, mean over all queries", "candidates"),
    "masked": ("negatives that the filter of the loss suspects, mean over all queries", "candidates"),
    "below_zero": ("part of the queries whose positive scores below 0: `percent` keeps negatives above it", "1"),
    "masked_push": ("their part of the push without the filter", "1"),
    "effective": ("effective number of negatives, mean over the queries with any push", "candidates"),
    "participation": ("participation ratio, mean over the queries with any push", "candidates"),
    "n90": ("negatives that hold 90 % of the push, mean over the queries with any push", "candidates"),
    "hardest_share": ("part of the push on the heaviest negative, mean over the queries with any push", "1"),
    "eq7_mean": ("count of Eq. 7, mean over the queries with at least one (C^q)", "pairs per positive"),
    "eq7_sum": ("count of Eq. 7, sum over the batch", "pairs per positive"),
    "eq7_idle": ("queries without any count of Eq. 7 (C^0)", "queries"),
    "clamped": ("queries with all positives on the clamp (HCL), which push nothing", "queries"),
}
# Statistics of the spread of the push, averaged over the queries with any.
PUSH_SPREAD = ("effective", "participation", "n90", "hardest_share")
# Statistics that are averaged over all queries; those that a loss does not have, or an older file, are left out.
OVER_ALL_QUERIES = (
    "relative",
    "weight_above",
    "weight_below",
    "weight_positive",
    "pulled_negatives",
    "pushed_positives",
    "masked",
    "below_zero",
)
# Statistics that a batch has, and no query by itself.
OF_BATCHES = ("contributing_sum", "idle", "eq7_sum", "eq7_idle", "clamped")


def _everything(run: Run) -> bool:
    """One batch is visited that asks every query for all of its positives: metrics can be read from the same pass."""
    if not run.visited or len(run.plan.batches) > 1 or not run.plan.batches[0].square:
        return False
    (batch,), embeddings = run.plan.batches, run.embeddings
    groups = (embeddings.query_group, embeddings.candidate_group)
    single = all(len(group.unique()) == len(group) for group in groups)
    sizes = (len(batch.query_index), len(batch.candidate_index))
    whole = sizes == (len(embeddings.query), len(embeddings.candidate))
    return whole and (single or not batch.paired or run.same_group == "positive")


def _metrics_of(run: Run, found: list, progress: Progress | None) -> dict[str, tuple]:
    """Label the retrieval metrics of the whole set, from the same pass as the counts or from one of their own."""
    if not found:
        view = engine.view(run.embeddings, metric=run.loss.metric, product=run.dtype)
        found[:] = engine.run(view, [Ranks(), PrecisionRecall()], progress=progress and progress("ranking"))
    ranked, curve = found
    names = run.embeddings.directions
    metrics = {name: retrieval.metrics(each) for name, each in zip(names, ranked, strict=True)}
    singles = {"PR-AUC": retrieval.average_precision(curve.score, curve.negatives)}
    if len(names) > 1:
        singles["rsum"] = retrieval.rsum(*metrics.values())
    made = {name: ("direction", [each[name] for each in metrics.values()]) for name in metrics[names[0]]}
    made |= {name: ((), value) for name, value in singles.items()}
    return {name: (*about, *retrieval.label(name)) for name, about in made.items()}


def _notes(run: Run) -> list[str]:
    """How exact the counts are, and how they were made."""
    if not run.visited:
        return [FLOAT32_COUNTS] if run.dtype == "float32" else []
    reason = "" if devices.ahead(run.embeddings.query.device) else fused.kernel_reason()
    return [NO_KERNEL.format(reason)] if reason else []


@devices.threads(1)
@sampled(dtype=None, same_group=None)
def count(
    embeddings: Embeddings | Checkpoint,
    loss="ntxent",
    eps: float = 0.01,
    *,
    convention: str = "standard",
    metrics: bool = False,
    n90: bool = False,
    **sampling: Unpack[Sampling],
) -> xr.Dataset:
    """Count the negatives that contribute to each query's gradient, in training batches, in every direction.

    A negative contributes where its share, |weight| / unit of the loss, is above eps, strictly: for softmax losses its
    probability, the mean over the positives of a query; for hinges a number of violations (docs/eps.md). Beside it is
    `relative`, the number of negatives whose part of the query's own push is above eps. The embeddings are computed
    once; batches are drawn from them.

    Args:
        embeddings: embeddings of the training set, or a checkpoint (its training set is encoded).
        loss: a loss, its name, or a function, class or module of yours (see `cocos.losses.load`); a name takes the
            parameters that the checkpoint recorded for it. Or a list of losses, or a dict of label -> loss: losses with
            the same metric and batches are counted from one pass over the scores. A Matryoshka loss is counted as one
            loss for each number of dimensions, and at any and at all of them.
        eps: smallest share that contributes. Hinge losses have whole weights: any eps below 1 counts weight != 0.
        convention: `standard`, or `ecir2022` for what the published counters return, faults included.
        metrics: the retrieval metrics of the whole set as well (`cocos.retrieval.metrics`, on the scores of the loss);
            they are read from the same pass where one batch is the whole set.
        n90: the number of negatives that carry 90 % of the push as well, which sorts the scores of every query: they
            are kept in memory then, in float64 unless `dtype` says otherwise, however large a batch is. So they are
            where the embeddings have marks, whose parts of the negatives and of the push are counted then.
        **sampling: options of the batches, see `cocos.sampling.Sampling`.

    Returns:
        A Dataset with dims direction, batch, query: see `variables` in its file. Of a list or a dict, these variables
        have the dimension `loss` in front, whose labels are those of the dict, or the losses with their parameters;
        `cocos.several.each` takes it apart.

    Raises:
        InputError: an option or an embedding that cannot be used.

    Examples:
        Each query has two negatives with a probability of 1 / (e + 2):

        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> ntxent = cocos.losses.load("ntxent", {"temperature": 1})
        >>> data = cocos.measures.count(embeddings, ntxent, batch_size="all")
        >>> data["contributing"].mean(["batch", "query"]).values
        array([2., 2.])

        A margin of 1 is violated by no negative with a score of 0:

        >>> both = {"soft": ntxent, "hinge": cocos.losses.load("triplet", {"margin": 1})}
        >>> data = cocos.measures.count(embeddings, both, batch_size="all")
        >>> data["contributing"].sum(["direction", "batch", "query"]).to_series().to_dict()
        {'soft': 12.0, 'hinge': 0.0}
    """
    conventions.check(convention)
    loss = several.expanded(loss)
    single = not isinstance(loss, Mapping | list | tuple)
    asked = [loss] if single else several.given(loss)
    standard = convention == "standard"
    # The published batches keep rows of one group as negatives of each other.
    sampling["same_group"] = sampling["same_group"] or ("ignore" if standard else "negative")
    sampling["copies"] = conventions.copies(convention, sampling["copies"])
    keep = {"visits": standard and not n90, "whole": not standard, "marks": True}
    runs = prepare_all(embeddings, asked, eps=eps, **keep, **sampling)
    _same_sides(runs)
    names = [] if single else several.labels(loss, [repr(run.loss) for run in runs])
    counted = _counted(runs, Counting(eps, convention, n90, _more if metrics else lambda _: ()), sampling["progress"])
    alike = {id(run.plan.batches): run for run in runs}
    pairs = {key: run.same_group_pairs() for key, run in alike.items()}
    repeated = {key: run.repeated() for key, run in alike.items()}
    labels = [label for mark in runs[0].embeddings.marks.values() for label in mark.labels]
    parts, seen = [], {}
    for run, found in zip(runs, counted, strict=True):
        own = {"same_group_pairs": pairs[id(run.plan.batches)], "repeated": repeated[id(run.plan.batches)]}
        parts.append(variables(found.records, **own, zero_when_idle=not standard, sizes=found.sizes, marks=labels))
        if metrics:
            others = found.others or seen.setdefault((run.loss.metric, run.dtype, id(run.embeddings)), [])
            parts[-1] |= _metrics_of(run, others, sampling["progress"])
    known = [not np.isnan(part["idle"][1]).any() for part in parts]
    attrs = [_attrs(*each, convention) for each in zip(runs, known, _felt.reports(runs), strict=True)]
    if single:
        return results.labelled(parts[0], attrs[0])
    return several.stacked(_sourced.aligned(parts), attrs, names, f"Contributing negatives, {len(runs)} losses")


def _same_sides(runs: Sequence[Run]) -> None:
    """Refuse losses of which one asks from the queries alone and another in both directions, which no Dataset holds."""
    first, sides = runs[0], [name for name, _, _ in runs[0].sides]
    for run in runs:
        own = [name for name, _, _ in run.sides]
        if own != sides:
            raise InputError(
                f"loss: {losses.name_of(first.loss)} asks in {' and '.join(sides)}, {losses.name_of(run.loss)} in "
                f"{' and '.join(own)}; count them one by one"
            )


def _more(run: Run) -> list:
    """Readers of the retrieval metrics, where the pass of the counts sees all that they need."""
    return [Ranks(), PrecisionRecall()] if _everything(run) else []


def _counted(runs: Sequence[Run], counting: Counting, progress: Progress | None) -> list[QueryRecords]:
    """Check the runs, count for each, and add the groups of the queries."""
    report = progress and progress("counting")
    for run in runs:
        conventions.check_sample(counting.convention, run.loss, run.plan.sample, len(run.sides))
    for embeddings in {id(run.embeddings): run.embeddings for run in runs}.values():
        processes.alike("the embeddings", embeddings.query, embeddings.candidate)
        embeddings.unchanged()
    found = counting.each(runs, report)
    for run, counted in zip(runs, found, strict=True):
        run.embeddings.unchanged()
        for name, side, _ in run.sides:
            for part in counted.records[name]:
                part["query_group"] = side.groups.query[part["query_index"].cpu()]
    return found


def _attrs(run: Run, known: bool, health: dict, convention: str) -> dict:
    """Attributes of the counts of one loss; of one whose unit is not known in all batches, that it is unknown."""
    measured = results.share(run.loss) != "unknown"
    lost = {} if known or not measured else {"share": "unknown", "unit": "unknown"}
    return run.provenance(
        **lost,
        title=f"Contributing negatives, {losses.name_of(run.loss)}",
        convention=convention,
        notes="\n".join([
            *(line for line in run.notes if line not in run.plan.undrawn),
            *_notes(run),
            *([CHANGED_FORM] if lost else []),
        ]),
        undrawn="\n".join(run.plan.undrawn),
        footnotes="\n".join([
            *run.plan.undrawn,
            *conventions.footnotes(run.loss, convention, directions=len(run.sides)),
        ]),
        health=json.dumps(health),
    )


def _there(values: Mapping[str, np.ndarray]) -> np.ndarray:
    """Which places of the arrays are those of a query, where a batch may have fewer than the largest one."""
    return ~np.isnan(values.get("negatives", values["contributing"]))


def _without_unit(values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays with no statistic by the unit of the loss, where it is unknown in any batch."""
    if not np.isnan(values["contributing"][_there(values)]).any():
        return dict(values)
    gone = [name for name in values if name.split("/")[0] in (*statistics.BY_SHARE, *statistics.SOURCES_BY_UNIT)]
    return dict(values) | {name: np.full(values[name].shape, np.nan) for name in gone}


def _statistics(values: Mapping[str, np.ndarray], axis, *, zero_when_idle: bool = False) -> dict[str, np.ndarray]:
    """The entries of `BATCH_LABELS` over some axes of queries; a mean over no query is missing, or 0 as published.

    Entries by the unit of the loss are missing where it is unknown.
    """
    counted, every = values["contributing"], _there(values)
    none = np.where(np.isnan(counted), np.nan, counted == 0)  # queries without any contributing negative
    known = not np.isnan(counted[every]).any()
    sums = {"contributing_sum": np.where(every, counted, 0).sum(axis=axis), "idle": (counted == 0).sum(axis=axis)}
    result = {key: each if known else np.full(np.shape(each), np.nan) for key, each in sums.items()}
    result |= {
        "contributing_mean": _per_query.mean(counted, counted > 0, axis),
        "contributing_all": _per_query.mean(counted, every, axis),
        "idle_fraction": _per_query.mean(none, every, axis),
    }
    if "pull" in values:  # a ratio of sums; queries are weighed by their pull
        largest = np.max(values["pull"], where=every & np.isfinite(values["pull"]), initial=0.0)
        pull = values["pull"] / (largest or 1)  # so that no sum overflows
        whole = np.where(every & known, pull, 0).sum(axis=axis)
        idle = np.where(counted == 0, pull, 0).sum(axis=axis)
        result["idle_pull"] = np.divide(idle, whole, out=np.full(np.shape(whole), np.nan), where=whole > 0)
    for name in OVER_ALL_QUERIES:
        if f"{name}_per_query" in values:
            result[name] = _per_query.mean(values[f"{name}_per_query"], every, axis)
    for name in PUSH_SPREAD:
        if f"{name}_per_query" in values:  # n90 is there where it was asked for
            result[name] = _per_query.mean(values[f"{name}_per_query"], values["effective_per_query"] > 0, axis)
    if "unfiltered_push" in values:  # a ratio of sums; older files have means over the queries, which they keep
        push = np.where(every, values["unfiltered_push"], 0)
        held, total = (np.nansum(each, axis=axis) for each in (values["masked_push_per_query"] * push, push))
        result["masked_push"] = np.divide(held, total, out=np.full(np.shape(total), np.nan), where=total > 0)
    elif "masked_push_per_query" in values:
        result["masked_push"] = _per_query.mean(values["masked_push_per_query"], every, axis)
    if "eq7_per_query" in values:
        eq7 = values["eq7_per_query"]
        found = _per_query.mean(eq7, eq7 > 0, axis)
        result["eq7_mean"] = np.nan_to_num(found, nan=0.0) if zero_when_idle else found
        result["eq7_sum"] = np.where(np.isnan(eq7), 0, eq7).sum(axis=axis)
        result["eq7_idle"] = (eq7 == 0).sum(axis=axis)
    if "clamped_per_query" in values:
        result["clamped"] = (values["clamped_per_query"] == 1).sum(axis=axis)
    return result


def variables(
    records: dict[str, list[dict[str, Tensor]]],
    same_group_pairs: list[int],
    *,
    zero_when_idle: bool,
    repeated: dict[str, list[int]] | None = None,
    sizes: dict[str, list[int]] | None = None,
    marks: Sequence[str] = (),
) -> dict[str, tuple]:
    """Variables of the counts of one loss, as `cocos.results.labelled` takes them.

    Args:
        records: direction -> one entry a batch, or a stack of batches -> statistic -> (queries of all of them,).
        same_group_pairs: of every batch, unordered pairs of rows that are of one group.
        repeated: direction -> of every batch, copies of candidates among its pairs as drawn; None: not known.
        zero_when_idle: `eq7_mean` of a batch without any count is 0 (as published) instead of missing.
        sizes: direction -> queries of every batch, in the order of the entries; None: each entry is one batch.
        marks: labels of the kinds of marked candidates, whose shares are in the records.

    Returns:
        Per query, dims (direction, batch, query): `contributing` and its kin, NaN where a batch has fewer queries than
        the largest one. Per batch, dims (direction, batch): the entries of the published tables.
    """
    values, sourced = _sourced.taken(_without_unit(_per_query.arrays(records, sizes)))
    values, marked = _marked.taken(values, len(marks))
    values = {
        name if name in QUERY_LABELS.keys() | _per_query.SHARED_LABELS.keys() else f"{name}_per_query": array
        for name, array in values.items()
    }
    values |= _statistics(values, 2, zero_when_idle=zero_when_idle)
    values["queries"] = _there(values).sum(axis=2)
    values["same_group_pairs"] = np.asarray(same_group_pairs, dtype=np.int64)
    if repeated is not None:
        values["repeated"] = np.asarray([repeated[name] for name in records], dtype=np.int64)
    made = _per_query.variables(values, QUERY_LABELS | BATCH_LABELS, list(records))
    return made | _marked.variables(marked, values, marks) | _sourced.variables(sourced)


def _metrics(data: xr.Dataset) -> dict:
    """The retrieval metrics among counts, as plain data; empty without any."""
    found = [name for name in data if data[name].dims in {(), ("direction",)}]
    if not found:
        return {}
    directions = {
        str(name): {key: float(data[key].sel(direction=name)) for key in found if data[key].dims}
        for name in data["direction"].values
    }
    return {"metrics": {"directions": directions, **{key: float(data[key]) for key in found if not data[key].dims}}}


def _whole(one: xr.Dataset, full: np.ndarray) -> dict[str, dict[str, float | None]]:
    """The entries of one direction in the convention `standard`.

    The mean of what a query has is over all queries drawn, so that a batch weighs what it holds. The mean of what a
    batch has, and every deviation, is over the full batches alone; one batch has no deviation.
    """
    over, entries = _statistics({str(name): one[name].values for name in one if one[name].ndim == 2}, (0, 1)), {}
    for name in BATCH_LABELS:
        if name in one:
            batches = one[name].values[full]
            mean = float(batches.mean() if name in OF_BATCHES else over[name])
            entries[name] = {"mean": mean if math.isfinite(mean) else None, "std": _per_query.deviation(batches)}
    return entries


def document(data: xr.Dataset) -> dict:
    """The counts of a Dataset as the JSON document of `cocos count --json`; of several losses, a list of documents.

    Entries are mean and deviation as the convention has them: over batches as published, and otherwise over the queries
    and the full batches; `n90` is None unless it was asked for. `batch_queries` is what `idle` is counted of: queries
    of a batch, of the mean one where they differ.
    """
    if "loss" in data.dims:
        every = [{"label": name, **document(one)} for name, one in several.each(data).items()]
        return {**{name: every[0][name] for name in ("cocos", "checkpoint")}, "losses": every}
    attrs = data.attrs
    without, directions = data["idle"] == data["queries"], {}
    standard = attrs["convention"] == "standard"
    full = _per_query.full_batches(data) if standard else np.ones(data.sizes["batch"], dtype=bool)
    said = {key: json.loads(attrs["health"]).get(key, False) for key in ("collapsed", "at_chance")}
    for name in data["direction"].values:
        one = data.sel(direction=name)
        found = {key: one[key] for key in BATCH_LABELS if key in one}
        entry = _whole(one, full) if standard else {key: results.mean_std(each) for key, each in found.items()}
        entry |= {key: entry.get(key) for key in ("n90", "pushed_positives")}
        entry["queries"] = int(one["queries"].sum())
        known = bool(one["idle"].notnull().all())
        entry["active_queries"] = int((one["contributing"] > 0).sum()) if known else None
        entry["negatives"] = {"mean": float(one["negatives"].mean()), "std": None}
        entry["batch_queries"] = float(one["queries"].values[full].mean())
        entry["batches_without_active_queries"] = int(without.sel(direction=name).sum()) if known else None
        entry |= {key: int(one[key].sum()) for key in ("uncertain", "relative_uncertain", "repeated") if key in one}
        entry |= _marked.entries(one, full, standard=standard)
        entry |= _sourced.entries(one, full, standard=standard)
        directions[str(name)] = entry
    return {
        **results.about(attrs),
        "gradient": attrs["gradient"],
        "weights": attrs["weights"],
        "unit": attrs.get("unit", "natural"),
        "share": attrs.get("share", "unit"),
        "convention": attrs["convention"],
        **_per_query.drawn(data, full),
        "same_group_pairs": int(data["same_group_pairs"].sum()),
        "not_drawn": [line for line in attrs.get("undrawn", "").splitlines() if line],
        "batches_without_active_queries": int(without.any("direction").sum()) if data["idle"].notnull().all() else None,
        "directions": directions,
        "verdicts": {
            name: verdicts.of(entry, **said, loss=attrs["loss"]).document() for name, entry in directions.items()
        },
        **_metrics(data),
    }
