"""Stochastic negative mining: a softmax over the hardest of a query's negatives."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.base.ranges import Fraction, Positive
from cocos.embeddings.scores import Pairs
from cocos.losses.base import SoftmaxLoss


@dataclass(frozen=True)
class StochasticNegativeMining(SoftmaxLoss):
    r"""Cross-entropy of each positive of a query against its hardest negatives, summed over the positives.

    .. math::
        \ell(s) = -\sum_{p \in P} \log \frac{e^{\lambda s_p}}{e^{\lambda s_p} + \sum_{n \in T} e^{\lambda s_n}},
        \quad |T| = \max(1, \lfloor \varphi |N| \rfloor)

    P are the positives of the query, N its negatives, s their scores and T the negatives with the highest scores. Of
    equally hard negatives the first ones are kept; those left out have no weight. No gradient flows through the
    choice of T.

    Args:
        scale: λ, in units of 1/score. The paper scales its logits by 20 in section 4.2, the default; the formula of
            its section 4.1, read literally, scales both embeddings and makes it 400.
        fraction: φ, the part of a query's negatives that is kept, above 0 and at most 1; half as in the paper.

    Counts: kept negatives with a softmax probability above eps; unit λ|P|.
    Net: push equals pull for every query.
    Source: Reddi et al. 2019, arXiv:1810.07076, in the form of Veit & Wilber 2020, arXiv:2011.08824, eq. 3.

    Examples:
        The harder half of the negatives is kept: one that is level with the positive, and the loss is ln 2.

        >>> pairs = cocos.Pairs(torch.tensor([[0.5, 0.5, 0.3]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("snm")
        >>> loss(pairs)
        tensor([0.6931])
        >>> loss.weight(pairs) / loss.unit(pairs)
        tensor([[-0.5000,  0.5000,  0.0000]])
    """

    scale: Positive = 20.0
    fraction: Fraction = 0.5
    balanced = True
    softmax_scale = None  # of some negatives only
    family = "softmax"

    def negatives(self, pairs: Pairs) -> Tensor:
        """The hardest negatives of each query, (Q, C) bool."""
        scores = pairs.scores.detach().masked_fill(~pairs.negative, -torch.inf)
        rank = scores.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        number = pairs.negative.sum(dim=1, keepdim=True).double()
        limit = (self.fraction * number + 1e-9).floor().clamp(min=1)  # 0.29 of 100 is 29, not 28
        return pairs.negative & (rank < limit)
