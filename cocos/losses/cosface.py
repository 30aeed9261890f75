"""CosFace: a softmax whose positive must win by a margin of its cosine."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from cocos.scores import Pairs

__all__ = ["CosFace"]


@dataclass(frozen=True)
class CosFace:
    r"""Cross-entropy with a margin on the cosine of the positive, summed over the positives of a query.

    .. math::
        \ell(s) = -\sum_{p \in P} \log
        \frac{e^{\lambda (s_p - m)}}{e^{\lambda (s_p - m)} + \sum_{n \in N} e^{\lambda s_n}}

    P are the positives of the query (the proxy of its class), N its negatives (the other proxies) and s their cosines.
    The margin only moves the softmax: it does not bend the weights as an angular margin does.

    Args:
        scale: λ (s in the paper), in units of 1/score; 64 as in the paper.
        margin: m, in units of score; 0.35 as in the paper (0.4 in a widely used implementation).

    Raises:
        ValueError: if the scale is not finite and above 0, or the margin not finite and at least 0.

    Counts: negatives that hold more than eps of the softmax with the margin in it; unit λ|P|.
    Net: push equals pull for every query.
    Source: Wang et al. 2018, CosFace, arXiv:1801.09414, eq. 4.
    Also called: LMCL, AM-Softmax, additive cosine margin.
    Family: margin.

    Examples:
        A positive at 0.85 less the margin of 0.35 is level with two negatives at 0.5: the loss is ln 3.

        >>> pairs = cocos.Pairs(torch.tensor([[0.85, 0.5, 0.5]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("cosface")
        >>> loss(pairs)
        tensor([1.0986])
        >>> loss.weight(pairs) / loss.unit(pairs)
        tensor([[-0.6667,  0.3333,  0.3333]])
    """

    scale: float = 64.0
    margin: float = 0.35
    metric: ClassVar[str] = "cosine"
    couples: ClassVar[str] = "query"
    gradient: ClassVar[str] = "exact"
    balanced: ClassVar[bool] = True
    sample: ClassVar[str] = "pairs"
    per_positive: ClassVar[bool] = True
    share: ClassVar[str] = "probability"

    def __post_init__(self) -> None:
        if not 0 < self.scale < math.inf:
            raise ValueError(f"scale must be finite and above 0, got {self.scale}")
        if not 0 <= self.margin < math.inf:
            raise ValueError(f"margin must be finite and at least 0, got {self.margin}")

    @property
    def softmax_scale(self) -> float:
        """λ of Σ exp(λ s), the only term of the loss in which the negatives of a query appear."""
        return self.scale

    def _logits(self, pairs: Pairs) -> Tensor:
        return self.scale * torch.where(pairs.positive, pairs.scores - self.margin, pairs.scores)

    def __call__(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), in nats; 0 for a query without a positive or without a negative."""
        return pairs.cross_entropy(self._logits(pairs))

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Closed form of ∂ Σ loss / ∂ score, (Q, C). Each row sums to zero.

        With :math:`m_p` the probability that positive p, margin included, leaves to the negatives: positives
        :math:`-\lambda m_p`, negatives :math:`\lambda (\sum_p m_p)\, \mathrm{softmax}_N(\lambda s)`.
        """
        return self.scale * pairs.residual(self._logits(pairs))

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of a candidate with all of the probability for every positive, (Q, 1): λ|P|."""
        return self.scale * pairs.positives()

    def equals(self) -> tuple[tuple[str, dict[str, Any], str], ...]:
        """List the equal losses of the shelf: name, parameters, and condition."""
        return (("normalized_softmax", {"temperature": 1 / self.scale}, "always"),) if self.margin == 0 else ()

    def peer(self) -> tuple[str, dict[str, Any], str]:
        """Name the same loss in pytorch-metric-learning: class, arguments, setting."""
        return "CosFaceLoss", {"margin": self.margin, "scale": self.scale}, "proxies"
