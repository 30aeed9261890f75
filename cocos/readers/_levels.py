"""How many negatives of every query score above each of its levels, exactly: float64 decides what float32 cannot."""

import torch
from torch import Tensor

from cocos import scores, shards, sweep, tiles
from cocos.readers._later import RARELY
from cocos.sweep import View

__all__ = ["DENSE", "MOST", "Levels", "OnLevels", "ranked", "summed"]

MOST = 16  # levels of a query that a pass can hold
PENDING = 2**16  # undecided pairs that wait for their float64 scores
DENSE = 256  # where one pair in so many is undecided, the tile is multiplied again in float64


class Levels:
    """Counts above levels of the queries, in every direction.

    Args:
        view: the scores.
        margin: a level lies so much below the score of a positive.

    Attributes:
        levels: (n, K) float64; +inf where a query has fewer.
        positive: of each direction, the positive pairs: query, other, place among the levels, score, (P,) each.
    """

    def __init__(self, view: View, margin: float):
        self.view, self.tie = view, sweep.TIES * max(1.0, view.most)
        self.levels, self.positive, self.ends = [], [], []
        for direction in view.directions:
            parts = [self._of(direction, a, b) for a, b in view.chunks(direction)]
            query, other, score = (torch.cat(each) for each in zip(*parts, strict=True))
            number = view.counted(direction)
            most = max(1, int(number.max()))
            place = torch.zeros_like(query)
            if most > 1:
                order = torch.argsort(score, stable=True)
                order = order[query[order].argsort(stable=True)]
                place[order] = torch.arange(len(order), device=view.device) - (number.cumsum(0) - number)[query[order]]
            level = torch.full((len(number), most), torch.inf, dtype=torch.float64, device=view.device)
            level[query, place] = score - margin
            self.levels.append(level)
            self.positive.append((query, other, place, score))
            self.ends.append(self._between(level, direction))
        self._above = [torch.zeros_like(level, dtype=torch.int64) for level in self.levels]
        self._ties = [torch.zeros_like(each) for each in self._above]
        self._pending: list[tuple[Tensor, ...]] = []
        self._waiting, self._seen = 0, []

    def _of(self, direction: int, start: int, stop: int) -> tuple[Tensor, Tensor, Tensor]:
        query, other, score = self.view.scored(direction, start, stop)
        return query + start, other, score

    def _between(self, level: Tensor, direction: int) -> tuple[Tensor, Tensor]:
        """Scores of the tiles that are certainly not above the levels, and those that certainly are."""
        there = level < torch.inf
        width = torch.where(there, self.view.slack(level) + 2e-7 * level.abs() + self.tie, 0)
        ends = [(level - width).to(self.view.dtype), (level + width).to(self.view.dtype)]
        if direction == 1:
            unused = torch.full((tiles.PAD, level.shape[1]), torch.inf, dtype=self.view.dtype, device=level.device)
            ends = [torch.cat([end, unused]).T.contiguous() for end in ends]
        return tuple(ends)

    def tile(self, tile: Tensor, rows: slice, columns: slice) -> None:
        """Take in one tile."""
        two, wide = self.view.two, slice(columns.start, columns.start + tile.shape[1])
        row = [end[rows] for end in self.ends[0]]
        column = [end[:, wide].contiguous() for end in self.ends[1]] if two else [None, None]
        seen = tiles.levels(tile, *row, None, *column, None, fixed=True)
        self._seen.append((rows, columns, tile.numel(), *seen))
        if len(self._seen) >= (RARELY if tiles.ahead(tile.device) else 1):
            self._take()

    def watch(self, block: int, width: int) -> list["_Watch"]:
        """What sees the scores inside the kernel."""
        return [_Watch(self, block, width)]

    def _take(self) -> None:
        """Take in the counts of the last tiles; those with many undecided pairs, or short lists, again in float64."""
        seen, self._seen = self._seen, []
        numbers, ahead = [len(each[-1][0]) for each in seen], tiles.ahead(self.view.device)
        if ahead:
            lists = sum(level.shape[1] for level in self.levels)
            full = [each[-1][0].reshape(lists, -1)[:, -1].amax() >= 0 for each in seen]
            there = [(each[-1][0] >= 0).sum() + each[2] * short for each, short in zip(seen, full, strict=True)]
            numbers = torch.stack(there).tolist() if there else []
        for number, (rows, columns, size, row_count, column_count, found) in zip(numbers, seen, strict=True):
            if number * DENSE > size:
                self._again(rows, columns)
                continue
            self._above[0][rows] += row_count
            if self.view.two:
                self._above[1][columns] += column_count.T[: columns.stop - columns.start]
            if number:
                row, other, level, side = found
                pending = (row + rows.start, other + columns.start, level, side)
                self._undecided(tuple(each[row >= 0] for each in pending) if ahead else pending)

    def _undecided(self, pending: tuple[Tensor, ...]) -> None:
        """Rows, columns, levels and sides that float64 decides."""
        self._pending.append(pending)
        self._waiting += len(pending[0])
        if self._waiting > PENDING:
            self._decide()

    def _again(self, rows: slice, columns: slice) -> None:
        """One tile in float64."""
        tile = self.view.exact_tile(rows, columns)
        for direction, (where, dim) in enumerate(((rows, 1), (columns, 0))[: len(self.levels)]):
            for k, level in enumerate(self.levels[direction][where].T):
                end = level[:, None] if direction == 0 else level[None, :]
                over = (tile > end + self.tie).sum(dim=dim)
                self._above[direction][where, k] += over
                self._ties[direction][where, k] += (tile >= end - self.tie).sum(dim=dim) - over

    def _decide(self) -> None:
        if not self._pending:
            return
        row, other, level, side = (torch.cat(each).long() for each in zip(*self._pending, strict=True))
        score = self.view.exact(row, other)
        for direction, query in enumerate((row, other)[: len(self.levels)]):
            mine = (side == direction).nonzero().flatten()
            place = (query[mine], level[mine])
            excess = score[mine] - self.levels[direction][place]
            for counted, holds in ((self._above, excess > self.tie), (self._ties, excess.abs() <= self.tie)):
                counted[direction].index_put_(place, holds.long(), accumulate=True)
        self._pending, self._waiting = [], 0

    def fold(self) -> None:
        """A part of the rows is done."""
        self._take()

    @property
    def above(self) -> list[Tensor]:
        """Of each direction, (n, K) int64: negatives above each level, of which the first is the lowest."""
        self._decide()
        return self._above

    @property
    def ties(self) -> list[Tensor]:
        """Of each direction, (n, K) int64: negatives at the level, as near as float64 can tell."""
        self._decide()
        return self._ties

    def merge(self) -> None:
        """Put together what all processes know."""
        for counts in (self.above, self.ties):
            counts[:] = summed(counts)

    @staticmethod
    def fits(view: View) -> bool:
        """No query has more positives than a pass can hold."""
        return all(int(view.counted(direction).max()) <= MOST for direction in view.directions)


class _Watch:
    """See `cocos.tiles.fused.Watch`."""

    kind = tiles.fused.Above.kind

    def __init__(self, state: Levels, block: int, width: int):
        self.state, self.width = state, width
        self._seen = tiles.fused.Above(block, (state.ends[0], state.ends[1] if state.view.two else None), DENSE)
        self.address, self.drain = self._seen.address, self._seen.drain

    def aim(self, rows: slice, columns: slice) -> None:
        self.rows, self.columns = rows, columns
        self._seen.aim(rows, columns, self.state._above[0])

    def settle(self) -> None:
        found, again = self._seen.settle()
        for each in found:
            self.state._undecided(each)
        for start in again:
            self.state._again(self.rows, slice(start, min(start + self.width, self.columns.stop)))

    def close(self) -> None:
        count, found = self._seen.close()
        if self.state.view.two:
            self.state._above[1][self.columns] += count[:, : self.columns.stop - self.columns.start].T
        for each in found:
            self.state._undecided(each)


class OnLevels:
    """A reader that counts above levels; it has no state where a query has more positives than a pass can hold."""

    margin = 0.0  # by which a level lies below a positive

    def begin(self, view: View) -> None:
        """Look at the positives, and make the state."""
        self.view = view
        self.state = Levels(view, self.margin) if Levels.fits(view) else None

    def tile(self, tile: Tensor, rows: slice, columns: slice) -> None:
        """Take in one tile."""
        if self.state:
            self.state.tile(tile, rows, columns)

    def watch(self, block: int, width: int) -> list[_Watch] | None:
        """What sees the scores inside the kernel; None where nothing is to be seen."""
        return self.state.watch(block, width) if self.state else None

    def fold(self) -> None:
        """A part of the rows is done."""
        if self.state:
            self.state.fold()

    def merge(self) -> None:
        """Put together what all processes know."""
        if self.state:
            self.state.merge()


def summed(counts: list[Tensor]) -> list[Tensor]:
    """The sums of whole numbers over all processes."""
    every = shards.gather([each.cpu() for each in counts])
    return [sum(parts).to(each.device) for each, *parts in zip(counts, *every, strict=True)]


def ranked(pairs: scores.Pairs, level: Tensor, tie: float) -> tuple[Tensor, Tensor]:
    """Negatives above each level and at it, (Q, K) int64 each, from scores that are held."""
    negative = pairs.scores.masked_fill(~pairs.negative, -torch.inf).sort(dim=1).values
    over = negative.shape[1] - torch.searchsorted(negative, (level + tie).contiguous(), right=True)
    reached = negative.shape[1] - torch.searchsorted(negative, (level - tie).contiguous())
    return over, reached - over
