"""How does the count depend on the threshold? COCOS(eps)."""

from collections.abc import Sequence

import numpy as np
import torch
import xarray as xr

from cocos import losses, results
from cocos.batches import Batch
from cocos.checkpoints import Checkpoint
from cocos.embeddings import Embeddings
from cocos.errors import InputError
from cocos.measures._weighing import Progress, prepare

__all__ = ["eps_curve"]


def eps_curve(
    embeddings: Embeddings | Checkpoint,
    loss="ntxent",
    eps: Sequence[float] | None = None,
    *,
    batches: int | Sequence[Batch] | None = None,
    batch_size: int | str = 128,
    sample: str | None = None,
    per_group: int | None = None,
    same_group: str = "ignore",
    seed: int = 0,
    dtype: str = "float64",
    split: str = "train",
    device: str | None = None,
    progress: Progress | None = None,
) -> xr.Dataset:
    """Count the contributing negatives for many thresholds from one look at each batch.

    Args:
        embeddings: as in `count`, like all options that are not named here.
        loss: a loss, or its name.
        eps: ascending shares; None: 61 of them from 1e-6 to 1, evenly spaced in the exponent.
        batches: how many, or the batches themselves.
        batch_size: pairs, queries or samples in a batch; `all` for the whole set.
        sample: `pairs` or `groups`.
        per_group: candidates of a query, or samples of a class, in a batch of groups.
        same_group: `ignore` or `negative`.
        seed: of the batches.
        dtype: the counting's.
        split: of the checkpoint's data.
        device: `auto`, `cpu`, `cuda`; None: where the embeddings are.
        progress: called with what is done (`encoding`, `counting`); gives a function of (done, in all).

    Returns:
        `contributing_all` (direction, eps), mean count over all queries of the run, and `idle_fraction` (direction,
        eps), the part of the queries without any.

    Raises:
        InputError: an option or an embedding that cannot be used.
    """
    grid = np.logspace(-6, 0, 61) if eps is None else np.asarray(eps, dtype=np.float64)
    if grid.ndim != 1 or not len(grid) or not np.all(np.diff(grid) > 0) or grid[0] < 0 or not np.isfinite(grid[-1]):
        raise InputError(f"eps: {grid.tolist()}, expected finite shares of at least 0 in ascending order")
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
    directions = [name for name, _, _ in run.sides]
    total = np.zeros((len(directions), len(grid)), dtype=np.int64)
    idle, queries = np.zeros_like(total), np.zeros(len(directions), dtype=np.int64)
    for done, batch in enumerate(run.plan.batches):
        for place, (_, side, second) in enumerate(run.sides):
            for pairs, weights, unit in run.blocks(side, batch.flip() if second else batch, whole=False):
                share = torch.where(pairs.negative, weights.abs() / unit, -1)
                ladder = torch.as_tensor(grid, dtype=share.dtype, device=share.device).repeat(len(share), 1)
                above = share.shape[1] - torch.searchsorted(share.sort(dim=1).values, ladder, right=True)
                total[place] += above.sum(dim=0).cpu().numpy()
                idle[place] += (above == 0).sum(dim=0).cpu().numpy()
                queries[place] += len(share)
        if report:
            report(done + 1, len(run.plan.batches))
    attrs = results.provenance(
        run.loss,
        title=f"COCOS against eps, {losses.name_of(run.loss)}",
        batches=len(run.plan.batches),
        batch_size=run.plan.batch_size,
        sample=run.plan.sample,
        same_group=run.same_group,
        seed=seed,
        dtype=dtype,
        device=run.embeddings.query.device.type,
        notes="\n".join(run.notes),
        **(run.checkpoint.identity() | {"split": split} if run.checkpoint else {}),
    )
    return results.eps_curve(directions, grid, total / queries[:, None], idle / queries[:, None], attrs)
