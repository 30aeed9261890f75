"""Cross-example negative mining: each positive against the hardest negatives of the whole batch."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.base.ranges import Fraction, Positive
from cocos.embeddings.scores import Pairs
from cocos.losses.families.cross_example import BatchSoftmax


@dataclass(frozen=True)
class CrossExampleNegativeMining(BatchSoftmax):
    r"""Cross-entropy of each positive of a query against the hardest negative pairs of the batch, summed over them.

    .. math::
        \ell_q(s) = -\sum_{p \in P_q} \log \frac{e^{\lambda s_{qp}}}{e^{\lambda s_{qp}} + Z}, \quad
        Z = \sum_{(k, n) \in T} e^{\lambda s_{kn}}, \quad |T| = \max(1, \lfloor \varphi \textstyle\sum_k |N_k| \rfloor)

    :math:`P_q` are the positives of query q, :math:`N_k` the negatives of query k, s their scores and T the negative
    pairs of the batch with the highest scores. A query may keep all of its negatives or none. Of equally hard pairs the
    first ones are kept, row by row; no gradient flows through the choice of T.

    Args:
        scale: λ, in units of 1/score. The paper scales its logits by 20 in section 4.2, the default; the formula of
            its section 4.1, read literally, scales both embeddings and makes it 400.
        fraction: φ, the part of the negative pairs that is kept, above 0 and at most 1; half as in the paper.

    Counts: kept negatives with more than eps of λ; every query pushes each of them, so shares may exceed 1; unit
        λ|P|. Where pairs tie at the cut, a batch whose scores are stored and one whose scores are visited tile by tile
        may keep different ones of them, since products round differently: number and total are the same, a query's own
        may not be.
    Net: push equals pull over the batch, not for a query: one with easy negatives only pulls.
    Source: Veit & Wilber 2020, Cross-Example Softmax, arXiv:2011.08824, eq. 6; scale of section 4.2.

    Examples:
        The harder half of the negatives is kept: one that is level with the positive, and the loss is ln 2.

        >>> pairs = cocos.Pairs(torch.tensor([[0.5, 0.5, 0.3]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("ce_nm")
        >>> loss(pairs)
        tensor([0.6931])
        >>> loss.weight(pairs) / loss.unit(pairs)
        tensor([[-0.5000,  0.5000,  0.0000]])
    """

    scale: Positive = 20.0
    fraction: Fraction = 0.5
    family = "softmax"

    def negatives(self, pairs: Pairs) -> Tensor:
        """The hardest negative pairs of the batch, (Q, C) bool."""
        scores = pairs.scores.detach().masked_fill(~pairs.negative, -torch.inf).flatten()
        rank = scores.argsort(descending=True, stable=True).argsort().reshape(pairs.scores.shape)
        number = math.floor(self.fraction * int(pairs.negative.sum()) + 1e-9)  # 0.29 of 100 is 29, not 28
        return pairs.negative & (rank < max(1, number))
