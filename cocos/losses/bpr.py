"""BPR: each positive shall rank above each negative, by the logistic function of their difference."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.embeddings.scores import Pairs
from cocos.losses.base import Loss


@dataclass(frozen=True)
class BPR(Loss):
    r"""Logistic loss of the difference of each positive and each negative of a query.

    .. math:: \ell(s) = -\sum_{p \in P} \sum_{n \in N} \log \sigma(s_p - s_n)

    P are the items that a user chose, N sampled others, and s their scores. Each comparison is one by itself: unlike
    in a softmax the negatives do not share the push, and the more of them there are, the larger the loss.

    Counts: negatives that rank above a positive with a probability :math:`\sigma(s_n - s_p)`, the mean over the
        positives, of more than eps; unit |P|.
    Net: push equals pull for every query, and for every comparison.
    Source: Rendle et al. 2009, BPR: Bayesian Personalized Ranking from Implicit Feedback, arXiv:1205.2618, section 4.1
        (BPR-Opt), without the regularizer of the embeddings.

    Examples:
        A negative at the score of the positive wins in half of the cases, one that is log 3 below in a quarter:

        >>> scores, positive = torch.tensor([[0.0, 0.0, -1.0986]]), torch.tensor([[True, False, False]])
        >>> cocos.losses.load("bpr").weight(cocos.Pairs(scores, positive))
        tensor([[-0.7500,  0.5000,  0.2500]])
    """

    metric = "dot"
    per_positive = True
    balanced = True
    share = "probability"
    family = "ranking"
    aliases = {"Bayesian personalized ranking": {}, "pairwise softplus": {}}

    def _slots(self, pairs: Pairs) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """For each place among the positives: its columns, (Q, 1), the differences and which of them count, (Q, C)."""
        for index, filled in zip(*(part.split(1, dim=1) for part in pairs.slots()), strict=True):
            yield index, pairs.scores.gather(1, index) - pairs.scores, pairs.negative & filled

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,); 0 for a query without a positive or without a negative."""
        total = pairs.scores.new_zeros(pairs.scores.shape[0])
        for _, difference, count in self._slots(pairs):
            value = torch.logaddexp(-difference, torch.zeros_like(difference))
            total = total + torch.where(count, value, 0).sum(dim=1)
        return total

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C), by closed form. Each row sums to zero.

        Positives :math:`-\sum_n \sigma(s_n - s_p)`, negatives :math:`\sum_p \sigma(s_n - s_p)`.
        """
        weights = torch.zeros_like(pairs.scores)
        for index, difference, count in self._slots(pairs):
            slope = torch.where(count, -(-difference).sigmoid(), 0)
            weights = (weights - slope).scatter_add(1, index, slope.sum(dim=1, keepdim=True))
        return weights

    def unit(self, pairs: Pairs) -> Tensor:
        """Return the weight of a negative that certainly wins against every positive, (Q, 1): |P|."""
        return pairs.positives()
