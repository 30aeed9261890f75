"""Histograms of the negatives' scores: equal bins for every query, or one ladder of thresholds for all pairs.

`Bins` counts the float32 scores of the tiles as they are. `Ladder` is exact: a score whose rounding bound reaches a
threshold is computed in float64.
"""

from dataclasses import replace

import torch
from torch import Tensor

from cocos.engine import bounds
from cocos.engine.parts import Part, Tally, Tile, tiles_of, zeros
from cocos.engine.view import View

# If more than one score in this many lies in a mixed bin, PyTorch recomputes the tile as a float64 product.
LADDER_DENSITY = 64
# Smallest and largest number of grid bins of a ladder; the table of the largest grid fits in the second-level cache.
GRID_BINS = (2**6, 2**14)
# Scores of a view per grid bin: small batches get small grids.
SCORES_PER_BIN = 2**6


class Bins:
    """Count the negatives of every query in equal bins of score; the outer bins include everything beyond them.

    Args:
        view: the scores.
        bins: number of bins.
        low: lower edge of the first bin.
        width: width of a bin, in units of score.

    `done` returns (n, bins) int32 for each direction, in visiting order.
    """

    def __init__(self, view: View, bins: int, low: float, width: float):
        self.view, self.bins, self.low, self.inverse = view, bins, low, 1 / width

    def start(self, view: View) -> Tally:
        """Return empty bins for every query of each direction."""
        sizes = [len(view.sides[k]) for k in view.directions]
        bins = [{"bin": zeros(n, self.bins, dtype=torch.int32, device=view.device)} for n in sizes]
        return Tally(bins[0], bins[1] if view.two else {})

    def see(self, state: Tally, tile: Tile) -> None:
        """Add one tile."""
        there = (tile.scores > -torch.inf).int()
        place = (tile.scores - self.low).mul_(self.inverse).clamp_(0, self.bins - 1).nan_to_num_(nan=0).long()
        state.rows["bin"][tile.rows].scatter_add_(1, place, there)
        if tile.view.two:
            state.columns["bin"][tile.columns].scatter_add_(1, place.T, there.T)

    def done(self, state: Tally) -> list[Tensor]:
        """Return the bins of each direction."""
        return [each["bin"] for each in (state.rows, state.columns) if each]


class Ladder:
    """Count the negatives of the first direction at or above each step of one ladder for all queries, exactly.

    A grid of equal bins covers the steps. If no step is within the rounding bound of a bin, its scores need only be
    counted. A score in any other, mixed, bin is compared with the nearby steps, and recomputed in float64 if its bound
    reaches one of them.

    Args:
        view: the scores.
        steps: (S,) float64 thresholds, ascending. A score at most `view.tie` below a step reaches it.

    `done` returns (S,) int64.
    """

    def __init__(self, view: View, steps: Tensor):
        self.view, self.steps = view, (steps - view.tie).contiguous()
        ends = self.steps[[0, -1]] if len(steps) else self.steps.new_zeros(2)
        low, high = bounds.outward(ends, self._reach(ends), view.dtype)
        scores = len(view.sides[0]) * len(view.sides[1])
        self.bins = min(max(GRID_BINS[0], 1 << (scores // SCORES_PER_BIN).bit_length()), GRID_BINS[1])
        self.low = float(low[0])
        self.inverse = float((self.bins / (high[1].double() - low[0].double())).to(view.dtype))
        place = torch.arange(self.bins + 1, dtype=torch.float64, device=view.device)
        off = bounds.bin_place(self.bins)
        least, most = self.low + (place[:-1] - off) / self.inverse, self.low + (place[1:] + off) / self.inverse
        self.reach = torch.maximum(self._reach(least), self._reach(most))
        if view.metric == "euclidean":  # the bound is largest at its own root, which may lie inside a bin
            root = torch.full_like(least, -float(view.bound(0.0))).clamp(least, most)
            self.reach = torch.maximum(self.reach, self._reach(root))
        # Bin 0 collects the scores that reach no step; the last bin is open above.
        first = torch.searchsorted(self.steps, least - self.reach, right=True)
        last = torch.searchsorted(self.steps, most + self.reach, right=True)
        last[-1] = len(steps)
        self.ends = torch.nn.functional.pad(torch.stack([first, last], dim=1), (0, 0, 1, 0))
        self.reach = torch.nn.functional.pad(self.reach, (1, 0))
        self.mixed = self.ends[:, 0] < self.ends[:, 1]

    def _reach(self, score: Tensor) -> Tensor:
        """Largest distance to a step at which a score of the tiles may lie on either side of it."""
        bound = torch.as_tensor(self.view.bound(score), dtype=torch.float64, device=score.device)
        return bound.expand_as(score) + self.view.tie

    def start(self, view: View) -> Tally:
        """Return zero counts; `cell` counts scores by the number of steps that they reach, if any."""
        return Tally(lists={"cell": [zeros(len(self.steps) + 1, dtype=torch.int64, device=view.device)]})

    def see(self, state: Tally, tile: Tile) -> None:
        """Add one tile."""
        bin_, (cell,) = self._bin(tile.scores), state.lists["cell"]
        mixed = self.mixed[bin_]
        if not self.view.distances and int(mixed.sum()) * LADDER_DENSITY > tile.scores.numel():
            return self._recompute(cell, tile)
        limit = tile.scores.new_full((len(bin_),), -torch.inf)
        found = replace(tile, scores=tile.scores.where(mixed, -torch.inf)).between((limit, None))
        score, reach = found.score.double(), self.reach[self._bin(found.score)]
        least, most = (torch.searchsorted(self.steps, score + sign * reach, right=True) for sign in (-1, 1))
        undecided = (least < most).nonzero().flatten()
        row, column = (each[undecided] for each in found.places)
        exact = torch.searchsorted(self.steps, self.view.exact(row, column), right=True)
        least[undecided] = exact.clamp(least[undecided], most[undecided])
        cell.scatter_add_(0, least, torch.ones_like(least))
        cell.scatter_add_(0, self.ends[bin_.flatten(), 0], (~mixed).flatten().long())
        return None

    def _recompute(self, cell: Tensor, tile: Tile) -> None:
        """Recompute a tile as a float64 product, faster than many single pairs; not for distances, which cancel."""
        part = Part(tile.rows, tile.columns)
        rows, columns = tile.scores.shape
        (exact,) = tiles_of(replace(self.view, product="float64"), (rows, columns), part)
        least = torch.searchsorted(self.steps, exact.scores[exact.scores >= self.low], right=True)
        cell += torch.bincount(least, minlength=len(cell))

    def _bin(self, score: Tensor) -> Tensor:
        """Bins of scores, from 1; 0 for scores that reach no step."""
        return ((score - self.low) * self.inverse).floor_().clamp_(-1, self.bins - 1).long().add_(1)

    def done(self, state: Tally) -> Tensor:
        """Return the number of negatives that reach each step."""
        return torch.stack(state.lists["cell"]).sum(dim=0).flip(0).cumsum(0).flip(0)[1:]
