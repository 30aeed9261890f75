"""HCL: negatives are weighted by their hardness, and corrected for the false ones among them."""

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from cocos.base.ranges import NonNegative, Positive, Range
from cocos.embeddings.scores import Pairs, softmax
from cocos.losses.base import Loss

Prior = Annotated[float, Range("at least 0 and below 1", lambda value: 0 <= value < 1)]


def _log_sum(logits: Tensor, negative: Tensor, beta: float) -> Tensor:
    r"""Log of :math:`|N| \sum_{n \in N} r_n e^{z_n}` with :math:`r = \mathrm{softmax}_N(\beta z)`, (Q, 1).

    It is 0 for a query without negatives.
    """
    number = negative.sum(dim=1, keepdim=True)
    any_negative = number > 0
    hard, weighted = ((power * logits).masked_fill(~negative & any_negative, -torch.inf).logsumexp(1, keepdim=True)
                      for power in (beta, 1 + beta))  # fmt: skip
    return number.clamp(min=1).to(logits.dtype).log() + torch.where(any_negative, weighted - hard, 0)


def _slopes(logits: Tensor, negative: Tensor, beta: float) -> Tensor:
    r"""Derivative of `_log_sum` by the logits, (Q, C): :math:`(1 + \beta) \mathrm{softmax}_N((1 + \beta) z) - \beta r`.

    Each row with a negative sums to 1; an easy negative has a slope below zero.
    """
    soft, hard = (softmax(power * logits, negative) for power in (1 + beta, beta))
    return (1 + beta) * soft - beta * hard


@dataclass(frozen=True)
class HCL(Loss):
    r"""Cross-entropy of each positive against an estimate of the true negatives, with more weight on the hard ones.

    .. math::
        \ell(s) = -\sum_{p \in P} \log \frac{e_p}{e_p + G_p}, \quad
        G_p = \max\Bigl(\frac{|N| M - \pi |N| e_p}{1 - \pi}, |N| e^{-1/\tau}\Bigr), \quad
        M = \sum_{n \in N} r_n e_n, \quad r = \mathrm{softmax}_N(\beta s / \tau)

    P are the positives of a query, N its negatives, s their scores and :math:`e = e^{s / \tau}`. G estimates the sum of
    the true negatives if a part π of the negatives is false. It is at least the clamp, the sum of |N| negatives that
    are opposite to the query. On the clamp a positive is pulled and nothing is pushed. A positive gets there
    at the latest where it is τ log(1/π) above equal negatives: 1.15 in score at τ = 0.5, but 0.23 at τ = 0.1.

    Args:
        temperature: τ, in units of score; 0.5 as in the paper.
        beta: β, how much the hard negatives weigh; 1 as in the published code. 0 is the debiased loss.
        prior: π, the probability that a candidate is a false negative; 0.1 as in the paper.

    Counts: negatives with a weight above eps units; unit |P|/τ. Near the clamp a share may exceed one. `cocos count`
        also counts the queries on the clamp, which push nothing.
    Net: push equals pull off the clamp; on it there is a pull alone. The gradient flows through the importance weights
        r, as in the published code, so that an easy negative, with (1 + β) exp(s/τ) < β M, is pulled.
    Source: Robinson et al. 2021, Contrastive Learning with Hard Negative Samples, arXiv:2010.04592, eq. 4 and its
        published code; with β = 0 Chuang et al. 2020, Debiased Contrastive Learning, arXiv:2007.00224, eq. 8.

    Examples:
        The first positive is on the clamp, so that its negative gets no push; the second is not:

        >>> pairs = cocos.Pairs(torch.tensor([[0.9, -0.9], [0.3, 0.2]]), torch.tensor([[True, False]] * 2))
        >>> loss = cocos.losses.load("hcl", {"prior": 0.5})
        >>> loss.extra(pairs, eps=0.01)["clamped"]
        tensor([1., 0.])
        >>> loss.weight(pairs)[:, 1]
        tensor([0., 2.])
    """

    temperature: Positive = 0.5
    beta: NonNegative = 1.0
    prior: Prior = 0.1
    per_positive = True
    family = "softmax"
    aliases = {
        "hard negative sampling": {},
        "debiased": {"beta": 0},
        "DCL debiased": {"beta": 0},
        "debiased contrastive": {"beta": 0},
    }

    def _estimate(self, pairs: Pairs) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Logits; logs of (|N| M) / (1 - π), (Q, 1), and of G for each positive; and which lie above the clamp."""
        logits, number = pairs.scores / self.temperature, pairs.negative.sum(dim=1, keepdim=True)
        many = number.clamp(min=1).to(logits.dtype).log()
        whole = _log_sum(logits, pairs.negative, self.beta) - math.log1p(-self.prior)
        floor = many - 1 / self.temperature
        if self.prior == 0:
            above = whole.expand_as(logits) > floor
            return logits, whole, torch.maximum(whole, floor).expand_as(logits), above
        gap = logits + many + math.log(self.prior) - math.log1p(-self.prior) - whole  # log of the part that is false
        positive = gap < 0
        rest = whole + torch.log1p(-torch.where(positive, gap, -1).exp())
        above = positive & (rest > floor)
        return logits, whole, torch.where(above, rest, floor), above

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,), in nats; 0 for a query without a positive or without a negative."""
        logits, _, estimate, _ = self._estimate(pairs)
        terms = torch.logaddexp(estimate - logits, torch.zeros_like(logits))
        included = pairs.positive & pairs.negative.any(dim=1, keepdim=True)
        return torch.where(included, terms, 0).sum(dim=1)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C), by closed form.

        With :math:`K_p = \frac{|N| M}{(1 - \pi)(e_p + G_p)}` above the clamp and 0 on it: positives
        :math:`-K_p / \tau` above and :math:`-G_p / (e_p + G_p) / \tau` on the clamp, negatives
        :math:`\sum_p K_p \, ((1 + \beta) \, \mathrm{softmax}_N((1 + \beta) s / \tau)_n - \beta r_n) / \tau`.
        """
        logits, whole, estimate, above = self._estimate(pairs)
        included = pairs.positive & pairs.negative.any(dim=1, keepdim=True)
        moved = torch.where(included & above, (whole - torch.logaddexp(logits, estimate)).exp(), 0)
        clamped = torch.where(included & ~above, (estimate - logits).sigmoid(), 0)
        push = moved.sum(dim=1, keepdim=True) * _slopes(logits, pairs.negative, self.beta)
        return (push - moved - clamped) / self.temperature

    def unit(self, pairs: Pairs) -> Tensor:
        """Return the weight of a negative with all of the softmax, for every positive, (Q, 1): |P|/τ."""
        return pairs.positives() / self.temperature

    def extra(self, pairs: Pairs, eps: float) -> dict[str, Tensor]:
        """Fraction of the positives of each query with an estimate on the clamp, (Q,); 0 without any."""
        included = pairs.positive & pairs.negative.any(dim=1, keepdim=True)
        on = (included & ~self._estimate(pairs)[3]).sum(dim=1)
        return {"clamped": on / included.sum(dim=1).clamp(min=1).to(pairs.scores.dtype)}
