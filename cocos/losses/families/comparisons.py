"""One sum over all comparisons of a better pair with a worse one in the batch."""

import torch
from torch import Tensor

from cocos.embeddings.scores import Pairs, logsumexp, softmax
from cocos.losses.base import Loss


class ComparedPairs(Loss):
    r"""Log of one sum over all comparisons of a positive p of any row q of the batch with a negative n of that row.

    .. math:: \log \Bigl(1 + \sum_q \sum_{p \in P_q} \sum_{n \in N_q} e^{\lambda (s_n - s_p)}\Bigr)

    Of graded pairs a row is a pair, its positive itself, and its negatives are the pairs of a lower grade.
    """

    scale: float
    couples = "batch"
    balanced = True
    graded = True
    share = "probability"

    def _rows(self, pairs: Pairs) -> Tensor:
        """Log of the sum of each row, (Q, 1); -inf for a row without a comparison."""
        logits = self.scale * pairs.scores
        compared = pairs.positive.any(dim=1, keepdim=True) & pairs.negative.any(dim=1, keepdim=True)
        whole = logsumexp(logits, pairs.negative) + logsumexp(-logits, pairs.positive)
        return whole.masked_fill(~compared, -torch.inf)

    def value(self, pairs: Pairs) -> Tensor:
        """Part of each row in the loss of the batch, by its part of the sum, (Q,), in nats; together the loss."""
        rows = self._rows(pairs)
        compared = rows > -torch.inf
        total = logsumexp(rows, compared, 0)
        part = softmax(rows.detach(), compared, 0)
        return (part * torch.logaddexp(total, torch.zeros_like(total))).squeeze(dim=1)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C), by closed form. Each row sums to zero.

        With :math:`\pi_q` the part of row q in 1 + the sum: positives :math:`-\lambda \pi_q \,
        \mathrm{softmax}_P(-\lambda s)`, negatives :math:`\lambda \pi_q \, \mathrm{softmax}_N(\lambda s)`.
        """
        logits, rows = self.scale * pairs.scores, self._rows(pairs)
        compared = rows > -torch.inf
        missing = logsumexp(rows, compared, 0).sigmoid() * softmax(rows, compared, 0)
        return self.scale * missing * (softmax(logits, pairs.negative) - softmax(-logits, pairs.positive))

    def unit(self, pairs: Pairs) -> Tensor:
        """Return the weight of a pair with all of the probability, (): λ."""
        return pairs.scores.new_tensor(self.scale)
