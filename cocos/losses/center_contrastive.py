"""Center contrastive: CosFace and a constant pull on the positive."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from cocos.scores import Pairs

__all__ = ["CenterContrastive"]


@dataclass(frozen=True)
class CenterContrastive:
    r"""CosFace, and the squared distance of the query to the centre of its class; summed over the positives of a query.

    .. math::
        \ell(s) = -\sum_{p \in P} \log
        \frac{e^{\lambda (s_p - m) + 2 w s_p}}{e^{\lambda (s_p - m)} + \sum_{n \in N} e^{\lambda s_n}}

    P are the positives of the query (the centre of its class), N its negatives (the other centres) and s their cosines.
    The term of w is :math:`w |q - c_p|^2` for unit vectors, less 2w: the positive is pulled by 2w however well it
    stands, and the loss can be below zero. A query without negatives has this term alone.

    Args:
        scale: λ (s in the paper), in units of 1/score; 64 as in public ports.
        margin: m, in units of score; 0.2 as in public ports.
        weight_: w (λ in the paper), of the pull to the centre; 1 as in public ports, which do not agree on any of the
            three (another has 16, 0 and 2). The name without the underscore is that of the method.

    Raises:
        ValueError: if the scale is not finite and above 0, or the margin or the weight not finite and at least 0.

    Counts: negatives that hold more than eps of the softmax with the margin in it; unit λ|P|.
    Net: the pull exceeds the push by 2w for each positive.
    Source: Cai et al. 2023, Center Contrastive Loss, arXiv:2308.00458, eq. 5; secondary source, from two public ports.
    Also called: CCL.
    Family: proxy.

    Examples:
        A positive at 0.7 less the margin of 0.2 is level with two negatives at 0.5, which hold a third each.

        >>> pairs = cocos.Pairs(torch.tensor([[0.7, 0.5, 0.5]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("center_contrastive")
        >>> (loss.weight(pairs) / loss.unit(pairs))[:, 1:]
        tensor([[0.3333, 0.3333]])
    """

    scale: float = 64.0
    margin: float = 0.2
    weight_: float = 1.0
    metric: ClassVar[str] = "cosine"
    couples: ClassVar[str] = "query"
    gradient: ClassVar[str] = "exact"
    sample: ClassVar[str] = "pairs"
    per_positive: ClassVar[bool] = True
    share: ClassVar[str] = "probability"

    def __post_init__(self) -> None:
        if not 0 < self.scale < math.inf:
            raise ValueError(f"scale must be finite and above 0, got {self.scale}")
        if not 0 <= self.margin < math.inf:
            raise ValueError(f"margin must be finite and at least 0, got {self.margin}")
        if not 0 <= self.weight_ < math.inf:
            raise ValueError(f"weight must be finite and at least 0, got {self.weight_}")

    @property
    def balanced(self) -> bool:
        """Whether the weights of a query sum to zero."""
        return self.weight_ == 0

    def _logits(self, pairs: Pairs) -> Tensor:
        return self.scale * torch.where(pairs.positive, pairs.scores - self.margin, pairs.scores)

    def __call__(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), in nats; 0 for a query without a positive."""
        drawn = torch.where(pairs.positive, 2 * self.weight_ * pairs.scores, 0).sum(dim=1)
        return pairs.cross_entropy(self._logits(pairs)) - drawn

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Closed form of ∂ Σ loss / ∂ score, (Q, C).

        With :math:`m_p` the probability that positive p, margin included, leaves to the negatives: positives
        :math:`-\lambda m_p - 2w`, negatives :math:`\lambda (\sum_p m_p)\, \mathrm{softmax}_N(\lambda s)`.
        """
        return self.scale * pairs.residual(self._logits(pairs)) - 2 * self.weight_ * pairs.positive.to(pairs.scores)

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of a negative with all of the probability for every positive, (Q, 1): λ|P|."""
        return self.scale * pairs.positives()
