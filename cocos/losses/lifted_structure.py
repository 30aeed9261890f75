"""Lifted structure: each positive pair against the negatives of both of its ends."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.base.ranges import Positive
from cocos.embeddings.scores import Pairs, logsumexp, softmax
from cocos.losses.base import Loss


@dataclass(frozen=True)
class LiftedStructure(Loss):
    r"""Squared hinge of each positive pair against all negatives of its query and all negatives of its positive.

    .. math::
        \ell_i(d) = \sum_{p \in P_i} \tfrac{1}{2} [J_{ip}]_+^2, \quad
        J_{ip} = d_{ip} + \log \Bigl(\sum_{n \in N_i} e^{m - d_{in}} + \sum_{k \in N^p} e^{m - d_{kp}}\Bigr)

    :math:`d` is the Euclidean distance, minus the score; :math:`P_i` and :math:`N_i` are the positives and negatives of
    query i, and :math:`N^p` the negatives of its positive p, so that the loss of a query also weighs the pairs of
    others. Between two sides :math:`N^p` are the queries that have p for a negative (its column). In a labelled set,
    where no sample is its own candidate, they are the negatives of sample p as a query (its row): distances are
    symmetric, so value and gradient are the same in both cases. A pair without any negative on either
    end contributes nothing.

    Args:
        margin: m, in units of distance; 1 as in the paper.

    Counts: negatives with a share above eps; unit m|P|.
    Net: push equals pull over a batch, and not for each query.
    Source: Song et al. 2016, Lifted Structured Feature Embedding, arXiv:1511.06452, smooth bound, not yet averaged.

    Examples:
        Two negatives at the margin of 1 add ln 2 to the distance of the positive; the loss is half the square of that.

        >>> pairs = cocos.Pairs(torch.tensor([[-1.0, -1.0, -1.0]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("lifted_structure")
        >>> loss(pairs)
        tensor([1.4334])
        >>> loss.weight(pairs)
        tensor([[-1.6931,  0.8466,  0.8466]])
    """

    margin: Positive = 1.0
    metric = "euclidean"
    couples = "batch"
    sample = "groups"
    per_positive = True
    family = "pair"

    @staticmethod
    def _one_set(pairs: Pairs) -> bool:
        """Whether queries and candidates are the same samples: a square without its diagonal."""
        included = pairs.positive | pairs.negative
        return included.shape[0] == included.shape[1] and not included.diagonal().any()

    def _log_sums(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Log of the summed negatives of each query, (Q, 1), and of each candidate, (1, C)."""
        logits, least = self.margin + pairs.scores, torch.finfo(pairs.scores.dtype).min
        row_sum = logsumexp(logits, pairs.negative).clamp(min=least)  # two empty ends must not make -inf minus -inf
        if self._one_set(pairs):
            return row_sum, row_sum.T
        return row_sum, logsumexp(logits, pairs.negative, dim=0).clamp(min=least)

    def _hinge(self, pairs: Pairs, row_sum: Tensor, column_sum: Tensor) -> Tensor:
        return torch.where(pairs.positive, (torch.logaddexp(row_sum, column_sum) - pairs.scores).relu(), 0)

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,), in units of squared distance; 0 for a query without a positive."""
        return self._hinge(pairs, *self._log_sums(pairs)).square().sum(dim=1) / 2

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C), by closed form. The whole matrix sums to zero.

        With :math:`u_{ip} = [J_{ip}]_+` and :math:`\rho_{ip}` the part of the sum in :math:`J_{ip}` due to the
        negatives of i: positives :math:`-u_{ip}`; negatives :math:`(\sum_p u_{ip} \rho_{ip}) \,
        \mathrm{softmax}_{N_i}(m - d)_n` and, for each positive p of some query,
        :math:`\sum_i u_{ip} (1 - \rho_{ip})` times the softmax over :math:`N^p`.
        """
        row_sum, column_sum = self._log_sums(pairs)
        pull = self._hinge(pairs, row_sum, column_sum)
        mass = (pull * (row_sum - column_sum).sigmoid()).sum(dim=1, keepdim=True)
        passed = (pull * (column_sum - row_sum).sigmoid()).sum(dim=0, keepdim=True)
        if self._one_set(pairs):
            return (mass + passed.T) * softmax(pairs.scores, pairs.negative) - pull
        among = mass * softmax(pairs.scores, pairs.negative) + passed * softmax(pairs.scores, pairs.negative, dim=0)
        return among - pull

    def unit(self, pairs: Pairs) -> Tensor:
        """Margin of a pair for every positive, (Q, 1): m|P|."""
        return self.margin * pairs.positives()
