"""Where the candidates of a query come from: the batch, hard negatives, or a score of another direction.

A loss may set the positive of a query against more than the candidates of the batch: against other queries, against the
scores that other queries give to its positive, and against candidates that are near its positive (GTE,
arXiv:2308.03281). Each of these directions is a block of columns beside the candidates, and each column has a source.
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
        asking: side of the row that is scored: the query, or its positive.
        asked: side of the rows that it is scored with.
        label: words for these rows, in the plural.
    """

    name: str
    asking: str
    asked: str
    label: str

    @property
    def key(self) -> str:
        """The name as part of the name of a variable."""
        return self.name.replace("'", "").replace(" ", "_").replace("-", "_")

    @property
    def direction(self) -> str:
        """The direction whose columns come from this source."""
        return f"{self.asking}-{self.asked}"


# The table of sources, of which the place of a row is the number of the source. Names, keys of records, directions and
# labels follow from it; how its columns are scored, from the two sides in `others`.
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
    """Refuse unknown or repeated directions, and directions without the one of the positive."""
    for name in directions:
        if name not in DIRECTIONS:
            raise InputError(f"direction {name!r}, expected some of {', '.join(DIRECTIONS)}")
    if not directions or directions[0] != DIRECTIONS[0] or len(set(directions)) < len(directions):
        listed = ", ".join(directions) or "none"
        raise InputError(f"directions: {listed}; give {DIRECTIONS[0]} first, which has the positive, and each once")


def of_candidates(embeddings: Any, batch: Batch, query_index: Tensor) -> Tensor:
    """Source of each candidate of a batch for some of its queries, (q, c) int8: a place in `SOURCES`.

    A candidate is own hard for a query that names it. Otherwise it is in-batch if it was drawn as the partner of
    some query, and others' hard if it was drawn as a hard negative only. Rows of a queue are in every batch.

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
        for named in embeddings.negatives[query_index].unbind(dim=1):
            source[named[:, None] == index] = OWN_HARD
    if embeddings.queue is not None:
        source[:, embeddings.queue[index]] = QUEUE
    return source
