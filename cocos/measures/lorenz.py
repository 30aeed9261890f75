"""How unevenly is the push spread over the negatives of a query?"""

from collections.abc import Sequence

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from cocos import losses, results, statistics
from cocos.batches import Batch
from cocos.checkpoints import Checkpoint
from cocos.embeddings import Embeddings
from cocos.errors import InputError
from cocos.measures._weighing import Progress, prepare
from cocos.scores import Pairs

__all__ = ["lorenz"]

BAND = (0.05, 0.95)  # quantiles over the queries, at each place of the curve
FINEST = 10_001


def _heaviest(largest: int) -> Tensor:
    """Numbers of heaviest negatives at which the push is measured: all up to 20, then evenly in the logarithm."""
    return torch.tensor(sorted({*range(1, min(largest, 20) + 1), *np.geomspace(1, largest, 60).round().astype(int)}))


def _curves(weights: Tensor, pairs: Pairs, place: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Lorenz curve of each query at parts of its negatives, (Q, points), its Gini coefficient, (Q,), and top parts.

    These are the parts of the push that its k heaviest negatives hold, (Q, K).
    """
    part, number = statistics.spread(weights, pairs), pairs.negative.sum(dim=1, keepdim=True)
    light = part.masked_fill(~pairs.negative, -1).sort(dim=1).values.clamp(min=0)
    held = torch.nn.functional.pad(light.cumsum(dim=1), (1, 0))  # the last `number` steps are those of the negatives
    at = place * number
    below = at.floor().long().clamp(max=(number - 1).clamp(min=0))
    start = below + held.shape[1] - 1 - number
    left, right = held.gather(1, start), held.gather(1, (start + 1).clamp(max=held.shape[1] - 1))
    under = (held[:, 1:] + held[:, :-1]).sum(dim=1)
    top = 1 - held[:, (held.shape[1] - 1 - k).clamp(min=0)]
    return torch.lerp(left, right, at - below), 1 - under / number[:, 0].clamp(min=1), top


def lorenz(
    embeddings: Embeddings | Checkpoint,
    loss="ntxent",
    *,
    points: int = 101,
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
    r"""Sort the negatives of each query from the lightest to the heaviest and add up what they hold of the push.

    The Lorenz curve of a query with n negatives of parts :math:`x_1 \le \dots \le x_n`, which sum to one, goes in
    straight lines through :math:`L(k / n) = x_1 + \dots + x_k`. Its Gini coefficient is one less twice the area under
    it:

    .. math:: G = 1 - \frac1n \sum_{k=1}^n \big( L(\tfrac{k-1}n) + L(\tfrac kn) \big)

    0 where all negatives push alike, :math:`1 - 1/n` where one of them does it alone. Curves and coefficients are
    averaged over the queries with any push, each of them counting once: :math:`\frac1{|A|} \sum_{q \in A} G_q`.

    Args:
        embeddings: as in `count`, like all options that are not named here.
        loss: a loss, or its name.
        points: places of the curve, evenly spaced from 0 to 1.
        batches: how many, or the batches themselves.
        batch_size: pairs, queries or samples in a batch; `all` for the whole set.
        sample: `pairs` or `groups`.
        per_group: candidates of a query, or samples of a class, in a batch of groups.
        same_group: `ignore` or `negative`.
        seed: of the batches.
        dtype: of the computation.
        split: of the checkpoint's data.
        device: `auto`, `cpu`, `cuda`; None: where the embeddings are.
        progress: called with what is done (`encoding`, `weighing`); gives a function of (done, in all).

    Returns:
        `held` (direction, k), the part of the push that the k heaviest negatives of a query hold, mean over the queries
        with any push, with `held_low` and `held_high`, 5 % and 95 % of them; `push` (direction, part), the mean Lorenz
        curve, with `low` and `high`, 5 % and 95 % of the queries; `gini` (direction,); `gini_per_query` (direction,
        query), missing for a query without any push; `without_push` (direction,), the part of such queries.

    Raises:
        InputError: an option or an embedding that cannot be used, or no query has any push.

    Source: Lorenz 1905, "Methods of measuring the concentration of wealth"; Gini 1912, "Variabilità e mutabilità".
    """
    if not isinstance(points, int) or not 2 <= points <= FINEST:
        raise InputError(f"points: {points}, expected a whole number from 2 to {FINEST}")
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
    report = progress("weighing") if progress else None
    place = torch.linspace(0, 1, points, dtype=run.embeddings.query.dtype, device=run.embeddings.query.device)
    curves, tops, ginis = ({name: [] for name, _, _ in run.sides} for _ in range(3))
    sizes = [max(len(batch.query_index), len(batch.candidate_index)) for batch in run.plan.batches]
    k, most = _heaviest(max(sizes)).to(place.device), 1
    for done, batch in enumerate(run.plan.batches):
        for name, side, second in run.sides:
            for pairs, weights, _ in run.blocks(side, batch.flip() if second else batch, whole=False):
                curve, gini, top = _curves(weights, pairs, place, k)
                most = max(most, int(pairs.negative.sum(dim=1).max()))
                active = torch.where(pairs.negative, weights, 0).any(dim=1)
                curves[name].append(curve[active].cpu())
                tops[name].append(top[active].cpu())
                ginis[name].append(torch.where(active, gini, torch.nan).cpu())
        if report:
            report(done + 1, len(run.plan.batches))
    records, k = {}, k.cpu()
    told = k <= most
    for name, parts in curves.items():
        curve = torch.cat(parts)
        if not len(curve):
            raise InputError(f"{run.loss!r}: no query of {name} has any push, so there is no curve of it")
        low, high = torch.from_numpy(np.quantile(curve.numpy(), BAND, axis=0))
        records[name] = {"push": curve.mean(dim=0), "low": low, "high": high, "gini_per_query": torch.cat(ginis[name])}
        top = torch.cat(tops[name])[:, told]
        low, high = torch.from_numpy(np.quantile(top.numpy(), BAND, axis=0))
        records[name] |= {"held": top.mean(dim=0), "held_low": low, "held_high": high}
    attrs = results.provenance(
        run.loss,
        title=f"Push of the heaviest negatives, {losses.name_of(run.loss)}",
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
    return results.lorenz(records, place.cpu(), k[told], attrs)
