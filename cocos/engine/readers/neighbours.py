"""The nearest candidates of every query, the spread of its scores, and how many reach given levels."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from cocos.engine.tiles import Part, Tally, Tile, zeros
from cocos.engine.view import View


@dataclass(frozen=True, eq=False)
class Nearest:
    """Neighbourhood of each query of the first direction, positives and negatives, in the order of the batch.

    Args:
        score: (n, k) float64, descending; -inf where a query has fewer candidates.
        candidate: (n, k) positions in the batch; -1 where there are fewer.
        positive: (n, k) bool.
        number: (n,) number of candidates that take part.
        deviation: (n,) standard deviation of their scores (population).
        low: (n,) smallest score.
        negatives: (n, L) number of negatives with a score at or above each level.
        positives: (n, L) number of positives, likewise.
    """

    score: Tensor
    candidate: Tensor
    positive: Tensor
    number: Tensor
    deviation: Tensor
    low: Tensor
    negatives: Tensor
    positives: Tensor


@dataclass(eq=False, kw_only=True)
class Around(Tally):
    """Sums over the scores of every query, and its nearest candidates so far.

    Args:
        score: (n, k) float64, descending; -inf where there are fewer.
        place: (n, k) place of each; -1 where there are fewer.
    """

    score: Tensor
    place: Tensor

    def nearer(self, rows: slice, score: Tensor, place: Tensor) -> None:
        """Merge other candidates, (m, c) each, into the nearest ones; on equal scores the earlier ones win."""
        keep = self.score.shape[1]
        best, order = torch.cat([self.score[rows], score], dim=1).sort(dim=1, descending=True, stable=True)
        self.score[rows] = best[:, :keep]
        self.place[rows] = torch.cat([self.place[rows], place], dim=1).gather(1, order)[:, :keep]

    def merge(self, other: Self, part: Part) -> None:
        """Add the state of a part with other columns."""
        super().merge(other, part)
        self.nearer(part.rows, other.score[part.rows], other.place[part.rows])


class Neighbours:
    """Find the nearest candidates of every query of the first direction, as exactly as the tiles: use float64 views.

    Scores within `View.tie` of each other are equal; a negative then precedes a positive.

    Args:
        keep: number of nearest candidates.
        levels: (L,) scores to count above; None: none.
    """

    def __init__(self, keep: int = 1, levels: Tensor | None = None):
        self.keep, self.levels = keep, torch.empty(0, dtype=torch.float32) if levels is None else levels

    def start(self, view: View) -> Around:
        """Return an empty state; scores are summed relative to that of the first candidate, so that none cancel."""
        row = torch.arange(len(view.sides[0]), device=view.device)
        first = torch.from_numpy(view.columns).to(view.device)[view.block_of(0, row)]
        self.view, self.origin = view, view.exact(row, first)
        self.levels = self.levels.to(view.device, torch.float64)
        sums = {name: zeros(len(row), dtype=torch.float64, device=view.device) for name in ("sum", "square")}
        sums["over"] = zeros(len(self.levels), len(row), dtype=torch.int64, device=view.device)
        score = torch.full((len(row), self.keep), -torch.inf, dtype=torch.float64, device=view.device)
        low = {"low": torch.full_like(self.origin, -torch.inf)}
        return Around([sums], [low], score=score, place=torch.full_like(score, -1, dtype=torch.int64))

    def see(self, state: Around, tile: Tile) -> None:
        """Add one tile."""
        score = tile.scores.double()
        self._sum(state, tile.rows, score.flatten(0, 1))
        best = score.topk(min(self.keep, score.shape[2]), dim=2)
        block = torch.arange(len(score), device=score.device).view(-1, 1, 1) * score.shape[2]
        state.nearer(tile.rows, best.values.flatten(0, 1), (best.indices + block).flatten(0, 1) + tile.columns.start)

    def _sum(self, state: Around, rows: slice, score: Tensor) -> None:
        """Add scores, (m, c), to the sums, the minimum and the counts."""
        present = score > -torch.inf
        away, low = torch.where(present, score - self.origin[rows, None], 0), state.largest[0]["low"][rows]
        state.sums[0]["sum"][rows] += away.sum(dim=1)
        state.sums[0]["square"][rows] += away.square_().sum(dim=1)
        low.copy_(torch.maximum(low, torch.where(present, -score, -torch.inf).amax(dim=1)))
        for k, level in enumerate(self.levels):
            state.sums[0]["over"][k, rows] += (score >= level - self.view.tie).sum(dim=1)

    def done(self, state: Around) -> Nearest:
        """Insert the positives among the negatives and return the result."""
        view, negatives, positive = (
            self.view,
            state.sums[0]["over"].T.clone(),
            torch.zeros_like(state.place, dtype=torch.bool),
        )
        for start, stop in view.chunks(0):
            rows, (scored, place) = slice(start, stop), _positives(view, start, stop)
            self._sum(state, rows, scored)
            behind = torch.cat([state.score[rows], scored - view.tie], dim=1)
            order = behind.sort(dim=1, descending=True, stable=True).indices[:, : self.keep]
            state.score[rows] = torch.cat([state.score[rows], scored], dim=1).gather(1, order)
            state.place[rows] = torch.cat([state.place[rows], place], dim=1).gather(1, order)
            positive[rows] = (order >= self.keep) & (state.place[rows] >= 0)
        number = view.negatives(0) + view.counted(0)
        mean, square = (state.sums[0][name] / number.clamp(min=1) for name in ("sum", "square"))
        deviation = (square - mean.square()).clamp(min=0).sqrt()
        candidate = torch.where(state.place >= 0, view.sides[1].place[state.place], -1)
        counts = (negatives, state.sums[0]["over"].T - negatives)
        every = (state.score, candidate, positive, number, deviation, -state.largest[0]["low"], *counts)
        return Nearest(*(view.sides[0].unsorted(each) for each in every))


def _positives(view: View, start: int, stop: int) -> tuple[Tensor, Tensor]:
    """Scores and places of the positives of some queries, (queries, K); -inf and -1 beyond the last."""
    query, other, score = view.scored(0, start, stop)
    number = torch.bincount(query, minlength=stop - start)
    slot = torch.arange(len(query), device=query.device) - (number.cumsum(0) - number)[query]
    scored = score.new_full((stop - start, max(1, int(number.max()))), -torch.inf)
    place = torch.full_like(scored, -1, dtype=torch.int64)
    scored[query, slot], place[query, slot] = score, other
    return scored, place
