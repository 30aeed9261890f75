"""DCL: the positive leaves the denominator of the softmax, so that the pull never fades."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.base.ranges import Positive
from cocos.embeddings.scores import Pairs, logsumexp, softmax
from cocos.losses.base import Loss


@dataclass(frozen=True)
class DCL(Loss):
    r"""Decoupled contrastive loss: NT-Xent without the positive in its denominator, summed over the positives.

    .. math:: \ell(s) = \sum_{p \in P} \Bigl( -\frac{s_p}{\tau} + \log \sum_{n \in N} e^{s_n / \tau} \Bigr)

    P are the positives of a query, N its negatives and s their scores. A positive is pulled with 1/τ however well it is
    placed, and the negatives share the same push: NT-Xent's factor 1 - p(match), which fades in small batches, is gone.

    Args:
        temperature: τ, in units of score; 0.1 as in the paper. A small τ puts the weight on the hardest negatives.

    Counts: negatives with more than eps of the softmax over the negatives; unit |P|/τ. No query with a positive and a
        negative is idle, unless eps is above one part in the number of negatives.
    Net: push equals pull for every query, 1/τ for each positive.
    Source: Yeh et al. 2022, Decoupled Contrastive Learning, arXiv:2110.06848, eq. 6, where all negatives are in one
        sum. lightly's DCLLoss took the logarithm of each view's sum by itself until 2025 (its pull request 1827), and
        pushed twice as hard as it pulled.

    Examples:
        Two negatives with equal scores share the push of a positive, which has all of the pull:

        >>> pairs = cocos.Pairs(torch.tensor([[0.9, 0.3, 0.3]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("dcl")
        >>> loss.weight(pairs) / loss.unit(pairs)
        tensor([[-1.0000,  0.5000,  0.5000]])
    """

    temperature: Positive = 0.1
    balanced = True
    per_positive = True
    share = "probability"
    family = "softmax"
    aliases = {"decoupled contrastive learning": {}, "decoupled contrastive": {}}

    @property
    def softmax_scale(self) -> float:
        """λ of Σ exp(λ s), the only term in which the negatives of a query appear."""
        return 1 / self.temperature

    def value(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), in nats, of either sign; 0 for a query without a positive or without a negative."""
        logits, any_negative = pairs.scores / self.temperature, pairs.negative.any(dim=1, keepdim=True)
        total = torch.where(any_negative, logsumexp(logits, pairs.negative), 0)
        return torch.where(pairs.positive & any_negative, total - logits, 0).sum(dim=1)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C), by closed form. Each row sums to zero.

        Positives :math:`-1/\tau`, negatives :math:`|P| \, \mathrm{softmax}_N(s / \tau) / \tau`.
        """
        any_negative = pairs.negative.any(dim=1, keepdim=True)
        number = pairs.positive.sum(dim=1, keepdim=True)
        push = number * softmax(pairs.scores / self.temperature, pairs.negative)
        return (push - (pairs.positive & any_negative).to(push.dtype)) / self.temperature

    def unit(self, pairs: Pairs) -> Tensor:
        """Return the weight of a negative with all of the softmax, for every positive, (Q, 1): |P|/τ."""
        return pairs.positives() / self.temperature
