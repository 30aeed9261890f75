"""CBML: contrastive Bayesian analysis, with a constraint on the variance of the negatives."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from cocos.base.ranges import Finite, Positive, Range
from cocos.embeddings.scores import Pairs, logsumexp, softmax
from cocos.losses.base import Loss


@dataclass(frozen=True)
class CBML(Loss):
    r"""Soft hinges of the mined positives and negatives, and the spread of all negatives about a mean.

    .. math::
        \ell(s) = \log \Bigl(1 + \sum_{p \in P'} e^{-(s_p - a_P) / b_P}\Bigr)
        + \log \Bigl(1 + \sum_{n \in N'} e^{(s_n - a_N) / b_N}\Bigr) + \lambda \sum_{n \in N} (s_n - \mu)^2, \quad
        \mu = (1 - \eta) \frac{1 + \sum_{j \in P \cup N} s_j}{1 + |P \cup N|}
        + \eta \, \frac{\min_P s + \max_N s}{2}

    P are the positives of a query, N its negatives and s their scores. Mined are the positives :math:`P'` with
    :math:`s_p - m < \max_N s` and the negatives :math:`N'` with :math:`s_n + m > \min_P s`; where there are none the
    whole loss of the query is 0. The mean counts the query itself, with cosine 1. The spread reaches every negative,
    and through the mean every positive: look at shares, since hardly a weight of an active query is exactly 0.

    Args:
        pos_a: a_P, in units of score; this and the other defaults as in the published configuration.
        pos_b: b_P, in units of score.
        neg_a: a_N, in units of score.
        neg_b: b_N, in units of score.
        margin: m of the mining, in units of score.
        weight_: λ of the spread, in 1/score².
        hyper: η, from 0 to 1: the part of the hardest pairs in the mean.

    Counts: negatives with a share above eps; unit 1/b of their side.
    Net: pull and push follow their own hinges; the spread pulls negatives below the mean.
    Source: Kan et al. 2022, Contrastive Bayesian Analysis for Deep Metric Learning, arXiv:2210.04402, logarithmic form
        from its published code.

    Examples:
        Without the spread: a positive at a_P and a negative at a_N have half of their soft hinges, ln 2 each.

        >>> pairs = cocos.Pairs(torch.tensor([[0.5, 1.0]]), torch.tensor([[True, False]]))
        >>> loss = cocos.losses.load("cbml", {"weight": 0})
        >>> loss(pairs)
        tensor([1.3863])
        >>> loss.weight(pairs) / loss.unit(pairs)
        tensor([[-0.5000,  0.5000]])
    """

    pos_a: Finite = 0.5
    pos_b: Positive = 0.5
    neg_a: Finite = 1.0
    neg_b: Positive = 0.01
    margin: Finite = 0.1
    weight_: Finite = 1.0
    hyper: Annotated[float, Range("from 0 to 1", lambda value: 0 <= value <= 1)] = 0.1
    sample = "groups"
    family = "pair"

    def _hardest(self, pairs: Pairs) -> tuple[Tensor, Tensor, Tensor]:
        """Lowest positive and highest negative, (Q, 1) each, 0 in a query that keeps no pair, and which keep some."""
        farthest = pairs.scores.masked_fill(~pairs.positive, torch.inf).amin(dim=1, keepdim=True)
        hardest = pairs.scores.masked_fill(~pairs.negative, -torch.inf).amax(dim=1, keepdim=True)
        active = farthest - self.margin < hardest
        return torch.where(active, farthest, 0), torch.where(active, hardest, 0), active

    def _hinge_logits(self, pairs: Pairs) -> tuple[tuple[Tensor, Tensor], ...]:
        """Logits of the hinges, and the pairs that were mined, for positives and for negatives."""
        scores, (farthest, hardest, active) = pairs.scores, self._hardest(pairs)
        positive = pairs.positive & active & (scores - self.margin < hardest)
        negative = pairs.negative & active & (scores + self.margin > farthest)
        return (-(scores - self.pos_a) / self.pos_b, positive), ((scores - self.neg_a) / self.neg_b, negative)

    def _heights_above_mean(self, pairs: Pairs) -> Tensor:
        """Height of each negative of an active query above the mean, (Q, C)."""
        farthest, hardest, active = self._hardest(pairs)
        included = pairs.positive | pairs.negative
        total = torch.where(included, pairs.scores, 0).sum(dim=1, keepdim=True)
        mean = (1 + total) / (1 + included.sum(dim=1, keepdim=True))
        mean = (1 - self.hyper) * mean + self.hyper * (farthest + hardest) / 2
        return torch.where(pairs.negative & active, pairs.scores - mean, 0)

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,); 0 for a query without a positive or without a negative."""
        loss = self.weight_ * self._heights_above_mean(pairs).square().sum(dim=1)
        for logits, mask in self._hinge_logits(pairs):
            side = logsumexp(logits, mask)
            loss = loss + torch.logaddexp(side, torch.zeros_like(side)).squeeze(dim=1)
        return loss

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C), by closed form.

        With :math:`h_M(x)_j = e^{x_j} / (1 + \sum_{k \in M} e^{x_k})`, :math:`v_n = s_n - \mu` and
        :math:`D = \sum_n v_n`: positives :math:`-h_{P'} / b_P`, negatives :math:`h_{N'} / b_N + 2 \lambda v_n`, and on
        every pair :math:`-2 \lambda D \, \partial \mu / \partial s_j`, in which equally hard pairs share alike.
        """
        pull, push = (softmax(z, mask) * logsumexp(z, mask).sigmoid() for z, mask in self._hinge_logits(pairs))
        (farthest, hardest, active), spread = self._hardest(pairs), self._heights_above_mean(pairs)
        included = (pairs.positive | pairs.negative).to(spread.dtype)
        moves = (1 - self.hyper) * included / (1 + included.sum(dim=1, keepdim=True))
        for extreme in (pairs.positive & (pairs.scores == farthest), pairs.negative & (pairs.scores == hardest)):
            share = extreme / extreme.to(spread.dtype).sum(dim=1, keepdim=True).clamp(min=1)
            moves = moves + self.hyper / 2 * share
        spread = spread - torch.where(active, moves, 0) * spread.sum(dim=1, keepdim=True)
        return push / self.neg_b - pull / self.pos_b + 2 * self.weight_ * spread

    def unit(self, pairs: Pairs) -> Tensor:
        """Return the weight of a candidate with all of its hinge, (Q, C): 1/b of its side."""
        slope = torch.full_like(pairs.scores, 1 / self.pos_b)
        return torch.where(pairs.positive, slope, 1 / self.neg_b)
