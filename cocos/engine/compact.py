"""List the few scores of a tile between two ends, by flags in machine words and without synchronising with a device.

In: a tile and the ends of each row or column. Out: `Entries`, the scores between them. The tile is read once, into one
flag per score; eight flags form a word, and only nonzero words are opened, so later steps touch an eighth of the tile
or less. On the host a list has exactly its entries. A device that runs ahead of the host fills lists of fixed length;
`short` tells at the end whether one was too short, and those tiles are then visited again with `patient=True`.
"""

import functools
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from cocos.engine import devices

# Flags tested at once: bytes of a 64-bit word.
FLAGS_PER_WORD = 8
# Fixed length of a list of candidates above a limit: 32 scores for each row of a tile of 2,048 x 4,096.
LONG_LIST = 2**16
# Fixed length of a list of undecided scores, whose two ends are a few roundings apart.
SHORT_LIST = 2**10

# (low, high): scores with low < score <= high are listed; high None: no upper end.
Ends = tuple[Tensor, Tensor | None]


@dataclass(frozen=True, eq=False)
class Entries:
    """Listed scores of a tile, (found,) each; no pair occurs twice.

    Args:
        row: int64, relative to the first row of the tile; arbitrary for unused entries.
        column: int64, likewise.
        score: as in the tile; -inf for unused entries.
        side: int64, 1 if the ends of its row list it, 2 if those of its column do, 3 for both; 0 for unused entries.
        short: () bool, whether the list was too short.
    """

    row: Tensor
    column: Tensor
    score: Tensor
    side: Tensor
    short: Tensor

    @property
    def there(self) -> Tensor:
        """Whether an entry is used, (found,) bool."""
        return self.side > 0

    @property
    def places(self) -> tuple[Tensor, Tensor]:
        """Rows and columns, (found,) each."""
        return self.row, self.column

    def moved(self, row: int, column: int) -> "Entries":
        """Shift the entries by the first row and column of the tile, to coordinates of the whole matrix."""
        return replace(self, row=self.row + row, column=self.column + column)


def first_set(flag: Tensor, room: int | None) -> tuple[Tensor, Tensor]:
    """Return the positions of the set flags, (found,), and whether there are more than fit, () bool.

    Args:
        flag: (n,) bool.
        room: fixed length of the list, padded with -1; None: exact length.
    """
    if room is None:
        return flag.nonzero().flatten(), torch.zeros((), dtype=torch.bool, device=flag.device)
    rank = flag.cumsum(0, dtype=torch.int32)
    places = torch.searchsorted(rank, torch.arange(1, room + 1, dtype=torch.int32, device=flag.device))
    return places.where(places < len(flag), -1), rank[-1] > room


def kept(
    row: Tensor, column: Tensor, score: Tensor, keep: Tensor, room: int | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Filter a list; return rows, columns and scores, (found,) each, and whether there are more than fit, () bool.

    Args:
        row: (n,).
        column: (n,).
        score: (n,).
        keep: (n,) bool.
        room: fixed length of the new list, padded with scores of -inf; None: exact length.
    """
    some, short = first_set(keep, room)
    at = some.clamp(min=0)
    return row[at], column[at], score[at].where(some >= 0, -torch.inf), short


def between(
    tile: Tensor,
    row_ends: Ends | None,
    column_ends: Ends | None = None,
    *,
    patient: bool = False,
    room: int = SHORT_LIST,
) -> Entries:
    """List the scores of a tile that are above the lower and not above the upper end of their row, or of their column.

    Args:
        tile: (m, n) scores, not empty; or (blocks, m, n), whose rows and columns are numbered block by block.
        row_ends: (m,) each, in the dtype of the tile, see `Ends`; None: rows list nothing.
        column_ends: (n,) each, likewise.
        patient: use the exact length, which waits for the device.
        room: fixed length of the list on a device that runs ahead.
    """
    asked = [(dim, ends) for dim, ends in ((1, row_ends), (0, column_ends)) if ends is not None]
    lines = tile.view(-1, *tile.shape[-2:])
    shapes = (len(lines), 1, -1), (len(lines), -1, 1)
    masks = [_inside(lines, *(each if each is None else each.view(shapes[d]) for each in ends)) for d, ends in asked]
    flags = pad(functools.reduce(torch.bitwise_or, masks).flatten(), (0, -tile.numel() % FLAGS_PER_WORD))
    fixed = room if devices.ahead(tile.device) and not patient else None
    opened, short = first_set(flags.view(torch.int64) > 0, fixed)
    block = opened.clamp(min=0)
    found, more = first_set((flags.view(-1, FLAGS_PER_WORD)[block] & (opened >= 0)[:, None]).flatten(), fixed)
    at = found.clamp(min=0)
    place = block[at.div(FLAGS_PER_WORD, rounding_mode="floor")] * FLAGS_PER_WORD + at.remainder(FLAGS_PER_WORD)
    row = place.div(lines.shape[2], rounding_mode="floor")
    column, there = place - row * lines.shape[2], found >= 0
    score, side = tile.flatten()[place], torch.zeros_like(row)
    if len(lines) > 1:
        column = column + row.div(lines.shape[1], rounding_mode="floor") * lines.shape[2]
    for dim, (low, high) in asked:
        line = row if dim == 1 else column
        side += (2 - dim) * (there & _inside(score, low[line], None if high is None else high[line]))
    return Entries(row, column, score.where(there, -torch.inf), side, short | more)


def ones_above(scores: Tensor, end: Tensor | float) -> Tensor:
    """1 where a score is above an end, else 0, in the dtype of the scores.

    On the host, PyTorch compares to numbers five times as fast as to truth values.
    """
    return torch.gt(scores, end, out=torch.empty_like(scores))


def _inside(score: Tensor, low: Tensor, high: Tensor | None) -> Tensor:
    above = score > low if devices.ahead(score.device) else ones_above(score, low).bool()
    return above if high is None else above & (score <= high)
