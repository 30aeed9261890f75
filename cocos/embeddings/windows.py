"""The order in which the rows of a large set are drawn: shuffled in windows, as loaders of shards do.

Rows that lie side by side make a run. In each pass all runs are permuted, then the rows within each window of runs. So
a batch reads long stretches of a disk, and a window is all that must be held at a time. The order is a function of the
number of rows, the window, the seed and the pass: not of shards, parts or processes.
"""

import functools
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

RUN = 4096  # rows of a run, at most
RUNS = 64  # runs of a window, at least


@dataclass(frozen=True)
class Windows:
    """The order of the rows in each pass.

    Args:
        number: of rows.
        window: rows that are permuted together, at least; whole runs.
        seed: of the draws.

    Examples:
        >>> from cocos.embeddings.windows import Windows
        >>> windows = Windows(10, 4, seed=0)
        >>> sorted(windows.rows(0, 0, 10).tolist())
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
        >>> windows.rows(0, 2, 9).equal(windows.rows(0, 0, 10)[2:9]), windows.edges(0).tolist()
        (True, [0, 4, 8, 10])
    """

    number: int
    window: int
    seed: int

    @property
    def run(self) -> int:
        """Rows of a run."""
        return max(1, min(RUN, self.window // RUNS))

    @property
    def sentence(self) -> str:
        """What a user should know of these draws."""
        return (
            f"rows are drawn in windows of {self.window:,}: runs of {self.run:,} neighbouring rows are permuted, then "
            "the rows of each window of runs (a window of `all` draws uniformly)"
        )

    def _generator(self, *place: int) -> torch.Generator:
        state = np.random.SeedSequence([self.seed, *place]).generate_state(1, np.uint64)
        return torch.Generator().manual_seed(int(state[0]) >> 1)

    @functools.lru_cache(maxsize=2)  # noqa: B019 - values are small, and few sets are drawn from
    def _runs(self, turn: int) -> tuple[Tensor, Tensor]:
        """The runs of a pass in their order, and the position of the first row of each window, then the number."""
        number, together = -(-self.number // self.run), -(-self.window // self.run)
        order = torch.randperm(number, generator=self._generator(turn))
        sizes = torch.full((number,), self.run)
        sizes[-1] = self.number - self.run * (number - 1)
        ends = sizes[order].cumsum(0)[together - 1 :: together]
        ends = ends if len(ends) and int(ends[-1]) == self.number else torch.cat([ends, torch.tensor([self.number])])
        return order, torch.cat([torch.zeros(1, dtype=torch.int64), ends])

    def edges(self, turn: int) -> Tensor:
        """Position of the first row of each window of a pass, and then the number of rows."""
        return self._runs(turn)[1]

    @functools.lru_cache(maxsize=2)  # noqa: B019 - two windows, which one batch may touch
    def _within(self, turn: int, window: int) -> Tensor:
        order, together = self._runs(turn)[0], -(-self.window // self.run)
        own = order[window * together : (window + 1) * together]
        rows = (own[:, None] * self.run + torch.arange(self.run)).flatten()
        rows = rows[rows < self.number]
        return rows[torch.randperm(len(rows), generator=self._generator(turn, 1 + window))]

    def rows(self, turn: int, start: int, stop: int) -> Tensor:
        """Rows at the positions from `start` to before `stop` of a pass, numbered from 0."""
        edges = self.edges(turn).tolist()
        first = int(np.searchsorted(edges, start, side="right")) - 1
        parts = []
        for window in range(first, len(edges) - 1):
            if edges[window] >= stop:
                break
            begin = edges[window]
            parts.append(self._within(turn, window)[max(0, start - begin) : stop - begin])
        return torch.cat(parts)
