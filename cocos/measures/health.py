"""Do the embeddings tell rows apart, and does the gradient of a loss reach them?"""

from collections.abc import Sequence

import xarray as xr

from cocos import losses, results
from cocos.batches import Batch
from cocos.checkpoints import Checkpoint
from cocos.embeddings import Embeddings
from cocos.run import Progress, prepare

__all__ = ["health"]


def health(
    embeddings: Embeddings | Checkpoint,
    loss="ntxent",
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
    """Say how far embeddings are from one point, and how much of pull and push reaches them in a training batch.

    `count` has the same numbers in its attribute `health`, and in the JSON of `cocos count`.

    Args:
        embeddings: as in `count`, like all options that are not named here.
        loss: a loss, or its name; spread and rank are of directions where its metric reads these.
        batches: how many, or the batches themselves; the first one is looked at.
        batch_size: pairs, queries or samples in a batch; `all` for the whole set.
        sample: `pairs` or `groups`.
        per_group: candidates of a query, or samples of a class, in a batch of groups.
        same_group: `ignore` or `negative`.
        seed: of the batches; the rows that spread and rank are taken of are drawn by a seed of their own.
        dtype: of the computation.
        split: of the checkpoint's data.
        device: `auto`, `cpu`, `cuda`; None: where the embeddings are.
        progress: called with what is done (`encoding`); gives a function of (done, in all).

    Returns:
        What `cocos.health.side` and `cocos.health.felt` say, (side,) and (direction,); a side is `query` or
        `candidate`, and a labelled set has one. What is not known of a direction is missing.

    Raises:
        InputError: an option or an embedding that cannot be used.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> data = cocos.measures.health(embeddings, batch_size="all")
        >>> sorted(data.sizes)
        ['direction', 'side']
    """
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
    attrs = results.provenance(
        run.loss,
        title=f"Health of the embeddings, {losses.name_of(run.loss)}",
        batch_size=run.plan.batch_size,
        sample=run.plan.sample,
        same_group=run.same_group,
        seed=seed,
        dtype=dtype,
        device=run.embeddings.query.device.type,
        notes="\n".join(run.notes),
        **(run.checkpoint.identity() | {"split": split} if run.checkpoint else {}),
    )
    return results.health_of(run.health(), attrs)
