"""How the scores of the negatives of every query are distributed."""

import torch
from torch import Tensor

from cocos import tiles
from cocos.errors import InputError
from cocos.readers._levels import summed
from cocos.sweep import View

__all__ = ["Histogram"]

MOST = 2**20  # bins of a query
NARROWEST = 1e-36  # width of a bin: its inverse is a number of float32
FARTHEST = 1e36  # end of the bins


class Histogram:
    """Negatives in equal bins of score; those outside stand in the first and the last one.

    Args:
        bins: how many.
        low: where the first one begins.
        high: where the last one ends.

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

    def begin(self, view: View) -> None:
        """Make the bins."""
        self.view = view
        self.count = [
            torch.zeros(len(view.sides[k]), self.bins, dtype=torch.int32, device=view.device) for k in view.directions
        ]

    def tile(self, tile: Tensor, rows: slice, columns: slice) -> None:
        """Take in one tile."""
        tiles.histogram(tile, self.low, self.width, self.count[0][rows])
        if self.view.two:
            there = columns.stop - columns.start
            tiles.histogram(tile[:, :there].T.contiguous(), self.low, self.width, self.count[1][columns])

    def fold(self) -> None:
        """Nothing waits: counts are whole numbers."""

    def merge(self) -> None:
        """Put together what all processes know."""
        self.count = summed(self.count)

    def finish(self) -> tuple[Tensor, ...]:
        """(queries, bins) int64 of each direction, in the order of the batch."""
        return tuple(side.unsorted(count).long() for side, count in zip(self.view.sides, self.count, strict=False))
