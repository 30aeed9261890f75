"""How many negatives contribute to the gradient of each query?"""

from collections.abc import Sequence
from numbers import Real

import torch
import xarray as xr

from cocos import conventions, losses, results, statistics
from cocos.batches import Batch
from cocos.checkpoints import Checkpoint
from cocos.embeddings import Embeddings
from cocos.errors import InputError
from cocos.losses.smoothap import SmoothAP
from cocos.measures._weighing import Progress, Run, prepare

__all__ = ["count"]

UNCERTAIN = "float32: a candidate within about 1e-6 of its threshold may fall on either side; float64 decides it"


def _of_batch(run: Run, embeddings: Embeddings, batch: Batch, eps: float, convention: str, second: bool) -> dict:
    """Statistics of every query of one batch, (queries,) each."""
    published = convention == "ecir2022" and isinstance(run.loss, conventions.PUBLISHED)
    parts = []
    for pairs, weights, unit in run.blocks(embeddings, batch, whole=published):
        part = statistics.per_query(weights, unit, pairs, eps)
        part["negatives"] = pairs.negative.sum(dim=1)
        if isinstance(run.loss, SmoothAP):
            part["eq7"] = statistics.eq7(pairs, run.loss.temperature, eps)
        if published:
            part = conventions.as_published(run.loss, pairs, weights.abs() / unit, part, second=second, eps=eps)
        parts.append(part)
    result = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    return result | {"query_index": batch.query_index}


def count(
    embeddings: Embeddings | Checkpoint,
    loss="ntxent",
    eps: float = 0.01,
    *,
    batches: int | Sequence[Batch] | None = None,
    batch_size: int = 128,
    sample: str | None = None,
    per_group: int | None = None,
    same_group: str | None = None,
    seed: int = 0,
    convention: str = "standard",
    dtype: str = "float64",
    split: str = "train",
    device: str | None = None,
    progress: Progress | None = None,
) -> xr.Dataset:
    """Count the negatives that contribute to each query's gradient, in training batches, in every direction.

    A negative contributes where |weight| / unit of the loss is above eps, strictly. The embeddings are computed once;
    batches are drawn from them.

    Args:
        embeddings: embeddings of the training set, or a checkpoint (its training set is encoded).
        loss: a loss, its name, or a function, class or module of yours (see `cocos.losses.load`); a name takes the
            parameters that the checkpoint recorded for it.
        eps: smallest share that contributes. Hinge losses have whole weights: any eps below 1 counts weight != 0.
        batches: how many (None: one pass over the training set), or the batches themselves.
        batch_size: pairs, queries or samples in a batch (see `cocos.batches.plan`).
        sample: `pairs` or `groups`; None: as the loss is trained.
        per_group: candidates of a query, or samples of a class, in a batch of groups.
        same_group: `ignore` or `negative`: two captions of one image in a batch of pairs. None: as the convention.
        seed: of the batches.
        convention: `standard`, or `ecir2022` for what the published counters return, faults included.
        dtype: the counting's: `float64` decides every threshold as exactly as the embeddings allow; in `float32` a
            candidate within about 1e-6 of its threshold may fall on either side.
        split: of the checkpoint's data.
        device: `auto`, `cpu`, `cuda`; None: where the embeddings are.
        progress: called with what is done (`encoding`, `counting`); gives a function of (done, in all).

    Returns:
        A Dataset with dims direction, batch, query: see `cocos.results.count`.

    Raises:
        InputError: an option or an embedding that cannot be used.
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
    )
    report = progress("counting") if progress else None
    conventions.check_sample(convention, run.loss, run.plan.sample, len(run.sides))
    records = {name: [] for name, _, _ in run.sides}
    for done, batch in enumerate(run.plan.batches):
        for name, side, second in run.sides:
            seen = batch.flip() if second else batch
            records[name].append(_of_batch(run, side, seen, eps, convention, second))
        if report:
            report(done + 1, len(run.plan.batches))
    attrs = results.provenance(
        run.loss,
        title=f"Contributing negatives, {losses.name_of(run.loss)}",
        eps=eps,
        convention=convention,
        batch_size=run.plan.batch_size,
        sample=run.plan.sample,
        same_group=run.same_group,
        seed=seed,
        dtype=dtype,
        device=run.embeddings.query.device.type,
        notes="\n".join([*run.notes, *([UNCERTAIN] if dtype == "float32" else [])]),
        footnotes="\n".join(conventions.footnotes(run.loss, convention, directions=len(records))),
        **(run.checkpoint.identity() | {"split": split} if run.checkpoint else {}),
    )
    same = [run.same_group_pairs(batch) for batch in run.plan.batches]
    return results.count(records, same, attrs, zero_when_idle=convention == "ecir2022")
