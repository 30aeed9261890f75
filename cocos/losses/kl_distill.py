"""KL distillation: the softmax of the student should equal the teacher's."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.base.ranges import Positive
from cocos.embeddings.scores import Pairs, logsumexp
from cocos.losses.base import Loss


@dataclass(frozen=True)
class KLDistill(Loss):
    r"""Kullback-Leibler divergence of the student's softmax over the candidates of a query from a teacher's.

    .. math:: \ell(s) = T^2 \sum_{j \in P \cup N} \pi^t_j \log \frac{\pi^t_j}{\pi^s_j}, \quad
        \pi^s = \mathrm{softmax}(s / T), \quad \pi^t = \mathrm{softmax}(t / T_t)

    P are the positives of a query and N its negatives that have a score t of the teacher, s their scores. A candidate
    is pushed where the student gives it more probability than the teacher does, and pulled where it gives it
    less, be it a positive or a negative.

    Args:
        temperature: T, in units of score.
        squared: whether the loss is multiplied by T², so that its weights do not shrink with 1/T². Some codes leave
            the factor out.
        teacher_temperature: T of the teacher, in units of its scores; None: the student's.

    Counts: negatives with probabilities under student and teacher that differ by more than eps; unit T, or 1/T where
        the loss is not squared. Candidates without a score of the teacher have no weight.
    Net: the weights of a query sum to zero.
    Source: Hinton et al. 2015, Distilling the Knowledge in a Neural Network, arXiv:1503.02531, sec. 2; over the
        candidates of a query Lin et al. 2020, arXiv:2010.11386, eq. 4.

    Examples:
        The student is undecided, the teacher gives the positive three times as much as the negative:

        >>> scores, positive = torch.tensor([[0.0, 0.0]]), torch.tensor([[True, False]])
        >>> pairs = cocos.Pairs(scores, positive, teacher=torch.tensor([[3.0, 1.0]]).log())
        >>> cocos.losses.load("kl_distill").weight(pairs)
        tensor([[-0.2500,  0.2500]])
    """

    temperature: Positive = 1.0
    squared: bool = True
    teacher_temperature: Positive | None = None
    metric = "dot"
    balanced = True
    requires = ("teacher",)
    family = "distillation"
    aliases = {
        "DistillKLDiv": {},
        "KL divergence distillation": {},
        "ListNet": {"temperature": 1},  # with grades as teacher: Cao et al. 2007, doi:10.1145/1273496.1273513, eq. 7
    }

    def _log_probabilities(self, pairs: Pairs) -> tuple[Tensor, Tensor, Tensor]:
        """Candidates that take part, and the logs of both softmaxes, 0 elsewhere, (Q, C) each."""
        teacher = self.teacher_scores(pairs).to(pairs.scores.dtype)
        scored = ~teacher.isnan()
        mixed = (pairs.positive & scored).any(dim=1, keepdim=True) & (pairs.negative & scored).any(dim=1, keepdim=True)
        included = (pairs.positive | pairs.negative) & scored & mixed
        softness = self.temperature if self.teacher_temperature is None else self.teacher_temperature
        logits = pairs.scores / self.temperature, teacher.nan_to_num() / softness
        student_logs, teacher_logs = (
            torch.where(included, z - torch.where(mixed, logsumexp(z, included), 0), 0) for z in logits
        )
        return included, student_logs, teacher_logs

    @property
    def _gradient_scale(self) -> float:
        """Weight of a difference of one in probability: T, or 1/T."""
        return self.temperature if self.squared else 1 / self.temperature

    def value(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), in nats, times T²; 0 for a query without a positive or negative with a teacher."""
        included, student_logs, teacher_logs = self._log_probabilities(pairs)
        terms = torch.where(included, teacher_logs.exp() * (teacher_logs - student_logs), 0)
        return self._gradient_scale * self.temperature * terms.sum(dim=1)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C): :math:`T (\pi^s - \pi^t)`, or :math:`1/T` times the difference.

        Each row sums to zero.
        """
        included, student_logs, teacher_logs = self._log_probabilities(pairs)
        return self._gradient_scale * torch.where(included, student_logs.exp() - teacher_logs.exp(), 0)

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of a candidate that has all of the student's probability and none of the teacher's, (): T or 1/T."""
        return pairs.scores.new_tensor(self._gradient_scale)
