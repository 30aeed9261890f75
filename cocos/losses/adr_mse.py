"""ADR-MSE: the squared error of smooth ranks, with less weight on the lower ones."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.embeddings.scores import Pairs
from cocos.losses._graded import GradedList
from cocos.losses._shelf import Positive


@dataclass(frozen=True)
class ADRMSE(GradedList):
    r"""Mean squared error of the smooth rank of each candidate of a query from its rank by grade, discounted.

    .. math:: \ell(s) = \frac{1}{n} \sum_i \frac{(r_i - \tilde r_i)^2}{\log_2(r_i + 1)}, \quad
        \tilde r_i = 1 + \sum_{j \ne i} \sigma(\lambda (s_j - s_i))

    r is the rank of a candidate by its grade, which is the score of its teacher (the mean of their ranks for equal
    grades), n their number and s their scores.

    Args:
        scale: λ, in units of 1/score; 1 as in the paper.

    Counts: negatives whose weight exceeds eps units, pulled ones too; unit λ. Candidates without a grade have none.
    Net: push equals pull for every query; a negative that ranks lower than its grade says is pulled.
    Source: Schlatt et al. 2025, Rank-DistiLLM, arXiv:2405.07920, ADR-MSE; ranks of ties of sentence-transformers.
    Also called: approximate discounted rank MSE.
    Family: ranking.

    Examples:
        Two candidates at one score have the smooth rank 1.5: the better one is half a rank too low.

        >>> scores, positive = torch.zeros(1, 2), torch.tensor([[True, False]])
        >>> pairs = cocos.Pairs(scores, positive, teacher=torch.tensor([[1.0, 0.0]]))
        >>> cocos.losses.load("adr_mse")(pairs)
        tensor([0.2039])
    """

    scale: Positive = 1.0

    def _errors(self, pairs: Pairs) -> tuple[Tensor, Tensor, Tensor]:
        """Errors of the ranks and their factors, discount over n, (Q, C), and slopes of σ of two others, (Q, C, C)."""
        grades, known = self.graded(pairs)
        others = known[:, :, None] & known[:, None, :]
        others = others & ~torch.eye(known.shape[1], dtype=torch.bool, device=known.device)
        higher = torch.where(others, (self.scale * (pairs.scores[:, None, :] - pairs.scores[:, :, None])).sigmoid(), 0)
        above, same = (
            (compared & others).sum(dim=2).to(grades.dtype)
            for compared in (grades[:, None, :] > grades[:, :, None], grades[:, None, :] == grades[:, :, None])
        )
        rank = 1 + above + same / 2
        number = known.sum(dim=1, keepdim=True).clamp(min=1)
        factor = torch.where(known, math.log(2) / (rank + 1).log() / number, 0)
        return 1 + higher.sum(dim=2) - rank, factor, higher * higher.transpose(1, 2)

    def __call__(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), in ranks²; 0 for a query without a graded positive or a graded negative."""
        error, factor, _ = self._errors(pairs)
        return (factor * error.square()).sum(dim=1)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Closed form of ∂ Σ loss / ∂ score, (Q, C). Each row sums to zero.

        With d the derivative by the smooth rank, and :math:`g_{ij} = \sigma (1 - \sigma)` of :math:`\lambda (s_j -
        s_i)`: :math:`\lambda \sum_j g_{ij} (d_j - d_i)`.
        """
        error, factor, slopes = self._errors(pairs)
        d = 2 * factor * error
        return self.scale * ((slopes @ d[:, :, None]).squeeze(dim=2) - slopes.sum(dim=2) * d)

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of a rank for each unit of score, (): λ."""
        return pairs.scores.new_tensor(self.scale)
