"""The kernel in torch: any dtype, any device, and nothing that waits for the device save the lists of places."""

import functools
import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.tiles._build import OFF

__all__ = [
    "Owners",
    "above",
    "both",
    "distances",
    "dots",
    "exponentials",
    "gaps",
    "histogram",
    "levels",
    "sigmoids",
    "sums",
    "tops",
]

ROOM = 2**16  # length of lists whose number is not waited for
PAIRS = 2**19  # numbers of either side that are held at once


@dataclass(eq=False)
class Owners:
    """What is known of the rows, or of the columns, of a score matrix, (n,) each unless it says otherwise.

    Args:
        total: (3, n) float64, sums of 2^z, z 2^z and 4^z so far.
        top: largest score so far.
        others: float64, what else stands in the denominator.
        offset: float64, exponent by which a negative may be below the denominator and still count.
        limit: scores above which a negative may count.
        known: float64, sums of 2^z of parts that are done, which are not in `total`; None where there are none.
    """

    total: Tensor
    top: Tensor
    others: Tensor
    offset: Tensor
    limit: Tensor
    known: Tensor | None = None

    def renew(self, where: slice, scale: float, room: float) -> None:
        """Set the limits of some of them from the sums so far."""
        total = self.total[0, where] + self.others[where]
        if self.known is not None:
            total = total + self.known[where]
        score = (total.log2() + self.offset[where]) / scale
        self.limit[where] = (score - room - 1e-6 * score.abs()).to(self.limit.dtype)


def distances(tile: Tensor) -> None:
    """See `cocos.tiles.distances`."""
    tile.copy_(-(-tile).clamp_(min=0).sqrt_())


def tops(tile: Tensor, columns: bool) -> tuple[Tensor, Tensor | None]:
    """See `cocos.tiles.tops`."""
    return tile.amax(dim=1), tile.amax(dim=0) if columns else None


def _sums(z: Tensor, kept: Tensor, dim: int, *, spread: bool) -> Tensor:
    z = z.clamp(min=-126.0)
    mass = torch.where(kept, z.exp2(), 0)
    first = mass.sum(dim=dim, dtype=torch.float64)
    if not spread:
        return torch.stack([first, torch.zeros_like(first), torch.zeros_like(first)])
    others = (mass * z).sum(dim=dim, dtype=torch.float64), mass.square().sum(dim=dim, dtype=torch.float64)
    return torch.stack([first, *others])


def both(
    tile: Tensor,
    scale: float,
    references: tuple[Tensor, Tensor | None] | None,
    floors: tuple[Tensor, Tensor | None] | None,
    spread: bool,
    columns: bool,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Sums and largest scores of the rows and of the columns of a tile, as one function that a compiler can fuse."""
    z, sides = tile * scale, []
    for dim in (1, 0) if columns else (1,):
        which = 1 - dim
        kept = tile > (-torch.inf if floors is None else floors[which].unsqueeze(dim))
        shifted = z if references is None else z - references[which].unsqueeze(dim)
        sides += [_sums(shifted, kept, dim, spread=spread), tile.amax(dim=dim)]
    return (*sides, None, None)[:4]


@functools.cache
def _fused() -> Callable:
    """`both` in few passes over the tile, on a GPU whose PyTorch has a compiler; if not, function by function."""
    if os.environ.get("COCOS_KERNEL", "").lower() in OFF or importlib.util.find_spec("triton") is None:
        return both
    return torch.compile(both)


def sums(
    tile: Tensor,
    scale: float,
    rows: Tensor,
    columns: Tensor | None,
    references: tuple[Tensor, Tensor | None] | None,
    floors: tuple[Tensor, Tensor | None] | None,
    *,
    spread: bool,
) -> tuple[Tensor, Tensor | None]:
    """See `cocos.tiles.sums`."""
    take = _fused() if tile.is_cuda else both
    row, row_top, column, column_top = take(tile, scale, references, floors, spread, columns is not None)
    rows += row
    if columns is not None:
        columns += column[:, : columns.shape[1]]
    return row_top, column_top


def exponentials(
    tile: Tensor,
    rows: Owners,
    a: int,
    columns: Owners | None,
    c: int,
    scale: float,
    room: float,
    fresh: tuple[bool, bool],
    floors: tuple[Tensor, Tensor | None] | None,
    *,
    spread: bool,
) -> tuple[Tensor, Tensor | None]:
    """See `cocos.tiles.exponentials`."""
    owners = [(rows, slice(a, a + tile.shape[0]))]
    if columns is not None:
        owners.append((columns, slice(c, c + tile.shape[1])))
    totals = [each.total[:, where] for each, where in owners]
    tops = sums(tile, scale, totals[0], totals[1] if columns is not None else None, None, floors, spread=spread)
    for (each, where), top, new in zip(owners, tops, fresh, strict=False):
        torch.maximum(each.top[where], top, out=each.top[where])
        if new:
            each.renew(where, scale, room)
    return tops


def dots(left: Tensor, right: Tensor, of: Tensor, with_: Tensor, *, squares: bool) -> tuple[Tensor, ...]:
    """See `cocos.tiles.dots` and `cocos.tiles.squares`."""
    size = max(1, PAIRS // left.shape[1])
    parts = []
    for a, b in zip(of.split(size), with_.split(size), strict=True):
        one, other = left[a].double(), right[b].double()
        parts.append([(x * y).sum(dim=1) for x, y in ((one, other), (one, one), (other, other))[: 3 if squares else 1]])
    if not parts:
        return (left.new_empty(0, dtype=torch.float64),) * (3 if squares else 1)
    return tuple(torch.cat(each) for each in zip(*parts, strict=True))


def gaps(left: Tensor, right: Tensor, of: Tensor, with_: Tensor) -> Tensor:
    """See `cocos.tiles.gaps`."""
    size = max(1, PAIRS // left.shape[1])
    pairs = zip(of.split(size), with_.split(size), strict=True)
    parts = [(left[a].double() - right[b].double()).square().sum(dim=1) for a, b in pairs]
    return torch.cat(parts) if parts else left.new_empty(0, dtype=torch.float64)


def _places(mask: Tensor, fixed: bool) -> tuple[Tensor, Tensor]:
    """Rows and columns where a mask holds, (found,) each; of fixed length: the first ones, and rows of -1 then."""
    if not fixed:
        return mask.nonzero(as_tuple=True)
    room, width = min(ROOM, mask.numel()), mask.shape[1]
    flat = mask.flatten()
    rank = flat.cumsum(0)
    slot = torch.where(flat & (rank <= room), rank - 1, room)
    found = torch.full((room + 1,), -1, dtype=torch.int64, device=mask.device)
    found.scatter_(0, slot, torch.arange(mask.numel(), device=mask.device))
    found = found[:room]
    return torch.where(found < 0, -1, found.div(width, rounding_mode="floor")), found.clamp(min=0) % width


def above(
    tile: Tensor,
    row_limit: Tensor,
    row_top: Tensor,
    column_limit: Tensor | None,
    column_top: Tensor | None,
    start: tuple[int, int],
    *,
    fixed: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See `cocos.tiles.above`."""
    by_row = tile > row_limit[:, None]
    by_column = torch.zeros_like(by_row) if column_limit is None else tile > column_limit
    row, column = _places(by_row | by_column, fixed)
    sign = by_row[row, column].to(torch.int8) + 2 * by_column[row, column].to(torch.int8)
    score = tile[row, column]
    return row + start[0], column + start[1], score, torch.where(row < 0, 0, sign)


def levels(
    tile: Tensor,
    row_low: Tensor,
    row_high: Tensor,
    row_top: Tensor | None,
    column_low: Tensor | None,
    column_high: Tensor | None,
    column_top: Tensor | None,
    *,
    fixed: bool,
) -> tuple[Tensor, Tensor | None, tuple[Tensor, Tensor, Tensor, Tensor]]:
    """See `cocos.tiles.levels`."""
    found, counts, between = [], [], row_low is not row_high  # nothing is, where both ends are the same
    sides = [(row_low.T[:, :, None], row_high.T[:, :, None], 1)]
    if column_low is not None:
        sides.append((column_low[:, None, :], column_high[:, None, :], 0))
    none = torch.empty(0, dtype=torch.int64, device=tile.device)
    for sign, (low, high, dim) in enumerate(sides):
        count = []
        for level in range(len(low)):
            over = tile > high[level]
            count.append(over.sum(dim=dim))
            row, column = _places((tile > low[level]) & ~over, fixed) if between else (none, none)
            found.append((row, column, torch.full_like(row, level), torch.full_like(row, sign)))
        counts.append(torch.stack(count))
    return counts[0].T, counts[1] if len(counts) == 2 else None, tuple(map(torch.cat, zip(*found, strict=True)))


def _sigmoids(tile: Tensor, scale: float, level: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    x = tile - level
    above = (x * (scale * 0.6931471805599453)).sigmoid()
    slope = above * (-x * (scale * 0.6931471805599453)).sigmoid()
    return above.sum(dim=dim, dtype=torch.float64), slope.sum(dim=dim, dtype=torch.float64), slope.amax(dim=dim)


def sigmoids(
    tile: Tensor, scale: float, reach: float, row_level: Tensor, column_level: Tensor | None
) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor] | None]:
    """See `cocos.tiles.sigmoids`."""
    row = [_sigmoids(tile, scale, level[:, None], 1) for level in row_level.T]
    row = tuple(torch.stack(each, dim=1) for each in zip(*row, strict=True))
    if column_level is None:
        return row, None
    column = [_sigmoids(tile, scale, level[None, :], 0) for level in column_level]
    return row, tuple(torch.stack(each) for each in zip(*column, strict=True))


def histogram(tile: Tensor, low: float, width: float, count: Tensor) -> None:
    """See `cocos.tiles.histogram`."""
    bins = count.shape[1]
    place = ((tile - low) / width).clamp(0, bins - 1).to(torch.int64)
    count.scatter_add_(1, place, (tile > -torch.inf).to(count.dtype))
