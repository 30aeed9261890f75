"""MagFace: an angular margin that grows with the length of the query."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.base.ranges import NonNegative, Positive
from cocos.embeddings.scores import Pairs
from cocos.losses.base import SoftmaxLoss
from cocos.losses.families.angular import shifted


@dataclass(frozen=True)
class MagFace(SoftmaxLoss):
    r"""ArcFace with a margin m(a) by the length a of the query, and a pull on that length; summed over the positives.

    .. math::
        \ell(s) = \lambda_g g(a) - \sum_{p \in P} \log
        \frac{e^{\lambda t(s_p)}}{e^{\lambda t(s_p)} + \sum_{n \in N} e^{\lambda s_n}}, \quad
        t(\cos\theta) = \begin{cases} \cos(\theta + m(a)) & \cos\theta > 0 \\ \cos\theta & \text{else} \end{cases}

    P are the positives of the query (the proxy of its class), N its negatives (the other proxies), s their cosines,
    :math:`a = \min(\max(|x|, l_a), u_a)`, :math:`m(a) = l_m + (u_m - l_m) (a - l_a) / (u_a - l_a)` and
    :math:`g(a) = a / u_a^2 + 1 / a`, once a query that has a positive and a negative. Queries without a given norm have
    length 1. The slope of t grows without bound as θ goes to 0 while the force stays bounded; where rounding makes the
    cosine 1 or more, sin θ is set to 0 and the slope is cos m(a).

    Args:
        scale: λ (s in the paper), in units of 1/score; 64 as in the published code, as are all others.
        l_a: shortest length that the margin reads; 10.
        u_a: longest length that the margin reads; 110.
        l_m: margin at the shortest length, in radians; 0.45.
        u_m: margin at the longest length, in radians; 0.8.
        lambda_g: weight of the regulariser g, which draws short queries out; 20.

    Counts: negatives with a softmax probability above eps, margin included; unit λ|P|. A positive may exceed 1.
    Net: the pull of a positive is its part of the push times t'. The length gets a gradient too: see radial.
    Source: Meng et al. 2021, MagFace, arXiv:2103.06627; form and defaults from its published code.
    """

    scale: Positive = 64.0
    l_a: float = 10.0
    u_a: float = 110.0
    l_m: float = 0.45
    u_m: float = 0.8
    lambda_g: NonNegative = 20.0
    reads_norms = True
    family = "margin"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.l_a < self.u_a < math.inf:
            raise ValueError(f"l_a must be above 0 and u_a finite and above l_a, got {self.l_a} and {self.u_a}")
        if not 0 <= self.l_m <= self.u_m <= math.pi / 2:
            raise ValueError(
                f"l_m must be at least 0 and u_m between l_m and pi/2 (radians), got {self.l_m} and {self.u_m}"
            )

    @property
    def balanced(self) -> bool:
        """Whether the weights of each query sum to zero."""
        return self.u_m == 0

    def _logits_and_slopes(self, pairs: Pairs) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, and their slopes with respect to the scores and to the margins, (Q, C) each."""
        cosine, length = pairs.scores, pairs.norms()[0].clamp(self.l_a, self.u_a)
        margin = self.l_m + (self.u_m - self.l_m) / (self.u_a - self.l_a) * (length - self.l_a)
        cos, sin = margin.cos(), margin.sin()
        turned, slope, sine = shifted(cosine, cos, sin)
        turning = pairs.positive & (cosine > 0)
        target, slope = torch.where(turning, turned, cosine), torch.where(turning, slope, 1)
        turn = torch.where(turning, -(sin * cosine + cos * sine), 0)
        return self.scale * target, self.scale * slope, self.scale * turn

    def logits(self, pairs: Pairs) -> tuple[Tensor, Tensor | float]:
        r"""Logits λt of positives and λs of others, and their slopes, (Q, C) each.

        :math:`t' = \cos m(a) + \sin m(a) \cos\theta / \sin\theta`, or 1 where the cosine is not above 0.
        """
        logits, slope, _ = self._logits_and_slopes(pairs)
        return logits, slope

    def _active(self, pairs: Pairs) -> Tensor:
        return pairs.positive.any(dim=1) & pairs.negative.any(dim=1)

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,), in nats; 0 for a query without a positive or without a negative."""
        length = pairs.norms()[0].clamp(self.l_a, self.u_a)[:, 0]
        regulariser = self.lambda_g * (length / self.u_a**2 + 1 / length)
        return super().value(pairs) + torch.where(self._active(pairs), regulariser, 0)

    def radial(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ norm of the query, (Q,), by closed form; 0 where the length is clamped to l_a or u_a.

        :math:`\lambda m'(a) \sum_p m_p \sin(\theta_p + m(a)) + \lambda_g (1 / u_a^2 - 1 / a^2)`, its first sum over the
        positives with a cosine above 0.
        """
        logits, _, turn = self._logits_and_slopes(pairs)
        length = pairs.norms()[0][:, 0]
        growth = (self.u_m - self.l_m) / (self.u_a - self.l_a)
        free = (length >= self.l_a) & (length <= self.u_a)
        clamped = torch.where(free, length, self.u_a)
        regulariser = self.lambda_g * (1 / self.u_a**2 - 1 / clamped.square())
        turned = growth * (turn * pairs.residual(logits)).sum(dim=1)
        return torch.where(free & self._active(pairs), turned + regulariser, 0)
