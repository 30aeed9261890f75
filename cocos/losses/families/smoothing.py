"""A softmax with smoothed labels: the negatives share a part of each positive's label."""

import torch
from torch import Tensor

from cocos.embeddings.scores import Pairs
from cocos.losses.base import SoftmaxLoss


class SmoothedLabels(SoftmaxLoss):
    """Cross-entropy of each positive against the negatives, with labels of which the negatives have a part."""

    smoothing: float
    balanced = True
    share = None

    @property
    def softmax_scale(self) -> float | None:
        """λ of Σ exp(λ s), through which alone the negatives enter; None with smoothing, which adds to each."""
        return None if self.smoothing else self.scale

    def part(self, negatives: Tensor) -> Tensor:
        """Part of the label of a positive that its negatives share, (Q, 1), of their numbers."""
        return torch.full_like(negatives, self.smoothing)

    def _change_by_smoothing(self, pairs: Pairs) -> Tensor:
        r"""Change of the derivatives by the logits, (Q, C): ε on positives, -ε |P|/|N| on negatives."""
        sums = (mask.sum(dim=1, keepdim=True).to(pairs.scores.dtype) for mask in (pairs.positive, pairs.negative))
        number, negatives = sums
        moved = torch.where(negatives > 0, self.part(negatives), 0)
        part = moved * number / negatives.clamp(min=1)
        return torch.where(pairs.positive, moved, 0) - torch.where(pairs.negative, part, 0)

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,), in nats; 0 for a query without a positive or without a negative."""
        return super().value(pairs) + (self._change_by_smoothing(pairs) * self.logits(pairs)[0]).sum(dim=1)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C), by closed form. Each row sums to zero.

        With ε the part of the negatives and :math:`m_p = 1 - \pi_p(p)`: positives :math:`\lambda (\varepsilon - m_p)`,
        negatives :math:`\lambda ((\sum_p m_p)\, \mathrm{softmax}_N(\lambda s) - \varepsilon |P| / |N|)`.
        """
        return super().weight(pairs) + self.scale * self._change_by_smoothing(pairs)
