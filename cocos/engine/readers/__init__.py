"""Readers, one file per kind of question: from passes over the scores to statistics of every query.

The reader of a loss returns, for each direction, a dict of (queries,) tensors in the order of the batches:
`contributing`; `uncertain` (candidates that may lie on either side of eps: the true count is within that many of
`contributing`); the other statistics of `cocos.statistics.per_query` that need no threshold, `negatives`; and if
requested and available from one pass, `effective` and `participation`, `relative` and `relative_uncertain`.

The file of a family in `FAMILIES` has a function `reads(loss, eps, *, spread, relative)`, which returns the reader of a
loss, or None for other losses.
"""

from cocos.engine.readers import cross_example, hinge, sigmoid, softmax
from cocos.engine.readers.curves import Histogram, PrecisionRecall, PrecisionRecallCurve
from cocos.engine.readers.neighbours import Neighbours
from cocos.engine.readers.ranks import PositiveRanks, Ranks
from cocos.engine.readers.rows import RowsReader

__all__ = [
    "Histogram",
    "Neighbours",
    "PositiveRanks",
    "PrecisionRecall",
    "PrecisionRecallCurve",
    "Ranks",
    "has",
    "of",
]

FAMILIES = (softmax, hinge, sigmoid, cross_example)


def of(loss, eps: float = 0.01, *, spread: bool = True, relative: bool = False):
    """Return the reader of a loss; None if it needs the whole score matrix, or more than the scores of the batch.

    Losses without a reader of their own are weighed from a few rows of float64 scores at a time.

    Args:
        loss: as in `cocos.losses.load`.
        eps: smallest share that contributes.
        spread: compute how the push is spread (entropy, participation), which takes longer.
        relative: also count the negatives whose part of the query's own push exceeds eps; a softmax notes more
            candidates for this, and may need a second pass.
    """
    own = _own(loss, eps, spread=spread, relative=relative)
    rows = loss.couples == "query" and not loss.wide
    return RowsReader(loss, eps) if own is None and rows else own


def has(loss) -> bool:
    """Whether a loss has a reader of its own, so that no rows of scores need to be stored."""
    return _own(loss, 0.01, spread=False, relative=False) is not None


def _own(loss, eps: float, *, spread: bool, relative: bool):
    possible = (family.reads(loss, eps, spread=spread, relative=relative) for family in FAMILIES)
    return next((reader for reader in possible if reader is not None), None)
