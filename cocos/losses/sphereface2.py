"""SphereFace2: a binary classifier for every class, with a margin on both sides."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from cocos.embeddings.scores import Pairs
from cocos.losses._shelf import Finite, NonNegative, Positive, Range, ShelfLoss


@dataclass(frozen=True)
class SphereFace2(ShelfLoss):
    r"""Binary cross-entropy of every class by itself, on a steeper cosine, with a margin for and against.

    .. math:: \ell(s) = \frac{\lambda}{r} \sum_{p \in P} \log \bigl( 1 + e^{-r (g(s_p) - m) - b} \bigr)
        + \frac{1 - \lambda}{r} \sum_{n \in N} \log \bigl( 1 + e^{r (g(s_n) + m) + b} \bigr), \quad
        g(s) = 2 \Bigl( \frac{s + 1}{2} \Bigr)^t - 1

    P are the positives of the query (the proxy of its class), N its negatives (the other proxies) and s their cosines;
    the margin on the cosine is the form C of the paper. g spreads the cosines near 1, and a negative far away has
    hardly a slope. No other class plays a part, as in `siglip`.

    Args:
        scale: r, in units of 1/score; 40 as in the published code.
        margin: m, on both sides; 0.4 as in the paper.
        balance: λ, the part of the loss of the positives; 0.7 as in the paper.
        t: t of g; 3 as in the paper, 1 leaves the cosines alone.
        bias: b, learned in training: give that of the model. The paper begins where push and pull are equal.

    Counts: negatives whose weight exceeds eps units, σ(r (g + m) + b) times the slope g'/t; unit (1 - λ) t, a negative
        at a cosine of 1 that is surely taken for a positive.
    Net: pull and push follow their own pairs.
    Source: Wen et al. 2022, SphereFace2: Binary Classification is All You Need for Deep Face Recognition,
        arXiv:2108.01513, eq. 5 with its similarity adjustment; scale of its published code.
    Also called: SphereFace2-C.
    Family: proxy.

    Examples:
        Without the spread, the positive at the margin, and a negative below it by as much, each lack one half:

        >>> pairs = cocos.Pairs(torch.tensor([[0.4, -0.4]]), torch.tensor([[True, False]]))
        >>> cocos.losses.load("sphereface2", t=1).weight(pairs)
        tensor([[-0.3500,  0.1500]])
    """

    scale: Positive = 40.0
    margin: NonNegative = 0.4
    balance: Annotated[float, Range("above 0 and below 1", lambda value: 0 < value < 1)] = 0.7
    t: Annotated[float, Range("finite and at least 1", lambda value: 1 <= value < float("inf"))] = 3.0
    bias: Finite = 0.0
    share: ClassVar[str | None] = None

    def _logits(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Logits of being a positive, and the slopes g', (Q, C) each; below a cosine of -1 (rounding) g is flat."""
        place = (pairs.scores + 1) / 2
        inside = place.clamp(min=0)
        steep = 2 * inside**self.t - 1
        steep = torch.where(pairs.positive, steep - self.margin, steep + self.margin)
        logits = self.scale * steep + self.bias
        return logits, torch.where(place >= 0, self.t * inside ** (self.t - 1), 0)

    def __call__(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), in nats over r; a query may have positives or negatives only."""
        logits, _ = self._logits(pairs)
        signed = torch.where(pairs.positive, -logits, logits)
        each = torch.logaddexp(signed, torch.zeros_like(signed)) / self.scale
        each = torch.where(pairs.positive, self.balance * each, (1 - self.balance) * each)
        return torch.where(pairs.positive | pairs.negative, each, 0).sum(dim=1)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Closed form of ∂ Σ loss / ∂ score, (Q, C).

        Positives :math:`-\lambda g' \sigma(-r (g - m) - b)`, negatives :math:`(1 - \lambda) g' \sigma(r (g + m) + b)`.
        """
        logits, slope = self._logits(pairs)
        pull = torch.where(pairs.positive, self.balance * (-logits).sigmoid(), 0)
        return slope * (torch.where(pairs.negative, (1 - self.balance) * logits.sigmoid(), 0) - pull)

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of a negative at a cosine of 1 that is surely taken for a positive, (): (1 - λ) t."""
        return pairs.scores.new_tensor((1 - self.balance) * self.t)
