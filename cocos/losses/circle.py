"""Circle: every pair has its own pace, the farther from its optimum the faster."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.base.ranges import NonNegative, Positive
from cocos.embeddings.scores import Pairs, logsumexp, softmax
from cocos.losses.base import Loss


@dataclass(frozen=True)
class Circle(Loss):
    r"""Soft hinge of all positives against all negatives, each with its own pace.

    .. math::
        \ell(s) = \log \Bigl(1 + \sum_{n \in N} e^{\gamma \alpha_n (s_n - m)}
        \sum_{p \in P} e^{-\gamma \alpha_p (s_p - 1 + m)}\Bigr), \quad
        \alpha_p = [1 + m - s_p]_+, \quad \alpha_n = [s_n + m]_+

    P are the positives of a query, N its negatives and s their scores. The paces are constants in training. The
    exponent of a negative, :math:`\gamma (s_n^2 - m^2)` above -m, is lowest at zero and rises again below it, so that
    the heaviest negative need not be the most similar one. With detach off, a negative between -m and 0 is *pulled*.

    Args:
        margin: m, in units of score; 0.4 as in the paper for fine-grained retrieval.
        gamma: γ, in 1/score; 80 likewise.
        detach: whether the paces are constants, as in the paper.

    Counts: negatives with a share above eps; unit γ, so that a share is a probability times a pace.
    Net: pull and push each follow their own paces; a well-placed side rests while the other moves.
    Source: Sun et al. 2020, Circle Loss, arXiv:2002.10857, eqs. 5-6.

    Examples:
        A positive and a negative at 0.5 are both 0.9 from their optima, 1.4 and -0.4.

        >>> pairs = cocos.Pairs(torch.tensor([[0.5, 0.5]]), torch.tensor([[True, False]]))
        >>> loss = cocos.losses.load("circle")
        >>> loss.weight(pairs) / loss.unit(pairs)
        tensor([[-0.9000,  0.9000]])
    """

    margin: NonNegative = 0.4
    gamma: Positive = 80.0
    detach: bool = True
    sample = "groups"
    family = "pair"

    @property
    def gradient(self) -> str:
        """With detach the paces are constants in training."""
        return "stop_gradient" if self.detach else "exact"

    def _paces(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The paces if they were positives and if they were negatives, (Q, C) each."""
        return (1 + self.margin - scores).relu(), (scores + self.margin).relu()

    def _logits(self, pairs: Pairs) -> Tensor:
        positive, negative = self._paces(pairs.scores.detach() if self.detach else pairs.scores)
        pull = -self.gamma * positive * (pairs.scores - 1 + self.margin)
        return torch.where(pairs.positive, pull, self.gamma * negative * (pairs.scores - self.margin))

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,), in nats; 0 for a query without a positive or without a negative."""
        logits = self._logits(pairs)
        total = logsumexp(logits, pairs.positive) + logsumexp(logits, pairs.negative)
        return torch.logaddexp(total, torch.zeros_like(total)).squeeze(dim=1)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C), by closed form.

        With :math:`t` the log of the product of the two sums and z the exponents: positives
        :math:`-\gamma \sigma(t) \alpha_p \, \mathrm{softmax}_P(z)_p`, negatives
        :math:`\gamma \sigma(t) \alpha_n \, \mathrm{softmax}_N(z)_n`. With detach off the paces become
        :math:`\alpha_p - (s_p - 1 + m)` and :math:`\alpha_n + (s_n - m)` where they are above 0.
        """
        logits, (positive, negative) = self._logits(pairs), self._paces(pairs.scores)
        if not self.detach:
            positive = torch.where(positive > 0, positive - (pairs.scores - 1 + self.margin), 0)
            negative = torch.where(negative > 0, negative + (pairs.scores - self.margin), 0)
        active = (logsumexp(logits, pairs.positive) + logsumexp(logits, pairs.negative)).sigmoid()
        push = negative * softmax(logits, pairs.negative)
        return self.gamma * active * (push - positive * softmax(logits, pairs.positive))

    def unit(self, pairs: Pairs) -> Tensor:
        """Return the weight of a candidate with all of its side at pace 1, (): γ."""
        return pairs.scores.new_tensor(self.gamma)
