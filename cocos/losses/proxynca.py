"""ProxyNCA: draw to the own proxy, and away from a softmax of the others."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.base.ranges import Positive
from cocos.embeddings.scores import Pairs, logsumexp, softmax
from cocos.losses.base import Loss


@dataclass(frozen=True)
class ProxyNCA(Loss):
    r"""Squared distance to each positive against the log-sum over the negatives, summed over the positives.

    .. math::
        \ell(d) = -\sum_{p \in P} \log \frac{e^{-\lambda d_p^2}}{\sum_{n \in N} e^{-\lambda d_n^2}}

    P are the positives of the query (the proxy of its class), N its negatives (the other proxies), and d² the squared
    distances, minus the score; the paper has embeddings and proxies of unit length. The positive is *not* in the
    denominator: its pull is the same at every distance, and the loss has no lower bound.

    Args:
        scale: λ, in units of 1/score. The paper has none; 9 (both sides times 3) is from the published code of
            ProxyNCA++.

    Counts: negatives with a softmax probability above eps among the negatives; unit λ|P|.
    Net: push equals pull for every query: λ for each positive.
    Source: Movshovitz-Attias et al. 2017, No fuss distance metric learning using proxies, arXiv:1703.07464.

    Examples:
        The positive is not in its own denominator: it always pulls with its whole unit.

        >>> pairs = cocos.Pairs(torch.tensor([[-1.0, -1.0, -1.0]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("proxynca")
        >>> loss.weight(pairs) / loss.unit(pairs)
        tensor([[-1.0000,  0.5000,  0.5000]])
    """

    scale: Positive = 9.0
    metric = "squared_euclidean"
    balanced = True
    per_positive = True
    share = "probability"
    family = "proxy"

    @property
    def softmax_scale(self) -> float:
        """λ of Σ exp(λ s), the only term of the loss in which the negatives of a query appear."""
        return self.scale

    def _pulled(self, pairs: Pairs) -> Tensor:
        """Positives of the queries that have a negative, (Q, C) bool."""
        return pairs.positive & pairs.negative.any(dim=1, keepdim=True)

    def value(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), in nats, of either sign; 0 for a query without a positive or without a negative."""
        logits = self.scale * pairs.scores
        return torch.where(self._pulled(pairs), logsumexp(logits, pairs.negative) - logits, 0).sum(dim=1)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C), by closed form. Each row sums to zero.

        Positives :math:`-\lambda`, negatives :math:`\lambda |P|\, \mathrm{softmax}_N(-\lambda d^2)`.
        """
        pull = self._pulled(pairs).to(pairs.scores.dtype)
        push = pull.sum(dim=1, keepdim=True) * softmax(self.scale * pairs.scores, pairs.negative)
        return self.scale * (push - pull)

    def unit(self, pairs: Pairs) -> Tensor:
        """Return the weight of all positives together, (Q, 1): λ|P|."""
        return self.scale * pairs.positives()
