"""Embeddings on disk: ids are in memory, and the vectors of a batch are read when it is counted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from cocos.base.errors import InputError
from cocos.embeddings import Embeddings
from cocos.embeddings.sampling import Batch

COMPARED_ROWS = 8  # rows of each side that are compared to find the one that is drawn


@dataclass(frozen=True, eq=False)
class Stored:
    """A set of embeddings on disk; its sides are `cocos.checkpoints.formats.shards.ShardRows`."""

    name: str  # for messages
    query: Any  # rows of the queries, or the samples of a labelled set
    candidate: Any | None  # rows of the candidates; None for a labelled set
    ids: Callable[[], dict[str, Any]] | None  # reads groups, labels and `logq`; None if row i matches row i
    directions: tuple[str, ...]
    in_memory: bool  # whether all rows fit in memory

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
        query, candidate = torch.tensor([[[sign]], [[-sign]]])
        sizes = [side.shape[0] for side in self.sides]
        return Embeddings(query.expand(sizes[0], 1), candidate.expand(sizes[1], 1), directions=self.directions, **ids)

    def truncate(self, dims: int) -> "Stored":
        """Keep the first dimensions of every row, as `Embeddings.truncate`."""
        candidate = None if self.candidate is None else self.candidate.truncate(dims)
        return replace(self, query=self.query.truncate(dims), candidate=candidate)

    def take(self, batches: Sequence[Batch], *, positive: bool) -> tuple[Embeddings, list[Batch], tuple[Tensor, ...]]:
        """Read the rows of batches; `positive`: refuse rows of zeros.

        Returns:
            Embeddings of these rows, the batches with row numbers in them, and the rows of both sides in the set.
        """
        index = [(batch.query_index, batch.candidate_index) for batch in batches]
        turned = (batch.turned for batch in batches if batch.turned)
        index += [(batch.candidate_index, batch.query_index) for batch in turned]
        sides = [torch.cat(side) for side in zip(*index, strict=True)]
        rows = (torch.cat(sides).unique(),) * 2 if self.shared else tuple(side.unique() for side in sides)

        def renumber(batch: Batch, sides: tuple[Tensor, ...]) -> Batch:
            query, candidate = map(torch.searchsorted, sides, (batch.query_index, batch.candidate_index))
            turned = batch.turned and renumber(batch.turned, sides[::-1])
            return replace(batch, query_index=query, candidate_index=candidate, turned=turned)

        return self.read_rows(rows, positive=positive), [renumber(batch, rows) for batch in batches], rows

    def read_rows(self, rows: tuple[Tensor, ...], *, positive: bool) -> Embeddings:
        """Read embeddings with the groups and `logq` of the rows of both sides; `positive`: refuse rows of zeros.

        Raises:
            InputError: a row is not finite, or zero.
        """
        vectors = []
        for side, index in list(zip(self.sides, rows, strict=True))[: 1 if self.shared else 2]:
            vectors.append(side.read(index))
            wrong, problem = ~vectors[-1].isfinite().all(dim=1), "NaN or infinity"
            if positive and not wrong.any():
                wrong, problem = ~vectors[-1].any(dim=1), "only zeros, whose cosine is not defined"
            if wrong.any():
                row = int(index[wrong.nonzero()[0, 0]])
                raise InputError(f"{side.file(row)}: row {row} of the set has {problem}; remove or repair it")
        if self.shared:
            return Embeddings.labelled(*vectors, self.numbered.query_group[rows[0]])
        if self.matched:
            return Embeddings(*vectors, *rows, directions=self.directions)
        ids = self.numbered.rows(*rows)
        groups = {"query_group": ids.query_group, "candidate_group": ids.candidate_group}
        return Embeddings(*vectors, **groups, directions=self.directions, logq=ids.logq, query_logq=ids.query_logq)

    def group(self, side: int, index: Tensor) -> Tensor:
        """Return the group numbers of rows, in ascending order of all ids."""
        if self.matched:
            return index
        groups = self.numbered.groups
        return (groups.query, groups.candidate)[side][index]
