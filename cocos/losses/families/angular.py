"""Margins on the angle of a positive, without an arc cosine."""

import math
from typing import Annotated

import torch
from torch import Tensor

from cocos.base.ranges import Range
from cocos.embeddings.scores import Pairs
from cocos.losses.base import SoftmaxLoss

Angle = Annotated[float, Range("at least 0 and below pi (radians)", lambda value: 0 <= value < math.pi)]


def multiplied(cosine: Tensor, margin: int, annealing: float) -> tuple[Tensor, Tensor]:
    r"""The cosine of a positive with the margin of L-Softmax and A-Softmax on it, and its slope, elementwise.

    .. math:: t = \frac{\lambda \cos\theta + \psi}{1 + \lambda}, \quad \psi = (-1)^k \cos(m\theta) - 2k, \quad
        k = \lfloor m\theta / \pi \rfloor

    cos(iθ) and sin(iθ) / sin θ are the Chebyshev polynomials, by the rule for the sum of two angles; k is found by
    comparing cosines. Beyond ±1 (rounding, inner products) ψ goes on as a straight line of slope m².

    Args:
        cosine: any shape.
        margin: m, at least 1.
        annealing: λ, at least 0.
    """
    inside = cosine.clamp(-1, 1)
    turns = torch.zeros_like(inside)
    multiple, second = torch.ones_like(inside), torch.zeros_like(inside)
    for i in range(1, margin + 1):
        multiple, second = inside * multiple - (1 - inside * inside) * second, inside * second + multiple
        if i < margin:
            turns = turns + (inside <= math.cos(i * math.pi / margin))
    sign = 1 - 2 * (turns % 2)
    psi = sign * multiple - 2 * turns + margin**2 * (cosine - inside)
    return (annealing * cosine + psi) / (1 + annealing), (annealing + margin * sign * second) / (1 + annealing)


def shifted(cosine: Tensor, cos: Tensor | float, sin: Tensor | float) -> tuple[Tensor, Tensor, Tensor]:
    """cos(θ + m), its slope with respect to cos θ, and sin θ, elementwise; sin θ is 0 from a cosine of 1 on.

    Args:
        cosine: cos θ, any shape.
        cos: cos m.
        sin: sin m.
    """
    inside = cosine.abs() < 1
    root = torch.where(inside, (1 - cosine) * (1 + cosine), 1).sqrt()
    sine = torch.where(inside, root, 0)
    return cos * cosine - sin * sine, cos + sin * torch.where(inside, cosine / root, 0), sine


def added(cosine: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """cos(θ + m) as ArcFace has it, and its slope with respect to cos θ, elementwise.

    Beyond θ = π - m it goes on as the straight line cos θ - m sin m, as in the published code.

    Args:
        cosine: cos θ, any shape.
        margin: m, in radians, at least 0 and below π.
    """
    cos, sin = math.cos(margin), math.sin(margin)
    turned, slope, _ = shifted(cosine, cos, sin)
    near = cosine > -cos
    return torch.where(near, turned, cosine - margin * sin), torch.where(near, slope, 1)


class MultipliedAngle(SoftmaxLoss):
    r"""Softmax on logits :math:`|x| |W| t(s)` of positives and :math:`|x| |W| s` of others.

    Its closed form has the slope :math:`t'` of `multiplied`, where :math:`\psi' = (-1)^k m \, U_{m-1}(\cos\theta)`.
    """

    softmax_scale = None  # norms scale the scores
    reads_norms = True
    margin: int
    annealing: float

    def lengths(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Lengths of queries, (Q, 1), and of candidates, (1, C)."""
        return pairs.norms()

    def _with_margin(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Cosines with the margin on the positives, and their slopes, (Q, C) each."""
        target, slope = multiplied(pairs.scores, self.margin, self.annealing)
        return torch.where(pairs.positive, target, pairs.scores), torch.where(pairs.positive, slope, 1)

    def logits(self, pairs: Pairs) -> tuple[Tensor, Tensor | float]:
        """Logits and their slopes, the norms fixed, (Q, C) each."""
        (query, candidate), (cosine, slope) = self.lengths(pairs), self._with_margin(pairs)
        return query * candidate * cosine, query * candidate * slope

    def radial(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ norm of the query, (Q,): :math:`\sum_j e_j |W_j| t_j`, e the residuals."""
        candidate, (cosine, _) = self.lengths(pairs)[1], self._with_margin(pairs)
        return (pairs.residual(self.logits(pairs)[0]) * candidate * cosine).sum(dim=1)

    def unit(self, pairs: Pairs) -> Tensor:
        """Return the weight of a negative with all of the probability for every positive: |x| |W| |P|."""
        query, candidate = self.lengths(pairs)
        return (query * candidate).clamp(min=torch.finfo(pairs.scores.dtype).tiny) * pairs.positives()
