"""Embeddings on disk: ids are in memory, and the vectors of a batch are read when it is counted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from cocos.base.errors import InputError
from cocos.embeddings import Embeddings
from cocos.embeddings.sampling import Batch

COMPARED_ROWS = 8  # rows of each side that are compared to find the one that is drawn


@dataclass(frozen=True, eq=False)
class Stored:
    """A set of embeddings on disk.

    The rows of a side have `shape`, `dtype`, `read(index)` with row numbers that ascend and differ, `file(row)` and
    `truncate(dims)`, as `cocos.checkpoints.formats.shards.ShardRows` has them.

    Args:
        name: for messages.
        query: rows of the queries, or the samples of a labelled set.
        candidate: rows of the candidates; None for a labelled set.
        ids: reads groups, labels and `logq` by their names in `Embeddings`; None if row i matches row i.
        directions: as in `Embeddings`.
        held: whether all rows fit in memory.
    """

    name: str
    query: Any
    candidate: Any | None
    ids: Callable[[], dict[str, Any]] | None
    directions: tuple[str, ...]
    held: bool

    # Fields of `Embeddings` that no set on disk has.
    grades: ClassVar[None] = None
    names: ClassVar[None] = None

    @property
    def shared(self) -> bool:
        """Whether the samples of a labelled set are each other's candidates."""
        return self.candidate is None

    @property
    def sides(self) -> tuple[Any, Any]:
        """Queries and candidates."""
        return self.query, self.candidate or self.query

    @property
    def number(self) -> int:
        """Rows of the larger side."""
        return max(side.shape[0] for side in self.sides)

    @property
    def matched(self) -> bool:
        """Whether row i of the queries matches row i of the candidates, and no other."""
        return self.ids is None

    @cached_property
    def numbered(self) -> Embeddings:
        """Embeddings with the ids of all rows and one number per vector, for code that reads no vectors.

        The sampler draws the side with the larger first row, so the signs of the numbers follow the vectors.
        """
        ids = {} if self.ids is None else self.ids()
        if self.candidate is None:
            return Embeddings.labelled(torch.ones(self.query.shape[0], 1), **ids)
        index = torch.arange(min(COMPARED_ROWS, *(side.shape[0] for side in self.sides)))
        query, candidate = (side.read(index).flatten().double() for side in self.sides)
        differing = (query != candidate).nonzero().flatten()
        sign = 1.0 if len(differing) and query[differing[0]] > candidate[differing[0]] else -1.0
        query, candidate = (
            torch.full((1, 1), value).expand(side.shape[0], 1)
            for value, side in zip((sign, -sign), self.sides, strict=True)
        )
        return Embeddings(query, candidate, directions=self.directions, **ids)

    def of(self, side: int, index: Tensor, *, positive: bool) -> Tensor:
        """Read rows of the queries (0) or candidates (1); `positive`: refuse rows of zeros.

        Raises:
            InputError: a row is not finite, or zero.
        """
        rows = self.sides[side].read(index)
        wrong, problem = ~rows.isfinite().all(dim=1), "NaN or infinity"
        if positive and not wrong.any():
            wrong, problem = ~rows.any(dim=1), "only zeros, whose cosine is not defined"
        if wrong.any():
            row = int(index[wrong.nonzero()[0, 0]])
            name = ("query", "candidate")[side] if self.candidate else "embeddings"
            raise InputError(f"{self.sides[side].file(row)}: row {row} of {name} has {problem}; remove or repair it")
        return rows

    def truncate(self, dims: int) -> "Stored":
        """Keep the first dimensions of every row, as `Embeddings.truncate`."""
        candidate = None if self.candidate is None else self.candidate.truncate(dims)
        return replace(self, query=self.query.truncate(dims), candidate=candidate)

    def take(self, batches: Sequence[Batch], *, positive: bool) -> tuple[Embeddings, list[Batch], tuple[Tensor, ...]]:
        """Read the rows of batches; `positive`: refuse rows of zeros.

        Returns:
            Embeddings of these rows, the batches with row numbers in them, and the rows of both sides in the set.
        """
        index: tuple[list[Tensor], list[Tensor]] = [], []
        for batch in batches:
            index[0].append(batch.query_index)
            index[1].append(batch.candidate_index)
            if batch.turned:
                index[0].append(batch.turned.candidate_index)
                index[1].append(batch.turned.query_index)
        if self.candidate is None:
            rows = (torch.cat([*index[0], *index[1]]).unique(),) * 2
        else:
            rows = torch.cat(index[0]).unique(), torch.cat(index[1]).unique()

        def renumber(batch: Batch, sides: tuple[Tensor, ...]) -> Batch:
            query, candidate = map(torch.searchsorted, sides, (batch.query_index, batch.candidate_index))
            turned = batch.turned and renumber(batch.turned, sides[::-1])
            return replace(batch, query_index=query, candidate_index=candidate, turned=turned)

        return self.read_rows(rows, positive=positive), [renumber(batch, rows) for batch in batches], rows

    def read_rows(self, rows: tuple[Tensor, ...], *, positive: bool) -> Embeddings:
        """Read embeddings with the groups and `logq` of the rows of both sides."""
        query = self.of(0, rows[0], positive=positive)
        if self.candidate is None:
            return Embeddings.labelled(query, self.numbered.query_group[rows[0]])
        candidate = self.of(1, rows[1], positive=positive)
        if self.matched:
            return Embeddings(query, candidate, rows[0], rows[1], directions=self.directions)
        ids = self.numbered
        return Embeddings(
            query,
            candidate,
            ids.query_group[rows[0]],
            ids.candidate_group[rows[1]],
            directions=self.directions,
            logq=None if ids.logq is None else ids.logq[rows[1]],
            query_logq=None if ids.query_logq is None else ids.query_logq[rows[0]],
        )

    def group(self, side: int, index: Tensor) -> Tensor:
        """Return the group numbers of rows, in ascending order of all ids."""
        if self.matched:
            return index
        groups = self.numbered.groups
        return (groups.query, groups.candidate)[side][index]
