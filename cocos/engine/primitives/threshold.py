"""Exact counts above thresholds of the queries: float64 decides where the scores of the tiles leave the answer open.

In: thresholds (levels) for each query. Out: `Counts`, the number of negatives above and tied with each level. A score
further than its rounding bound from a level is decided by the tile; all others are recomputed in float64 at once.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from cocos.engine import bounds, fused
from cocos.engine.parts import Entries, Part, Tally, Tile, ones_above, tiles_of, zeros
from cocos.engine.view import View

# Maximum number of levels per query above which one pass counts.
MAX_LEVELS = 16
# If more than one pair in this many is undecided, PyTorch recomputes the tile as a float64 product.
THRESHOLD_DENSITY = 256


class Counts(Tally):
    """Counts of each direction, (n, K) int64."""

    @property
    def above(self) -> list[Tensor]:
        """Number of negatives above each level, for each direction."""
        return [side["above"] for side in (self.rows, self.columns) if side]

    @property
    def ties(self) -> list[Tensor]:
        """Number of negatives tied with each level, for each direction."""
        return [side["ties"] for side in (self.rows, self.columns) if side]


class Threshold:
    """Count how many negatives of every query score above each of its levels, and how many tie with it.

    `done` returns `Counts`: `above`, negatives more than `view.tie` above each level, and `ties`, those within
    `view.tie`.

    Args:
        view: the scores.
        levels: for each direction, (n, K) float64, ascending; +inf where a query has fewer.
    """

    kernel: ClassVar[type[fused.Arguments]]
    stacks: ClassVar[bool] = True

    def __init__(self, view: View, levels: Sequence[Tensor]):
        self.view, self.levels = view, [level.contiguous() for level in levels]
        self.ends = [tuple(_lines(end) for end in self._between(each)) for each in self.levels]

    def _between(self, level: Tensor) -> tuple[Tensor, Tensor]:
        """Ends (low, high) of the undecided scores: up to `low` certainly not above the level, from `high` on above."""
        bound = self.view.bound(level, deep=fused.deep(self.view, self))
        return bounds.outward(level, bound + self.view.tie, self.view.dtype)

    def start(self, view: View) -> Counts:
        """Return zero counts."""
        sides = [
            {name: zeros(*level.shape, dtype=torch.int64, device=level.device) for name in ("above", "ties")}
            for level in self.levels
        ]
        return Counts(sides[0], sides[1] if len(sides) > 1 else {})

    def see(self, state: Counts, tile: Tile) -> None:
        """Add one tile."""
        where = (tile.rows, tile.columns)[: len(self.ends)]
        for k in range(max(len(low) for low, _ in self.ends)):
            ends = [
                (low[k, places], high[k, places]) if k < len(low) else None
                for (low, high), places in zip(self.ends, where, strict=True)
            ]
            found = tile.between(ends[0], ends[1] if len(ends) > 1 else None)
            if self._product_is_faster(tile, found):
                self._recompute(state, Part(tile.rows, tile.columns), k)
                continue
            for direction, each in enumerate(ends):
                if each is not None:
                    state.above[direction][where[direction], k] += number_above(tile.lines(direction), each[1])
            if len(found.row):
                self._decide(state, k, found)

    def _product_is_faster(self, tile: Tile, found: Entries) -> bool:
        """Whether a float64 product of the tile is faster than its undecided pairs; not for distances, which cancel."""
        return not self.view.distances and len(found.row) * THRESHOLD_DENSITY > tile.scores.numel()

    def _recompute(self, state: Counts, part: Part, k: int) -> None:
        """Recompute a tile in float64 and count above its k-th levels."""
        shape = (part.rows.stop - part.rows.start, part.columns.stop - part.columns.start)
        (tile,) = tiles_of(replace(self.view, product="float64"), shape, part, stacked=True)
        for direction, where in enumerate((part.rows, part.columns)[: len(self.levels)]):
            if k < self.levels[direction].shape[1]:
                lines = tile.lines(direction)
                level = self.levels[direction][where, k].view(len(lines), -1, 1)
                over = (lines > level + self.view.tie).sum(dim=2).flatten()
                state.above[direction][where, k] += over
                state.ties[direction][where, k] += (lines >= level - self.view.tie).sum(dim=2).flatten() - over

    def _decide(self, state: Counts, k: int, found: Entries) -> None:
        """Compare undecided pairs with the k-th level of their row, or column, in float64."""
        true = self.view.exact(*found.places)
        for direction, level in enumerate(self.levels):
            query = found.places[direction]
            excess = true - level[query, min(k, level.shape[1] - 1)]
            mine = (found.side & (1 + direction)) > 0
            for counted, holds in ((state.above, excess > self.view.tie), (state.ties, excess.abs() <= self.view.tie)):
                counted[direction][:, min(k, level.shape[1] - 1)].index_add_(0, query, (holds & mine).long())

    def done(self, state: Counts) -> Counts:
        """Return the counts of all parts."""
        return state


def number_above(lines: Tensor, end: Tensor) -> Tensor:
    """Number of others above an end of each line of (blocks, queries, others), (blocks * queries,) int64.

    Ones of the dtype of the scores are added up, exactly up to 2^24.
    """
    return ones_above(lines, end.view(len(lines), -1, 1)).sum(dim=2).flatten().long()


def _lines(end: Tensor) -> Tensor:
    """Reorder the ends of levels, (n, K), to (K, n + PAD)."""
    unused = end.new_full((end.shape[1], fused.PAD), torch.inf)
    return torch.cat([end.T, unused], dim=1).contiguous()


def few(view: View) -> bool:
    """Whether no query has more positives than a pass has levels."""
    return all(int(view.counted(direction).max()) <= MAX_LEVELS for direction in view.directions)


def about_positives(view: View, margin: float) -> tuple[list[Tensor], list[tuple[Tensor, Tensor, Tensor, Tensor]]]:
    """Levels for `Threshold` at the scores of the positives, less a margin.

    Returns:
        For each direction, (n, K) float64, ascending and +inf where a query has fewer positives; and for each direction
        the positive pairs, (P,) each: query, other, rank of the level among those of the query, score.
    """
    levels, pairs = [], []
    for direction in view.directions:
        parts = [(*view.scored(direction, a, b), a) for a, b in view.chunks(direction)]
        query = torch.cat([query + a for query, _, _, a in parts])
        other, score = (torch.cat(each) for each in ([part[1] for part in parts], [part[2] for part in parts]))
        number = view.counted(direction)
        most = max(1, int(number.max()))
        place = torch.zeros_like(query)
        if most > 1:
            order = torch.argsort(score, stable=True)
            order = order[query[order].argsort(stable=True)]
            place[order] = torch.arange(len(order), device=view.device) - (number.cumsum(0) - number)[query[order]]
        level = torch.full((len(number), most), torch.inf, dtype=torch.float64, device=view.device)
        level[query, place] = score - margin
        levels.append(level)
        pairs.append((query, other, place, score))
    return levels, pairs


class _KernelThreshold(fused.Arguments):
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


Threshold.kernel = _KernelThreshold
