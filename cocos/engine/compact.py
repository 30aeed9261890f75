"""Lists of the few scores of a tile that lie above a limit, found by block maxima and without waiting for a device.

A line of a tile is cut into blocks of 32 scores. The largest score of each block says which blocks to open, so that
the tile is read once and all else is as long as the answer. On a host the lists are as long as what they hold. A device
that runs ahead of the host fills lists of a fixed length; `short` says in the end whether one was too short, and the
same tiles are then seen again with `patient=True`.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cocos.engine import devices

__all__ = ["BLOCK", "FEW", "ROOM", "Found", "above", "between", "first", "marked"]

# Scores that share a maximum: a cache line of a GPU, 128 bytes (CUDA C++ Best Practices Guide, section 10.2.1).
BLOCK = 32
# Entries of a list of fixed length: 32 scores above the limit of each row of a tile of 2048 x 4096 ...
ROOM = 2**16
# ... and scores between two ends, which are a few roundings of a score apart.
FEW = 2**10


@dataclass(frozen=True, eq=False)
class Found:
    """Entries of a tile, (found,) each; a pair that both its row and its column list is there twice.

    Args:
        row: int64, counted from the first row of the tile; -1 where the list is not full.
        column: int64, likewise.
        score: as in the tile; -inf where the list is not full.
        side: int64, 0 where its row lists it, 1 where its column does; 0 where the list is not full.
        short: () bool: there were more than the list has room for.
    """

    row: Tensor
    column: Tensor
    score: Tensor
    side: Tensor
    short: Tensor

    @property
    def there(self) -> Tensor:
        """Whether an entry is one, (found,) bool."""
        return self.row >= 0

    @property
    def places(self) -> tuple[Tensor, Tensor]:
        """Rows and columns, (found,) each, and 0 where there is no entry: fit to look up."""
        return self.row.clamp(min=0), self.column.clamp(min=0)

    def moved(self, row: int, column: int) -> "Found":
        """The same entries, counted from the first row and column of the whole matrix.

        Args:
            row: first row of the tile.
            column: first column of the tile.
        """
        there = self.there
        return replace(self, row=(self.row + row).where(there, -1), column=(self.column + column).where(there, -1))


def first(flag: Tensor, room: int | None) -> tuple[Tensor, Tensor]:
    """Places of a vector of flags that are set, (found,), and whether they are more than fit, () bool.

    Args:
        flag: (n,) bool.
        room: length of the list, which holds -1 beyond the last place; None: as long as it must be.
    """
    if room is None:
        return flag.nonzero().flatten(), torch.zeros((), dtype=torch.bool, device=flag.device)
    rank = flag.cumsum(0)
    slot = torch.where(flag & (rank <= room), rank - 1, room)
    places = torch.full((room + 1,), -1, dtype=torch.int64, device=flag.device)
    places.scatter_(0, slot, torch.arange(len(flag), device=flag.device))
    return places[:room], rank[-1] > room


def _blocks(tile: Tensor, dim: int) -> Tensor:
    """Largest value of each block along a dimension, (lines, blocks)."""
    n = tile.shape[dim]
    edge = n - n % BLOCK
    parts = [tile.narrow(dim, 0, edge).unflatten(dim, (-1, BLOCK)).amax(dim=dim + 1)] if edge else []
    parts += [tile.narrow(dim, edge, n - edge).amax(dim=dim, keepdim=True)] if edge < n else []
    tops = torch.cat(parts, dim=dim)
    return tops if dim == 1 else tops.T


def _opened(
    tile: Tensor, dim: int, flag: Tensor, limit: Tensor, room: int | None
) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Rows and columns of what is above the limit of its line in flagged blocks; whether they are more than fit."""
    opened, short = first(flag.flatten(), room)
    line = opened.clamp(min=0).div(flag.shape[1], rounding_mode="floor")
    place = (opened.clamp(min=0) % flag.shape[1] * BLOCK)[:, None] + torch.arange(BLOCK, device=tile.device)
    at = (line[:, None], place.clamp(max=tile.shape[dim] - 1))
    inside = tile[at if dim == 1 else at[::-1]] > limit[line, None]
    inside &= (place < tile.shape[dim]) & (opened >= 0)[:, None]
    found, more = first(inside.flatten(), room)
    of = found.clamp(min=0)
    pair = line[of.div(BLOCK, rounding_mode="floor")].where(found >= 0, -1), place.flatten()[of].where(found >= 0, -1)
    return pair if dim == 1 else pair[::-1], short | more


def _listed(tile: Tensor, parts: list[tuple[Tensor, Tensor, Tensor, int, int]], patient: bool, room: int) -> Found:
    """Lists of both sides: of (values, flags of blocks, limits of lines, dimension of a line, side)."""
    fixed, lists = room if devices.ahead(tile.device) and not patient else None, []
    for values, flag, limit, dim, side in parts:
        (row, column), short = _opened(values, dim, flag, limit, fixed)
        score = tile[row.clamp(min=0), column.clamp(min=0)].where(row >= 0, -torch.inf)
        lists.append((row, column, score, torch.where(row >= 0, side, 0), short[None]))
    *found, short = (torch.cat(each) for each in zip(*lists, strict=True))
    return Found(*found, short.any())


def above(
    tile: Tensor,
    row_limit: Tensor | None,
    column_limit: Tensor | None = None,
    *,
    patient: bool = False,
    room: int = ROOM,
) -> Found:
    """List the scores of a tile that are above the limit of their row, and those above the limit of their column.

    Args:
        tile: (m, n) scores, at least one.
        row_limit: (m,) in the dtype of the tile; None: rows have none.
        column_limit: (n,) likewise.
        patient: wait for the length of every list.
        room: entries of each of the two lists where they are of fixed length.
    """
    parts = []
    for side, limit in enumerate((row_limit, column_limit)):
        if limit is not None:
            parts.append((tile, _blocks(tile, 1 - side) > limit[:, None], limit, 1 - side, side))
    return _listed(tile, parts, patient, room)


def between(
    tile: Tensor,
    row_ends: tuple[Tensor, Tensor] | None,
    column_ends: tuple[Tensor, Tensor] | None = None,
    *,
    patient: bool = False,
    room: int = FEW,
) -> Found:
    """List the scores of a tile that are above the lower end of their row, or column, and not above its upper end.

    Args:
        tile: (m, n) scores, at least one.
        row_ends: (m,) each, in the dtype of the tile; None: rows have none.
        column_ends: (n,) each, likewise.
        patient: wait for the length of every list.
        room: entries of each of the two lists where they are of fixed length.
    """
    parts = []
    for side, ends in enumerate((row_ends, column_ends)):
        if ends is not None:
            low, high = (end.unsqueeze(1 - side) for end in ends)
            parts.append((*_flags((tile > low) & (tile <= high)), 1, side))
    return _listed(tile, parts, patient, room)


def marked(tile: Tensor, mask: Tensor, *, patient: bool = False, room: int = FEW) -> Found:
    """List the scores of a tile where a mask, (m, n) bool, is set; arguments as for `above`."""
    return _listed(tile, [(*_flags(mask), 1, 0)], patient, room)


def _flags(mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A mask as values, flags of their blocks, and limits of their rows."""
    values = mask.view(torch.uint8)
    return values, _blocks(values, 1) > 0, values.new_zeros(len(values))
