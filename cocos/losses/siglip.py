"""SigLIP: a separate logistic term for every pair."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.base.ranges import Finite, Positive
from cocos.embeddings.scores import Pairs
from cocos.losses.base import Loss


@dataclass(frozen=True)
class SigLIP(Loss):
    r"""Binary cross-entropy of every pair by itself: is this candidate a positive of this query?

    .. math:: \ell(s) = \sum_{p \in P} \log \bigl(1 + e^{-(\lambda s_p + b)}\bigr)
        + \sum_{n \in N} \log \bigl(1 + e^{\lambda s_n + b}\bigr)

    :math:`\lambda` is the scale and :math:`b` the bias, both learned in training; the share of a negative is the
    probability :math:`\sigma(\lambda s_n + b)` that the loss gives it of being a positive. No other candidate plays a
    part, so that the shares of a query do not sum to 1. The mean over the queries is the loss of the source, which
    divides the sum over all pairs by the number of queries. With class proxies for candidates this is UniFace.

    Args:
        scale: λ, in 1/score; its initial value in the source, t' = log 10.
        bias: b, added to the scaled score: at its initial value all pairs are taken for negatives, which most are.

    Counts: negatives with a probability above eps of being a positive, so with a score above (logit(eps) - b)/λ,
        which is the same for all queries; unit λ.
    Net: pull and push follow their own pairs; a learned bias makes them equal on the average of a batch.
    Source: Zhai et al. 2023, Sigmoid Loss for Language Image Pre-Training, arXiv:2303.15343, section 3.2; with proxies
        Zhou et al. 2023, UniFace: Unified Cross-Entropy Loss for Deep Face Recognition, ICCV, without its margin.

    Examples:
        At the score 1 the scale makes up for the bias: half of the probability is missing of the positive, and the
        negative has the other half too much; a negative at 0 has a share of 1 / (1 + e^10).

        >>> pairs = cocos.Pairs(torch.tensor([[1.0, 1.0, 0.0]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("siglip")
        >>> (loss.weight(pairs) / loss.unit(pairs)).round(decimals=6)
        tensor([[-5.0000e-01,  5.0000e-01,  4.5000e-05]])
    """

    scale: Positive = 10.0
    bias: Finite = -10.0
    share = "probability"
    family = "pair"
    aliases = {
        "sigmoid loss": {},
        "SigLIP loss": {},
        "pairwise logistic loss": {},
        "UniFace": {},  # with class proxies
        "unified cross-entropy": {},
    }

    @property
    def logistic(self) -> tuple[float, float]:
        """Scale and bias of the probability σ(λ s + b) of a pair."""
        return self.scale, self.bias

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,), in nats; a query may have positives or negatives only."""
        logits = self.scale * pairs.scores + self.bias
        signed = torch.where(pairs.positive, -logits, logits)
        terms = torch.logaddexp(signed, torch.zeros_like(signed))
        return torch.where(pairs.positive | pairs.negative, terms, 0).sum(dim=1)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C), by closed form.

        Positives :math:`-\lambda \sigma(-(\lambda s_p + b))`, negatives :math:`\lambda \sigma(\lambda s_n + b)`.
        """
        logits = self.scale * pairs.scores + self.bias
        pull = torch.where(pairs.positive, (-logits).sigmoid(), 0)
        return self.scale * (torch.where(pairs.negative, logits.sigmoid(), 0) - pull)

    def unit(self, pairs: Pairs) -> Tensor:
        """Return the weight of a negative that is surely taken for a positive, (): λ."""
        return pairs.scores.new_full((), self.scale)
