"""How the scores of the negatives of every query are distributed."""

from collections.abc import Generator

from cocos.engine.primitives.histogram import Bins
from cocos.engine.view import View
from cocos.errors import InputError

__all__ = ["Histogram"]

MOST = 2**20  # bins of a query
NARROWEST = 1e-36  # width of a bin: its inverse is a number of float32
FARTHEST = 1e36  # end of the bins


class Histogram:
    """Negatives in equal bins of score; those outside are counted in the first and the last one.

    Args:
        bins: their number.
        low: lower end of the first one.
        high: upper end of the last one.

    Raises:
        InputError: no bin, too many, ends in the wrong order, or bins that float32 cannot tell apart from nothing.
    """

    def __init__(self, bins: int = 64, low: float = -1.0, high: float = 1.0):
        if not 1 <= bins <= MOST or not low < high:
            raise InputError(f"histogram: {bins} bins from {low} to {high}, expected 1 to {MOST}, and ends in order")
        self.bins, self.low, self.width = bins, low, (high - low) / bins
        if not max(abs(low), abs(high)) <= FARTHEST or self.width < NARROWEST:
            raise InputError(
                f"histogram: {bins} bins from {low} to {high}, expected ends of at most {FARTHEST:g} in size and bins "
                f"of at least {NARROWEST:g}"
            )

    def passes(self, view: View) -> Generator:
        """One pass; returns (queries, bins) int64 of each direction, in the order of the batches."""
        counts = yield Bins(view, self.bins, self.low, self.width)
        return tuple(side.unsorted(count).long() for side, count in zip(view.sides, counts, strict=False))
