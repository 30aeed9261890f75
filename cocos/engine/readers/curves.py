"""Scores of the negatives as curves: a histogram for every query, and numbers above thresholds of all pairs."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cocos.base.errors import InputError
from cocos.engine import bounds
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
# If more than one score in this many may reach a threshold, all scores of a tile are computed in float64.
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
    """Count the negatives of the first direction at or above each of some ascending steps, (S,); returns (S,) int64."""

    def __init__(self, view: View, steps: Tensor):
        self.view, self.steps = view, steps
        self.low = float(bounds.outward(steps[:1], self.view.bound(steps[:1]), view.dtype)[0])

    def start(self, view: View) -> Tally:
        """Return zero counts."""
        return Tally(lists={"reached": [torch.zeros_like(self.steps, dtype=torch.int64)]})

    def see(self, state: Tally, tile: Tile) -> None:
        """Add one tile: the scores that may reach the lowest step are computed in float64, and sorted."""
        low, (reached,) = tile.scores.new_full((tile.rows.stop - tile.rows.start,), self.low), state.lists["reached"]
        number = torch.zeros_like(low, dtype=torch.int64)
        listed = tile.functions.counted(
            tile.scores, [low], [torch.full_like(low, torch.inf)], [number], tile.scores.numel() // DENSITY
        )
        if listed is None:
            exact = exact_scores(tile).masked_fill_(tile.scores == -torch.inf, -torch.inf).flatten()
        else:
            row, column, _, _ = listed
            exact = self.view.exact(row + tile.rows.start, column + tile.columns.start)
        exact = torch.from_numpy(np.sort(exact.cpu().numpy())).to(reached.device)  # faster than torch.sort
        reached += len(exact) - torch.searchsorted(exact, self.steps)

    def done(self, state: Tally) -> Tensor:
        """Return the number of negatives that reach each step."""
        return torch.stack(state.lists["reached"]).sum(dim=0)
