"""BlackBox AP: true average precision, with a gradient made up by its backward pass."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cocos.base.ranges import NonNegative, Positive
from cocos.embeddings.scores import Pairs
from cocos.losses.base import Loss


def _ranks(scores: Tensor, part: Tensor) -> Tensor:
    """Ranks 1, 2, ... of the candidates in the mask, (Q, C), in the dtype of the scores; of equals the first leads."""
    order = scores.masked_fill(~part, -torch.inf).argsort(dim=1, descending=True, stable=True)
    return (order.argsort(dim=1) + 1).to(scores.dtype)


class _Ranker(torch.autograd.Function):
    """Ranks with a backward pass that is the change of rank when the scores move along the incoming gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(scores: Tensor, part: Tensor, lam: float) -> Tensor:
        return _ranks(scores, part) / part.sum(dim=1, keepdim=True).clamp(min=1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        scores, part, ctx.lam = inputs
        ctx.save_for_backward(scores, part, output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        scores, part, ranks = ctx.saved_tensors
        return (_Ranker.forward(scores + ctx.lam * gradient, part, ctx.lam) - ranks) / ctx.lam, None, None


@dataclass(frozen=True)
class BlackBoxAP(Loss):
    r"""One minus the true average precision; its weights are a difference of two rankings, not a derivative.

    .. math::
        \ell(s) = 1 - \frac{1}{|P|} \sum_{i \in P} \frac{r^+_i}{r_i}, \quad
        w = \frac{r(s + \lambda g) - r(s)}{\lambda}, \quad
        g_i = \frac{\partial \ell}{\partial r_i} = \frac{r^+_i}{r_i^2 |P|} \text{ for } i \in P, \text{ else } 0

    r is the rank (1 for the highest score) among the M positives and negatives of a query, :math:`r^+` among its
    positives, both divided by M. The true derivative is 0 almost everywhere: a small step changes no rank. The
    backward pass moves the scores of the positives up by λg, ranks once more, and calls the change a gradient.

    It is made for g of the plain sum over queries: a mean over Q queries makes g, and with it the move, Q times
    smaller. The published guards (1e-5 added to |P|, 1e-8 to λ) and the random size of its margin are left out. Of
    equal scores the first candidate ranks first.

    Args:
        lam: λ, in units of score per unit of g. 4 as in the published code of ROADMAP, which compares with it.
        margin: taken from the positives' and given to the negatives' scores, half each, before they are ranked.

    Counts: negatives that sink by more than eps of the list; unit 1/λ, the whole list.
    Net: push equals pull for every query: a candidate that rises passes another.
    Source: Rolínek et al. 2020, Optimizing Rank-based Metrics with Blackbox Differentiation, arXiv:1912.03500; from its
        published code.

    Examples:
        One of three candidates is above the positive: AP is 1/2.

        >>> pairs = cocos.Pairs(torch.tensor([[0.5, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("blackbox_ap")
        >>> loss(pairs)
        tensor([0.5000])
    """

    lam: Positive = 4.0
    margin: NonNegative = 0.0
    gradient = "pseudo"
    balanced = True
    sample = "groups"
    family = "ranking"

    def _ranking(self, pairs: Pairs) -> tuple[Tensor, Tensor, Tensor]:
        """Ranks among all and among the positives, as shares of the list, and the scores that were ranked, (Q, C)."""
        half = self.margin / 2
        scores = torch.where(pairs.positive, pairs.scores - half, pairs.scores + half)
        part = pairs.positive | pairs.negative
        among = _ranks(scores.detach(), pairs.positive) / part.sum(dim=1, keepdim=True).clamp(min=1)
        ranks = _Ranker.apply(scores, part, self.lam)  # type: ignore[no-untyped-call]
        return ranks, among, scores

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,), from 0 to 1; 0 for a query without a positive."""
        ranks, among, _ = self._ranking(pairs)
        number = pairs.positive.sum(dim=1)
        precision = torch.where(pairs.positive, among / ranks, 0).sum(dim=1) / number.clamp(min=1)
        return torch.where(number > 0, 1 - precision, 0)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Closed form of the published backward pass, (Q, C): :math:`(r(s + \lambda g) - r(s)) / \lambda`.

        Multiples of 1/(λM). Each row sums to zero. Not a derivative: that is 0 almost everywhere.
        """
        ranks, among, scores = self._ranking(pairs)
        number = pairs.positive.sum(dim=1, keepdim=True).clamp(min=1)
        slope = torch.where(pairs.positive, among / ranks / ranks / number, 0)
        part = pairs.positive | pairs.negative
        return (_Ranker.forward(scores + self.lam * slope, part, self.lam) - ranks) / self.lam

    def unit(self, pairs: Pairs) -> Tensor:
        """Return the weight of a candidate that moves through the whole list, (): 1/λ."""
        return pairs.scores.new_tensor(1 / self.lam)
