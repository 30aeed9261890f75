"""Exact counts above thresholds of the queries: float64 decides where the scores of the tiles leave the answer open.

In: thresholds (levels) for each query. Out: the number of negatives above and tied with each level. A score further
than its rounding bound from a level is decided by the tile; all others are computed in float64.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from cocos.embeddings.similarities import METRICS
from cocos.engine import bounds
from cocos.engine.tiles import Tally, Tile, zeros
from cocos.engine.view import View

# Maximum number of levels per query that are counted in one pass.
MAX_LEVELS = 16
# If more than one pair in this many is undecided, a float64 product of the tile is faster than the pairs.
DENSITY = 8


class Threshold:
    """Count how many negatives of every query score above each of its levels, and how many tie with it.

    `done` returns for each direction `above`, negatives more than `view.tie` above each level, and `ties`, those within
    `view.tie`: (n, K) int64.

    Args:
        view: the scores.
        levels: for each direction, (n, K) float64, ascending; +inf where a query has fewer.
    """

    def __init__(self, view: View, levels: Sequence[Tensor]):
        self.view, most = view, max(level.shape[1] for level in levels)
        padded = [torch.nn.functional.pad(level, (0, most - level.shape[1]), value=torch.inf) for level in levels]
        self.sizes = [level.shape[1] for level in levels]
        self.levels = [level.T.contiguous() for level in padded]  # (K, n)
        ends = [bounds.outward(level, view.bound(level) + view.tie, view.dtype) for level in self.levels]
        self.low, self.high = ([end[k] for end in ends] for k in range(2))

    def start(self, view: View) -> Tally:
        """Return zero counts."""
        return Tally([
            {name: zeros(*level.shape, dtype=torch.int64, device=level.device) for name in ("above", "ties")}
            for level in self.levels
        ])

    def see(self, state: Tally, tile: Tile) -> None:
        """Add one tile, level by level."""
        for k in range(len(self.levels[0])):
            low, high = (
                [end[k, where] for end, where in zip(ends, tile.places, strict=True)] for ends in (self.low, self.high)
            )
            above = [sums["above"][k, where] for sums, where in zip(state.sums, tile.places, strict=True)]
            listed = tile.functions.counted(tile.scores, low, high, above, tile.scores.numel() // DENSITY + 64)
            if listed is None:
                self._decide_all(state, tile, k, low, high)
            elif len(listed[0]):
                self._decide(state, tile, k, listed)

    def _decide(self, state: Tally, tile: Tile, k: int, listed: tuple[Tensor, ...]) -> None:
        """Compare listed pairs with the k-th level of their row, or column, in float64."""
        row, column, _, side = listed
        pair = row.long() + tile.rows.start, column.long() + tile.columns.start
        score = self.view.exact(*pair)
        for direction, (sums, query) in enumerate(zip(state.sums, pair, strict=False)):
            excess = score - self.levels[direction][k, query]
            in_line = (side >> direction & 1) > 0
            sums["above"][k].index_add_(0, query, ((excess > self.view.tie) & in_line).long())
            sums["ties"][k].index_add_(0, query, ((excess.abs() <= self.view.tie) & in_line).long())

    def _decide_all(self, state: Tally, tile: Tile, k: int, low: list[Tensor], high: list[Tensor]) -> None:
        """Compare the scores between both ends of the k-th level in a float64 product of the tile."""
        exact = exact_scores(tile)
        for direction, (sums, where) in enumerate(zip(state.sums, tile.places, strict=True)):
            shape = _shapes(tile)[direction]
            inside = (tile.scores > low[direction].view(shape)) & (tile.scores <= high[direction].view(shape))
            excess = exact - self.levels[direction][k, where].view(shape)
            over, tied = excess > self.view.tie, excess.abs() <= self.view.tie
            sums["above"][k, where] += (over & inside).sum(dim=2 - direction).flatten()
            sums["ties"][k, where] += (tied & inside).sum(dim=2 - direction).flatten()

    def done(self, state: Tally) -> list[tuple[Tensor, Tensor]]:
        """Return the counts of all parts."""
        return [
            (sums["above"][:size].T.contiguous(), sums["ties"][:size].T.contiguous())
            for sums, size in zip(state.sums, self.sizes, strict=True)
        ]


def exact_scores(tile: Tile) -> Tensor:
    """Scores of all pairs of a tile in float64, (blocks, m, n), also of those that are not negatives."""
    view, places = tile.view, (tile.rows, tile.columns)
    rows, columns = (
        side.matrix[side.order[where]].double().unflatten(0, (len(tile.scores), -1))
        for side, where in zip(view.sides, places, strict=True)
    )
    return torch.stack([METRICS[view.metric](*block) for block in zip(rows, columns, strict=True)])


def _shapes(tile: Tile) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes in which values of the rows, and of the columns, broadcast with a tile."""
    blocks, rows, columns = tile.scores.shape
    return (blocks, rows, 1), (blocks, 1, columns)


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
