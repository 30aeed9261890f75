"""Histogram of the scores of the negatives of every query."""

from cocos.base.errors import InputError
from cocos.engine.primitives.histogram import Bins
from cocos.engine.sweep import Passes
from cocos.engine.view import View

# Maximum number of bins: 4 MiB of counts per query.
MAX_BINS = 2**20
# Smallest width of a bin, in units of score: its inverse stays in the range of float32.
NARROWEST_BIN = 1e-36
# Largest |edge| of the bins, in units of score.
FARTHEST_END = 1e36


class Histogram:
    """Count negatives in equal bins of score; the outer bins include everything beyond them.

    Raises:
        InputError: no bin, too many, edges in the wrong order, or bins too narrow for float32.
    """

    def __init__(self, bins: int = 64, low: float = -1.0, high: float = 1.0):
        if not 1 <= bins <= MAX_BINS or not low < high:
            raise InputError(f"histogram: {bins} bins from {low} to {high}, expected 1 to {MAX_BINS}, and low < high")
        self.bins, self.low, self.width = bins, low, (high - low) / bins
        if not max(abs(low), abs(high)) <= FARTHEST_END or self.width < NARROWEST_BIN:
            raise InputError(
                f"histogram: {bins} bins from {low} to {high}, expected ends within ±{FARTHEST_END:g} and bins "
                f"at least {NARROWEST_BIN:g} wide"
            )

    def passes(self, view: View) -> Passes:
        """Yield one pass; return (queries, bins) int64 for each direction, in the order of the batches."""
        counts = yield Bins(view, self.bins, self.low, self.width)
        return tuple(side.unsorted(count).long() for side, count in zip(view.sides, counts, strict=False))
