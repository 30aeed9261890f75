"""Contrastive: positives are pulled to their query, negatives pushed beyond a margin."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.base.ranges import Positive
from cocos.embeddings.scores import Pairs
from cocos.losses.base import Loss


@dataclass(frozen=True)
class Contrastive(Loss):
    r"""Half the squared distance of each positive, and half the squared shortfall of each negative from the margin.

    .. math:: \ell(d) = \sum_{p \in P} \tfrac{1}{2} d_p^2 + \sum_{n \in N} \tfrac{1}{2} [m - d_n]_+^2

    :math:`d` is the Euclidean distance, minus the score, of the positives P and the negatives N of a query. Every pair
    acts alone: no negative is compared with a positive, and the weight of a negative grows as it comes closer.

    Args:
        margin: m, in units of distance: how far away a negative must be. The paper asks only m > 0; 1 is the
            default of PyTorch Metric Learning, arXiv:2008.09164.

    Counts: negatives closer than the margin, without a threshold; unit m, the weight of a negative at distance 0. A
    negative exactly at the margin does not contribute.
    Net: positives pull with the sum of their distances, whatever the push.
    Source: Hadsell et al. 2006, Learning an Invariant Mapping, doi:10.1109/CVPR.2006.100, eq. 4.

    Examples:
        Half the squared distance of the positive, 0.02, and half the squared shortfall of the nearer negative, 0.18.

        >>> pairs = cocos.Pairs(torch.tensor([[-0.2, -0.4, -2.0]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("contrastive")
        >>> loss(pairs)
        tensor([0.2000])
        >>> loss.weight(pairs)
        tensor([[-0.2000,  0.6000,  0.0000]])
    """

    margin: Positive = 1.0
    metric = "euclidean"
    family = "pair"
    aliases = {"DrLIM": {}, "siamese loss": {}}

    def value(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), in units of squared distance; a query may have positives or negatives only."""
        distance = -pairs.scores
        pull = torch.where(pairs.positive, distance, 0).square()
        push = torch.where(pairs.negative, (self.margin - distance).relu(), 0).square()
        return (pull + push).sum(dim=1) / 2

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C): positives :math:`-d_p`, negatives :math:`[m - d_n]_+`."""
        distance = -pairs.scores
        push = torch.where(pairs.negative, (self.margin - distance).relu(), 0)
        return torch.where(pairs.positive, -distance, push)

    def unit(self, pairs: Pairs) -> Tensor:
        """Return the weight of a negative at distance 0, (): m."""
        return pairs.scores.new_tensor(self.margin)
