"""Cross-entropy against the negatives of the whole batch, or of a part of them."""

import torch
from torch import Tensor

from cocos.embeddings.scores import Pairs, logsumexp, softmax
from cocos.losses.base import Loss


class BatchSoftmax(Loss):
    r"""Cross-entropy of each positive of a query against negative pairs T of the batch, summed over the positives.

    .. math:: \ell_q(s) = -\sum_{p \in P_q} \log \frac{e^{\lambda s_{qp}}}{e^{\lambda s_{qp}} + Z}, \quad
        Z = \sum_{(k, n) \in T} e^{\lambda s_{kn}}
    """

    scale: float
    couples = "batch"
    per_positive = True

    def negatives(self, pairs: Pairs) -> Tensor:
        """Negative pairs of the batch that take part, (Q, C) bool."""
        return pairs.negative

    def value(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), in nats; 0 for a query without a positive, or in a batch without a negative."""
        logits = self.scale * pairs.scores
        total = logsumexp(logits, self.negatives(pairs), (0, 1))
        terms = torch.logaddexp(total - logits, torch.zeros_like(logits))
        return torch.where(pairs.positive, terms, 0).sum(dim=1)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C): the sum over the losses of all queries. All of it sums to zero.

        With :math:`m_p = Z / (e^{\lambda s_p} + Z)`: positives :math:`-\lambda m_p`, negatives that take part
        :math:`\lambda (\sum_p m_p)\, e^{\lambda s} / Z`, where the sum runs over the positive pairs of the batch.
        """
        logits, negative = self.scale * pairs.scores, self.negatives(pairs)
        missing = torch.where(pairs.positive, (logsumexp(logits, negative, (0, 1)) - logits).sigmoid(), 0)
        return self.scale * (missing.sum() * softmax(logits, negative, (0, 1)) - missing)

    def unit(self, pairs: Pairs) -> Tensor:
        """Return the largest weight of a positive pair for every positive, (Q, 1): λ|P|."""
        return self.scale * pairs.positives()
