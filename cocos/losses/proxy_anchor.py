"""Proxy-Anchor: every proxy draws the queries of its class and drives the others away."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.base.ranges import Finite, Positive
from cocos.embeddings.scores import Pairs, logsumexp, softmax
from cocos.losses.base import Loss


@dataclass(frozen=True)
class ProxyAnchor(Loss):
    r"""Soft hinges of the queries of each candidate's class and of all others, with the candidates as anchors.

    .. math::
        \sum_q \ell_q = \frac{1}{|C^+|} \sum_{c \in C^+} \log \Bigl(1 + \sum_{q : c \in P_q} e^{-\alpha (s_{qc} -
        \delta)}\Bigr) + \frac{1}{|C|} \sum_{c \in C} \log \Bigl(1 + \sum_{q : c \in N_q} e^{\alpha (s_{qc} +
        \delta)}\Bigr)

    P and N are the positives and the negatives of a query, s their scores, C the candidates (proxies) that take part
    and :math:`C^+` those with a positive query in the batch. The queries that a candidate sums over compete for its
    weight; candidates meet only in the two numbers. The loss of a query is an equal part of every sum that it enters:
    only the total over the batch is the authors'.

    Args:
        alpha: α, in 1/score; 32 as in the paper.
        margin: δ, in units of score; 0.1 as in the paper.

    Counts: candidates of which a query has a share above eps; unit α/|C+| for positives, α/|C| for the others.
    Net: a candidate pulls at most α/|C+| and pushes at most α/|C|, shared by its queries; nothing balances a query.
    Source: Kim et al. 2020, Proxy Anchor Loss for Deep Metric Learning, arXiv:2003.13911, eq. 4.

    Examples:
        A positive at the margin, 0.1, and a negative at its opposite, -0.1, each have an exponential of 1.

        >>> pairs = cocos.Pairs(torch.tensor([[0.1, -0.1]]), torch.tensor([[True, False]]))
        >>> loss = cocos.losses.load("proxy_anchor")
        >>> loss(pairs)
        tensor([1.0397])
        >>> loss.weight(pairs) / loss.unit(pairs)
        tensor([[-0.5000,  0.5000]])
    """

    alpha: Positive = 32.0
    margin: Finite = 0.1
    couples = "candidate"
    family = "proxy"

    def _numbers_of_candidates(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Number of candidates with a positive query, and of those that take part; at least 1."""
        present, taking_part = pairs.positive.any(dim=0), (pairs.positive | pairs.negative).any(dim=0)
        return present.sum().clamp(min=1), taking_part.sum().clamp(min=1)

    def _sides_of_loss(self, pairs: Pairs) -> tuple[tuple[Tensor, Tensor, Tensor], ...]:
        """Logits, those that take part, and their number of candidates, for positives and for negatives."""
        present, taking_part = self._numbers_of_candidates(pairs)
        pull, push = -self.alpha * (pairs.scores - self.margin), self.alpha * (pairs.scores + self.margin)
        return (pull, pairs.positive, present), (push, pairs.negative, taking_part)

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,), in nats: its parts of the sums that it enters."""
        total = pairs.scores.new_zeros(pairs.scores.shape[0])
        for logits, mask, number in self._sides_of_loss(pairs):
            side = logsumexp(logits, mask, dim=0)
            part = torch.logaddexp(side, torch.zeros_like(side)) / mask.sum(dim=0, keepdim=True).clamp(min=1)
            total = total + torch.where(mask, part, 0).sum(dim=1) / number
        return total

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C), by closed form.

        With :math:`h_M(x)_q = e^{x_q} / (1 + \sum_{k \in M} e^{x_k})` down the column of a candidate: positives
        :math:`-(\alpha / |C^+|) \, h(-\alpha (s - \delta))`, negatives
        :math:`(\alpha / |C|) \, h(\alpha (s + \delta))`.
        """
        pull, push = (
            softmax(logits, mask, dim=0) * logsumexp(logits, mask, dim=0).sigmoid() / number
            for logits, mask, number in self._sides_of_loss(pairs)
        )
        return self.alpha * (push - pull)

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of a query with all of its candidate, (Q, C): α/|C+| for positives, α/|C| for the others."""
        present, taking_part = self._numbers_of_candidates(pairs)
        return self.alpha / torch.where(pairs.positive, present, taking_part).to(pairs.scores.dtype)
