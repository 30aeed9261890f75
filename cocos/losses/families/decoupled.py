"""A softmax over the negatives alone: the positive is not in the denominator, so that its pull is constant."""

import torch
from torch import Tensor

from cocos.embeddings.scores import Pairs, logsumexp, softmax
from cocos.losses.base import Loss


class Decoupled(Loss):
    r"""Pull of each positive, and log of the summed exponentials of the negatives, summed over the positives.

    .. math:: \ell(s) = \sum_{p \in P} \Bigl( -\lambda s_p + \log \sum_{n \in N} e^{\lambda s_n} \Bigr)
    """

    scale: float  # λ, in units of 1/score
    balanced = True
    per_positive = True
    share = "probability"

    @property
    def softmax_scale(self) -> float:
        """λ of Σ exp(λ s), the only term in which the negatives of a query appear."""
        return self.scale

    def value(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), in nats, of either sign; 0 for a query without a positive or without a negative."""
        logits, pulled = self.scale * pairs.scores, pairs.positive & pairs.negative.any(dim=1, keepdim=True)
        return torch.where(pulled, logsumexp(logits, pairs.negative) - logits, 0).sum(dim=1)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C), by closed form. Each row sums to zero.

        Positives :math:`-\lambda`, negatives :math:`\lambda |P| \, \mathrm{softmax}_N(\lambda s)`.
        """
        pull = (pairs.positive & pairs.negative.any(dim=1, keepdim=True)).to(pairs.scores.dtype)
        push = pull.sum(dim=1, keepdim=True) * softmax(self.scale * pairs.scores, pairs.negative)
        return self.scale * (push - pull)

    def unit(self, pairs: Pairs) -> Tensor:
        """Return the weight of a negative with all of the softmax, for every positive, (Q, 1): λ|P|."""
        return self.scale * pairs.positives()
