"""Negatives counted by their score: of every query in equal bins, and of all pairs between the steps of a ladder."""

from dataclasses import replace

import torch
from torch import Tensor

from cocos.engine import bounds, fused
from cocos.engine.compact import MANY
from cocos.engine.parts import Part, Tally, Tile, tiles_of, zeros
from cocos.engine.view import View

__all__ = ["Bins", "Ladder"]

# Share of scores in mixed bins, one in so many, from which PyTorch multiplies a tile in float64.
DENSE = 64
# Fewest and most bins of the grid under a ladder; the table of the largest grid fits in the second-level cache.
GRID = (2**6, 2**14)
# Steps that the kernel compares at once, as in histogram.c.
NEAR = 8
# Scores of a view for each bin of the grid, so that a small batch does not pay for a large one.
SCORES = 2**6


class Bins:
    """Negatives of every query in equal bins of score; those outside are counted in the first and the last one.

    Args:
        view: the scores.
        bins: their number.
        low: lower end of the first one.
        width: of each.

    `done` gives (n, bins) int32 of each direction, in visiting order.
    """

    def __init__(self, view: View, bins: int, low: float, width: float):
        self.view, self.bins, self.low, self.inverse = view, bins, low, 1 / width

    def start(self, view: View) -> Tally:
        """Empty bins of every query of each direction."""
        sizes = [len(view.sides[k]) for k in view.directions]
        return Tally(*({"bin": zeros(n, self.bins, dtype=torch.int32, device=view.device)} for n in sizes))

    def see(self, state: Tally, tile: Tile) -> None:
        """Take in one tile."""
        there = (tile.scores > -torch.inf).int()
        place = (tile.scores - self.low).mul_(self.inverse).clamp_(0, self.bins - 1).nan_to_num_(nan=0).long()
        state.rows["bin"][tile.rows].scatter_add_(1, place, there)
        if tile.view.two:
            state.columns["bin"][tile.columns].scatter_add_(1, place.T, there.T)

    def done(self, state: Tally) -> list[Tensor]:
        """The bins of each direction."""
        return [each["bin"] for each in (state.rows, state.columns) if each]


class Ladder:
    """How many negatives of the first direction score at or above each step: one ladder for all queries, exactly.

    A grid of equal bins covers the steps. Scores of a bin that no step is near are only counted. Each score of a mixed
    bin is compared with the steps around it, and is made in float64 if its rounding bound reaches one of them.

    Args:
        view: the scores.
        steps: (S,) float64, ascending. A score at most `view.tie` below a step reaches it.

    `done` gives (S,) int64.
    """

    def __init__(self, view: View, steps: Tensor):
        self.view, self.steps = view, (steps - view.tie).contiguous()
        self.deep = fused.deep(view, self)
        ends = self.steps[[0, -1]] if len(steps) else self.steps.new_zeros(2)
        low, high = bounds.outward(ends, self._reach(ends), view.dtype)
        scores = len(view.sides[0]) * len(view.sides[1])
        self.bins = min(max(GRID[0], 1 << (scores // SCORES).bit_length()), GRID[1])
        self.low = float(low[0])
        self.inverse = float((self.bins / (high[1].double() - low[0].double())).to(view.dtype))
        place = torch.arange(self.bins + 1, dtype=torch.float64, device=view.device)
        off = bounds.bin_place(self.bins)
        least, most = self.low + (place[:-1] - off) / self.inverse, self.low + (place[1:] + off) / self.inverse
        self.reach = torch.maximum(self._reach(least), self._reach(most))
        if view.metric == "euclidean":  # inside of a bin the bound is largest at the root, if that is there
            root = torch.full_like(least, -float(view.bound(0.0, deep=self.deep))).clamp(least, most)
            self.reach = torch.maximum(self.reach, self._reach(root))
        # The first bin holds all that reaches no step, and the last one all that is beyond it as well.
        first = torch.searchsorted(self.steps, least - self.reach, right=True)
        last = torch.searchsorted(self.steps, most + self.reach, right=True)
        last[-1] = len(steps)
        self.ends = torch.nn.functional.pad(torch.stack([first, last], dim=1), (0, 0, 1, 0))
        self.reach = torch.nn.functional.pad(self.reach, (1, 0))
        self.mixed = self.ends[:, 0] < self.ends[:, 1]

    def _reach(self, score: Tensor) -> Tensor:
        """How far from a step a score of the tiles may be and still stand on either side of it."""
        bound = torch.as_tensor(self.view.bound(score, deep=self.deep), dtype=torch.float64, device=score.device)
        return bound.expand_as(score) + self.view.tie

    def start(self, view: View) -> Tally:
        """No counts yet: `cell` holds scores by the number of steps that they reach, but not those that reach none."""
        return Tally(lists={"cell": [zeros(len(self.steps) + 1, dtype=torch.int64, device=view.device)]})

    def see(self, state: Tally, tile: Tile) -> None:
        """Take in one tile."""
        bin_, (cell,) = self._bin(tile.scores), state.lists["cell"]
        mixed = self.mixed[bin_]
        if not (tile.fixed or self.view.distances) and int(mixed.sum()) * DENSE > tile.scores.numel():
            return self._again(cell, tile)
        limit = tile.scores.new_full((len(bin_),), -torch.inf)
        found = replace(tile, scores=tile.scores.where(mixed, -torch.inf)).between((limit, None), room=MANY)
        score, reach = found.score.double(), self.reach[self._bin(found.score)]
        least, most = (torch.searchsorted(self.steps, score + sign * reach, right=True) for sign in (-1, 1))
        every = torch.arange(len(score), device=score.device)
        undecided = every if tile.fixed else (least < most).nonzero().flatten()
        row, column = (each[undecided] for each in found.places)
        exact = torch.searchsorted(self.steps, self.view.exact(row, column), right=True)
        least[undecided] = exact.clamp(least[undecided], most[undecided])
        cell.scatter_add_(0, least, found.there.long())
        cell.scatter_add_(0, self.ends[bin_.flatten(), 0], (~mixed).flatten().long())
        return None

    def _again(self, cell: Tensor, tile: Tile) -> None:
        """A tile in float64, which is multiplied sooner than many of its pairs; distances would cancel."""
        part = Part(tile.rows, tile.columns)
        (exact,) = tiles_of(replace(self.view, product="float64"), tuple(tile.scores.shape), part)
        least = torch.searchsorted(self.steps, exact.scores[exact.scores >= self.low], right=True)
        cell += torch.bincount(least, minlength=len(cell))

    def _bin(self, score: Tensor) -> Tensor:
        """Bins of scores, from 1 on; 0 for those that reach no step."""
        return ((score - self.low) * self.inverse).floor_().clamp_(-1, self.bins - 1).long().add_(1)

    def done(self, state: Tally) -> Tensor:
        """Negatives that reach each step."""
        return torch.stack(state.lists["cell"]).sum(dim=0).flip(0).cumsum(0).flip(0)[1:]


class _Bins(fused.Arguments):
    name = "bins"

    def __init__(self, reader: Bins, view: View, chunk: int):
        super().__init__(reader, view, chunk)
        self.struct.set(number=reader.bins, low=reader.low, inverse=reader.inverse)

    def aim(self, state: Tally, part: Part) -> None:
        self.struct.set(bin=self.reader.done(state))


class _Ladder(fused.Arguments):
    name = "ladder"

    def __init__(self, reader: Ladder, view: View, chunk: int):
        super().__init__(reader, view, chunk)
        step = torch.cat([reader.steps, reader.steps.new_full((NEAR,), torch.inf)])
        self.struct.set(step=step, low=reader.low, inverse=reader.inverse, last=reader.bins)
        self.struct.set(ends=reader.ends.int(), reach=reader.reach)

    @classmethod
    def fits(cls, reader: Ladder, view: View) -> bool:
        return len(reader.steps) < 2**31  # places of steps are int32 in C

    def aim(self, state: Tally, part: Part) -> None:
        self.struct.set(cell=state.lists["cell"][0])


Bins.kernel, Ladder.kernel = _Bins, _Ladder
