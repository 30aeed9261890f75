"""Margin-MSE: the margins of the student should equal the teacher's."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.embeddings.scores import Pairs
from cocos.losses.base import Loss


@dataclass(frozen=True)
class MarginMSE(Loss):
    r"""Squared error of the margin between a positive and a negative, against the teacher's.

    .. math:: \ell(s) = \sum_{p \in P} \frac{1}{|N|} \sum_{n \in N} \bigl((s_p - s_n) - (t_p - t_n)\bigr)^2

    P are the positives of a query and N its negatives that have a score t of the teacher, s their scores. A negative
    is pushed where its margin is smaller than the teacher's, and pulled where it is larger: the loss is two-sided.

    Counts: negatives with a margin off by more than eps, in units of score, on average over the positives; unit
        2|P|/|N|. Negatives without a score of the teacher have no weight.
    Net: the weights of a query sum to zero, pulled negatives included.
    Source: Hofstätter et al. 2020, Improving Efficient Neural Ranking Models with Cross-Architecture Knowledge
        Distillation, arXiv:2010.02666, eq. 5.

    Examples:
        The teacher's margins are 1 and 3, the student's 2 and 2, so that the first negative is pulled:

        >>> scores, positive = torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([[True, False, False]])
        >>> pairs = cocos.Pairs(scores, positive, teacher=torch.tensor([[3.0, 2.0, 0.0]]))
        >>> loss = cocos.losses.load("margin_mse")
        >>> loss(pairs), loss.weight(pairs)
        (tensor([1.]), tensor([[ 0., -1.,  1.]]))
    """

    metric = "dot"
    balanced = True
    per_positive = True
    requires = ("teacher",)
    family = "distillation"
    aliases = {"margin mean squared error": {}}

    def _errors(self, pairs: Pairs) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Errors s - t; positives and negatives that take part, (Q, C) each; and the number of negatives, (Q, 1)."""
        teacher = self.teacher_scores(pairs).to(pairs.scores.dtype)
        scored = ~teacher.isnan()
        negative = pairs.negative & scored
        positive = pairs.positive & scored & negative.any(dim=1, keepdim=True)
        number = negative.sum(dim=1, keepdim=True).clamp(min=1)
        return torch.where(scored, pairs.scores - teacher.nan_to_num(), 0), positive, negative, number

    def value(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), in squared score; 0 for a query without a positive or negative with a teacher."""
        error, positive, negative, number = self._errors(pairs)
        mean = torch.where(negative, error, 0).sum(dim=1, keepdim=True) / number
        rest = torch.where(negative, (error - mean).square(), 0).sum(dim=1, keepdim=True) / number
        return torch.where(positive, (error - mean).square() + rest, 0).sum(dim=1)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C), by closed form. Each row sums to zero.

        With :math:`e = s - t`: positives :math:`2 (e_p - \bar{e}_N)`, negatives
        :math:`-\frac{2}{|N|} \sum_p (e_p - e_n)`.
        """
        error, positive, negative, number = self._errors(pairs)
        mean = torch.where(negative, error, 0).sum(dim=1, keepdim=True) / number
        pull = torch.where(positive, error - mean, 0)
        count = positive.sum(dim=1, keepdim=True)
        push = count * (error - mean) - pull.sum(dim=1, keepdim=True)
        return 2 * (pull + torch.where(negative, push, 0) / number)

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of a negative with a margin off by one unit of score for every positive, (Q, 1): 2|P|/|N|."""
        negative = pairs.negative if pairs.teacher is None else pairs.negative & ~pairs.teacher.isnan()
        return 2 * pairs.positives() / negative.sum(dim=1, keepdim=True).clamp(min=1)
