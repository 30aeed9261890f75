"""Losses of one difference: each positive of a query is compared with each of its negatives by itself."""

from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor

from cocos.embeddings.scores import Pairs
from cocos.losses._shelf import ShelfLoss


class Differences(ShelfLoss):
    r"""Sum over the positives p and negatives n of a query of one function f of :math:`h = a_p - a_n`.

    .. math:: \ell(s) = \sum_{p \in P} \sum_{n \in N} f(a_p - a_n), \quad
        w_p = \sum_{n \in N} f'(a_p - a_n), \quad w_n = -\sum_{p \in P} f'(a_p - a_n)

    a are the scores, or what a loss makes of them. The pull on a positive and the push on a negative are the same
    number, so that a loss that falls says nothing of their sum.
    """

    metric: ClassVar[str] = "dot"
    per_positive: ClassVar[bool] = True

    @property
    def balanced(self) -> bool:
        """Whether the weights of a query sum to zero: f reads differences."""
        return True

    @property
    def share(self) -> str | None:
        """A share is a probability: that of a negative to win."""
        return "probability"

    def compared(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Scores a that are compared, and the pairs that take part, (Q, C) each; their derivative by the score is 1."""
        return pairs.scores, pairs.positive | pairs.negative

    def value(self, difference: Tensor) -> Tensor:
        """Compute f, elementwise."""
        raise NotImplementedError

    def slope(self, difference: Tensor) -> Tensor:
        """Compute f', elementwise: below zero where the positive shall win by more."""
        raise NotImplementedError

    def _slots(self, pairs: Pairs) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """For each place among the positives: its columns, (Q, 1), the differences and which of them count, (Q, C)."""
        compared, known = self.compared(pairs)
        for index, filled in zip(*(part.split(1, dim=1) for part in pairs.slots()), strict=True):
            count = pairs.negative & known & filled & known.gather(1, index)
            yield index, compared.gather(1, index) - compared, count

    def __call__(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,); 0 for a query without a positive or without a negative."""
        total = pairs.scores.new_zeros(pairs.scores.shape[0])
        for _, difference, count in self._slots(pairs):
            total = total + torch.where(count, self.value(difference), 0).sum(dim=1)
        return total

    def weight(self, pairs: Pairs) -> Tensor:
        """Closed form of ∂ Σ loss / ∂ score, (Q, C): the slopes of all comparisons, see the class."""
        weights = torch.zeros_like(pairs.scores)
        for index, difference, count in self._slots(pairs):
            slope = torch.where(count, self.slope(difference), 0)
            weights = (weights - slope).scatter_add(1, index, slope.sum(dim=1, keepdim=True))
        return weights

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of a negative that certainly wins against every positive, (Q, 1): |P|."""
        return pairs.positives()
