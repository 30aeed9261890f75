"""What lies between the ends of levels, looked at some tiles at a time where a GPU would have to be waited for."""

import torch
from torch import Tensor

from cocos import shards, tiles

__all__ = ["RARELY", "Later"]

RARELY = 16  # tiles between two waits


class Later:
    """Places that `cocos.tiles.levels` finds, with their scores.

    A GPU writes lists of a fixed length. Where one of them is too short, `short` is true in the end: then all has to be
    seen again, by another one that is patient.

    Args:
        device: of the tiles.
        patient: wait for the length of every list.
    """

    def __init__(self, device: torch.device, *, patient: bool = False):
        self.fixed, self.short = tiles.ahead(device) and not patient, False
        self._seen: list[tuple[Tensor, ...]] = []

    def levels(
        self, tile: Tensor, rows: slice, columns: slice, ends: tuple[Tensor | None, ...]
    ) -> tuple[Tensor, Tensor | None]:
        """Counts above the levels of a tile; what lies between their ends is kept for `taken`.

        Args:
            tile: (m, n) scores.
            rows: of the matrix.
            columns: of the matrix.
            ends: as `cocos.tiles.levels` takes them: `row_low` to `column_top`.
        """
        row_count, column_count, (row, column, level, side) = tiles.levels(tile, *ends, fixed=self.fixed)
        at = row.clamp(min=0) if self.fixed else row
        found = row + rows.start, column + columns.start, level, side, tile[at.long(), column.long()]
        if self.fixed:
            lists = ends[0].shape[1] + (0 if ends[3] is None else len(ends[3]))
            there = row >= 0
            found = (*found, there, there.view(lists, -1)[:, -1].any()[None])
        self._seen.append(found)
        return row_count, column_count

    def taken(self, *, every: bool = False) -> tuple[Tensor, ...] | None:
        """Rows, columns, levels, sides and scores, (found,) each, since the last call; None: it is not yet time.

        Args:
            every: it is time.
        """
        if not self._seen or (self.fixed and not every and len(self._seen) < RARELY):
            return None
        seen, self._seen = self._seen, []
        found = [torch.cat(each) if len(each) > 1 else each[0] for each in zip(*seen, strict=True)]
        if self.fixed:
            *found, there, short = found
            self.short = self.short or bool(short.any())
            some = there.nonzero().flatten()
            found = [each[some] for each in found]
        return tuple(found)

    def merge(self) -> None:
        """It was short where it was so for any process."""
        self.short = any(shards.gather(self.short))
