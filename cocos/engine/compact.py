"""Lists of the few scores of a tile that lie above a limit, found by block maxima and without waiting for a device.

A line of a tile is cut into blocks of 128 scores. The largest score of each block says which blocks to open, so that
the tile is read once and all else is as long as the answer. On a host the lists are as long as what they hold. A device
that runs ahead of the host fills lists of a fixed length; `short` says in the end whether one was too short, and the
same tiles are then seen again with `patient=True`.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cocos.engine import devices

__all__ = ["BLOCK", "ROOM", "Found", "above", "between"]

BLOCK = (
    128  # scores that share a maximum: one line of a warp's 512-byte load (CUDA C++ Programming Guide, section 5.3.2)
)
# Entries of a list of fixed length: scores above a limit, one in 1,024 of a tile of 2048 x 4096 ...
ROOM = 2**13
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


def _first(flag: Tensor, room: int | None) -> tuple[Tensor, Tensor]:
    """Places of a vector of flags that are set, and whether there are more than fit; -1 beyond the last."""
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


def _of_lines(tile: Tensor, dim: int, low: Tensor, high: Tensor | None, room: int | None) -> tuple[Tensor, ...]:
    """Lines along a dimension, places in them and scores between the ends; and whether they are more than fit."""
    if tile.numel() == 0:
        none = torch.zeros(0, dtype=torch.int64, device=tile.device)
        return none, none, tile.new_zeros(0), torch.zeros((), dtype=torch.bool, device=tile.device)
    if high is None:
        flag = _blocks(tile, dim) > low[:, None]
    else:
        inside = (tile > low.unsqueeze(dim)) & (tile <= high.unsqueeze(dim))
        flag = _blocks(inside.view(torch.uint8), dim) > 0
    opened, short = _first(flag.flatten(), room)
    line = opened.clamp(min=0).div(flag.shape[1], rounding_mode="floor")
    place = (opened.clamp(min=0) % flag.shape[1] * BLOCK)[:, None] + torch.arange(BLOCK, device=tile.device)
    at = (line[:, None], place.clamp(max=tile.shape[dim] - 1))
    score = tile[at if dim == 1 else at[::-1]]
    inside = (score > low[line, None]) & (place < tile.shape[dim]) & (opened >= 0)[:, None]
    if high is not None:
        inside &= score <= high[line, None]
    found, more = _first(inside.flatten(), room)
    of, there = found.clamp(min=0), found >= 0
    line, place, score = line[of.div(BLOCK, rounding_mode="floor")], place.flatten()[of], score.flatten()[of]
    if room is None:
        return line, place, score, short
    return torch.where(there, line, -1), torch.where(there, place, -1), score.where(there, -torch.inf), short | more


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
        tile: (m, n) scores.
        row_limit: (m,) in the dtype of the tile; None: rows have none.
        column_limit: (n,) likewise.
        patient: wait for the length of every list.
        room: entries of each of the two lists where they are of fixed length.
    """
    return _listed(tile, (row_limit, None), (column_limit, None), patient=patient, room=room)


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
        tile: (m, n) scores.
        row_ends: (m,) each, in the dtype of the tile; None: rows have none.
        column_ends: (n,) each, likewise.
        patient: wait for the length of every list.
        room: entries of each of the two lists where they are of fixed length.
    """
    return _listed(tile, row_ends or (None, None), column_ends or (None, None), patient=patient, room=room)


def _listed(tile: Tensor, rows: tuple, columns: tuple, *, patient: bool, room: int) -> Found:
    fixed = room if devices.ahead(tile.device) and not patient else None
    parts = []
    for side, (low, high) in enumerate((rows, columns)):
        if low is not None:
            line, place, score, short = _of_lines(tile, 1 - side, low, high, fixed)
            pair = (line, place) if side == 0 else (place, line)
            parts.append((*pair, score, torch.where(line >= 0, side, 0), short[None]))
    *lists, short = (torch.cat(each) for each in zip(*parts, strict=True))
    return Found(*lists, short.any())
