"""Precision and recall over all pairs of queries and candidates, at one threshold for all of them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos import tiles
from cocos.readers._later import RARELY
from cocos.readers._levels import DENSE, summed
from cocos.sweep import TIES, View

__all__ = ["Curve", "PrecisionRecall"]


@dataclass(frozen=True, eq=False)
class Curve:
    """What a threshold at the score of each positive pair lets through.

    Args:
        score: (P,) float64 scores of the positive pairs, descending.
        negatives: (P,) int64, negative pairs with a score at or above it.
    """

    score: Tensor
    negatives: Tensor


class PrecisionRecall:
    """The negative pairs at or above every positive pair, of the first direction, decided in float64.

    Positive pairs lie so close to each other that most negatives are within the rounding of one: those above the lowest
    positive are scored again in float64, one by one where they are few, and the whole tile where they are not.

    Args:
        levels: scores in the place of those of the positive pairs.
    """

    def __init__(self, levels: Tensor | None = None):
        self.levels = levels

    def begin(self, view: View) -> None:
        """Sort the positive pairs."""
        self.view, self.tie = view, TIES * max(1.0, view.most)
        levels = self.levels
        if levels is None:
            levels = torch.cat([view.scored(0, a, b)[2] for a, b in view.chunks(0)])
        self.ladder = levels.to(view.device, torch.float64).sort().values
        self.reached = torch.zeros(len(self.ladder) + 1, dtype=torch.int64, device=view.device)
        self._seen: list[tuple] = []

    def tile(self, tile: Tensor, rows: slice, columns: slice) -> None:
        """Take in one tile."""
        if not len(self.ladder):
            return
        least = self.ladder[0]
        lowest = (least - self.view.slack(least) - 2e-7 * least.abs() - self.tie).to(tile.dtype)
        if tiles.ahead(tile.device):
            limit = lowest.expand(len(tile))
            row, column, _, sign = tiles.above(tile, limit, limit, None, None, (rows.start, columns.start), fixed=True)
            self._seen.append((rows, columns, tile.numel(), (tile > lowest).sum(), row, column, sign))
            if len(self._seen) >= RARELY:
                self._look()
            return
        near = (tiles.tops(tile, False)[0] > lowest).nonzero().flatten()
        row, column = (tile[near] > lowest).nonzero(as_tuple=True)
        if len(row) * DENSE > tile.numel():
            self._take(self.view.exact_tile(rows, columns).flatten())
        else:
            self._take(self.view.exact(near[row] + rows.start, column + columns.start))

    def _look(self) -> None:
        """Take in what some tiles have shown; those with many places, or too short a list, again in float64."""
        seen, self._seen = self._seen, []
        numbers = torch.stack([each[3] for each in seen]).tolist() if seen else []
        for number, (rows, columns, size, _, row, column, sign) in zip(numbers, seen, strict=True):
            if number * DENSE > size or number > len(row):
                self._take(self.view.exact_tile(rows, columns).flatten())
            else:
                there = sign.nonzero().flatten()
                self._take(self.view.exact(row[there], column[there]))

    def _take(self, score: Tensor) -> None:
        places = torch.searchsorted(self.ladder - self.tie, score, right=True)
        self.reached += torch.bincount(places, minlength=len(self.reached))

    def fold(self) -> None:
        """A part of the rows is done."""
        self._look()

    def merge(self) -> None:
        """Put together what all processes know."""
        (self.reached,) = summed([self.reached])

    def finish(self) -> Curve:
        """The curve, from the highest positive pair to the lowest."""
        return Curve(self.ladder.flip(0), self.reached[1:].flip(0).cumsum(0))
