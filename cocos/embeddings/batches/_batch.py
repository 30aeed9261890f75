"""A batch: rows of queries and candidates that are seen together, and own hard negatives beside them."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cocos.base.errors import InputError, rows
from cocos.embeddings import Embeddings


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
        dropped: copies of queries, and of candidates, that the pairs as drawn have and this batch has not.
        turned: the batch as the other side asks, where it is not these rows exchanged: a query that is drawn with
            several candidates asks for each of them, and is a candidate of theirs once. None: the rows exchanged.

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
    dropped: tuple[int, int] = (0, 0)
    turned: "Batch | None" = None

    @property
    def sizes(self) -> tuple[int, int]:
        """Queries and candidates."""
        return self.query_index.shape[0], self.candidate_index.shape[0]

    @property
    def partners(self) -> Tensor:
        """Rows of the candidates without the hard negatives beside them."""
        return self.candidate_index[: len(self.candidate_index) - self.extra]

    @property
    def without(self) -> tuple[int, int]:
        """Copies of candidates that this batch, and the flipped one, leave out."""
        return self.dropped[1], self.dropped[0] if self.turned is None else self.turned.dropped[1]

    @property
    def square(self) -> bool:
        """Whether both directions have the same rows, so that one visit of the scores serves both."""
        return self.extra == 0 and self.beside is None and self.turned is None

    def to(self, device: torch.device | str) -> "Batch":
        """Move the row numbers to another device; the same batch where they are there."""
        if self.query_index.device == torch.device(device):
            return self
        beside = None if self.beside is None else self.beside.to(device)
        indices = {name: getattr(self, name).to(device) for name in ("query_index", "candidate_index")}
        return replace(self, **indices, beside=beside, turned=self.turned and self.turned.to(device))

    def flip(self) -> "Batch":
        """Swap the sides. Twice is the identity."""
        if self.turned is not None:
            return replace(self.turned, turned=replace(self, turned=None))
        beside = self.candidate_index[len(self.partners) :]
        asked, extra = self.query_index, 0
        if self.beside is not None:
            asked, extra = torch.cat([asked, self.beside]), len(self.beside)
        return Batch(self.partners, asked, self.paired, extra, beside if self.extra else None, self.dropped[::-1])


def matches(embeddings: Embeddings, batch: Batch) -> None:
    """Refuse a batch of pairs whose rows are no pairs.

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


def with_negatives(batch: Batch, negatives: Tensor | None, turned: Tensor | None) -> Batch:
    """Add the hard negatives of the queries, and of the candidates, as further rows of the other side.

    Args:
        batch: rows that are drawn.
        negatives: (Q, K) rows of the candidates that each query names, -1 for none; or None.
        turned: (C, K), likewise, of the candidates where they ask.
    """
    candidate = _new(negatives, batch.query_index, batch.candidate_index)
    beside = _new(turned, batch.candidate_index, batch.query_index)
    other = batch.turned
    if other is not None:
        other = _with_extra(other, beside, candidate)
    return replace(_with_extra(batch, candidate, beside), turned=other)


def _with_extra(batch: Batch, extra: Tensor, beside: Tensor) -> Batch:
    """Add rows as further candidates, and those that the flipped batch has in their place."""
    together = torch.cat([batch.candidate_index, extra])
    return replace(batch, candidate_index=together, extra=len(extra), beside=beside if len(beside) else None)


def _new(negatives: Tensor | None, asking: Tensor, there: Tensor) -> Tensor:
    """Rows that some rows name as their negatives and that the batch does not have yet."""
    if negatives is None:
        return there[:0]
    found = once(negatives[asking].flatten())
    return found[(found >= 0) & ~torch.isin(found, there)]


def coverage(embeddings: Embeddings, drawn: tuple[Batch, ...], *, matched: bool) -> tuple[str, bool] | None:
    """Count the hard negatives that are drawn.

    Returns:
        A sentence, and whether all are drawn; None where no row names any.
    """
    negatives = embeddings.candidate_negatives if embeddings.negatives is None else embeddings.negatives
    if negatives is None:
        return None
    asking = [(batch.flip() if embeddings.negatives is None else batch).query_index for batch in drawn]
    named, reached = (negatives >= 0).cpu(), torch.zeros(len(negatives), dtype=torch.bool)
    if not matched:
        reached[torch.cat(asking).cpu()] = True
    every, missing = int(named.sum()), int(named[~reached].sum())
    why = "the loss reads pairs, row by row" if matched else "the queries that name them are not"
    if missing:
        return f"{missing} of the {every} hard negatives that are named are not drawn: {why}", False
    return f"all {every} hard negatives that are named are drawn with the queries that name them", True


def alone(embeddings: Embeddings, batch: Batch) -> tuple[Embeddings, Batch]:
    """Take the rows of a batch alone, in float64, and make the batch of them.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> rows = torch.tensor([2, 0])
        >>> part, batch = cocos.batches.alone(embeddings, cocos.batches.Batch(rows, rows, paired=True))
        >>> part.query.shape, batch.query_index
        (torch.Size([2, 3]), tensor([0, 1]))
    """
    query, candidate = batch.query_index, batch.candidate_index
    if embeddings.shared:
        rows = torch.cat([query, candidate]).unique()
        part, query, candidate = embeddings.rows(rows, rows), *(torch.searchsorted(rows, i) for i in (query, candidate))
    else:
        part = embeddings.rows(query, candidate)
        query, candidate = (torch.arange(len(index), device=index.device) for index in (query, candidate))
    return part.to(dtype=torch.float64), replace(batch, query_index=query, candidate_index=candidate, turned=None)
