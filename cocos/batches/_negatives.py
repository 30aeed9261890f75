"""Hard negatives that rows name as their own, drawn with the rows that name them."""

import torch
from torch import Tensor

from cocos.batches._batch import Batch, once
from cocos.embeddings import Embeddings

__all__ = ["coverage", "with_negatives"]


def with_negatives(batch: Batch, negatives: Tensor | None, turned: Tensor | None) -> Batch:
    """Add the hard negatives of the queries, and of the candidates, as further rows of the other side.

    Args:
        batch: rows that are drawn.
        negatives: (Q, K) rows of the candidates that each query names, -1 for none; or None.
        turned: (C, K), likewise, of the candidates where they ask.
    """
    candidate = _new(negatives, batch.query_index, batch.candidate_index)
    beside = _new(turned, batch.candidate_index, batch.query_index)
    together = torch.cat([batch.candidate_index, candidate])
    return Batch(batch.query_index, together, batch.paired, len(candidate), beside if len(beside) else None)


def _new(negatives: Tensor | None, asking: Tensor, there: Tensor) -> Tensor:
    """Rows that some rows name as their negatives and that the batch does not have yet."""
    if negatives is None:
        return there[:0]
    found = once(negatives[asking].flatten())
    return found[(found >= 0) & ~torch.isin(found, there)]


def coverage(embeddings: Embeddings, drawn: tuple[Batch, ...], *, matched: bool) -> tuple[str, bool] | None:
    """Count the hard negatives that are drawn.

    Args:
        embeddings: whose rows name the negatives.
        drawn: the batches of a run.
        matched: the batches are pairs, row by row, without hard negatives.

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
