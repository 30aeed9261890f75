"""Triplet-SH: only the hardest negative of a query."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.base.ranges import NonNegative
from cocos.embeddings.scores import Pairs
from cocos.losses.base import Loss


@dataclass(frozen=True)
class TripletSH(Loss):
    r"""Hinge with the hardest negative of the batch, summed over the positives of a query.

    .. math:: \ell(s) = \sum_{p \in P} [\alpha - s_p + \max_{n \in N} s_n]_+

    A query has one contributing negative or none. The papers call it "semi-hard"; it is the *hardest* negative, not
    the semi-hard one of FaceNet.

    Args:
        margin: α, in units of score: how much a positive must win by.

    Counts: the hardest negative where it violates; unit 1, one violated triplet. FaceNet's semi-hard negatives are
    others, those that score below the positive: `semi_hard(triplet)`. Of equally hard negatives the first one takes
    the weight.
    Net: push equals pull for every query.
    Source: Faghri et al. 2018, VSE++, arXiv:1707.05612, eq. 6; α of Bleeker & de Rijke 2022, arXiv:2202.07474.

    Examples:
        Two negatives violate the margin of 0.2; the hardest one alone counts, by 0.1.

        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.65]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("triplet_sh")
        >>> loss(pairs)
        tensor([0.1000])
        >>> loss.weight(pairs) + 0.0
        tensor([[-1.,  1.,  0.]])
    """

    margin: NonNegative = 0.2
    hinge = "hardest"  # of margin - positive + negative
    balanced = True
    family = "triplet"
    aliases = {
        "max of hinges": {},
        "MH": {},
        "VSE++": {},
        "batch-hard": {},
        "batch-hard triplet": {},
        "semi-hard": {},  # by the slides
    }

    def _hardest_negative(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Score and place of the hardest negative, (Q, 1) each; -inf for a query without a negative."""
        return pairs.scores.masked_fill(~pairs.negative, -torch.inf).max(dim=1, keepdim=True)

    def value(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), in units of score; 0 for a query without a positive or without a negative."""
        hinge = (self.margin - pairs.scores + self._hardest_negative(pairs)[0]).relu()
        return torch.where(pairs.positive, hinge, 0).sum(dim=1)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C), by closed form, whole numbers.

        With :math:`n^*` the hardest negative: :math:`w_{n^*} = \#\{p : s_p - s_{n^*} < \alpha\}`,
        :math:`w_p = -[s_p - s_{n^*} < \alpha]`, all else 0.
        """
        hardest, index = self._hardest_negative(pairs)
        active = pairs.positive & (self.margin - pairs.scores + hardest > 0)
        pull = active.to(pairs.scores.dtype)
        return (-pull).scatter_add(1, index, pull.sum(dim=1, keepdim=True))
