"""How many negatives contribute to the gradient of each query?"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real

import torch
import xarray as xr

from cocos import conventions, engine, losses, processes, results, retrieval, statistics
from cocos.batches import Batch
from cocos.checkpoints import Checkpoint
from cocos.embeddings import Embeddings
from cocos.engine import devices, fused, readers
from cocos.engine.readers.precision_recall import PrecisionRecall
from cocos.engine.readers.ranks import Ranks
from cocos.errors import InputError
from cocos.run import OUT_OF_RANGE, Progress, Run, prepare, threads, within

__all__ = ["count"]

UNCERTAIN = "float32: a candidate within about 1e-6 of its threshold may fall on either side; float64 decides it"
SLOW = "no compiled kernel, so that PyTorch reads the scores, several times as slowly: {}"
EQUAL = {"float64": 1e-11, "float32": 1e-6}  # relative difference of a share and eps that rounding can turn


@dataclass(frozen=True)
class _Counted:
    """What was found of every query, in the order of the batches.

    Args:
        records: direction -> one entry a batch, or a stack of batches -> statistic -> (queries of all of them,).
        sizes: direction -> queries of every batch.
        others: what further readers found, where all scores were seen in one pass.
    """

    records: dict[str, list[dict]]
    sizes: dict[str, list[int]]
    others: list = field(default_factory=list)


def _of_batch(run: Run, blocks: Iterable, eps: float, convention: str, second: bool, n90: bool) -> dict:
    """Statistics of every query of one batch, (queries,) each, from the blocks of its pairs."""
    published = convention == "ecir2022" and isinstance(run.loss, conventions.PUBLISHED)
    parts, whole = [], isinstance(run.loss, losses.Hinge)  # whole numbers are above eps or not
    for pairs, weights, standard in blocks:
        unit = standard if convention == "standard" else conventions.unit(run.loss, pairs, standard)
        part = statistics.per_query(weights, unit, pairs, eps, equal=0 if whole else EQUAL[run.dtype])
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
    """Count stack by stack, every score seen and none held; all processes share the parts of each stack.

    Raises:
        InputError: the weights of a query leave the range of float64.
    """
    names, others = [name for name, _, _ in run.sides], []
    found = _Counted({name: [] for name in names}, {name: [] for name in names})
    views = [view for stack in run.stacks() for view in run.views(stack)]
    for done, (make, directions, asking) in enumerate(views):
        reader = readers.of(run.loss, eps, relative=True)
        shown = within(report, done, len(views))
        sides, *others = engine.run(make(), [reader, *more], progress=shown)
        for name, part, index in zip(directions, sides, asking, strict=True):
            if not part["push"].isfinite().all():
                raise InputError(OUT_OF_RANGE.format(run.loss, "float64"))
            found.records[name].append(part | {"query_index": torch.cat(index)})
            found.sizes[name].extend(rows.shape[0] for rows in index)
    return replace(found, others=others)


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
    """Counts with the retrieval metrics of the whole set, from what the pass found or from one of their own."""
    if not found:
        view = engine.view(run.embeddings, metric=run.loss.metric, product=run.dtype)
        found = engine.run(view, [Ranks(), PrecisionRecall()], progress=progress and progress("ranking"))
    ranked, curve = found
    names = run.embeddings.directions
    metrics = {name: retrieval.metrics(each) for name, each in zip(names, ranked, strict=True)}
    singles = {"PR-AUC": retrieval.average_precision(curve.score, curve.negatives)}
    if len(names) > 1:
        singles["rsum"] = retrieval.rsum(*metrics.values())
    return results.with_metrics(data, metrics, singles)


def _notes(run: Run) -> list[str]:
    """How exact the counts are, and how they were made."""
    if not run.visited:
        return [UNCERTAIN] if run.dtype == "float32" else []
    reason = "" if devices.ahead(run.embeddings.query.device) else fused.kernel_reason()
    return [SLOW.format(reason)] if reason else []


@devices.threads(1)
def count(
    embeddings: Embeddings | Checkpoint,
    loss="ntxent",
    eps: float = 0.01,
    *,
    batches: int | Sequence[Batch] | None = None,
    batch_size: int | str = 128,
    sample: str | None = None,
    per_group: int | None = None,
    same_group: str | None = None,
    seed: int = 0,
    convention: str = "standard",
    dtype: str | None = None,
    metrics: bool = False,
    n90: bool = False,
    split: str = "train",
    device: str | None = None,
    progress: Progress | None = None,
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
        batches: how many (None: one pass over the training set), or the batches themselves.
        batch_size: pairs, queries or samples in a batch (see `cocos.batches.plan`); `all` for the whole set.
        sample: `pairs` or `groups`; None: as the loss is trained.
        per_group: candidates of a query, or samples of a class, in a batch of groups.
        same_group: `ignore` or `negative`: other rows of a query's group in a batch of pairs. None: as the convention.
        seed: of the batches.
        convention: `standard`, or `ecir2022` for what the published counters return, faults included.
        dtype: of the scores. None: float32 for losses that have a reader (`cocos.engine.readers`), whose counts are
            decided in float64 or counted as `uncertain`, and float64 for the others; asked for, in `float32` a
            candidate of theirs within about 1e-6 of its threshold may fall on either side.
        metrics: the retrieval metrics of the whole set as well (`cocos.retrieval.metrics`, on the scores of the loss);
            they are read from the same pass where one batch is the whole set.
        n90: the number of negatives that hold 90 % of the push as well, which sorts the scores of every query: they are
            held then, in float64 unless `dtype` says otherwise, however large a batch is.
        split: of the checkpoint's data.
        device: `auto`, `cpu`, `cuda`; None: where the embeddings are.
        progress: called with what is done (`encoding`, `counting`, `ranking`); gives a function of (done, in all).

    Returns:
        A Dataset with dims direction, batch, query: see `cocos.results.count`.

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
    if not isinstance(eps, Real) or not 0 <= eps < float("inf"):
        raise InputError(f"eps: {eps}, expected a share: finite and at least 0")
    same_group = same_group or conventions.same_group(convention)
    run = prepare(
        embeddings,
        loss,
        batch_size=batch_size,
        batch_count=batches,
        sample=sample,
        per_group=per_group,
        same_group=same_group,
        seed=seed,
        dtype=dtype,
        split=split,
        device=device,
        progress=progress,
        visits=convention == "standard" and not n90,
        whole=convention != "standard",
    )
    report = progress("counting") if progress else None
    conventions.check_sample(convention, run.loss, run.plan.sample, len(run.sides))
    processes.alike("the embeddings", run.embeddings.query, run.embeddings.candidate)
    run.embeddings.unchanged()
    if run.visited:
        more = [Ranks(), PrecisionRecall()] if metrics and _everything(run) else []
        counted = _visited(run, eps, report, more)
    else:
        counted = _held(run, eps, convention, n90, report)
    run.embeddings.unchanged()
    attrs = results.provenance(
        run.loss,
        title=f"Contributing negatives, {losses.name_of(run.loss)}",
        eps=eps,
        convention=convention,
        batch_size=run.plan.batch_size,
        sample=run.plan.sample,
        same_group=run.same_group,
        seed=seed,
        dtype=run.dtype,
        device=run.embeddings.query.device.type,
        notes="\n".join([*(line for line in run.notes if line not in run.plan.undrawn), *_notes(run)]),
        undrawn="\n".join(run.plan.undrawn),
        footnotes="\n".join([
            *run.plan.undrawn,
            *conventions.footnotes(run.loss, convention, directions=len(counted.records)),
        ]),
        health=json.dumps(run.health()),
        **(run.checkpoint.identity() | {"split": split} if run.checkpoint else {}),
    )
    same, as_published = run.same_group_pairs(), convention == "ecir2022"
    data = results.count(counted.records, same, attrs, zero_when_idle=as_published, sizes=counted.sizes)
    return _with_metrics(data, run, counted.others, progress) if metrics else data
