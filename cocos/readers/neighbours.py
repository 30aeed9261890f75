"""The nearest candidates of every query, how its scores are spread, and how many reach a level."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos import shards
from cocos.sweep import TIES, View

__all__ = ["Nearest", "Neighbours"]

STATE = ("score", "place", "number", "mean", "square", "low", "over")


@dataclass(frozen=True, eq=False)
class Nearest:
    """What is around each query of the first direction, positives and negatives, in the order of the batch.

    Args:
        score: (n, k) float64, descending; -inf where a query has fewer candidates.
        candidate: (n, k) places in the batch, -1 where there are fewer.
        positive: (n, k) bool.
        number: (n,) candidates that take part.
        deviation: (n,) standard deviation of their scores (population).
        low: (n,) smallest score.
        negatives: (n, L) negatives with a score at or above each level.
        positives: (n, L) positives likewise.
    """

    score: Tensor
    candidate: Tensor
    positive: Tensor
    number: Tensor
    deviation: Tensor
    low: Tensor
    negatives: Tensor
    positives: Tensor


class Neighbours:
    """The nearest candidates of every query of the first direction; as exact as the tiles, so views are in float64.

    Scores within 1e-12 of each other (of unit vectors) are equal: a negative then stands before a positive.

    Args:
        keep: how many of the nearest candidates are kept.
        levels: (L,) scores to count above; None: none.
    """

    def __init__(self, keep: int = 1, levels: Tensor | None = None):
        self.keep, self.levels = keep, torch.empty(0) if levels is None else levels

    def begin(self, view: View) -> None:
        """Nothing is known of any query."""
        number, device = len(view.sides[0]), view.device
        self.view, self.tie = view, TIES * max(1.0, view.most)
        self.levels = self.levels.to(device, torch.float64)
        self.score = torch.full((number, self.keep), -torch.inf, dtype=torch.float64, device=device)
        self.place = torch.full((number, self.keep), -1, device=device)
        self.number = torch.zeros(number, dtype=torch.int64, device=device)
        self.mean, self.square = torch.zeros(2, number, dtype=torch.float64, device=device)
        self.low = torch.full((number,), torch.inf, dtype=torch.float64, device=device)
        self.over = torch.zeros((number, len(self.levels)), dtype=torch.int64, device=device)

    def tile(self, tile: Tensor, rows: slice, columns: slice) -> None:
        """Take in one tile: negatives only."""
        score = tile[:, : columns.stop - columns.start].double()
        for place, level in enumerate(self.levels):
            self.over[rows, place] += (score >= level - self.tie).sum(dim=1)
        self._spread(score, rows)
        where = torch.arange(columns.start, columns.stop, device=score.device)
        self._nearer(score, where.expand(score.shape), rows)

    def _nearer(self, score: Tensor, place: Tensor, rows: slice) -> None:
        if self.keep:
            both = torch.cat([self.score[rows], score], dim=1)
            best, order = both.sort(dim=1, descending=True, stable=True)
            self.score[rows] = best[:, : self.keep]
            self.place[rows] = torch.cat([self.place[rows], place], dim=1).gather(1, order)[:, : self.keep]

    def _spread(self, score: Tensor, rows: slice) -> None:
        """Fold in the number, the mean and the squares about it of more scores (Chan, Golub & LeVeque 1979)."""
        there = score > -torch.inf
        number, old = there.sum(dim=1), self.number[rows]
        mean = torch.where(there, score, 0).sum(dim=1) / number.clamp(min=1)
        square = torch.where(there, score - mean[:, None], 0).square().sum(dim=1)
        gap, every = mean - self.mean[rows], (old + number).clamp(min=1)
        self.square[rows] += square + gap.square() * old * number / every
        self.mean[rows] += gap * number / every
        self.number[rows] += number
        self.low[rows] = torch.minimum(self.low[rows], torch.where(there, score, torch.inf).amin(dim=1))

    def fold(self) -> None:
        """Nothing waits: each row is seen by one process, from its first column to the last."""

    def merge(self) -> None:
        """Put together what all processes know: each has seen other rows."""
        for theirs in shards.gather({name: getattr(self, name).cpu() for name in STATE}):
            seen = (theirs["number"] > 0).to(self.view.device)
            for name in STATE:
                own, their = getattr(self, name), theirs[name].to(self.view.device)
                setattr(self, name, torch.where(seen if own.ndim == 1 else seen[:, None], their, own))

    def finish(self) -> Nearest:
        """Negatives and positives together."""
        view, side = self.view, self.view.sides[0]
        reached, positive = torch.zeros_like(self.over), torch.zeros_like(self.place, dtype=torch.bool)
        for start, stop in view.chunks(0):
            query, other, score = view.scored(0, start, stop)
            number = torch.bincount(query, minlength=stop - start)
            slot = torch.arange(len(query), device=query.device) - (number.cumsum(0) - number)[query]
            shape = (stop - start, max(1, int(number.max())))
            scored = torch.full(shape, -torch.inf, dtype=torch.float64, device=query.device)
            place = torch.full(shape, -1, device=query.device)
            scored[query, slot], place[query, slot] = score, other
            rows = slice(start, stop)
            for k, level in enumerate(self.levels):
                reached[rows, k] = (scored >= level - self.tie).sum(dim=1)
            self._spread(scored, rows)
            both, places = (torch.cat([a[rows], b], dim=1) for a, b in ((self.score, scored), (self.place, place)))
            behind = torch.cat([self.score[rows], scored - self.tie], dim=1)
            order = behind.sort(dim=1, descending=True, stable=True).indices[:, : self.keep]
            self.score[rows], self.place[rows] = both.gather(1, order), places.gather(1, order)
            positive[rows] = (order >= self.keep) & (self.place[rows] >= 0)
        candidate = torch.where(self.place >= 0, view.sides[1].place[self.place], -1)
        deviation = (self.square / self.number.clamp(min=1)).sqrt()
        found = (self.score, candidate, positive, self.number, deviation, self.low, self.over, reached)
        return Nearest(*(side.unsorted(each) for each in found))
