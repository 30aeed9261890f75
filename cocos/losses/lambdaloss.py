"""LambdaLoss: RankNet's comparisons, each weighted by how much it costs in NDCG."""

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from cocos.base.ranges import NonNegative, Positive, one_of, whole
from cocos.embeddings.scores import Pairs
from cocos.losses.families.graded import GradedList

SCHEMES = ("lambdarank", "ndcg1", "ndcg2", "ndcg2pp")


@dataclass(frozen=True)
class LambdaLoss(GradedList):
    r"""Logistic loss of every two candidates of a query with different grades, weighted by its part of NDCG.

    .. math:: \ell(s) = \sum_{y_i > y_j} \Delta_{ij} \log_2 \bigl( 1 + e^{-\lambda (s_i - s_j)} \bigr), \quad
        \Delta_{ij} = |G_i - G_j| \, \bigl( \rho_{ij} + \mu \, \delta_{ij} \bigr)

    y are the grades of the candidates of the query, which are the scores of its teacher, s their scores and r their
    ranks by these. :math:`G_i = (2^{y_i} - 1) / \mathrm{maxDCG}` is the gain of a candidate; with the discount
    :math:`d(r) = 1 / \log_2(1 + r)`, :math:`\rho_{ij} = |d(r_i) - d(r_j)|` is the gap of their discounts, and
    :math:`\delta_{ij} = d(|r_i - r_j|) - d(|r_i - r_j| + 1)`. The scheme `ndcg2pp` is this sum, `lambdarank` has ρ
    alone, `ndcg2` δ alone, and `ndcg1` compares all ordered pairs, of equal grades too, with
    :math:`\Delta_{ij} = G_i \, d(r_i)`. Ranks are constants of the gradient, as they are between ties; of equal scores
    the first one ranks higher. A grade below 0 has no gain.

    Args:
        scheme: `lambdarank`, `ndcg1`, `ndcg2` or `ndcg2pp` (the hybrid, best in the paper).
        scale: λ, in units of 1/score; 1 as in the paper (σ there and in libraries).
        mu: μ of `ndcg2pp`; 10 as in libraries. The other schemes do not read it.
        k: compare only pairs of which one candidate ranks among the first k, as NDCG@k reads them; None: all.

    Counts: negatives with lost comparisons that cost more than eps of NDCG, pulled ones too; unit λ/ln 2, one
        comparison surely lost that costs all of it. Only under `lambdarank` is that the NDCG which swapping the two
        would change. Candidates without a grade have no weight.
    Net: push equals pull for every query, and for every comparison.
    Source: Wang et al. 2018, The LambdaLoss Framework for Ranking Metric Optimization, doi:10.1145/3269206.3271784,
        NDCG-Loss1, 2 and 2++, and eq. 18 for k; `lambdarank` of Burges 2010, From RankNet to LambdaRank to LambdaMART,
        Microsoft Research MSR-TR-2010-82.

    Examples:
        A positive in the second place, at the score of the negative above it: swapping the two changes NDCG by
        1 - 1/log2(3), 0.3691, and half of the comparison is lost.

        >>> scores, positive = torch.zeros(1, 2), torch.tensor([[False, True]])
        >>> pairs = cocos.Pairs(scores, positive, teacher=torch.tensor([[0.0, 1.0]]))
        >>> loss = cocos.losses.load("lambdaloss", scheme="lambdarank")
        >>> loss.weight(pairs) / loss.unit(pairs)
        tensor([[ 0.1845, -0.1845]])
    """

    scheme: Annotated[str, one_of(SCHEMES)] = "ndcg2pp"
    scale: Positive = 1.0
    mu: NonNegative = 10.0
    k: Annotated[int, whole(1)] | None = None
    family = "ranking"
    aliases = {
        "LambdaRank": {"scheme": "lambdarank"},
        "NDCG-Loss1": {"scheme": "ndcg1"},
        "NDCG-Loss2": {"scheme": "ndcg2"},
        "NDCG-Loss2++": {"scheme": "ndcg2pp"},
    }

    def _compared(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Logits λ (s_i - s_j), and the costs of the comparisons, 0 where none is made, (Q, C, C) each."""
        grades, graded = self.graded(pairs)
        order = pairs.scores.detach().masked_fill(~graded, -torch.inf).argsort(dim=1, descending=True, stable=True)
        rank = order.argsort(dim=1) + 1
        compared = graded[:, :, None] & graded[:, None, :]
        if self.k is not None:
            first = rank <= self.k
            compared = compared & (first[:, :, None] | first[:, None, :])
        gain, discount = self._gains(grades, graded), _discount(rank.to(grades.dtype))
        logits = self.scale * (pairs.scores[:, :, None] - pairs.scores[:, None, :])
        if self.scheme == "ndcg1":
            apart = compared & (rank[:, :, None] != rank[:, None, :])
            return logits, torch.where(apart, (gain * discount)[:, :, None], 0)
        gap = (discount[:, :, None] - discount[:, None, :]).abs()
        steps = (rank[:, :, None] - rank[:, None, :]).abs().clamp(min=1).to(grades.dtype)
        near = _discount(steps) - _discount(steps + 1)
        factor = {"lambdarank": gap, "ndcg2": near}.get(self.scheme, gap + self.mu * near)
        better = compared & (grades[:, :, None] > grades[:, None, :])
        return logits, torch.where(better, (gain[:, :, None] - gain[:, None, :]).abs() * factor, 0)

    def _gains(self, grades: Tensor, graded: Tensor) -> Tensor:
        """Gains over the DCG of the best order, (Q, C); 0 of a query with no grade above 0."""
        relevant = torch.where(graded, grades.clamp(min=0), 0)
        most = relevant.amax(dim=1, keepdim=True)
        gain = (relevant - most).exp2() - (-most).exp2()  # over 2 to the largest grade, which overflows
        best = gain.sort(dim=1, descending=True).values[:, : self.k]
        places = torch.arange(1, best.shape[1] + 1, device=gain.device, dtype=gain.dtype)
        total = (best * _discount(places)).sum(dim=1, keepdim=True)
        return gain / torch.where(total > 0, total, 1)

    def value(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), in bits; 0 for a query without a graded positive or a graded negative."""
        logits, cost = self._compared(pairs)
        return (cost * torch.logaddexp(-logits, torch.zeros_like(logits))).sum(dim=(1, 2)) / math.log(2)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C), by closed form. Each row sums to zero.

        With :math:`q_{ij} = \Delta_{ij} \, \sigma(-\lambda (s_i - s_j))`, 0 where nothing is compared:
        :math:`(\sum_i q_{ij} - \sum_i q_{ji}) \, \lambda / \ln 2`.
        """
        logits, cost = self._compared(pairs)
        lost = cost * (-logits).sigmoid()
        return self.scale / math.log(2) * (lost.sum(dim=1) - lost.sum(dim=2))

    def unit(self, pairs: Pairs) -> Tensor:
        """Return the weight of one comparison that is surely lost and costs all of NDCG, (): λ/ln 2."""
        return pairs.scores.new_tensor(self.scale / math.log(2))


def _discount(rank: Tensor) -> Tensor:
    """Part of its gain that a candidate has at a rank, elementwise: 1 / log2(1 + rank)."""
    return math.log(2) / rank.log1p()
