"""BPR: each positive shall rank above each negative, by the logistic function of their difference."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.losses._differences import Differences


@dataclass(frozen=True)
class BPR(Differences):
    r"""Logistic loss of the difference of each positive and each negative of a query.

    .. math:: \ell(s) = -\sum_{p \in P} \sum_{n \in N} \log \sigma(s_p - s_n)

    P are the items that a user chose, N sampled others, and s their scores. Each comparison is one by itself: unlike
    in a softmax the negatives do not share the push, and the more of them there are, the larger the loss.

    Counts: negatives that rank above a positive with a probability :math:`\sigma(s_n - s_p)`, the mean over the
        positives, of more than eps; unit |P|.
    Net: push equals pull for every query, and for every comparison.
    Source: Rendle et al. 2009, BPR: Bayesian Personalized Ranking from Implicit Feedback, arXiv:1205.2618, section 4.1
        (BPR-Opt), without the regularizer of the embeddings.
    Also called: Bayesian personalized ranking, pairwise softplus.
    Family: ranking.

    Examples:
        A negative at the score of the positive wins in half of the cases, one that is log 3 below in a quarter:

        >>> scores, positive = torch.tensor([[0.0, 0.0, -1.0986]]), torch.tensor([[True, False, False]])
        >>> cocos.losses.load("bpr").weight(cocos.Pairs(scores, positive))
        tensor([[-0.7500,  0.5000,  0.2500]])
    """

    def value(self, difference: Tensor) -> Tensor:
        """Compute -log σ(h)."""
        return torch.logaddexp(-difference, torch.zeros_like(difference))

    def slope(self, difference: Tensor) -> Tensor:
        """Compute -σ(-h)."""
        return -(-difference).sigmoid()
