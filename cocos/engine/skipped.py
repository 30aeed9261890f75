"""Pairs of a view that take no part though their groups differ: the own hard negatives of each query, by place."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Skipped:
    """Pairs that are not negatives though their groups differ, sorted by row.

    Args:
        starts: (queries + 1,) int64, where the pairs of each query begin.
        row: (P,) int64 places of the queries.
        column: (P,) int64 places of the candidates.
    """

    starts: Tensor
    row: Tensor
    column: Tensor

    @classmethod
    def of(cls, row: Tensor, column: Tensor, queries: int) -> "Skipped":
        """Sort pairs of places, each given once."""
        order = row.argsort(stable=True)
        number = torch.bincount(row, minlength=queries)
        return cls(
            torch.cat([number.new_zeros(1), number.cumsum(0)]), row[order].contiguous(), column[order].contiguous()
        )

    def within(self, rows: slice, columns: slice) -> tuple[Tensor, Tensor, Tensor]:
        """Return the pairs of some rows, and which of them are in a range of columns."""
        first, last = int(self.host[rows.start]), int(self.host[rows.stop])
        row, column = self.row[first:last], self.column[first:last]
        return row, column, (column >= columns.start) & (column < columns.stop)

    def holds(self, places: Tensor, columns: Tensor) -> Tensor:
        """Which of some candidates are skipped by each query, (m, n) bool; their places are (n,), or (m, n)."""
        starts, found = self.starts, torch.zeros((), dtype=torch.bool, device=self.row.device)
        for k in range(int(starts.diff()[places].max()) if len(places) else 0):
            at = starts[places] + k
            own = self.column[at.clamp(max=len(self.column) - 1)]
            found = found | ((columns == own[:, None]) & (at < starts[places + 1])[:, None])
        return found

    @cached_property
    def host(self) -> np.ndarray:
        """`starts` on the host."""
        return self.starts.cpu().numpy()
