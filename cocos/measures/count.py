"""How many negatives contribute to the gradient of each query?"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Unpack

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from cocos import conventions, engine, losses, processes, results, retrieval, statistics
from cocos.checkpoints import Checkpoint
from cocos.embeddings import Embeddings
from cocos.engine import devices, fused, readers
from cocos.engine.readers.precision_recall import PrecisionRecall
from cocos.engine.readers.ranks import Ranks
from cocos.errors import InputError
from cocos.measures import _per_query
from cocos.measures._passes import passes
from cocos.run import OUT_OF_RANGE, Run, prepare, threads
from cocos.sampling import Progress, Sampling, sampled

FLOAT32_COUNTS = "float32: a candidate within about 1e-6 of its threshold may fall on either side; float64 decides it"
NO_KERNEL = "no compiled kernel, so that PyTorch reads the scores, several times as slowly: {}"
# Relative difference of a share and eps that rounding can turn.
EQUAL_SHARES = {"float64": 1e-11, "float32": 1e-6}
QUERY_LABELS = {
    "contributing": ("contributing negatives", "candidates"),
    "relative_per_query": ("negatives with a part above eps of the query's own push", "candidates"),
    "relative_uncertain": ("candidates whose part of the push is too near eps to tell", "candidates"),
    "uncertain": ("candidates too near eps to tell: the count is uncertain by this number", "candidates"),
    "weight_above_per_query": ("summed share of the negatives above eps", "share"),
    "weight_below_per_query": ("summed share of the negatives not above eps", "share"),
    "weight_positive_per_query": ("summed share of the positives", "share"),
    "push": ("total weight above zero", "weight"),
    "pull": ("total weight below zero", "weight"),
    "effective_per_query": ("effective number of negatives (exp of entropy)", "candidates"),
    "participation_per_query": ("participation ratio of the negatives", "candidates"),
    "n90_per_query": ("negatives that hold 90 % of the push", "candidates"),
    "hardest_share_per_query": ("part of the push that the heaviest negative holds", "1"),
    "eq7_per_query": ("count of Eq. 7 (SmoothAP)", "pairs per positive"),
}
BATCH_LABELS = {
    "contributing_mean": ("contributing negatives, mean over the queries with at least one (C^A)", "candidates"),
    "contributing_sum": ("contributing negatives, sum over the batch (C^B)", "candidates"),
    "contributing_all": ("contributing negatives, mean over all queries", "candidates"),
    "idle": ("queries without any contributing negative (C^0)", "queries"),
    "relative": ("negatives with a part above eps of the query's own push, mean over all queries", "candidates"),
    "weight_above": ("share of the negatives above eps, mean over the queries (W^{qv-})", "share"),
    "weight_below": ("share of the negatives not above eps, mean over the queries", "share"),
    "weight_positive": ("share of the positives, mean over the queries (W^{qv+})", "share"),
    "effective": ("effective number of negatives, mean over the queries with any push", "candidates"),
    "participation": ("participation ratio, mean over the queries with any push", "candidates"),
    "n90": ("negatives that hold 90 % of the push, mean over the queries with any push", "candidates"),
    "hardest_share": ("part of the push on the heaviest negative, mean over the queries with any push", "1"),
    "eq7_mean": ("count of Eq. 7, mean over the queries with at least one (C^q)", "pairs per positive"),
    "eq7_sum": ("count of Eq. 7, sum over the batch", "pairs per positive"),
    "eq7_idle": ("queries without any count of Eq. 7 (C^0)", "queries"),
}
# Statistics of the spread of the push, averaged over the queries with any.
PUSH_SPREAD = ("effective", "participation", "n90", "hardest_share")
# Statistics that a batch has, and no query by itself.
OF_BATCHES = ("contributing_sum", "idle", "eq7_sum", "eq7_idle")


@dataclass(frozen=True)
class _Counted:
    """Results of every query, in the order of the batches, as `dataset` takes them; and those of further readers."""

    records: dict[str, list[dict]]
    sizes: dict[str, list[int]]
    others: list = field(default_factory=list)


def _of_batch(run: Run, blocks: Iterable, eps: float, convention: str, second: bool, n90: bool) -> dict:
    """Statistics of every query of one batch, (queries,) each, from the blocks of its pairs."""
    published = convention == "ecir2022" and isinstance(run.loss, conventions.PUBLISHED)
    parts, whole = [], losses.traits(run.loss).hinge is not None  # whole numbers are above eps or not
    for pairs, weights, standard in blocks:
        unit = standard if convention == "standard" else conventions.unit(run.loss, pairs, standard)
        part = statistics.per_query(weights, unit, pairs, eps, equal=0 if whole else EQUAL_SHARES[run.dtype])
        part["negatives"] = pairs.negative.sum(dim=1)
        if n90:
            part["n90"] = statistics.n90(statistics.spread(weights, pairs))
        if whole:
            part["relative_uncertain"] = torch.zeros_like(part["negatives"])
        if isinstance(run.loss, losses.ExtraStatistics):
            part |= run.loss.extra(pairs, eps)
        if published:
            part = conventions.as_published(run.loss, pairs, weights.abs() / unit, part, second=second, eps=eps)
        parts.append(part)
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _held(run: Run, eps: float, convention: str, n90: bool, report: Callable | None) -> _Counted:
    """Count batch by batch, the weights of each in memory; each process takes some of the batches."""
    share = processes.mine(run.plan.batches)
    records = {name: [] for name, _, _ in run.sides}
    published = convention == "ecir2022" and isinstance(run.loss, conventions.PUBLISHED)
    for done, batch in enumerate(share):
        with threads(len(batch.query_index) * len(batch.candidate_index)):
            for name, (second, blocks) in zip(records, run.sided(batch, whole=published), strict=True):
                found = _of_batch(run, blocks, eps, convention, second, n90)
                index = (batch.flip() if second else batch).query_index
                records[name].append(found | {"query_index": index})
        if report:
            report(done + 1, len(share))
    records = {name: processes.collect(parts) for name, parts in records.items()}
    return _Counted(records, {name: [len(each["push"]) for each in parts] for name, parts in records.items()})


def _visited(run: Run, eps: float, report: Callable | None, more: Sequence) -> _Counted:
    """Count stack by stack in one pass that stores no score matrix; all processes share the parts of each stack.

    Raises:
        InputError: the weights of a query leave the range of float64.
    """
    names = [name for name, _, _ in run.sides]
    found = _Counted({name: [] for name in names}, {name: [] for name in names})
    reader = readers.of(run.loss, eps, relative=True)
    for directions, asking, (sides, *further) in passes(run, lambda view: [[reader, *more]], report):
        found.others[:] = further
        for name, part, index in zip(directions, sides, asking, strict=True):
            if not part["push"].isfinite().all():
                raise InputError(OUT_OF_RANGE.format(run.loss, "float64"))
            found.records[name].append(part | {"query_index": torch.cat(index)})
            found.sizes[name].extend(rows.shape[0] for rows in index)
    return found


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


def _with_metrics(data: xr.Dataset, run: Run, found: list, progress: Progress | None) -> xr.Dataset:
    """Add the retrieval metrics of the whole set to the counts, from the same pass or from one of their own."""
    if not found:
        view = engine.view(run.embeddings, metric=run.loss.metric, product=run.dtype)
        found = engine.run(view, [Ranks(), PrecisionRecall()], progress=progress and progress("ranking"))
    ranked, curve = found
    names = run.embeddings.directions
    metrics = {name: retrieval.metrics(each) for name, each in zip(names, ranked, strict=True)}
    singles = {"PR-AUC": retrieval.average_precision(curve.score, curve.negatives)}
    if len(names) > 1:
        singles["rsum"] = retrieval.rsum(*metrics.values())
    more = {name: ("direction", [each[name] for each in metrics.values()]) for name in metrics[names[0]]} | singles
    data = data.assign(more)
    for name in more:
        data[name].attrs.update(zip(("long_name", "units"), retrieval.label(name), strict=True))
    return data


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
            parameters that the checkpoint recorded for it.
        eps: smallest share that contributes. Hinge losses have whole weights: any eps below 1 counts weight != 0.
        convention: `standard`, or `ecir2022` for what the published counters return, faults included.
        metrics: the retrieval metrics of the whole set as well (`cocos.retrieval.metrics`, on the scores of the loss);
            they are read from the same pass where one batch is the whole set.
        n90: the number of negatives that carry 90 % of the push as well, which sorts the scores of every query: they
            are kept in memory then, in float64 unless `dtype` says otherwise, however large a batch is.
        **sampling: options of the batches, see `cocos.sampling.Sampling`.

    Returns:
        A Dataset with dims direction, batch, query: see `dataset` in its file.

    Raises:
        InputError: an option or an embedding that cannot be used.

    Examples:
        Each query has two negatives with a probability of 1 / (e + 2):

        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> ntxent = cocos.losses.load("ntxent", {"temperature": 1})
        >>> data = cocos.measures.count(embeddings, ntxent, batch_size="all")
        >>> data["contributing"].mean(["batch", "query"]).values
        array([2., 2.])
    """
    conventions.check(convention)
    standard = convention == "standard"
    # The published batches keep rows of one group as negatives of each other.
    sampling["same_group"] = sampling["same_group"] or ("ignore" if standard else "negative")
    run = prepare(embeddings, loss, eps=eps, visits=standard and not n90, whole=not standard, **sampling)
    report = sampling["progress"] and sampling["progress"]("counting")
    conventions.check_sample(convention, run.loss, run.plan.sample, len(run.sides))
    processes.alike("the embeddings", run.embeddings.query, run.embeddings.candidate)
    run.embeddings.unchanged()
    if run.visited:
        more = [Ranks(), PrecisionRecall()] if metrics and _everything(run) else []
        counted = _visited(run, eps, report, more)
    else:
        counted = _held(run, eps, convention, n90, report)
    run.embeddings.unchanged()
    for name, side, _ in run.sides:
        for part in counted.records[name]:
            part["query_group"] = side.groups.query[part["query_index"].cpu()]
    attrs = run.provenance(
        title=f"Contributing negatives, {losses.name_of(run.loss)}",
        convention=convention,
        notes="\n".join([*(line for line in run.notes if line not in run.plan.undrawn), *_notes(run)]),
        undrawn="\n".join(run.plan.undrawn),
        footnotes="\n".join([
            *run.plan.undrawn,
            *conventions.footnotes(run.loss, convention, directions=len(counted.records)),
        ]),
        health=json.dumps(run.health()),
    )
    data = dataset(counted.records, run.same_group_pairs(), attrs, zero_when_idle=not standard, sizes=counted.sizes)
    return _with_metrics(data, run, counted.others, sampling["progress"]) if metrics else data


def _statistics(values: Mapping[str, np.ndarray], axis, *, zero_when_idle: bool = False) -> dict[str, np.ndarray]:
    """The entries of `BATCH_LABELS` over some axes of queries; a mean over no query is missing, or 0 as published."""
    counted = values["contributing"]
    every = ~np.isnan(counted)
    result = {
        "contributing_mean": _per_query.mean(counted, counted > 0, axis),
        "contributing_sum": np.where(every, counted, 0).sum(axis=axis),
        "contributing_all": _per_query.mean(counted, every, axis),
        "idle": (counted == 0).sum(axis=axis),
    }
    for name in ("relative", "weight_above", "weight_below", "weight_positive"):
        if f"{name}_per_query" in values:  # a file of an earlier version has no `relative`
            result[name] = _per_query.mean(values[f"{name}_per_query"], every, axis)
    for name in PUSH_SPREAD:
        if f"{name}_per_query" in values:  # n90 is there where it was asked for
            result[name] = _per_query.mean(values[f"{name}_per_query"], values["effective_per_query"] > 0, axis)
    if "eq7_per_query" in values:
        eq7 = values["eq7_per_query"]
        found = _per_query.mean(eq7, eq7 > 0, axis)
        result["eq7_mean"] = np.nan_to_num(found, nan=0.0) if zero_when_idle else found
        result["eq7_sum"] = np.where(np.isnan(eq7), 0, eq7).sum(axis=axis)
        result["eq7_idle"] = (eq7 == 0).sum(axis=axis)
    return result


def dataset(
    records: dict[str, list[dict[str, Tensor]]],
    same_group_pairs: list[int],
    attrs: dict,
    *,
    zero_when_idle: bool,
    sizes: dict[str, list[int]] | None = None,
) -> xr.Dataset:
    """Label the counts of a run.

    Args:
        records: direction -> one entry a batch, or a stack of batches -> statistic -> (queries of all of them,).
        same_group_pairs: of every batch, unordered pairs of rows that are of one group.
        attrs: provenance.
        zero_when_idle: `eq7_mean` of a batch without any count is 0 (as published) instead of missing.
        sizes: direction -> queries of every batch, in the order of the entries; None: each entry is one batch.

    Returns:
        Per query, dims (direction, batch, query): `contributing` and its kin, NaN where a batch has fewer queries than
        the largest one. Per batch, dims (direction, batch): the entries of the published tables.
    """
    values = _per_query.arrays(records, sizes)
    values = {
        name if name in QUERY_LABELS.keys() | _per_query.SHARED_LABELS.keys() else f"{name}_per_query": array
        for name, array in values.items()
    }
    values |= _statistics(values, 2, zero_when_idle=zero_when_idle)
    values["queries"] = (~np.isnan(values["contributing"])).sum(axis=2)
    values["same_group_pairs"] = np.asarray(same_group_pairs, dtype=np.int64)
    return _per_query.dataset(values, QUERY_LABELS | BATCH_LABELS, list(records), attrs)


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
    """The counts of a Dataset as the JSON document of `cocos count --json`.

    Entries are mean and deviation as the convention has them: over batches as published, and otherwise over the queries
    and the full batches; `n90` is None unless it was asked for. `batch_queries` is what `idle` is counted of: queries
    of a batch, of the mean one where they differ.
    """
    attrs = data.attrs
    without, directions = data["idle"] == data["queries"], {}
    standard = attrs["convention"] == "standard"
    full = _per_query.full_batches(data) if standard else np.ones(data.sizes["batch"], dtype=bool)
    for name in data["direction"].values:
        one = data.sel(direction=name)
        found = {key: one[key] for key in BATCH_LABELS if key in one}
        entry = _whole(one, full) if standard else {key: results.mean_std(each) for key, each in found.items()}
        entry.setdefault("n90", None)
        entry["queries"] = int(one["queries"].sum())
        entry["active_queries"] = int((one["contributing"] > 0).sum())
        entry["batch_queries"] = float(one["queries"].values[full].mean())
        entry["batches_without_active_queries"] = int(without.sel(direction=name).sum())
        entry |= {key: int(one[key].sum()) for key in ("uncertain", "relative_uncertain") if key in one}
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
        "batches_without_active_queries": int(without.any("direction").sum()),
        "directions": directions,
        **_metrics(data),
    }
