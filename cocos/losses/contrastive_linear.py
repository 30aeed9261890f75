"""Contrastive with linear hinges on the distance."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.base.ranges import NonNegative
from cocos.embeddings.scores import Pairs
from cocos.losses.base import Loss


@dataclass(frozen=True)
class ContrastiveLinear(Loss):
    r"""How far each positive is beyond one margin, and each negative within another.

    .. math:: \ell(d) = \sum_{p \in P} [d_p - m_p]_+ + \sum_{n \in N} [m_n - d_n]_+

    :math:`d` is the Euclidean distance, minus the score, of the positives P and the negatives N of a query. Every pair
    that violates its margin has the same weight, however hard it is.

    Args:
        pos_margin: m_p, in units of distance: positives within it are left alone; 0 as in the source.
        neg_margin: m_n, in units of distance: negatives beyond it are left alone; 1 as in the source.

    Counts: negatives closer than their margin, whole numbers; unit 1, one violation. A pair exactly at its margin
    does not contribute.
    Net: pull and push are the numbers of violating positives and negatives; nothing ties one to the other.
    Source: Musgrave et al. 2020, PyTorch Metric Learning, arXiv:2008.09164, from its published code.

    Examples:
        The distance of the positive, 0.2, and the shortfall of the nearer negative from the margin of 1, 0.6.

        >>> pairs = cocos.Pairs(torch.tensor([[-0.2, -0.4, -2.0]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("contrastive_linear")
        >>> loss(pairs)
        tensor([0.8000])
        >>> loss.weight(pairs)
        tensor([[-1.,  1.,  0.]])
    """

    pos_margin: NonNegative = 0.0
    neg_margin: NonNegative = 1.0
    metric = "euclidean"
    family = "pair"
    aliases = {"contrastive loss without the squares": {}}

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,), in units of distance; a query may have positives or negatives only."""
        distance = -pairs.scores
        push = torch.where(pairs.negative, (self.neg_margin - distance).relu(), 0)
        return torch.where(pairs.positive, (distance - self.pos_margin).relu(), push).sum(dim=1)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C): positives :math:`-[d_p > m_p]`, negatives :math:`[d_n < m_n]`."""
        distance = -pairs.scores
        pull = pairs.positive & (distance > self.pos_margin)
        push = pairs.negative & (distance < self.neg_margin)
        return push.to(distance.dtype) - pull.to(distance.dtype)
