"""Between which scores the last of the hardest negatives of each query lies: guessed from a sample, then counted."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from cocos import shards, sweep, tiles
from cocos.sweep import View

__all__ = ["Bracket", "Counts", "ascending", "doubt", "guessed", "largest"]

SAMPLE = (1024, 4096)  # candidates that a first guess is made from: fewest, and most
PART = 16  # within these bounds, one candidate in so many is drawn
# Where a quantile is sought that is known to a normal error: of twelve levels these leave the least between the two
# next to it, 0.49 deviations on average.
DEVIATIONS = (-3.76, -2.08, -1.39, -0.91, -0.52, -0.17, 0.17, 0.52, 0.91, 1.39, 2.08, 3.76)
CURVED = 1 / 32  # of the negatives in a bracket: how far they are from equally spread
BLOCK = 2**20  # scores of the sample that are held at once
FURTHER = 4  # roundings of a score by which the outer levels are moved out


def ascending(values: Tensor) -> Tensor:
    """Sorted along the last axis; on a CPU by NumPy, which is many times faster."""
    if values.device.type == "cpu":
        return torch.from_numpy(np.sort(values.numpy(), axis=-1))
    return values.sort(dim=-1).values


def largest(values: Tensor, turn: int) -> Tensor | None:
    """The so-and-so-many-th largest of some numbers, (n,), which are left in another order; None if there is none."""
    if not 0 < turn <= len(values):
        return None
    place = len(values) - turn
    if values.device.type == "cpu":
        values.numpy().partition(place)
        return values[place].clone()
    return values.kthvalue(place + 1).values


def doubt(view: View, score: Tensor, times: int) -> Tensor:
    """So many roundings of scores of the tiles, in float64; those of 0 where a score is not finite."""
    score = torch.where(score.isfinite(), score, 0).double()
    return times * view.slack(score) + 1e-6 * score.abs()


@dataclass(frozen=True, eq=False)
class Bracket:
    """Scores that the last kept negative of each query of one direction lies between, (n,) each.

    Args:
        keep: number of negatives that are kept.
        low: the last of them scores higher.
        high: and not higher than this.
        over: number of negatives above `high`.
        reach: number of negatives above `low`.
    """

    keep: Tensor
    low: Tensor
    high: Tensor
    over: Tensor
    reach: Tensor

    @classmethod
    def of(cls, number: Tensor, fraction: float, dtype: torch.dtype) -> "Bracket":
        """Of a fraction of so many negatives, at least one. Nothing is known, save where all are kept."""
        keep = torch.minimum((fraction * number.double() + 1e-9).floor().clamp(min=1).long(), number)
        every = keep == number
        low = torch.full(number.shape, -torch.inf, dtype=dtype, device=number.device)
        return cls(keep, low, torch.where(every, low, torch.inf), torch.where(every, number, 0), number)

    @property
    def inside(self) -> Tensor:
        """Number of negatives in the bracket; 0 where all are kept."""
        return self.reach - self.over

    def narrowed(self, level: Tensor, count: Tensor) -> "Bracket":
        """What is known when so many negatives were counted above some scores, (n, K) each."""
        few = count < self.keep[:, None]
        return replace(
            self,
            low=torch.maximum(self.low, torch.where(few, -torch.inf, level).amax(dim=1)),
            high=torch.minimum(self.high, torch.where(few, level, torch.inf).amin(dim=1)),
            over=torch.maximum(self.over, torch.where(few, count, 0).amax(dim=1)),
            reach=torch.minimum(self.reach, torch.where(few, self.reach[:, None], count).amin(dim=1)),
        )

    def levels(self, view: View) -> Tensor:
        """Scores about where the last kept one would be if those in the bracket were equally spread, (n, K)."""
        inside = self.inside.clamp(min=1).double()
        part = (self.keep - self.over) / inside
        width = (part * (1 - part) / inside).clamp(min=0).sqrt() + CURVED + 1 / inside
        low, high = (end.double().clamp(-view.most, view.most)[:, None] for end in (self.low, self.high))
        place = (part[:, None] + width[:, None] * part.new_tensor(DEVIATIONS)).clamp(0, 1)
        return self._sought(view, high - place * (high - low))

    def sampled(self, view: View, queries: slice, score: Tensor, part: float) -> Tensor:
        """Scores about where the last kept one of some queries is likely to be, (m, K).

        Args:
            view: the scores.
            queries: their places.
            score: (m, w) ascending scores of some candidates, -inf for what is no negative.
            part: of all candidates that are among them.
        """
        width, known = score.shape[1], (score > -torch.inf).sum(dim=1)
        share = self.keep[queries] / self.reach[queries].clamp(min=1)
        error = (known * share * (1 - share) * (1 - part)).sqrt() + 1
        rank = (share * known)[:, None] + error[:, None] * share.new_tensor(DEVIATIONS)
        place = (width - 0.5 - rank).to(score.dtype)
        below = place.floor().clamp(0, width - 1)
        ends = (score.gather(1, each.long()) for each in (below, (below + 1).clamp(max=width - 1)))
        level = torch.lerp(*ends, (place - below).clamp(0, 1))
        level = torch.where(rank < 0.5, torch.inf, torch.where(rank > known[:, None] - 0.5, -torch.inf, level))
        some = replace(
            self, **{name: getattr(self, name)[queries] for name in ("keep", "low", "high", "over", "reach")}
        )
        return some._sought(view, level)

    def _sought(self, view: View, level: Tensor) -> Tensor:
        """Levels from high to low; nothing is sought for a query whose negatives are all kept."""
        outer = torch.zeros_like(level, dtype=torch.float64)
        outer[:, 0] = doubt(view, level[:, 0], FURTHER)
        outer[:, -1] = -doubt(view, level[:, -1], FURTHER)
        return torch.where(self.inside[:, None] > 0, level + outer, torch.inf).to(self.low.dtype)


class _Sample:
    """The scores of all queries of one direction and some of their candidates, a stretch of queries at a time."""

    def __init__(self, view: View, direction: int, bracket: Bracket):
        side, other = view.sides[direction], view.sides[1 - direction]
        number = min(len(other), max(SAMPLE[0], len(other) // PART), SAMPLE[1])
        drawn = torch.randperm(len(other), generator=torch.Generator().manual_seed(0))[:number].sort().values
        drawn = drawn.to(view.device)
        some = {name: getattr(other, name)[drawn] for name in ("order", "place", "first", "last", "norm")}
        ends = {name: torch.searchsorted(drawn, getattr(side, name)) for name in ("first", "last")}
        sides = (replace(side, **ends, partner=None), replace(other, **some, partner=None))
        self.thin = replace(view, sides=sides if direction == 0 else sides[::-1], together=False)
        self.view, self.direction, self.bracket, self.part = view, direction, bracket, number / len(other)
        self.levels = bracket.low.new_empty(len(side), len(DEVIATIONS))
        block = max(1, BLOCK // number)
        self.shape = (block, number) if direction == 0 else (number, block)

    def tile(self, tile: Tensor, rows: slice, columns: slice) -> None:
        """Take in all sampled scores of some queries."""
        if self.direction == 1:
            tile, rows = tile[:, : columns.stop - columns.start].T.contiguous(), columns
        self.levels[rows] = self.bracket.sampled(self.view, rows, ascending(tile), self.part)

    def fold(self) -> None:
        """Nothing waits."""


def guessed(view: View, direction: int, bracket: Bracket) -> Tensor:
    """Scores about where the last kept negative of each query is likely to be, (n, K), from some of the candidates."""
    sample = _Sample(view, direction, bracket)
    sweep.visit(sample.thin, [sample], tile=sample.shape)
    return sample.levels


class Counts:
    """How many negatives of each query score above each of its levels.

    Args:
        view: the scores.
        levels: of each direction, (n, K).
    """

    def __init__(self, view: View, levels: list[Tensor]):
        self.view, self.levels = view, levels
        self.count = [torch.zeros(level.shape, dtype=torch.int64, device=view.device) for level in levels]
        if view.two:
            beyond = levels[1].new_full((tiles.PAD, levels[1].shape[1]), torch.inf)
            self._columns = torch.cat([levels[1], beyond]).T.contiguous()

    def tile(self, tile: Tensor, rows: slice, columns: slice) -> None:
        """Take in one tile."""
        two, wide = self.view.two, slice(columns.start, columns.start + tile.shape[1])
        row_top, column_top = (tile.new_full((number,), torch.inf) for number in tile.shape)
        row = self.levels[0][rows]
        column = self._columns[:, wide].contiguous() if two else None
        row_count, column_count, _ = tiles.levels(tile, row, row, row_top, column, column, column_top)
        self.count[0][rows] += row_count
        if two:
            self.count[1][columns] += column_count.T[: columns.stop - columns.start]

    def fold(self) -> None:
        """Nothing waits: counts are whole numbers."""

    def merge(self) -> None:
        """Add what every process counted."""
        every = shards.gather(self.count)
        self.count = [sum(each).to(self.view.device) for each in zip(*every, strict=True)]
