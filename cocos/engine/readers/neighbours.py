"""The nearest candidates of every query, how its scores are spread, and how many reach a level."""

from collections.abc import Generator
from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.engine.parts import Part, Tile
from cocos.engine.view import View

__all__ = ["Nearest", "Neighbours"]


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


@dataclass(eq=False)
class Around:
    """The nearest negatives of every query so far, and how the scores of all of them are spread.

    Args:
        score: (n, k) float64, descending.
        place: (n, k) of each, -1 where there are fewer.
        number: (n,) scores so far.
        mean: (n,) of them.
        square: (n,) sum of their squared differences from it.
        low: (n,) smallest one.
        over: (n, L) scores at or above each level.
    """

    score: Tensor
    place: Tensor
    number: Tensor
    mean: Tensor
    square: Tensor
    low: Tensor
    over: Tensor

    @classmethod
    def of(cls, number: int, keep: int, levels: int, device: torch.device) -> "Around":
        """Nothing is known of any query."""
        mean, square = torch.zeros(2, number, dtype=torch.float64, device=device)
        return cls(
            torch.full((number, keep), -torch.inf, dtype=torch.float64, device=device),
            torch.full((number, keep), -1, device=device),
            torch.zeros(number, dtype=torch.int64, device=device),
            mean,
            square,
            torch.full((number,), torch.inf, dtype=torch.float64, device=device),
            torch.zeros((number, levels), dtype=torch.int64, device=device),
        )

    def nearer(self, rows: slice, score: Tensor, place: Tensor) -> None:
        """Keep the nearest of those so far and of others, (m, c) each; of equal scores those so far."""
        if keep := self.score.shape[1]:
            best, order = torch.cat([self.score[rows], score], dim=1).sort(dim=1, descending=True, stable=True)
            self.score[rows] = best[:, :keep]
            self.place[rows] = torch.cat([self.place[rows], place], dim=1).gather(1, order)[:, :keep]

    def spread(self, rows: slice, score: Tensor) -> None:
        """Take more scores, (m, c), into the number, the mean, the squares about it and the smallest one."""
        there = score > -torch.inf
        number = there.sum(dim=1)
        mean = torch.where(there, score, 0).sum(dim=1) / number.clamp(min=1)
        square = torch.where(there, score - mean[:, None], 0).square().sum(dim=1)
        self._join(rows, number, mean, square, torch.where(there, score, torch.inf).amin(dim=1))

    def _join(self, rows: slice, number: Tensor, mean: Tensor, square: Tensor, low: Tensor) -> None:
        """Source: Chan, Golub & LeVeque 1979, "Updating formulae and a pairwise algorithm for computing variances"."""
        old, gap = self.number[rows], mean - self.mean[rows]
        every = (old + number).clamp(min=1)
        self.square[rows] += square + gap.square() * old * number / every
        self.mean[rows] += gap * number / every
        self.number[rows] += number
        self.low[rows] = torch.minimum(self.low[rows], low)

    def merge(self, other: "Around", part: Part) -> None:
        """Take in a part, of whose columns nothing is known yet."""
        rows, device = part.rows, self.mean.device
        score, place, number, mean, square, low, over = (each[rows].to(device) for each in vars(other).values())
        self.nearer(rows, score, place)
        self._join(rows, number, mean, square, low)
        self.over[rows] += over


class Seen:
    """The nearest negatives of every query of the first direction; as exact as the tiles, so views are in float64.

    Args:
        keep: number of nearest negatives.
        levels: scores to count above.
    """

    def __init__(self, keep: int, levels: list[float]):
        self.keep, self.levels = keep, levels

    def start(self, view: View) -> Around:
        """Nothing is known of any query."""
        return Around.of(len(view.sides[0]), self.keep, len(self.levels), view.device)

    def see(self, state: Around, tile: Tile) -> None:
        """Take in one tile."""
        score = tile.scores.double()
        for k, level in enumerate(self.levels):
            state.over[tile.rows, k] += (score >= level - tile.view.tie).sum(dim=1)
        state.spread(tile.rows, score)
        where = torch.arange(tile.columns.start, tile.columns.stop, device=score.device)
        state.nearer(tile.rows, score, where.expand(score.shape))

    def done(self, state: Around) -> Around:
        """Negatives only."""
        return state


class Neighbours:
    """The nearest candidates of every query of the first direction; as exact as the tiles, so views are in float64.

    Scores within `View.tie` of each other are equal: a negative then stands before a positive.

    Args:
        keep: number of nearest candidates.
        levels: (L,) scores to count above; None: none.
    """

    def __init__(self, keep: int = 1, levels: Tensor | None = None):
        self.keep, self.levels = keep, [] if levels is None else levels.double().tolist()

    def passes(self, view: View) -> Generator:
        """One pass over the negatives; returns `Nearest`, with the positives among them."""
        found: Around = yield Seen(self.keep, self.levels)
        reached, positive = torch.zeros_like(found.over), torch.zeros_like(found.place, dtype=torch.bool)
        for start, stop in view.chunks(0):
            rows, (scored, place) = slice(start, stop), _positives(view, start, stop)
            for k, level in enumerate(self.levels):
                reached[rows, k] = (scored >= level - view.tie).sum(dim=1)
            found.spread(rows, scored)
            both, places = (torch.cat([a[rows], b], dim=1) for a, b in ((found.score, scored), (found.place, place)))
            behind = torch.cat([found.score[rows], scored - view.tie], dim=1)
            order = behind.sort(dim=1, descending=True, stable=True).indices[:, : self.keep]
            found.score[rows], found.place[rows] = both.gather(1, order), places.gather(1, order)
            positive[rows] = (order >= self.keep) & (found.place[rows] >= 0)
        candidate = torch.where(found.place >= 0, view.sides[1].place[found.place], -1)
        deviation = (found.square / found.number.clamp(min=1)).sqrt()
        every = (found.score, candidate, positive, found.number, deviation, found.low, found.over, reached)
        return Nearest(*(view.sides[0].unsorted(each) for each in every))


def _positives(view: View, start: int, stop: int) -> tuple[Tensor, Tensor]:
    """Scores and places of the positives of some queries, (queries, most of them); -inf and -1 beyond the last."""
    query, other, score = view.scored(0, start, stop)
    number = torch.bincount(query, minlength=stop - start)
    slot = torch.arange(len(query), device=query.device) - (number.cumsum(0) - number)[query]
    scored = score.new_full((stop - start, max(1, int(number.max()))), -torch.inf)
    place = torch.full_like(scored, -1, dtype=torch.int64)
    scored[query, slot], place[query, slot] = score, other
    return scored, place
