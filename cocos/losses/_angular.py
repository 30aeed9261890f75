"""An angle multiplied by a whole number, without an arc cosine."""

import math

import torch
from torch import Tensor

__all__ = ["multiplied"]


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
