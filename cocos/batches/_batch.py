"""A batch: rows of queries and candidates that are seen together."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cocos.embeddings import Embeddings
from cocos.errors import InputError, rows

__all__ = ["Batch", "matches", "once"]


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows that are seen together.

    Args:
        query_index: (q,) rows of the queries.
        candidate_index: (c,) rows of the candidates.
        paired: row i of the batch is one positive pair, and the only positive of its query. Otherwise all
            candidates of the query's group are its positives.
        extra: the last `extra` candidates are hard negatives of some query, drawn with it. They are candidates of all
            queries and ask for nothing, so that the flipped batch has none of them.
        beside: (b,) rows of the query side that the flipped batch has as `extra` candidates; None: no such rows.

    Examples:
        >>> batch = cocos.batches.Batch(torch.tensor([2, 0]), torch.tensor([5, 1]), paired=True)
        >>> batch.sizes
        (2, 2)
        >>> batch.flip().query_index
        tensor([5, 1])
    """

    query_index: Tensor
    candidate_index: Tensor
    paired: bool
    extra: int = 0
    beside: Tensor | None = None

    @property
    def sizes(self) -> tuple[int, int]:
        """Queries and candidates."""
        return self.query_index.shape[0], self.candidate_index.shape[0]

    @property
    def square(self) -> bool:
        """Whether both directions have the same rows, so that one visit of the scores serves both."""
        return self.extra == 0 and self.beside is None

    def to(self, device: torch.device | str) -> "Batch":
        """Move the row numbers to another device; the same batch where they are there."""
        if self.query_index.device == torch.device(device):
            return self
        beside = None if self.beside is None else self.beside.to(device)
        indices = self.query_index.to(device), self.candidate_index.to(device)
        return replace(self, query_index=indices[0], candidate_index=indices[1], beside=beside)

    def flip(self) -> "Batch":
        """Swap the sides. Twice is the identity."""
        asking = len(self.candidate_index) - self.extra
        query_index, beside = self.candidate_index[:asking], self.candidate_index[asking:]
        if self.beside is None:
            return Batch(query_index, self.query_index, self.paired, 0, beside if self.extra else None)
        candidate_index = torch.cat([self.query_index, self.beside])
        return Batch(query_index, candidate_index, self.paired, len(self.beside), beside if self.extra else None)


def matches(embeddings: Embeddings, batch: Batch) -> None:
    """Refuse a batch of pairs whose rows are no pairs.

    Raises:
        InputError: sides of different length, or a query whose own candidate is of another group.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> index = torch.arange(3)
        >>> cocos.batches.matches(embeddings, cocos.batches.Batch(index, index, paired=True))
    """
    if not batch.paired:
        return
    asking, asked = len(batch.query_index), len(batch.candidate_index) - batch.extra
    if asking != asked:
        raise InputError(f"batch: paired, with {asking} queries and {asked} candidates; give as many of both")
    groups = embeddings.query_group[batch.query_index], embeddings.candidate_group[batch.candidate_index[:asked]]
    if torch.equal(*groups):
        return
    place = (groups[0] != groups[1]).nonzero().flatten().tolist()
    query, candidate = (int(index[place[0]]) for index in (batch.query_index, batch.candidate_index))
    apart = " and ".join(
        f"{name} of group {int(group[place[0]])}"
        for name, group in zip((f"query {query}", f"candidate {candidate}"), groups, strict=True)
    )
    raise InputError(f"batch: paired, with {apart} side by side in {rows(place)}; the two of a pair share a group")


def once(index: Tensor) -> Tensor:
    """Remove repeated rows, (n,), in order of first appearance."""
    return torch.tensor(list(dict.fromkeys(index.tolist())), dtype=torch.int64)
