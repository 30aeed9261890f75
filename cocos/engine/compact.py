"""Lists of the few scores of a tile that lie above a limit, found by block maxima and without waiting for a device.

A line of a tile is cut into blocks of 32 scores. The largest score of each block says which blocks to open, so that
the tile is read once and all else is as long as the answer. On a host the lists are as long as what they hold. A device
that runs ahead of the host fills lists of a fixed length; `short` says in the end whether one was too short, and the
same tiles are then seen again with `patient=True`.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cocos.engine import devices

__all__ = ["BLOCK", "FEW", "ROOM", "Found", "above", "between", "first", "kept"]

# Scores that share a maximum: a cache line of a GPU, 128 bytes (CUDA C++ Best Practices Guide, section 10.2.1).
BLOCK = 32
# Entries of a list of fixed length: 32 scores above the limit of each row of a tile of 2048 x 4096 ...
ROOM = 2**16
# ... and scores between two ends, which are a few roundings of a score apart.
FEW = 2**10


@dataclass(frozen=True, eq=False)
class Found:
    """Entries of a tile, (found,) each, no pair twice.

    Args:
        row: int64, counted from the first row of the tile; any row where the list is not full.
        column: int64, likewise.
        score: as in the tile; -inf where the list is not full.
        side: int64, 1 where its row lists it, 2 where its column does, 3 where both do; 0 where the list is not full.
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
        return self.side > 0

    @property
    def places(self) -> tuple[Tensor, Tensor]:
        """Rows and columns, (found,) each."""
        return self.row, self.column

    def moved(self, row: int, column: int) -> "Found":
        """The same entries, counted from the first row and column of the whole matrix.

        Args:
            row: first row of the tile.
            column: first column of the tile.
        """
        return replace(self, row=self.row + row, column=self.column + column)


def first(flag: Tensor, room: int | None) -> tuple[Tensor, Tensor]:
    """Places of a vector of flags that are set, (found,), and whether they are more than fit, () bool.

    Args:
        flag: (n,) bool.
        room: length of the list, which holds -1 beyond the last place; None: as long as it must be.
    """
    if room is None:
        return flag.nonzero().flatten(), torch.zeros((), dtype=torch.bool, device=flag.device)
    rank = flag.cumsum(0, dtype=torch.int32)
    places = torch.searchsorted(rank, torch.arange(1, room + 1, dtype=torch.int32, device=flag.device))
    return places.where(places < len(flag), -1), rank[-1] > room


def kept(row: Tensor, column: Tensor, score: Tensor, keep: Tensor, room: int | None) -> tuple[Tensor, ...]:
    """Rows, columns and scores of some entries of a list, (found,) each, and whether they are more than fit, () bool.

    Args:
        row: (n,).
        column: (n,).
        score: (n,).
        keep: (n,) bool.
        room: length of the new list, whose score is -inf beyond the last entry; None: as long as it must be.
    """
    some, short = first(keep, room)
    at = some.clamp(min=0)
    return row[at], column[at], score[at].where(some >= 0, -torch.inf), short


def _opened(tile: Tensor, dim: int, limit: Tensor, room: int | None) -> tuple[Tensor, ...]:
    """Lines along a dimension and places in them of what is above the limit; which are entries; and `short`."""
    n = tile.shape[dim]
    width = min(BLOCK, n)
    if edge := n % width:  # a line that is no whole number of blocks ends in a shorter one
        parts = (_opened(tile.narrow(dim, a, size), dim, limit, room) for a, size in ((0, n - edge), (n - edge, edge)))
        line, place, there, short = zip(*parts, strict=True)
        return torch.cat(line), torch.cat([place[0], place[1] + n - edge]), torch.cat(there), short[0] | short[1]
    blocks = tile.unflatten(dim, (-1, width))
    flag = blocks.amax(dim=dim + 1) > limit.unsqueeze(dim)
    opened, short = first(flag.flatten(), room)
    at = opened.clamp(min=0)
    row = at.div(flag.shape[1], rounding_mode="floor")
    line, block = (row, at - row * flag.shape[1])[:: 2 * dim - 1]
    score = blocks[line, block] if dim == 1 else blocks[block, :, line]
    found, more = first(((score > limit[line, None]) & (opened >= 0)[:, None]).flatten(), room)
    at = found.clamp(min=0)
    of = at.div(width, rounding_mode="floor")
    return line[of], (block[of] - of) * width + at, found >= 0, short | more


def above(
    tile: Tensor,
    row_limit: Tensor | None,
    column_limit: Tensor | None = None,
    *,
    patient: bool = False,
    room: int = ROOM,
) -> Found:
    """List the scores of a tile that are above the limit of their row, or of their column.

    Args:
        tile: (m, n) scores, at least one.
        row_limit: (m,) in the dtype of the tile; None: rows have none.
        column_limit: (n,) likewise.
        patient: wait for the length of the list.
        room: entries of the list where it is of fixed length; of each of two, where blocks leave an edge over.
    """
    if row_limit is not None and column_limit is not None:
        return _masked(tile, [tile > row_limit[:, None], tile > column_limit], (1, 2), patient, room)
    limit, dim = (column_limit, 0) if row_limit is None else (row_limit, 1)
    fixed = room if devices.ahead(tile.device) and not patient else None
    line, place, there, short = _opened(tile, dim, limit, fixed)
    places = (line, place) if dim == 1 else (place, line)
    return Found(*places, tile[places].where(there, -torch.inf), there * (2 - dim), short)


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
        patient: wait for the length of the list.
        room: entries of the list where it is of fixed length; of each of two, where blocks leave an edge over.
    """
    masks, sides = [], []
    for dim, ends in ((1, row_ends), (0, column_ends)):
        if ends is not None:
            low, high = (end.unsqueeze(dim) for end in ends)
            masks.append((tile > low) & (tile <= high))
            sides.append(2 - dim)
    return _masked(tile, masks, sides, patient, room)


def _masked(tile: Tensor, masks: Sequence[Tensor], sides: Sequence[int], patient: bool, room: int) -> Found:
    """List the scores of a tile where any mask is set, (m, n) bool each: those of one side, or of both."""
    values = functools.reduce(torch.bitwise_or, masks).view(torch.uint8)
    fixed = room if devices.ahead(tile.device) and not patient else None
    *places, there, short = _opened(values, 1, values.new_zeros(len(values)), fixed)
    places = tuple(places)
    side = sum((mask[places] & there) * side for mask, side in zip(masks, sides, strict=True))
    return Found(*places, tile[places].where(there, -torch.inf), side, short)
