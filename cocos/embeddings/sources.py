"""Sources of the candidates of a query: the batch, hard negatives, a queue, or a score of another direction.

A loss may compare the positive of a query with more than the candidates of the batch: with other queries, with the
scores of other queries and this positive, and with candidates near the positive (GTE, arXiv:2308.03281). The columns of
each of these directions follow the candidates, and each column has a source.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cocos.base.errors import InputError
from cocos.embeddings.sampling import Batch


@dataclass(frozen=True)
class NegativeSource:
    """A source of negatives.

    Args:
        name: of the source; the direction, if it is not query-candidate, since losses select columns by direction.
        anchor: side of the row that is scored, the query, or its positive.
        negative: side of the rows that it is scored with.
        label: words for these rows, in the plural.
    """

    name: str
    anchor: str
    negative: str
    label: str

    @property
    def key(self) -> str:
        """The name as part of the name of a variable."""
        return self.name.replace("'", "").replace(" ", "_").replace("-", "_")

    @property
    def direction(self) -> str:
        """The direction whose columns come from this source."""
        return f"{self.anchor}-{self.negative}"


# The place of a row is the number of the source. A source of candidates is set in `of_candidates`; the columns of a
# further direction are scored in `cocos.embeddings.scores` from its two sides.
TABLE = (
    NegativeSource("in-batch", "query", "candidate", "negatives of the batch"),
    NegativeSource("own hard", "query", "candidate", "own hard negatives"),
    NegativeSource("others' hard", "query", "candidate", "hard negatives of other queries"),
    NegativeSource("query-query", "query", "query", "other queries"),
    NegativeSource("candidate-query", "candidate", "query", "other queries of the positive"),
    NegativeSource("candidate-candidate", "candidate", "candidate", "candidates near the positive"),
    NegativeSource("queue", "query", "candidate", "rows of a queue"),
)
SOURCES = tuple(row.name for row in TABLE)
# Places of the sources in the table.
IN_BATCH, OWN_HARD, OTHERS_HARD, QUERY_QUERY, CANDIDATE_QUERY, CANDIDATE_CANDIDATE, QUEUE = range(len(TABLE))
DIRECTIONS = tuple(dict.fromkeys(row.direction for row in TABLE))


def check(directions: Sequence[str]) -> None:
    """Reject unknown or repeated directions; the first one has the positive."""
    for name in directions:
        if name not in DIRECTIONS:
            raise InputError(f"direction {name!r}, expected some of {', '.join(DIRECTIONS)}")
    if not directions or directions[0] != DIRECTIONS[0] or len(set(directions)) < len(directions):
        listed = ", ".join(directions) or "none"
        raise InputError(f"directions: {listed}, expected {DIRECTIONS[0]} first, and each once")


def of_candidates(embeddings: Any, batch: Batch, query_index: Tensor) -> Tensor:
    """Return the source of each candidate of a batch for queries, (q, c) int8: a place in `SOURCES`.

    A candidate is own hard for a query that lists it as a hard negative. Otherwise it is in-batch if it was drawn as
    the partner of a query, and others' hard if it was drawn as a hard negative only.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3)[:2], torch.eye(3), [0, 1], [0, 1, 2], negatives=[[2], [-1]])
        >>> batch = cocos.sampling.Batch(torch.tensor([0, 1]), torch.tensor([0, 1, 2]), paired=True, extra=1)
        >>> cocos.sources.of_candidates(embeddings, batch, batch.query_index).tolist()
        [[0, 0, 1], [0, 0, 2]]
    """
    index = batch.candidate_index
    source = index.new_full((len(query_index), len(index)), IN_BATCH, dtype=torch.int8)
    source[:, len(index) - batch.extra :] = OTHERS_HARD
    if embeddings.negatives is not None:
        for negative in embeddings.negatives[query_index].unbind(dim=1):
            source[negative[:, None] == index] = OWN_HARD
    if embeddings.queue is not None:
        source[:, embeddings.queue[index]] = QUEUE
    return source
