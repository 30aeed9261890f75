"""Center contrastive: CosFace and a constant pull on the positive."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.base.ranges import NonNegative, Positive
from cocos.embeddings.scores import Pairs
from cocos.losses.base import SoftmaxLoss


@dataclass(frozen=True)
class CenterContrastive(SoftmaxLoss):
    r"""CosFace, and the squared distance of the query to the centre of its class; summed over the positives of a query.

    .. math::
        \ell(s) = -\sum_{p \in P} \log
        \frac{e^{\lambda (s_p - m) + 2 w s_p}}{e^{\lambda (s_p - m)} + \sum_{n \in N} e^{\lambda s_n}}

    P are the positives of the query (the centre of its class), N its negatives (the other centres) and s their cosines.
    The term of w is :math:`w |q - c_p|^2` for unit vectors, less 2w: the positive is pulled by 2w at any score,
    and the loss can be below zero. A query without negatives has this term alone.

    Args:
        scale: λ (s in the paper), in units of 1/score; 64 as in public ports.
        margin: m, in units of score; 0.2 as in public ports.
        weight_: w (λ in the paper), of the pull to the centre; 1 as in public ports, which do not agree on any of the
            three (another has 16, 0 and 2). Its parameter is called `weight`.

    Counts: negatives with a softmax probability above eps, margin included; unit λ|P|.
    Net: the pull exceeds the push by 2w for each positive.
    Source: Cai et al. 2023, Center Contrastive Loss, arXiv:2308.00458, eq. 5; secondary source, from two public ports.
    """

    scale: Positive = 64.0
    margin: NonNegative = 0.2
    weight_: NonNegative = 1.0
    softmax_scale = None  # the pull to the centre is none
    family = "proxy"
    aliases = {"CCL": {}}

    @property
    def balanced(self) -> bool:
        """Whether the weights of each query sum to zero."""
        return self.weight_ == 0

    def logits(self, pairs: Pairs) -> tuple[Tensor, Tensor | float]:
        """Logits λ(s - m) of positives and λs of others, (Q, C), and their slope λ."""
        return self.scale * torch.where(pairs.positive, pairs.scores - self.margin, pairs.scores), self.scale

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,), in nats; 0 for a query without a positive."""
        return super().value(pairs) - torch.where(pairs.positive, 2 * self.weight_ * pairs.scores, 0).sum(dim=1)

    def weight(self, pairs: Pairs) -> Tensor:
        """Return ∂ Σ value / ∂ score, (Q, C), by closed form: the softmax's, less 2w on positives."""
        return super().weight(pairs) - 2 * self.weight_ * pairs.positive.to(pairs.scores)
