"""Counts above thresholds of the queries, exactly: float64 decides what float32 cannot."""

from collections.abc import Sequence

import torch
from torch import Tensor

from cocos.engine import bounds, fused
from cocos.engine.compact import Found
from cocos.engine.sweep import Part, Tally, Tile, zeros
from cocos.engine.view import View

__all__ = ["MOST", "Threshold"]

MOST = 16  # levels of a query that a pass counts above


class Threshold:
    """How many negatives of every query score above each of its levels, and how many score the same.

    Args:
        view: the scores.
        levels: of each direction, (n, K) float64 in ascending order; +inf where a query has fewer.

    `done` gives a state with (n, K) int64 of each direction: `above`, negatives more than `view.tie` above each level,
    and `ties`, those no further than that from it.
    """

    def __init__(self, view: View, levels: Sequence[Tensor]):
        self.view, self.levels = view, [level.contiguous() for level in levels]
        self.ends = [self._between(level) for level in self.levels]

    def _between(self, level: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of the tiles that are certainly not above the levels, and that certainly are, (K, n + PAD) each."""
        ends = bounds.outward(level, self.view.bound(level) + self.view.tie, self.view.dtype)
        unused = ends[0].new_full((level.shape[1], fused.PAD), torch.inf)
        low, high = (torch.cat([end.T, unused], dim=1) for end in ends)
        return low.contiguous(), high.contiguous()

    def start(self, view: View) -> "Counts":
        """No counts yet."""
        return Counts.of(self.levels)

    def see(self, state: "Counts", tile: Tile) -> None:
        """Take in one tile."""
        for direction, (low, high) in enumerate(self.ends):
            where, dim = (tile.rows, tile.columns)[direction], 1 - direction
            for k in range(len(low)):
                ends = (low[k, where], high[k, where])
                state.above[direction][where, k] += (tile.scores > ends[1].unsqueeze(dim)).sum(dim=dim)
                self._decide(state, direction, k, tile.between(*((ends,) if direction == 0 else (None, ends))))

    def _decide(self, state: "Counts", direction: int, k: int, found: Found) -> None:
        if not len(found.row):
            return
        query, excess = found.places[direction], self.view.exact(*found.places)
        excess -= self.levels[direction][query, k]
        for counted, holds in ((state.above, excess > self.view.tie), (state.ties, excess.abs() <= self.view.tie)):
            counted[direction][:, k].index_add_(0, query, (holds & found.there).long())

    def done(self, state: "Counts") -> "Counts":
        """The counts of all parts."""
        return state


class Counts(Tally):
    """Counts of each direction, (n, K) int64: `above` and `ties`."""

    @classmethod
    def of(cls, levels: list[Tensor]) -> "Counts":
        """Zeros for these levels."""
        sides = [
            {name: zeros(*level.shape, dtype=torch.int64, device=level.device) for name in ("above", "ties")}
            for level in levels
        ]
        return cls(*sides)

    @property
    def above(self) -> list[Tensor]:
        """Negatives above each level."""
        return [side["above"] for side in (self.rows, self.columns) if side]

    @property
    def ties(self) -> list[Tensor]:
        """Negatives at each level."""
        return [side["ties"] for side in (self.rows, self.columns) if side]


class _Kernel(fused.Arguments):
    name = "threshold"

    def __init__(self, reader: Threshold, view: View, chunk: int):
        super().__init__(reader, view, chunk)
        levels = [level.shape[1] for level in reader.levels]
        columns = levels[1] if len(levels) > 1 else 0
        self.struct.set(
            low=[low for low, _ in reader.ends],
            high=[high for _, high in reader.ends],
            level=reader.levels,
            levels=levels,
            step=[low.shape[1] for low, _ in reader.ends],
            count=torch.empty(columns, chunk + fused.PAD, dtype=torch.int32),
            line=chunk + fused.PAD,
        )

    def aim(self, state: Counts, part: Part) -> None:
        self.struct.set(above=state.above, ties=state.ties)


Threshold.kernel = _Kernel
