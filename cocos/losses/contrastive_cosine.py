"""Contrastive on cosines: the calibration term of ROADMAP."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.base.ranges import Finite
from cocos.embeddings.scores import Pairs
from cocos.losses.base import Loss


@dataclass(frozen=True)
class ContrastiveCosine(Loss):
    r"""Shortfall of each positive from one cosine, and excess of each negative over another.

    .. math:: \ell(s) = \sum_{p \in P} [m_p - s_p]_+ + \sum_{n \in N} [s_n - m_n]_+

    P are the positives of a query, N its negatives and s their scores. It asks for absolute scores, the same for every
    query, which losses of differences leave free: ROADMAP adds it to a loss of ranks to calibrate them.

    Args:
        pos_margin: m_p, in units of score: score that a positive must reach; 0.9 as in the configuration published with
            ROADMAP.
        neg_margin: m_n, in units of score: score that a negative must not exceed; 0.6 likewise.

    Counts: negatives above their margin, whole numbers; unit 1, one violation. A pair exactly at its margin does
    not contribute.
    Net: pull and push are the numbers of violating positives and negatives; nothing ties one to the other.
    Source: Ramzi et al. 2021, Robust and Decomposable Average Precision, arXiv:2110.01445, calibration loss.

    Examples:
        The positive is 0.4 short of 0.9, and one negative 0.1 above 0.6.

        >>> pairs = cocos.Pairs(torch.tensor([[0.5, 0.7, 0.2]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("contrastive_cosine")
        >>> loss(pairs)
        tensor([0.5000])
        >>> loss.weight(pairs)
        tensor([[-1.,  1.,  0.]])
    """

    pos_margin: Finite = 0.9
    neg_margin: Finite = 0.6
    sample = "groups"
    family = "pair"
    aliases = {"calibration loss": {}}

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,), in units of score; a query may have positives or negatives only."""
        push = torch.where(pairs.negative, (pairs.scores - self.neg_margin).relu(), 0)
        return torch.where(pairs.positive, (self.pos_margin - pairs.scores).relu(), push).sum(dim=1)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C): positives :math:`-[s_p < m_p]`, negatives :math:`[s_n > m_n]`."""
        pull = pairs.positive & (pairs.scores < self.pos_margin)
        push = pairs.negative & (pairs.scores > self.neg_margin)
        return push.to(pairs.scores.dtype) - pull.to(pairs.scores.dtype)
