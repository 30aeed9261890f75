"""The shelf of readers, a file for each kind of question: passes over the scores in, statistics of every query out.

A reader gives, for each direction, a dict of (queries,) tensors in the order of the batches: `contributing`,
`uncertain` (candidates that may fall on either side of eps: the count is within that many), `weight_above`,
`weight_below`, `weight_positive`, `push`, `pull`, `hardest_share`, `negatives`, and where they were asked for and can
be had from one pass, `effective` and `participation`, and `relative` with `relative_uncertain`; as in
`cocos.statistics`.
"""

import functools
import importlib
import pkgutil
from collections.abc import Callable

from cocos.engine.readers.held import Held
from cocos.engine.readers.histogram import Histogram
from cocos.engine.readers.neighbours import Nearest, Neighbours
from cocos.engine.readers.precision_recall import Curve, PrecisionRecall
from cocos.engine.readers.ranks import Ranked, Ranks

__all__ = ["Curve", "Histogram", "Nearest", "Neighbours", "PrecisionRecall", "Ranked", "Ranks", "has", "of"]


def of(loss, eps: float = 0.01, *, spread: bool = True, relative: bool = False):
    """The reader of a loss; None where it couples queries in a way that only the whole score matrix shows.

    Losses without a reader of their own are weighed a few rows of scores at a time, held in float64.

    Args:
        loss: as in `cocos.losses.load`.
        eps: smallest share that contributes.
        spread: False leaves out how the push is spread (entropy, participation), which takes longer.
        relative: count the negatives whose part of the query's own push is above eps too; a softmax notes more
            candidates for it, and may look at the scores a second time.
    """
    return _own(loss, eps, spread=spread, relative=relative) or (Held(loss, eps) if loss.couples == "query" else None)


def has(loss) -> bool:
    """Whether a loss has a reader of its own, so that its scores need not be held."""
    return _own(loss, 0.01, spread=False, relative=False) is not None


def _own(loss, eps: float, *, spread: bool, relative: bool):
    found = (reads(loss, eps, spread=spread, relative=relative) for reads in _shelf())
    return next((reader for reader in found if reader is not None), None)


@functools.cache
def _shelf() -> tuple[Callable, ...]:
    """The functions `reads` of all files."""
    modules = (importlib.import_module(f"{__name__}.{each.name}") for each in pkgutil.iter_modules(__path__))
    return tuple(module.reads for module in modules if hasattr(module, "reads"))
