"""ArcFace: a softmax in which the positive must win by an angle."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.base.ranges import Positive
from cocos.embeddings.scores import Pairs
from cocos.losses.base import SoftmaxLoss
from cocos.losses.families.angular import Angle, added


@dataclass(frozen=True)
class ArcFace(SoftmaxLoss):
    r"""Cross-entropy with a margin on the angle of the positive, summed over the positives of a query.

    .. math::
        \ell(s) = -\sum_{p \in P} \log \frac{e^{\lambda t(s_p)}}{e^{\lambda t(s_p)} + \sum_{n \in N} e^{\lambda s_n}},
        \quad t(\cos\theta) = \begin{cases} \cos(\theta + m) & \theta < \pi - m \\
        \cos\theta - m \sin m & \text{else} \end{cases}

    P are the positives of the query (the proxy of its class), N its negatives (the other proxies) and s their cosines.
    Where θ + m passes π, t goes on as a straight line, as in the published code, after a jump from -1 down to
    :math:`-\cos m - m \sin m`. The slope :math:`t' = \sin(\theta + m) / \sin\theta` grows without bound as θ goes to
    0 while the force, :math:`t' \sin\theta`, stays at most 1: weigh positives by their force. Where rounding makes the
    cosine 1 or more, sin θ is set to 0 and t' is cos m.

    Args:
        scale: λ (s in the paper), in units of 1/score; 64 as in the paper.
        margin: m, in radians; 0.5 as in the paper.

    Counts: negatives with a softmax probability above eps, margin included; unit λ|P|. A positive may exceed 1.
    Net: the pull of a positive is its part of the push times t'.
    Source: Deng et al. 2019, ArcFace, arXiv:1801.07698, eq. 3; beyond π - m from its published code.

    Examples:
        A positive at 0.5 rad is moved by the margin to 1 rad, where two negatives are: the loss is ln 3.

        >>> pairs = cocos.Pairs(torch.tensor([[0.5, 1.0, 1.0]]).cos(), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("arcface")
        >>> loss(pairs)
        tensor([1.0986])
        >>> (loss.weight(pairs) / loss.unit(pairs))[:, 1:]
        tensor([[0.3333, 0.3333]])
    """

    scale: Positive = 64.0
    margin: Angle = 0.5
    family = "margin"
    aliases = {
        "additive angular margin": {},
        "AAM-Softmax": {},
        "ElasticFace-Arc": {"margin": 0.5},  # margin redrawn per query with standard deviation 0.0125: arXiv:2109.09416
    }

    @property
    def balanced(self) -> bool:
        """Whether the weights of each query sum to zero."""
        return self.margin == 0

    def logits(self, pairs: Pairs) -> tuple[Tensor, Tensor | float]:
        r"""Logits λt of positives and λs of others, and their slopes, (Q, C) each.

        :math:`t' = \cos m + \sin m \cos\theta / \sin\theta`, or 1 beyond π - m.
        """
        target, slope = added(pairs.scores, self.margin)
        logits = torch.where(pairs.positive, target, pairs.scores)
        return self.scale * logits, self.scale * torch.where(pairs.positive, slope, 1)
