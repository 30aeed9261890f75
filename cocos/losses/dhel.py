"""DHEL: decoupled, with the negatives of the query's own view alone."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from cocos.embeddings.scores import Pairs, logsumexp, softmax
from cocos.losses._shelf import Positive, ShelfLoss, sources


@dataclass(frozen=True)
class DHEL(ShelfLoss):
    r"""Decoupled hyperspherical energy: a query is pulled to its positive and pushed from the other queries.

    .. math:: \ell(s) = \sum_{p \in P} \Bigl( -\frac{s_p}{\tau} + \log \sum_{j \ne i} e^{s(q_i, q_j) / \tau} \Bigr)

    P are the positives of a query, s their scores, and :math:`s(q_i, q_j)` its scores with the other queries of the
    batch. The candidates that are no positives take no part: alignment reads one kind of score, uniformity another.

    Args:
        temperature: τ, in units of score. A small τ puts the weight on the nearest queries.

    Counts: other queries with more than eps of the softmax over them; unit |P|/τ. Pairs that do not say where their
        candidates come from have all negatives in the sum, which is then that of `dcl`.
    Net: push equals pull for every query, 1/τ for each positive.
    Source: Koromilas et al. 2024, Bridging Mini-Batch and Asymptotic Analysis in Contrastive Learning,
        arXiv:2405.18045.
    Also called: decoupled hyperspherical energy.
    Family: softmax.

    Examples:
        Two other queries, the last columns, share the push; the other candidate gets none:

        >>> scores, positive = torch.tensor([[0.9, 0.8, 0.3, 0.3]]), torch.tensor([[True, False, False, False]])
        >>> source = torch.tensor([[0, 0, 3, 3]], dtype=torch.int8)
        >>> loss, pairs = cocos.losses.load("dhel"), cocos.Pairs(scores, positive, source=source)
        >>> loss.weight(pairs) / loss.unit(pairs)
        tensor([[-1.0000,  0.0000,  0.5000,  0.5000]])
    """

    temperature: Positive = 0.1
    balanced: ClassVar[bool] = True
    directions: ClassVar[tuple[str, ...]] = (sources.DIRECTIONS[0], sources.SOURCES[sources.QUERY_QUERY])
    per_positive: ClassVar[bool] = True
    share: ClassVar[str] = "probability"

    @property
    def source_scales(self) -> tuple[float, ...]:
        """1/τ of Σ exp(s/τ) of the negatives of each source; one that takes no part has no weight."""
        return (1 / self.temperature,) * len(sources.SOURCES)

    def negatives(self, pairs: Pairs) -> Tensor:
        """Negatives that take part, (Q, C) bool: the other queries, or all where the pairs have no sources."""
        return pairs.negative if pairs.source is None else pairs.negative & (pairs.source == sources.QUERY_QUERY)

    def __call__(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), in nats, of either sign; 0 for a query without a positive or without a negative."""
        logits, negative = pairs.scores / self.temperature, self.negatives(pairs)
        some = negative.any(dim=1, keepdim=True)
        total = torch.where(some, logsumexp(logits, negative), 0)
        return torch.where(pairs.positive & some, total - logits, 0).sum(dim=1)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Closed form of ∂ Σ loss / ∂ score, (Q, C). Each row sums to zero.

        Positives :math:`-1/\tau`, other queries :math:`|P| \, \mathrm{softmax}(s / \tau) / \tau`.
        """
        negative = self.negatives(pairs)
        pull = pairs.positive & negative.any(dim=1, keepdim=True)
        push = pairs.positive.sum(dim=1, keepdim=True) * softmax(pairs.scores / self.temperature, negative)
        return (push - pull.to(push.dtype)) / self.temperature

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of a negative with all of the softmax, for every positive, (Q, 1): |P|/τ."""
        return pairs.positives() / self.temperature
