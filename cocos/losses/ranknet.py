"""RankNet: of two candidates the one of the higher grade shall rank higher, by the logistic function."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.base.ranges import Positive
from cocos.embeddings.scores import Pairs
from cocos.losses.families.graded import GradedList


@dataclass(frozen=True)
class RankNet(GradedList):
    r"""Logistic loss of every two candidates of a query with different grades.

    .. math:: \ell(s) = \sum_{y_i > y_j} \log \bigl( 1 + e^{-\lambda (s_i - s_j)} \bigr)

    y are the grades of the candidates of the query, which are the scores of its teacher, and s their scores. Positives
    are compared with each other, and negatives too, where their grades differ. Two grades alone make it `bpr`.

    Args:
        scale: λ, in units of 1/score; 1 as in the paper (σ in LambdaRank and in libraries).

    Counts: negatives that lose more than eps of one comparison, or are pulled by it; unit λ, one comparison surely
        lost, so that a share is their expected number. Candidates without a grade have no weight.
    Net: push equals pull for every query, and for every comparison.
    Source: Burges et al. 2005, Learning to Rank using Gradient Descent, doi:10.1145/1102351.1102363, eq. 3.

    Examples:
        Three grades at one score: three comparisons, each half lost. The middle one wins as much as it loses.

        >>> scores, positive = torch.zeros(1, 3), torch.tensor([[True, True, False]])
        >>> pairs = cocos.Pairs(scores, positive, teacher=torch.tensor([[2.0, 1.0, 0.0]]))
        >>> cocos.losses.load("ranknet").weight(pairs)
        tensor([[-1.,  0.,  1.]])
    """

    scale: Positive = 1.0
    family = "ranking"
    aliases = {"pairwise logistic ranking": {}}

    def _compared(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Logits λ (s_i - s_j), and where i has the higher grade, (Q, C, C) each."""
        grades, graded = self.graded(pairs)
        better = (grades[:, :, None] > grades[:, None, :]) & graded[:, :, None] & graded[:, None, :]
        return self.scale * (pairs.scores[:, :, None] - pairs.scores[:, None, :]), better

    def value(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), in nats; 0 for a query without a graded positive or a graded negative."""
        logits, better = self._compared(pairs)
        return torch.where(better, torch.logaddexp(-logits, torch.zeros_like(logits)), 0).sum(dim=(1, 2))

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C), by closed form. Each row sums to zero.

        With :math:`q_{ij} = \sigma(-\lambda (s_i - s_j))`: :math:`\lambda (\sum_{j: y_j > y_i} q_{ji} -
        \sum_{j: y_i > y_j} q_{ij})`.
        """
        logits, better = self._compared(pairs)
        lost = torch.where(better, (-logits).sigmoid(), 0)
        return self.scale * (lost.sum(dim=1) - lost.sum(dim=2))

    def unit(self, pairs: Pairs) -> Tensor:
        """Return the weight of one comparison that is surely lost, (): λ."""
        return pairs.scores.new_tensor(self.scale)
