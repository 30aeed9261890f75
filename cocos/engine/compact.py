"""Lists of the few scores of a tile that lie between two ends, found word by word and without waiting for a device.

The tile is read once, into a flag for each score. Eight flags make a word, and only words that are not 0 are opened, so
every later step works on an eighth of the tile or on the entries found. On the host a list has exactly its entries. A
device that runs ahead of the host fills lists of a fixed length; `short` says at the end whether one was too short, and
the same tiles are then seen again with `patient=True`.
"""

import functools
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from cocos.engine import devices

__all__ = ["BLOCK", "FEW", "MANY", "Ends", "Found", "between", "first", "kept"]

# Flags that are looked at together: bytes in a word of 64 bits.
BLOCK = 8
# Entries of a list of fixed length: 32 scores above the limit of each row of a tile of 2048 x 4096 ...
MANY = 2**16
# ... and scores between two ends, which are a few roundings of a score apart.
FEW = 2**10

Ends = tuple[Tensor, Tensor | None]  # a score above the first and not above the second is listed


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


def between(
    tile: Tensor, row_ends: Ends | None, column_ends: Ends | None = None, *, patient: bool = False, room: int = FEW
) -> Found:
    """List the scores of a tile that are above the lower end of their row, or column, and not above its upper end.

    Args:
        tile: (m, n) scores, at least one.
        row_ends: (m,) each, in the dtype of the tile; None for the upper one: there is none. None: rows list nothing.
        column_ends: (n,) each, likewise.
        patient: wait for the length of the list.
        room: entries of the list where it is of fixed length.
    """
    asked = [(dim, ends) for dim, ends in ((1, row_ends), (0, column_ends)) if ends is not None]
    masks = [_inside(tile, *(None if end is None else end.unsqueeze(dim) for end in ends)) for dim, ends in asked]
    flags = pad(functools.reduce(torch.bitwise_or, masks).flatten(), (0, -tile.numel() % BLOCK))
    fixed = room if devices.ahead(tile.device) and not patient else None
    opened, short = first(flags.view(torch.int64) > 0, fixed)
    block = opened.clamp(min=0)
    found, more = first((flags.view(-1, BLOCK)[block] & (opened >= 0)[:, None]).flatten(), fixed)
    at = found.clamp(min=0)
    place = block[at.div(BLOCK, rounding_mode="floor")] * BLOCK + at.remainder(BLOCK)
    row = place.div(tile.shape[1], rounding_mode="floor")
    column, there = place - row * tile.shape[1], found >= 0
    score, side = tile[row, column], torch.zeros_like(row)
    for dim, ends in asked:
        line = row if dim == 1 else column
        side += (2 - dim) * (there & _inside(score, *(None if end is None else end[line] for end in ends)))
    return Found(row, column, score.where(there, -torch.inf), side, short | more)


def _inside(score: Tensor, low: Tensor, high: Tensor | None) -> Tensor:
    return score > low if high is None else (score > low) & (score <= high)
