"""AdaFace: a margin with an angle and a height that follow the length of the query."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cocos.base.ranges import NonNegative, Positive
from cocos.embeddings.scores import Pairs
from cocos.losses.base import SoftmaxLoss
from cocos.losses.families.angular import Angle, shifted

# Added to the standard deviation of the norms, in units of norm; from the published code.
SPREAD_FLOOR = 1e-3


@dataclass(frozen=True)
class AdaFace(SoftmaxLoss):
    r"""Cross-entropy with an angular and an additive margin by the length of the query, summed over its positives.

    .. math::
        \ell(s) = -\sum_{p \in P} \log \frac{e^{\lambda t(s_p)}}{e^{\lambda t(s_p)} + \sum_{n \in N} e^{\lambda s_n}},
        \quad t(\cos\theta) = \cos(\theta - m z) - (m + m z), \quad
        z = \min\Bigl(\max\Bigl(\frac{h (|x| - \mu)}{\sigma + 10^{-3}}, -1\Bigr), 1\Bigr)

    P are the positives of the query (the proxy of its class), N its negatives (the other proxies) and s their cosines.
    A long query (z = 1) has CosFace's margin 2m less the turn :math:`\theta - m`, a short one (z = -1) ArcFace's
    :math:`\theta + m`, and one of mean length (z = 0) CosFace's margin m. The turned angle is clipped to 0 and π, where
    a positive is not pulled: a long query within the angle m z of its proxy has a full push and no pull. The lengths
    get no gradient. Queries without a given norm have length 1.

    Args:
        scale: λ (s in the paper), in units of 1/score; 64 as in the paper.
        margin: m, in radians and in units of score; 0.4 as in the paper.
        h: share of the deviation in z; 0.333 as in the paper. With 0 it is CosFace.
        mean: μ, of the norms; the running `batch_mean` of a trained head. None: of the queries of the batch, in
            commands of the first one.
        deviation: σ, their standard deviation, the running `batch_std`; None likewise.

    Counts: negatives with a softmax probability above eps, margin included; unit λ|P|. A positive may exceed 1.
    Net: the pull of a positive is its part of the push times t'.
    Source: Kim et al. 2022, AdaFace, arXiv:2204.00964, eqs. 11-15; clipping and 0.001 from its published code, which
        also limits norms to 100.
    """

    scale: Positive = 64.0
    margin: Angle = 0.4
    h: NonNegative = 0.333
    mean: NonNegative | None = None
    deviation: NonNegative | None = None
    family = "margin"

    @property
    def balanced(self) -> bool:
        """Whether the weights of each query sum to zero."""
        return self.margin == 0 or self.h == 0

    @property
    def softmax_scale(self) -> float | None:
        """λ of Σ exp(λ s) of each query alone; None while μ and σ are of the batch."""
        return self.scale if self.bound else None

    @property
    def bound(self) -> bool:
        """Whether μ and σ are given."""
        return self.mean is not None and self.deviation is not None

    def _mean_and_deviation(self, norm: Tensor) -> tuple[Tensor | float, Tensor | float]:
        """μ and σ: the given ones, else of these norms; σ of one norm is 0."""
        spread = norm.std() if norm.numel() > 1 else torch.zeros_like(norm.sum())
        return norm.mean() if self.mean is None else self.mean, spread if self.deviation is None else self.deviation

    def bind(self, pairs: Pairs) -> "AdaFace":
        """The same loss with the mean and the deviation of the norms of these queries, where they are not given."""
        mean, deviation = (float(value) for value in self._mean_and_deviation(pairs.norms()[0].double()))
        return replace(self, mean=mean, deviation=deviation)

    def logits(self, pairs: Pairs) -> tuple[Tensor, Tensor | float]:
        r"""Logits λt of positives and λs of others, and their slopes, (Q, C) each.

        :math:`t' = \sin(\theta - m z) / \sin\theta`, or 0 where the turned angle is clipped.
        """
        cosine, norm = pairs.scores, pairs.norms()[0].detach()
        mean, deviation = self._mean_and_deviation(norm)
        turn = self.margin * (self.h * (norm - mean) / (deviation + SPREAD_FLOOR)).clamp(-1, 1)
        cos, sin = turn.cos(), turn.sin()
        turned, slope, _ = shifted(cosine, cos, -sin)
        below, beyond = (turn > 0) & (cosine > cos), (turn < 0) & (cosine < -cos)
        target = torch.where(below, 1, torch.where(beyond, -1, turned)) - (self.margin + turn)
        slope = torch.where(below | beyond, 0, slope)
        logits = torch.where(pairs.positive, target, cosine)
        return self.scale * logits, self.scale * torch.where(pairs.positive, slope, 1)
