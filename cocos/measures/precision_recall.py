"""How precise is one threshold for all queries, and how far do single queries differ?"""

from typing import Unpack

import numpy as np
import torch
import xarray as xr

from cocos import engine, results
from cocos.base.errors import InputError
from cocos.base.ranges import checked
from cocos.checkpoints import Checkpoint
from cocos.embeddings import Embeddings
from cocos.embeddings.options import QUERY_DEFAULTS, Queries, fill_options
from cocos.engine import readers
from cocos.measures.shared import retrieval
from cocos.measures.shared.queries import asked, steps

# Maximum number of points of the curve.
CURVE_POINTS = 2000
# Quartiles over the queries.
QUARTILES = (25, 50, 75)
# Recalls from 0 to 1 at which the band is given.
RECALL_LEVELS = 101
# Dims of one direction, long name and units.
PRECISION_RECALL_LABELS = {
    "band": (("percentile", "level"), "precision, percentile over queries", "1"),
    "mean": (("level",), "precision, mean over queries", "1"),
    "mAP": ((), "mean average precision of the drawn queries, each with thresholds of its own", "%"),
}


@checked
def precision_recall(
    embeddings: Embeddings | Checkpoint,
    loss=None,
    **asking: Unpack[Queries],
) -> xr.Dataset:
    r"""Precision against recall over all pairs with one threshold, and of single queries with a threshold of their own.

    A pair is the same from both sides, so there is one curve: of all queries of the first direction that have a
    positive, with all candidates, those without any match among them. PR-AUC is
    :math:`\sum_i (R_i - R_{i-1}) P_i` over all thresholds, as in `evaluate` (with distractors, where there are any),
    not over the points that are kept. Of each fine step of recall the first, the last, the lowest and the highest are
    kept, which draws the same line. The precision of a query at recall r is that at its m-th best positive, m the
    smallest number that reaches r, at least 1: nothing is interpolated. A negative that ties with a positive ranks
    above it.

    Args:
        embeddings: embeddings, or a checkpoint (a split of its data is encoded).
        loss: a loss, or its name: its metric is taken; None: cosines.
        **asking: the queries of the band, see `Queries`.

    Returns:
        `recall`, `precision` and `threshold` (point,), at most 2,000; `band` (direction, percentile, level), the 25th,
        50th and 75th percentile over the drawn queries of the precision at each recall, and `mean` (direction, level);
        `mAP` (direction,) of these queries. PR-AUC is `pr_auc` in the attributes, in percent, beside `pairs` and
        `positive_pairs`.

    Raises:
        InputError: no positive pair.

    Source: Veit & Wilber 2020, arXiv:2011.08824, table 1.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> cocos.measures.precision_recall(embeddings).attrs["pr_auc"]
        100.0
    """
    asking = fill_options("precision_recall", asking, QUERY_DEFAULTS | {"queries": 1000})
    seen = asked(embeddings, loss, **asking)
    whole, report = seen.whole(matched=True), asking["progress"] and asking["progress"]("scoring")
    (curve,) = engine.run(whole, [readers.PrecisionRecall()], progress=report)
    score, found, negatives = (each.cpu().numpy() for each in steps(curve))
    recall, precision = found / found[-1], found / (found + negatives)
    kept = _thinned(recall, precision)
    level = torch.arange(RECALL_LEVELS, dtype=torch.float64) / (RECALL_LEVELS - 1)
    records = {}
    for name in seen.sides:
        ((ranked,),) = engine.run(seen.view(name), [readers.Ranks()])
        records[name] = dict(zip(("band", "mean"), _band(ranked, level), strict=True))
        records[name]["mAP"] = torch.tensor(retrieval.metrics(ranked)["mAP"], dtype=torch.float64)
    pairs = len(whole.sides[0]) * len(whole.sides[1]) - (len(whole.sides[0]) if whole.shared else 0)
    attrs = seen.attrs | {
        "title": "Precision and recall of one threshold",
        "pr_auc": retrieval.average_precision(curve.score, curve.negatives),
        "pairs": pairs,
        "positive_pairs": len(curve.score),
        "points_of_the_curve": len(score),
    }
    variables = {
        "recall": ("point", recall[kept], "fraction of positive pairs at or above the threshold", "1"),
        "precision": ("point", precision[kept], "fraction of pairs at or above the threshold that are positive", "1"),
        "threshold": ("point", score[kept], "threshold", "score"),
        **results.by_direction(records, PRECISION_RECALL_LABELS),
        "percentile": ("percentile", list(QUARTILES), "percentile over queries", "%"),
        "level": ("level", level, "recall of the query", "1"),
    }
    return results.labelled(variables, attrs, measure="precision_recall")


def _thinned(recall: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """Places of the points that draw the line: of each step of recall the first, last, lowest and highest one."""
    if len(recall) <= CURVE_POINTS:
        return np.arange(len(recall))
    step = np.minimum((recall * (CURVE_POINTS // 4)).astype(np.int64), CURVE_POINTS // 4 - 1)
    first = np.flatnonzero(np.diff(step, prepend=-1))
    last = np.append(first[1:], len(step)) - 1
    order = np.lexsort((precision, step))
    return np.unique(np.concatenate([first, last, order[first], order[last]]))


def _band(ranked: readers.PositiveRanks, level: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Percentiles (percentile, level) and mean (level,) over queries of the precision at each recall."""
    if not len(ranked.query):
        raise InputError("queries: none of those drawn has a positive; draw more")
    beaten = (ranked.above + ranked.ties).cpu()
    query = ranked.query.cpu()
    order = beaten.argsort(stable=True)
    order = order[query[order].argsort(stable=True)]
    number = query[order].unique_consecutive(return_counts=True)[1]
    first = number.cumsum(0) - number
    wanted = (level * number[:, None] - 1e-9).ceil().clamp(min=1).long()  # m-th best positive, (queries, levels)
    precision = wanted / (wanted + beaten[order][first[:, None] + wanted - 1]).double()
    quantiles = torch.tensor(QUARTILES, dtype=torch.float64) / 100
    return torch.quantile(precision, quantiles, dim=0), precision.mean(dim=0)
