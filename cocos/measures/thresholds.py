"""What does one global cut-off mean for each query?"""

import math
from collections.abc import Sequence

import torch
import xarray as xr
from torch import Tensor

from cocos import readers, results, sweep
from cocos.checkpoints import Checkpoint
from cocos.embeddings import Embeddings
from cocos.errors import InputError
from cocos.measures._asked import PERCENTILES, Asked, asked, steps
from cocos.measures._weighing import Progress
from cocos.readers.neighbours import Neighbours

__all__ = ["thresholds"]


def thresholds(
    embeddings: Embeddings | Checkpoint,
    *,
    precisions: Sequence[float] = (0.5, 0.7, 0.9, 0.95),
    cutoffs: Sequence[float] | None = None,
    queries: int | None = 1000,
    seed: int = 0,
    split: str = "train",
    device: str | None = None,
    progress: Progress | None = None,
) -> xr.Dataset:
    r"""The candidates that each query gets when everything at or above one cosine is returned.

    A cut-off of cosine s is one of Euclidean distance :math:`d = \sqrt{2 - 2 s}` of the unit vectors, at or below which
    everything is returned. Global precision and recall are over all pairs, exactly; queries without any positive take
    part.

    Args:
        embeddings: embeddings, or a checkpoint (a split of its data is encoded).
        precisions: for each, the cut-off of the largest recall that has at least this precision over all pairs. One
            that no cut-off reaches is left out and named in `not_reached`; of two with one cut-off the larger stays.
        cutoffs: cosines, in their place.
        queries: how many are drawn of each direction; all if there are fewer, or for None.
        seed: of the draw.
        split: of the checkpoint's data.
        device: `auto`, `cpu`, `cuda`; None: where the embeddings are.
        progress: called with what is done (`encoding`, `scoring`); gives a function of (done, in all).

    Returns:
        Of each cut-off (cutoff,): its `distance`, the `target` it was chosen for (NaN if given), and over all pairs
        `global_precision` (NaN where nothing is returned) and `global_recall`. Of each query, (direction, query,
        cutoff): `returned`, `precision` (NaN where nothing is returned) and `recall` (NaN where it has no positive).
        Percentiles 5, 50 and 95 of these over the queries that have them, `returned_band`, `precision_band` and
        `recall_band` (direction, percentile, cutoff); `none_returned` and `no_positive` (direction, cutoff), percent of
        the queries.

    Raises:
        InputError: an option or an embedding that cannot be used, no positive pair, or no precision that is reached.

    Source: threshold relevancy, Veit & Wilber 2020, arXiv:2011.08824, abstract.
    """
    wanted = _numbers("precisions", precisions, 0.0, 1.0) if cutoffs is None else None
    given = None if cutoffs is None else _numbers("cutoffs", cutoffs, -1.0, 1.0)
    seen = asked(embeddings, None, queries=queries, seed=seed, split=split, device=device, progress=progress)
    report = progress and progress("scoring")
    cuts = _chosen(seen, wanted, report) if given is None else _counted(seen, given, report)
    score = cuts["cutoff"]
    records = {name: _record(seen, name, score) for name in seen.sides}
    missing = [] if wanted is None else [p for p in wanted if p > float(cuts["target"].max())]
    attrs = seen.attrs | {"title": "What one cut-off means for each query"}
    attrs |= {"not_reached": ", ".join(f"{p:g}" for p in missing)} if missing else {}
    return results.thresholds(cuts, PERCENTILES, records, attrs)


def _numbers(name: str, given: Sequence[float], low: float, high: float) -> list[float]:
    values = [float(value) for value in given]
    if not values or not all(low <= value <= high for value in values) or len(set(values)) < len(values):
        raise InputError(f"{name}: {values}, expected different numbers from {low:g} to {high:g}")
    return values


def _labelled(score: Tensor, target: Tensor, found: Tensor, negatives: Tensor, positives: int) -> dict[str, Tensor]:
    """Cut-offs from the lowest cosine on, and what they give over all pairs."""
    order = score.argsort()
    score, target, found, negatives = (each[order].cpu() for each in (score, target, found, negatives))
    returned = found + negatives
    return {
        "cutoff": score,
        "distance": (2 - 2 * score).clamp(min=0).sqrt(),
        "target": target,
        "global_precision": torch.where(returned > 0, found / returned.double().clamp(min=1), math.nan),
        "global_recall": found / positives,
    }


def _chosen(seen: Asked, wanted: list[float], report) -> dict[str, Tensor]:
    """The lowest cut-off of each precision that is reached.

    Raises:
        InputError: none is, or there is no positive pair.
    """
    (curve,) = sweep.run(seen.whole(), [readers.PrecisionRecall()], progress=report)
    if not len(curve.score):
        raise InputError("no query has any positive: there is nothing to retrieve")
    score, found, negatives = steps(curve)
    precision, targets = found / (found + negatives).double(), {}
    for target in sorted(wanted):
        reached = (precision >= target).nonzero().flatten()
        if len(reached):
            targets[int(reached[-1])] = target
    if not targets:
        most = float(precision.max())
        digit = 10.0 ** math.floor(math.log10(most))
        high = math.floor(most / digit) * digit
        raise InputError(
            f"precisions: {wanted}, expected at most {most:.3g}, the largest there is: take lower ones, like "
            f"--set precisions={high / 5:.2g},{high:.2g} (precisions= in Python)"
        )
    places = list(targets)
    target = torch.tensor(list(targets.values()), dtype=torch.float64, device=score.device)
    return _labelled(score[places], target, found[places], negatives[places], len(curve.score))


def _counted(seen: Asked, given: list[float], report) -> dict[str, Tensor]:
    """What given cut-offs let through.

    Raises:
        InputError: there is no positive pair.
    """
    whole = seen.whole()
    level = torch.tensor(sorted(given), dtype=torch.float64, device=whole.device)
    (curve,) = sweep.run(whole, [readers.PrecisionRecall(level)], progress=report)
    found, positives = torch.zeros_like(curve.negatives), 0
    for start, stop in whole.chunks(0):
        score = whole.scored(0, start, stop)[2]
        found += (score[:, None] >= curve.score - sweep.TIES).sum(dim=0)
        positives += len(score)
    if not positives:
        raise InputError("no query has any positive: there is nothing to retrieve")
    return _labelled(curve.score, torch.full_like(curve.score, math.nan), found, curve.negatives, positives)


def _record(seen: Asked, name: str, score: Tensor) -> dict[str, Tensor]:
    """What the cut-offs mean for each of the queries of a direction."""
    view = seen.view(name)
    (found,) = sweep.run(view, [Neighbours(0, score)])
    positives = view.sides[0].unsorted(view.counted(0))[:, None]
    returned = found.negatives + found.positives
    values = {
        "returned": returned.double(),
        "precision": torch.where(returned > 0, found.positives / returned.double().clamp(min=1), torch.nan),
        "recall": torch.where(positives > 0, found.positives / positives.double().clamp(min=1), torch.nan),
    }
    quantiles = torch.tensor(PERCENTILES, dtype=torch.float64, device=returned.device) / 100
    bands = {f"{key}_band": torch.nanquantile(value, quantiles, dim=0) for key, value in values.items()}
    shares = {"none_returned": returned == 0, "no_positive": found.positives == 0}
    shares = {key: 100 * value.double().mean(dim=0) for key, value in shares.items()}
    return values | bands | shares | {"query_index": seen.index[name]}
