"""SupAP: average precision with an upper bound of the rank."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.base.ranges import NonNegative, Positive
from cocos.embeddings.scores import Pairs
from cocos.losses.base import Loss


@dataclass(frozen=True)
class SupAP(Loss):
    r"""One minus an average precision with negatives counted by a surrogate that does not saturate.

    .. math::
        \ell(s) = 1 - \frac{1}{|P|} \sum_{i \in P} \frac{A_i}{A_i + \sum_{n \in N} H(s_n - s_i)}, \quad
        A_i = |\{j \in P : s_j \ge s_i\}|, \quad
        H(x) = \begin{cases} \sigma(x / \tau) & x \le 0 \\ \tfrac12 + \sigma(x / \tau) & 0 < x \le \delta \\
        \rho (x - \delta) + o & x > \delta \end{cases}

    :math:`A_i` is the true rank of positive i among the positives, itself included; of tied positives each ranks
    above the other. It has no gradient: the order among the positives is not trained. H jumps by ½ at 0, and at δ
    from ½ + σ(δ/τ) = 1.493 down to o = 1.44 with the default values; the gradient follows the pieces.

    Args:
        temperature: τ of the sigmoid, in units of score. This and the other defaults are of the published code.
        rho: ρ, slope of H beyond δ, per unit of score.
        delta: δ, in units of score.
        offset: o, value of H just beyond δ; None: ½ + σ(δ/τ), without the jump at δ.

    Counts: negatives with a slope towards some positive; unit ρ/|P|.
    Net: push equals pull for every query.
    Source: Ramzi et al. 2021, ROADMAP, arXiv:2110.01445; formula and default values from its published code.

    Examples:
        A negative that is level with the positive counts as half of one above it: AP is 1 / (1 + 0.5).

        >>> pairs = cocos.Pairs(torch.tensor([[0.5, 0.5, 0.3]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("sup_ap")
        >>> loss(pairs)
        tensor([0.3333])
    """

    temperature: Positive = 0.01
    rho: Positive = 100.0
    delta: NonNegative = 0.05
    offset: NonNegative | None = 1.44
    balanced = True
    sample = "groups"
    family = "ranking"

    def _surrogate(self, gap: Tensor) -> Tensor:
        """Compute H of the gap between a negative and a positive, elementwise."""
        sigmoid = (gap / self.temperature).sigmoid()
        continued = 0.5 + (gap.new_tensor(self.delta) / self.temperature).sigmoid()
        beyond = continued if self.offset is None else self.offset
        near = torch.where(gap > 0, sigmoid + 0.5, sigmoid)
        return torch.where(gap > self.delta, self.rho * (gap - self.delta) + beyond, near)

    def _slope(self, gap: Tensor) -> Tensor:
        """Derivative of H."""
        logits = gap / self.temperature
        return torch.where(gap > self.delta, self.rho, logits.sigmoid() * (-logits).sigmoid() / self.temperature)

    def _gaps_and_ranks(self, pairs: Pairs, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Gaps to one positive of each query, (Q, C); its rank among the positives and the negatives above, (Q, 1)."""
        gap = pairs.scores - pairs.scores.gather(1, index)
        among = (pairs.positive & (gap >= 0)).sum(dim=1, keepdim=True).clamp(min=1).to(gap.dtype)
        return gap, among, torch.where(pairs.negative, self._surrogate(gap), 0).sum(dim=1, keepdim=True)

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,), from 0 to 1; 0 for a query without a positive."""
        precision = pairs.scores.new_zeros(pairs.scores.shape[0], 1)
        for index, filled in zip(*(part.split(1, dim=1) for part in pairs.slots()), strict=True):
            _, among, above = self._gaps_and_ranks(pairs, index)
            precision = precision + torch.where(filled, among / (among + above), 0)
        number = pairs.positive.sum(dim=1)
        return torch.where(number > 0, 1 - precision[:, 0] / number.clamp(min=1), 0)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C), by closed form. Each row sums to zero.

        With :math:`B_i = A_i + \sum_n H(s_n - s_i)`: negatives :math:`w_n = \frac{1}{|P|} \sum_i
        \frac{A_i}{B_i^2} H'(s_n - s_i)`, positives :math:`w_i = -\frac{A_i}{|P| B_i^2} \sum_n H'(s_n - s_i)`.
        """
        weight = torch.zeros_like(pairs.scores)
        for index, filled in zip(*(part.split(1, dim=1) for part in pairs.slots()), strict=True):
            gap, among, above = self._gaps_and_ranks(pairs, index)
            cost = torch.where(filled, among / (among + above).square(), 0)
            push = torch.where(pairs.negative, cost * self._slope(gap), 0)
            weight = weight + push.scatter_add(1, index, -push.sum(dim=1, keepdim=True))
        return weight / pairs.positive.sum(dim=1, keepdim=True).clamp(min=1)

    def unit(self, pairs: Pairs) -> Tensor:
        """Return the weight of a negative far above all positives, if it did not lower the precision, (Q, 1): ρ/|P|."""
        return self.rho / pairs.positive.sum(dim=1, keepdim=True).clamp(min=1).to(pairs.scores.dtype)
