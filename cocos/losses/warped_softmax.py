"""Warped softmax: a Euclidean softmax that pulls less inside a radius, and more outside of it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.base.ranges import NonNegative, Positive
from cocos.embeddings.scores import Pairs
from cocos.losses.base import SoftmaxLoss


@dataclass(frozen=True)
class WarpedSoftmax(SoftmaxLoss):
    r"""Cross-entropy on distances, with a warp of the distance to the positive that changes its pull, not its value.

    .. math::
        \ell(d) = \sum_{p \in P} \log \left( 1 + \sum_{n \in N} e^{T (f_1(d_p) - d_n)} \right), \quad
        f_1(t) = \begin{cases} k_1 t + \Delta & t < \alpha \\ k_2 t + (1 - k_2) \alpha & t \ge \alpha \end{cases}

    P are the positives of the query (the proxy of its class), N its negatives (the other proxies), d the Euclidean
    distances, minus the score, between raw embeddings, and T the scale.
    :math:`\Delta = \delta (t - k_1 t)` is a constant in training: with δ = 1 the value inside α is t, and its slope is
    :math:`k_1`. So the gradient is not the derivative of the value, by design, and finite differences disagree. With δ
    above 1 the loss jumps at α, by up to :math:`T (\delta - 1)(1 - k_1) \alpha`.

    Args:
        alpha: α, a distance, finite and at least 0. The defaults of α, k1 and k2 are from Fig. 3d of the paper; for
            CUB it has 28.4, 0.93 and 1.15.
        k1: slope inside α, finite and above 0: below 1 a query is pushed off its proxy on balance.
        k2: slope from α on, finite and above 0: above 1 it is drawn in. A distance of exactly α has this slope.
        delta: δ, the multiplier of Δ, finite and at least 0; 1 is eq. 7, and the paper's Fig. 8 varies it.
        scale: T, in units of 1/distance, which its published code calls temperature; 1 is eq. 8 as printed.

    Counts: negatives with a softmax probability above eps; unit T|P| for them, times the slope for positives.
    Net: push exceeds pull inside α and pull exceeds push outside, by T (1 - π)|slope - 1| where π is the own softmax.
    Source: DeMoor & Prevost 2024, Realigned softmax warping, arXiv:2408.15656, eqs. 7-8.

    Examples:
        Three candidates at one distance have a third of the probability each. Inside the boundary a positive pulls by
        0.65, its slope k1, of the other two thirds, and its unit is smaller by the same factor.

        >>> pairs = cocos.Pairs(torch.tensor([[-1.0, -1.0, -1.0]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("warped_softmax")
        >>> loss.weight(pairs)
        tensor([[-0.4333,  0.3333,  0.3333]])
        >>> loss.unit(pairs)
        tensor([[0.6500, 1.0000, 1.0000]])
    """

    alpha: NonNegative = 3.0
    k1: Positive = 0.65
    k2: Positive = 1.5
    delta: NonNegative = 1.0
    scale: Positive = 1.0
    metric = "euclidean"
    gradient = "stop_gradient"
    family = "proxy"

    @property
    def balanced(self) -> bool:
        """Whether there is no warp: all slopes are equal."""
        return self.k2 == 1 and (self.k1 == 1 or self.alpha == 0)

    def _slope(self, pairs: Pairs) -> Tensor:
        """Slope of the function that a distance goes through, (Q, C): k1 or k2 at the positives, 1 elsewhere."""
        ones = torch.ones_like(pairs.scores)
        warped = torch.where(-pairs.scores < self.alpha, self.k1 * ones, self.k2)
        return torch.where(pairs.positive, warped, 1)

    def logits(self, pairs: Pairs) -> tuple[Tensor, Tensor | float]:
        """Logits -T f1(d) of positives and -T d of others, and their slopes with Δ fixed, (Q, C) each."""
        distance = -pairs.scores
        inside = self.k1 * distance + self.delta * (distance - self.k1 * distance).detach()
        outside = self.k2 * distance + (1 - self.k2) * self.alpha
        warped = torch.where(distance < self.alpha, inside, outside)
        return -self.scale * torch.where(pairs.positive, warped, distance), self.scale * self._slope(pairs)

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of a candidate with all of the probability for every positive, (Q, C): T|P| times its slope."""
        return self.scale * self._slope(pairs) * pairs.positives()
