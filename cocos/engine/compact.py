"""List the few scores of a tile between two ends, by flags in machine words.

In: a tile and the ends of each row or column. Out: `Entries`, the scores between them. The tile is read once, into one
flag per score; eight flags form a word, and only nonzero words are opened, so later steps touch an eighth of the tile
or less.
"""

import functools
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from cocos.engine import devices

# Flags tested at once: bytes of a 64-bit word.
FLAGS_PER_WORD = 8

# (low, high): scores with low < score <= high are listed; high None: no upper end.
Ends = tuple[Tensor, Tensor | None]


@dataclass(frozen=True, eq=False)
class Entries:
    """Listed scores of a tile, (found,) each; no pair occurs twice.

    Args:
        row: int64, relative to the first row of the tile.
        column: int64, likewise.
        score: as in the tile.
        side: int64, 1 if the ends of its row list it, 2 if those of its column do, 3 for both.
    """

    row: Tensor
    column: Tensor
    score: Tensor
    side: Tensor

    @property
    def places(self) -> tuple[Tensor, Tensor]:
        """Rows and columns, (found,) each."""
        return self.row, self.column

    def moved(self, row: int, column: int) -> "Entries":
        """Shift the entries by the first row and column of the tile, to coordinates of the whole matrix."""
        return replace(self, row=self.row + row, column=self.column + column)


def between(tile: Tensor, row_ends: Ends | None, column_ends: Ends | None = None) -> Entries:
    """List the scores of a tile that are above the lower and not above the upper end of their row, or of their column.

    Args:
        tile: (m, n) scores, not empty; or (blocks, m, n), whose rows and columns are numbered block by block.
        row_ends: (m,) each, in the dtype of the tile, see `Ends`; None: rows list nothing.
        column_ends: (n,) each, likewise.
    """
    asked = [(dim, ends) for dim, ends in ((1, row_ends), (0, column_ends)) if ends is not None]
    lines = tile.view(-1, *tile.shape[-2:])
    shapes = (len(lines), 1, -1), (len(lines), -1, 1)
    masks = [_inside(lines, *(each if each is None else each.view(shapes[d]) for each in ends)) for d, ends in asked]
    flags = pad(functools.reduce(torch.bitwise_or, masks).flatten(), (0, -tile.numel() % FLAGS_PER_WORD))
    block = (flags.view(torch.int64) > 0).nonzero().flatten()
    at = flags.view(-1, FLAGS_PER_WORD)[block].flatten().nonzero().flatten()
    place = block[at.div(FLAGS_PER_WORD, rounding_mode="floor")] * FLAGS_PER_WORD + at.remainder(FLAGS_PER_WORD)
    row = place.div(lines.shape[2], rounding_mode="floor")
    column = place - row * lines.shape[2]
    score, side = tile.flatten()[place], torch.zeros_like(row)
    if len(lines) > 1:
        column = column + row.div(lines.shape[1], rounding_mode="floor") * lines.shape[2]
    for dim, (low, high) in asked:
        line = row if dim == 1 else column
        side += (2 - dim) * _inside(score, low[line], None if high is None else high[line])
    return Entries(row, column, score, side)


def ones_above(scores: Tensor, end: Tensor | float) -> Tensor:
    """1 where a score is above an end, else 0, in the dtype of the scores.

    On the host, PyTorch compares to numbers five times as fast as to truth values.
    """
    return torch.gt(scores, end, out=torch.empty_like(scores))


def _inside(score: Tensor, low: Tensor, high: Tensor | None) -> Tensor:
    above = score > low if devices.ahead(score.device) else ones_above(score, low).bool()
    return above if high is None else above & (score <= high)
