"""RINCE: InfoNCE with powers in place of logarithms, so that a false positive has a bounded pull."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from cocos.embeddings.scores import Pairs, logsumexp
from cocos.losses._shelf import Fraction, Positive, ShelfLoss

# Part of the exponents of a dtype that powers of scores may use; the rest is left for their sums and factors.
EXPONENTS = 0.9


@dataclass(frozen=True)
class RINCE(ShelfLoss):
    r"""Robust InfoNCE: a power of the positive against the same power of its sum with the negatives.

    .. math::
        \ell(s) = \sum_{p \in P} \frac{-e^{q s_p / \tau} + (\lambda Z_p)^q}{q}, \quad
        Z_p = e^{s_p / \tau} + \sum_{n \in N} e^{s_n / \tau}

    P are the positives of a query, N its negatives and s their scores. Towards q = 0 it becomes InfoNCE; at q = 1 it is
    symmetric in positive and negatives. A query counts :math:`Z^q` times: one whose positive is far away, which may be
    a false one, has little weight, where InfoNCE gives it the most. The loss of a query may be below zero.

    Args:
        temperature: τ, in units of score.
        q: q, above 0 and at most 1; 0.5 as in the published code.
        lam: λ, above 0 and at most 1, the density of the negatives; published settings go from 0.001 to 0.025.

    Counts: negatives whose softmax probability exceeds eps; unit (λZ)^q/τ, summed over the positives.
    Net: push and pull are unequal: a positive is pulled by exp(q s/τ)/τ less its own part of the softmax, and one
        with little probability is pulled less than its negatives are pushed. Where q s/τ is beyond 0.9 of
        the largest exponent of the dtype (79 in float32, 638 in float64) the power is cut off, and the pair has no
        weight.
    Source: Chuang et al. 2022, Robust Contrastive Learning against Noisy Views, arXiv:2201.04309, eq. 5; the sum of the
        published code.
    Also called: Robust InfoNCE.
    Family: softmax.

    Examples:
        With q = 1 and λ = 1/2 a positive and a negative at a score of 0 have e⁰ / 2 each, and the positive is pulled by
        the other half of its e⁰:

        >>> pairs = cocos.Pairs(torch.tensor([[0.0, 0.0]]), torch.tensor([[True, False]]))
        >>> cocos.losses.load("rince", {"temperature": 1, "q": 1, "lam": 0.5}).weight(pairs)
        tensor([[-0.5000,  0.5000]])
    """

    temperature: Positive = 0.1
    q: Fraction = 0.5
    lam: Fraction = 0.025
    per_positive: ClassVar[bool] = True
    share: ClassVar[str] = "probability"

    @property
    def softmax_scale(self) -> float:
        """λ of Σ exp(λ s), the only term in which the negatives of a query appear."""
        return 1 / self.temperature

    def _logits(self, pairs: Pairs) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Cut logits s/τ; log Z for each positive; positives that take part; and pairs below the cut, (Q, C) each."""
        most = EXPONENTS * math.log(torch.finfo(pairs.scores.dtype).max) / self.q
        logits = pairs.scores / self.temperature
        cut = logits.clamp(max=most)
        included = pairs.positive & pairs.negative.any(dim=1, keepdim=True)
        total = torch.where(included.any(dim=1, keepdim=True), logsumexp(cut, pairs.negative), 0)
        return cut, torch.logaddexp(cut, total), included, logits <= most

    def __call__(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), of either sign; 0 for a query without a positive or without a negative."""
        logits, whole, included, _ = self._logits(pairs)
        powers = (self.q * (whole + math.log(self.lam))).exp() - (self.q * logits).exp()
        return torch.where(included, powers, 0).sum(dim=1) / self.q

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Closed form of ∂ Σ loss / ∂ score, (Q, C).

        Positives :math:`(\lambda^q Z_p^{q-1} e^{s_p/\tau} - e^{q s_p/\tau}) / \tau`, negatives
        :math:`\lambda^q e^{s_n/\tau} \sum_p Z_p^{q-1} / \tau`.
        """
        logits, whole, included, below = self._logits(pairs)
        factor = self.q * math.log(self.lam)
        own = (factor + (self.q - 1) * whole + logits).exp() - (self.q * logits).exp()
        log_pull = logsumexp((self.q - 1) * whole, included)
        push = torch.where(included.any(dim=1, keepdim=True) & pairs.negative, (factor + log_pull + logits).exp(), 0)
        return torch.where(below, torch.where(included, own, push), 0) / self.temperature

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of a negative with all of the softmax, for every positive, (Q, 1): the sum of (λZ)^q / τ."""
        _, whole, included, _ = self._logits(pairs)
        total = torch.where(included, (self.q * (whole + math.log(self.lam))).exp(), 0).sum(dim=1, keepdim=True)
        least = torch.finfo(total.dtype).tiny
        return torch.where(included.any(dim=1, keepdim=True), total.clamp(min=least), 1) / self.temperature
