"""SGSL: the positive against a soft maximum of the negatives, with candidates that stand still."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.base.ranges import Positive
from cocos.embeddings.scores import Pairs, logsumexp, softmax
from cocos.losses.base import Loss


@dataclass(frozen=True)
class SGSL(Loss):
    r"""Soft hinge of each positive against the soft maximum of the negatives, summed over the positives of a query.

    .. math:: \ell(s) = \sum_{p \in P} \log \bigl(1 + e^{M - s_p}\bigr), \quad
        M = \frac{1}{\gamma} \log \sum_{n \in N} e^{\gamma s_n}

    P are the positives of a query, N its negatives and s their scores. In training the candidates, rows of a
    classifier, are constants: the loss moves queries only, and is added to the cross-entropy of the same classifier.
    The weights are the whole gradient of the queries; the gradient of the candidates is not used.

    Args:
        gamma: γ, in 1/score: how sharply the soft maximum picks the hardest negative; 30 as in the published code.

    Counts: negatives with a share above eps; unit |P|.
    Net: push equals pull for every query, at most 1 a positive.
    Source: Yang et al. 2023, Stop-Gradient Softmax Loss for Deep Metric Learning, doi:10.1609/aaai.v37i3.25421, from
        its published code.

    Examples:
        A positive and a negative at one score: ln 2, and half of the unit each.

        >>> pairs = cocos.Pairs(torch.tensor([[0.5, 0.5]]), torch.tensor([[True, False]]))
        >>> loss = cocos.losses.load("sgsl")
        >>> loss(pairs)
        tensor([0.6931])
        >>> loss.weight(pairs) / loss.unit(pairs)
        tensor([[-0.5000,  0.5000]])
    """

    gamma: Positive = 30.0
    gradient = "stop_gradient"
    balanced = True
    per_positive = True
    family = "softmax"

    def _lead(self, pairs: Pairs) -> Tensor:
        """Soft maximum minus each score, (Q, C); -inf for a query without a negative."""
        return logsumexp(self.gamma * pairs.scores, pairs.negative) / self.gamma - pairs.scores

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,), in nats; 0 for a query without a positive or without a negative."""
        lead = self._lead(pairs)
        return torch.where(pairs.positive, torch.logaddexp(lead, torch.zeros_like(lead)), 0).sum(dim=1)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C), by closed form. Each row sums to zero.

        With :math:`h_p = \sigma(M - s_p)`: positives :math:`-h_p`, negatives
        :math:`(\sum_p h_p) \, \mathrm{softmax}_N(\gamma s)`.
        """
        pull = torch.where(pairs.positive, self._lead(pairs).sigmoid(), 0)
        return pull.sum(dim=1, keepdim=True) * softmax(self.gamma * pairs.scores, pairs.negative) - pull

    def unit(self, pairs: Pairs) -> Tensor:
        """Return the weight of a candidate with all of the soft maximum for every positive, (Q, 1): |P|."""
        return pairs.positives()
