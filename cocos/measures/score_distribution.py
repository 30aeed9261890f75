"""How many candidates does a query have at a given similarity, and does one score mean the same for every query?"""

from collections.abc import Iterable
from typing import Annotated, Unpack

import numpy as np
import torch
import xarray as xr

from cocos import engine, results
from cocos.base.ranges import checked, whole
from cocos.checkpoints import Checkpoint
from cocos.embeddings import Embeddings
from cocos.embeddings.options import QUERY_DEFAULTS, Queries, fill_options, within
from cocos.engine import readers
from cocos.measures.shared import retrieval
from cocos.measures.shared.queries import QUERY_PERCENTILES, asked

# Dims of one direction, long name and units.
SCORE_DISTRIBUTION_LABELS = {
    "negatives": (("query", "bin"), "negatives of the query in the bin", "candidates"),
    "kth": (("query", "k"), "score of the k-th neighbour", "score"),
    "deviation": (("query",), "standard deviation of the query's scores", "score"),
    "query_index": (("query",), "row of the query in the embeddings", "1"),
    "band": (("percentile", "bin"), "negatives in the bin, percentile over queries", "candidates"),
    "positives": (("bin",), "positive pairs in the bin", "pairs"),
    "kth_band": (("percentile", "k"), "score of the k-th neighbour, percentile over queries", "score"),
    "spread": (("k",), "deviation over queries of the k-th score / mean deviation within a query", "1"),
}


@checked
def score_distribution(
    embeddings: Embeddings | Checkpoint,
    loss=None,
    *,
    bins: Annotated[int, whole(2, 10_000)] = 100,
    ks: Iterable[int] = (1, 10, 100),
    **asking: Unpack[Queries],
) -> xr.Dataset:
    r"""The negatives of each query by their score, the scores of the positives, and those of each k-th neighbour.

    The spread across queries is one number for each k. With :math:`t_q` the score of the k-th neighbour of query q
    (of all of its candidates, positives and negatives, itself aside) and :math:`\sigma_q` the standard deviation of the
    scores of all of its candidates,

    .. math:: \mathrm{spread}_k = \frac{\mathrm{std}_q \, t_q}{\mathrm{mean}_q \, \sigma_q}

    with population deviations, over the queries that have k candidates. It is 0 where one threshold gives every query
    its k nearest candidates, and does not change when all scores are multiplied or moved.

    Args:
        embeddings: embeddings, or a checkpoint (a split of its data is encoded).
        loss: a loss, or its name: its metric is taken; None: cosines.
        bins: equal ones, from -1 to 1 for cosines, and from the smallest to the largest score for other metrics.
        ks: neighbours whose scores are found, exactly, in float64.
        **asking: options of the queries, see `Queries`.

    Returns:
        `negatives` (direction, query, bin), how many of a query are in a bin; `band` (direction, percentile, bin), the
        5th, 50th and 95th percentile of it over the queries; `positives` (direction, bin) of all queries; `kth`
        (direction, query, k), the score of the k-th neighbour, and `kth_band` (direction, percentile, k); `deviation`
        (direction, query) and `spread` (direction, k). NaN where a direction has fewer queries, or a query fewer
        candidates.

    Source: Veit & Wilber 2020, arXiv:2011.08824, fig. 4, for the distributions; the spread is ours.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> data = cocos.measures.score_distribution(embeddings, bins=2, ks=[1])
        >>> data["positives"].values.tolist()
        [[0, 3], [0, 3]]
    """
    asking = fill_options("score_distribution", asking, QUERY_DEFAULTS | {"queries": 1000})
    ks = retrieval.check(ks)
    seen = asked(embeddings, loss, **asking)
    report, found = asking["progress"] and asking["progress"]("scoring"), {}
    views = {name: seen.view(name) for name in seen.sides}
    for number, (name, view) in enumerate(views.items()):
        (found[name],) = engine.run(
            view, [readers.Neighbours(max(ks))], progress=within(report, number, 2 * len(views))
        )
    low, high = -1.0, 1.0
    if seen.metric != "cosine":
        low, high = (min(float(each.low.min()) for each in found.values()),
                     max(float(each.score[:, 0].max()) for each in found.values()))  # fmt: skip
        low, high = (low, high) if high > low else (low - 0.5, low + 0.5)
    records = {}
    for number, (name, view) in enumerate(views.items()):
        histogram, shown = readers.Histogram(bins, low, high), within(report, len(views) + number, 2 * len(views))
        ((counted,),) = engine.run(view, [histogram], progress=shown)
        records[name] = _record(found[name], counted, _positives(view, histogram), ks)
        records[name]["query_index"] = seen.index[name]
    return _labelled(records, seen.attrs, (low, high), bins, ks)


def _labelled(
    records: dict[str, dict[str, torch.Tensor]], attrs: dict, ends: tuple[float, float], bins: int, ks: tuple[int, ...]
) -> xr.Dataset:
    """The Dataset of the records of each direction, with bins between two ends."""
    low, high = ends
    attrs = attrs | {"title": "Candidates of a query by their score", "bin_width": (high - low) / bins}
    variables = results.by_direction(records, SCORE_DISTRIBUTION_LABELS)
    middle = low + attrs["bin_width"] * (np.arange(bins) + 0.5)
    variables |= {
        "bin": ("bin", middle, "middle of the bin", "score"),
        "k": ("k", list(ks), "rank by score", "rank"),
        "percentile": ("percentile", list(QUERY_PERCENTILES), "percentile over queries", "%"),
    }
    return results.labelled(variables, attrs, measure="score_distribution")


def _positives(view: engine.View, histogram: readers.Histogram) -> torch.Tensor:
    """Positive pairs in each bin, (bins,)."""
    count = torch.zeros(histogram.bins, dtype=torch.int64, device=view.device)
    for start, stop in view.chunks(0):
        place = ((view.scored(0, start, stop)[2] - histogram.low) / histogram.width).floor()
        count += torch.bincount(place.clamp(0, histogram.bins - 1).long(), minlength=histogram.bins)
    return count


def _record(found, counted: torch.Tensor, positives: torch.Tensor, ks: tuple[int, ...]) -> dict[str, torch.Tensor]:
    """All that is said of one direction."""
    quantiles = torch.tensor(QUERY_PERCENTILES, dtype=torch.float64, device=counted.device) / 100
    kth = found.score[:, [k - 1 for k in ks]]
    kth = torch.where(kth > -torch.inf, kth, torch.nan)
    known = ~kth.isnan()
    mean = torch.where(known, kth, 0).sum(dim=0) / known.sum(dim=0)
    square = torch.where(known, kth - mean, 0).square().sum(dim=0) / known.sum(dim=0)
    within = torch.where(known, found.deviation[:, None], 0).sum(dim=0) / known.sum(dim=0)
    return {
        "negatives": counted,
        "band": torch.quantile(counted.double(), quantiles, dim=0),
        "positives": positives,
        "kth": kth,
        "kth_band": torch.nanquantile(kth, quantiles, dim=0),
        "deviation": found.deviation,
        "spread": square.sqrt() / within,
    }
