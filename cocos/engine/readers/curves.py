"""Scores of the negatives as curves: a histogram for every query, and numbers above thresholds of all pairs."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cocos.base.errors import InputError
from cocos.engine import bounds, devices
from cocos.engine.sweep import Passes
from cocos.engine.thresholds import exact_scores
from cocos.engine.tiles import Tally, Tile, zeros
from cocos.engine.view import View

# Maximum number of bins: 4 MiB of counts per query.
MAX_BINS = 2**20
# Smallest width of a bin, in units of score: its inverse stays in the range of float32.
NARROWEST_BIN = 1e-36
# Largest |edge| of the bins, in units of score.
FARTHEST_END = 1e36
# Cells of scores between the thresholds of a precision-recall curve.
CELLS = 2**18
# If more than one score in this many is near a threshold, all scores of a tile are computed in float64.
DENSITY = 8


class Histogram:
    """Count the negatives of every query in equal bins of score; the outer bins include everything beyond them.

    It reads the scores of the tiles, and returns (queries, bins) int64 for each direction, in the order of the batches.

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

    def start(self, view: View) -> Tally:
        """Return empty bins for every query of each direction."""
        self.view = view
        sizes = [len(view.sides[k]) for k in view.directions]
        return Tally([{"bin": zeros(self.bins, n, dtype=torch.int32, device=view.device)} for n in sizes])

    def see(self, state: Tally, tile: Tile) -> None:
        """Add one tile."""
        places = (tile.scores - self.low).mul_(1 / self.width).clamp_(0, self.bins - 1).nan_to_num_(nan=0).long()
        taking = (tile.scores > -torch.inf).int()
        for k, where in enumerate(tile.places):
            place, ones = (each.mT.flatten(0, 1) if k else each.flatten(0, 1) for each in (places, taking))
            state.sums[k]["bin"][:, where].scatter_add_(0, place.T, ones.T)

    def done(self, state: Tally) -> tuple[Tensor, ...]:
        """Return the bins of each direction."""
        return tuple(
            side.unsorted(sums["bin"].T.long()) for side, sums in zip(self.view.sides, state.sums, strict=False)
        )


@dataclass(frozen=True, eq=False)
class PrecisionRecallCurve:
    """Number of negative pairs accepted by a threshold at the score of each positive pair.

    Args:
        score: (P,) float64 scores of the positive pairs, descending.
        negatives: (P,) int64, negative pairs with a score at or above it.
    """

    score: Tensor
    negatives: Tensor


class PrecisionRecall:
    """Count the negative pairs at or above every positive pair, for the first direction, decided in float64.

    Args:
        levels: scores to count at, instead of those of the positive pairs.
    """

    def __init__(self, levels: Tensor | None = None):
        self.levels = levels

    def passes(self, view: View) -> Passes:
        """Yield one pass if there are positive pairs, and return the `PrecisionRecallCurve`."""
        levels = self.levels
        if levels is None:
            levels = torch.cat([view.scored(0, a, b)[2] for a, b in view.chunks(0)])
        steps = levels.to(view.device, torch.float64).sort().values
        reached = (yield _Reached(view, steps - view.tie)) if len(steps) else steps.long()
        return PrecisionRecallCurve(steps.flip(0), reached.flip(0))


class _Reached:
    """Count the negatives of the first direction at or above each of some ascending steps, (S,); returns (S,) int64.

    The range of the steps is cut into equal cells. A score in a cell near no step has a known rank, the number of steps
    that it reaches; all other scores are computed in float64.
    """

    def __init__(self, view: View, steps: Tensor):
        self.view, self.steps = view, steps
        low, high = bounds.outward(steps, view.bound(steps), view.dtype)
        # The last cell is beyond all steps.
        self.low, self.scale = float(low[0]), (CELLS - 2) / max(float(high[-1] - low[0]), NARROWEST_BIN * CELLS)
        first, last = self._cells(low), self._cells(high)
        change = torch.zeros(CELLS + 1, dtype=torch.int64, device=view.device)
        one = torch.ones_like(first)
        near = change.index_add(0, first, one).index_add_(0, last + 1, -one).cumsum(0)[:-1] > 0
        ranks = torch.searchsorted(last, torch.arange(CELLS, device=view.device))
        self.ranks = torch.where(near, -1, ranks)

    def _cells(self, scores: Tensor) -> Tensor:
        return (scores - self.low).mul_(self.scale).clamp_(0, CELLS - 1).long()

    def start(self, view: View) -> Tally:
        """Return zero counts of scores that reach no step, one, two and so on."""
        return Tally(lists={"number": [self.steps.new_zeros(len(self.steps) + 1, dtype=torch.int64)]})

    def see(self, state: Tally, tile: Tile) -> None:
        """Add one tile."""
        scores, (number,) = tile.scores.flatten(), state.lists["number"]
        index = _nonzero(scores >= self.low)
        ranks = self.ranks.index_select(0, self._cells(scores.index_select(0, index)))  # faster than brackets
        near = _nonzero(ranks < 0)
        index = index.index_select(0, near)
        if len(index) > tile.scores.numel() // DENSITY:
            exact = exact_scores(tile).flatten()[index]
        else:
            blocks, rows, columns = tile.scores.shape
            row = index // columns
            column = index % columns + row // rows * columns
            exact = self.view.exact(row + tile.rows.start, column + tile.columns.start)
        ranks.index_copy_(0, near, torch.searchsorted(self.steps, exact, right=True))
        number += ranks.bincount(minlength=len(number))

    def done(self, state: Tally) -> Tensor:
        """Return the number of negatives that reach each step."""
        return torch.stack(state.lists["number"]).sum(dim=0).flip(0).cumsum(0).flip(0)[1:]


def _nonzero(mask: Tensor) -> Tensor:
    """Indices of the true elements, (N,); on a CPU, NumPy finds them four times as fast as torch."""
    if devices.ahead(mask.device):
        return mask.nonzero().flatten()
    return torch.from_numpy(np.flatnonzero(mask.numpy()))
