"""ArcFace: a softmax whose positive must win by an angle."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from cocos.scores import Pairs

__all__ = ["ArcFace"]


@dataclass(frozen=True)
class ArcFace:
    r"""Cross-entropy with a margin on the angle of the positive, summed over the positives of a query.

    .. math::
        \ell(s) = -\sum_{p \in P} \log \frac{e^{\lambda t(s_p)}}{e^{\lambda t(s_p)} + \sum_{n \in N} e^{\lambda s_n}},
        \quad t(\cos\theta) = \begin{cases} \cos(\theta + m) & \theta < \pi - m \\
        \cos\theta - m \sin m & \text{else} \end{cases}

    P are the positives of the query (the proxy of its class), N its negatives (the other proxies) and s their cosines.
    Where θ + m passes π, t goes on as a straight line, as in the published code, after a jump from -1 down to
    :math:`-\cos m - m \sin m`. The slope :math:`t' = \sin(\theta + m) / \sin\theta` grows without bound as θ goes to
    0 while the force, :math:`t' \sin\theta`, stays at most 1: weigh positives by their force. Where rounding makes the
    cosine 1 or more, sin θ is held at 0 and t' is cos m.

    Args:
        scale: λ (s in the paper), in units of 1/score; 64 as in the paper.
        margin: m, in radians; 0.5 as in the paper.

    Raises:
        ValueError: if the scale is not finite and above 0, or the margin below 0, or not below π.

    Counts: negatives that hold more than eps of the softmax with the margin in it; unit λ|P|. A positive may exceed it.
    Net: the pull of a positive is its part of the push times t'.
    Source: Deng et al. 2019, ArcFace, arXiv:1801.07698, eq. 3; beyond π - m from its published code.
    Also called: additive angular margin, AAM-Softmax.
    Family: margin.

    Examples:
        A positive at 0.5 rad is moved by the margin to 1 rad, where two negatives are: the loss is ln 3.

        >>> pairs = cocos.Pairs(torch.tensor([[0.5, 1.0, 1.0]]).cos(), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("arcface")
        >>> loss(pairs)
        tensor([1.0986])
        >>> (loss.weight(pairs) / loss.unit(pairs))[:, 1:]
        tensor([[0.3333, 0.3333]])
    """

    scale: float = 64.0
    margin: float = 0.5
    metric: ClassVar[str] = "cosine"
    couples: ClassVar[str] = "query"
    gradient: ClassVar[str] = "exact"
    sample: ClassVar[str] = "pairs"
    per_positive: ClassVar[bool] = True
    share: ClassVar[str] = "probability"

    def __post_init__(self) -> None:
        if not 0 < self.scale < math.inf:
            raise ValueError(f"scale must be finite and above 0, got {self.scale}")
        if not 0 <= self.margin < math.pi:
            raise ValueError(f"margin must be at least 0 and below pi (radians), got {self.margin}")

    @property
    def softmax_scale(self) -> float:
        """λ of Σ exp(λ s), the only term of the loss in which the negatives of a query appear."""
        return self.scale

    @property
    def balanced(self) -> bool:
        """Whether the weights of a query sum to zero."""
        return self.margin == 0

    def _target(self, cosine: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine of a positive with the margin on it, t, and its slope t', (Q, C) each."""
        cos, sin = math.cos(self.margin), math.sin(self.margin)
        inside = cosine.abs() < 1
        root = torch.where(inside, (1 - cosine) * (1 + cosine), 1).sqrt()
        turned = cos * cosine - sin * torch.where(inside, root, 0)
        slope = cos + sin * torch.where(inside, cosine / root, 0)
        near = cosine > -cos
        return torch.where(near, turned, cosine - self.margin * sin), torch.where(near, slope, 1)

    def _logits(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Logits and their slopes with respect to the scores, (Q, C) each."""
        target, slope = self._target(pairs.scores)
        slope = torch.where(pairs.positive, slope, 1)
        return self.scale * torch.where(pairs.positive, target, pairs.scores), self.scale * slope

    def __call__(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), in nats; 0 for a query without a positive or without a negative."""
        return pairs.cross_entropy(self._logits(pairs)[0])

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Closed form of ∂ Σ loss / ∂ score, (Q, C).

        With :math:`m_p` the probability that positive p, margin included, leaves to the negatives: positives
        :math:`-\lambda t'_p m_p` with :math:`t' = \cos m + \sin m \cos\theta / \sin\theta`, or 1 beyond π - m,
        negatives :math:`\lambda (\sum_p m_p)\, \mathrm{softmax}_N(\lambda s)`.
        """
        logits, slope = self._logits(pairs)
        return slope * pairs.residual(logits)

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of a negative with all of the probability for every positive, (Q, 1): λ|P|."""
        return self.scale * pairs.positives()

    def equals(self) -> tuple[tuple[str, dict[str, Any], str], ...]:
        """List the equal losses of the shelf: name, parameters, and condition."""
        return (("normalized_softmax", {"temperature": 1 / self.scale}, "always"),) if self.margin == 0 else ()

    def peer(self) -> tuple[str, dict[str, Any], str]:
        """The same loss in pytorch-metric-learning, which takes degrees: class, arguments, setting."""
        return "ArcFaceLoss", {"margin": math.degrees(self.margin), "scale": self.scale}, "proxies"
