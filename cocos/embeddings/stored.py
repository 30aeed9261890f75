"""Embeddings that stay where they are, on a disk: ids are held in memory, vectors are read for the batches alone.

In: rows that are read by their numbers, and ids. Out: embeddings of some batches, with rows numbered among themselves;
or all rows of a side, some at a time.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from cocos.base.errors import InputError
from cocos.base.matrices import check_dims
from cocos.embeddings import Embeddings
from cocos.embeddings.batches import Batch

# Rows of each side that are compared to tell which of the two is drawn.
FIRST_ROWS = 8


class Rows(Protocol):
    """The rows of one side."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and width."""

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the rows as they are read."""

    def read(self, index: Tensor) -> Tensor:
        """Rows by their numbers, which ascend and differ."""

    def file(self, row: int) -> str:
        """The file in which a row stands."""


@dataclass(frozen=True, eq=False)
class FirstDimensions:
    """The first dimensions of the rows of one side.

    Args:
        rows: all dimensions of them.
        dims: number of dimensions.
    """

    rows: Rows
    dims: int

    def __post_init__(self) -> None:
        check_dims(self.dims, self.rows.shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and width."""
        return self.rows.shape[0], self.dims

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the rows."""
        return self.rows.dtype

    def read(self, index: Tensor) -> Tensor:
        """Rows by their numbers, which ascend and differ."""
        return self.rows.read(index)[:, : self.dims].contiguous()

    def file(self, row: int) -> str:
        """The file in which a row stands."""
        return self.rows.file(row)


@dataclass(frozen=True, eq=False)
class Stored:
    """A set of embeddings on a disk.

    Args:
        name: for messages.
        query: rows of the queries, or the samples of a labelled set.
        candidate: rows of the candidates; None: those of the queries, a labelled set.
        ids: reads groups and labels by their names in `Embeddings`, and `logq`; None: row i matches row i.
        directions: as in `Embeddings`.
        held: whether all rows may be held in memory.
    """

    name: str
    query: Rows
    candidate: Rows | None
    ids: Callable[[], dict[str, Any]] | None
    directions: tuple[str, ...]
    held: bool

    # What `Embeddings` may have, and no set on a disk.
    grades: ClassVar[None] = None
    names: ClassVar[None] = None

    @property
    def shared(self) -> bool:
        """Whether the samples of a labelled set are each other's candidates."""
        return self.candidate is None

    @property
    def sides(self) -> tuple[Rows, Rows]:
        """Queries and candidates."""
        return self.query, self.candidate or self.query

    @property
    def number(self) -> int:
        """Rows of the larger side."""
        return max(each.shape[0] for each in self.sides)

    @property
    def matched(self) -> bool:
        """Whether row i of the queries matches row i of the candidates, and no other."""
        return self.ids is None

    @cached_property
    def numbered(self) -> Embeddings:
        """Embeddings of the ids of all rows, with one number for each vector: for what reads no vectors."""
        given = {} if self.ids is None else self.ids()
        one, other = (torch.ones(1, 1) * sign for sign in ((1, -1) if self._queries_first() else (-1, 1)))
        query = one.expand(self.query.shape[0], 1)
        if self.candidate is None:
            return Embeddings.labelled(query, **given)
        return Embeddings(query, other.expand(self.candidate.shape[0], 1), directions=self.directions, **given)

    def _queries_first(self) -> bool:
        """Whether the first rows of the queries that differ from those of the candidates are larger."""
        if self.candidate is None:
            return True
        index = torch.arange(min(FIRST_ROWS, *(each.shape[0] for each in self.sides)))
        one, other = (each.read(index).flatten().double() for each in self.sides)
        differ = (one != other).nonzero().flatten()
        return bool(len(differ) and one[differ[0]] > other[differ[0]])

    def of(self, side: int, index: Tensor, *, positive: bool) -> Tensor:
        """Rows of the queries (0) or candidates (1) by their numbers, which ascend."""
        rows = self.sides[side]
        found = rows.read(index)
        wrong, what = None, ""
        if not bool(found.isfinite().all()):
            wrong, what = ~found.isfinite().all(dim=1), "NaN or infinity"
        elif positive:
            wrong, what = ~found.any(dim=1), "zeros alone, whose cosine is not defined"
        if wrong is not None and bool(wrong.any()):
            row = int(index[wrong.nonzero()[0, 0]])
            name = ("query", "candidate")[side] if self.candidate else "embeddings"
            raise InputError(f"{rows.file(row)}: row {row} of {name} has {what}; remove or repair it")
        return found

    def truncate(self, dims: int) -> "Stored":
        """Keep the first dimensions of every row, as `Embeddings.truncate`."""
        candidate = self.candidate and FirstDimensions(self.candidate, dims)
        return replace(self, query=FirstDimensions(self.query, dims), candidate=candidate)

    def _rows_of(self, batches: Sequence[Batch]) -> tuple[Tensor, ...]:
        """Numbers of the rows of both sides that are in some batches, which ascend and differ."""
        index: tuple[list[Tensor], list[Tensor]] = [], []
        for batch in batches:
            for own, turned in ((batch, False), *(((batch.turned, True),) if batch.turned else ())):
                sides = (own.query_index, own.candidate_index)
                for k, each in enumerate(sides[::-1] if turned else sides):
                    index[k].append(each)
        if self.candidate is None:
            return (torch.cat([*index[0], *index[1]]).unique(),) * 2
        return tuple(torch.cat(each).unique() for each in index)

    def take(self, batches: Sequence[Batch], *, positive: bool) -> tuple[Embeddings, list[Batch], tuple[Tensor, ...]]:
        """Read the rows of some batches.

        Args:
            batches: of rows of the whole set.
            positive: refuse rows of zeros.

        Returns:
            Embeddings of these rows; the batches with the numbers of rows there; numbers of the rows of both sides.
        """
        rows = self._rows_of(batches)

        def near(batch: Batch, sides: tuple[Tensor, ...]) -> Batch:
            places = [
                torch.searchsorted(own, at)
                for own, at in zip(sides, (batch.query_index, batch.candidate_index), strict=True)
            ]
            turned = batch.turned and near(batch.turned, sides[::-1])
            return replace(batch, query_index=places[0], candidate_index=places[1], turned=turned)

        return self._of_rows(rows, positive=positive), [near(batch, rows) for batch in batches], rows

    def _of_rows(self, rows: tuple[Tensor, ...], *, positive: bool) -> Embeddings:
        query = self.of(0, rows[0], positive=positive)
        if self.candidate is None:
            return Embeddings.labelled(query, self.numbered.query_group[rows[0]])
        candidate = self.of(1, rows[1], positive=positive)
        if self.matched:
            return Embeddings(query, candidate, rows[0], rows[1], directions=self.directions)
        whole = self.numbered
        groups = whole.query_group[rows[0]], whole.candidate_group[rows[1]]
        logq, query_logq = (
            None if values is None else values[own]
            for values, own in zip((whole.logq, whole.query_logq), rows[::-1], strict=True)
        )
        return Embeddings(
            query, candidate, groups[0], groups[1], directions=self.directions, logq=logq, query_logq=query_logq
        )

    def group(self, side: int, index: Tensor) -> Tensor:
        """Numbers of the groups of some rows, in ascending order of all groups."""
        if self.matched:
            return index
        groups = self.numbered.groups
        return (groups.query, groups.candidate)[side][index]

    def stream(self, side: int, rows: int, *, positive: bool) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield all rows of a side, so many at a time, with their numbers."""
        number = self.sides[side].shape[0]
        for start in range(0, number, rows):
            index = torch.arange(start, min(start + rows, number))
            yield index, self.of(side, index, positive=positive)
