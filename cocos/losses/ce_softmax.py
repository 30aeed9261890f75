"""Cross-example softmax: each positive against the negatives of the whole batch."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from cocos.scores import Pairs, logsumexp, softmax

__all__ = ["CrossExampleSoftmax"]


@dataclass(frozen=True)
class CrossExampleSoftmax:
    r"""Cross-entropy of each positive of a query against all negative pairs of the batch, summed over the positives.

    .. math::
        \ell_q(s) = -\sum_{p \in P_q} \log \frac{e^{\lambda s_{qp}}}{e^{\lambda s_{qp}} + Z}, \quad
        Z = \sum_k \sum_{n \in N_k} e^{\lambda s_{kn}}

    :math:`P_q` are the positives of query q, :math:`N_k` the negatives of query k, also of one that has no positive,
    and s their scores. One sum Z for all queries asks for scores that can be compared between queries.

    Args:
        scale: λ, in units of 1/score. The paper scales its logits by 20 in section 4.2, the default; the formula of
            its section 4.1, read literally, scales both embeddings and makes it 400.

    Raises:
        ValueError: if the scale is not finite and above 0.

    Counts: negatives with more than eps of λ; every query pushes every pair, so shares may exceed 1; unit λ|P|.
    Net: push equals pull over the batch, not for a query: one with hard negatives is pushed more than it pulls.
    Source: Veit & Wilber 2020, Cross-Example Softmax, arXiv:2011.08824, eqs. 4-5; scale of section 4.2.
    Family: softmax.

    Examples:
        Each of two positives competes with the negatives of both queries, all at one score: the loss is ln 3.

        >>> scores, positive = torch.tensor([[0.5, 0.5], [0.5, 0.5]]), torch.tensor([[True, False], [False, True]])
        >>> pairs = cocos.Pairs(scores, positive)
        >>> loss = cocos.losses.load("ce_softmax")
        >>> loss(pairs)
        tensor([1.0986, 1.0986])
    """

    scale: float = 20.0
    metric: ClassVar[str] = "cosine"
    couples: ClassVar[str] = "batch"
    gradient: ClassVar[str] = "exact"
    balanced: ClassVar[bool] = False
    sample: ClassVar[str] = "pairs"
    per_positive: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.scale < math.inf:
            raise ValueError(f"scale must be finite and above 0, got {self.scale}")

    def __call__(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), in nats; 0 for a query without a positive, or in a batch without a negative."""
        logits = self.scale * pairs.scores
        total = logsumexp(logits, pairs.negative, (0, 1))
        each = torch.logaddexp(total - logits, torch.zeros_like(logits))
        return torch.where(pairs.positive, each, 0).sum(dim=1)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Closed form of ∂ Σ loss / ∂ score, (Q, C): the sum over the losses of all queries. All of it sums to zero.

        With :math:`m_p = Z / (e^{\lambda s_p} + Z)`: positives :math:`-\lambda m_p`, negatives
        :math:`\lambda (\sum_p m_p)\, e^{\lambda s} / Z`, where the sum runs over the positive pairs of the batch.
        """
        logits = self.scale * pairs.scores
        total = logsumexp(logits, pairs.negative, (0, 1))
        missing = torch.where(pairs.positive, (total - logits).sigmoid(), 0)
        return self.scale * (missing.sum() * softmax(logits, pairs.negative, (0, 1)) - missing)

    def unit(self, pairs: Pairs) -> Tensor:
        """Largest weight of a positive pair for every positive, (Q, 1): λ|P|."""
        return self.scale * pairs.positives()

    def equals(self) -> tuple[tuple[str, dict[str, Any], str], ...]:
        """List the equal losses of the shelf: name, parameters, and condition."""
        return (("ce_nm", {"scale": self.scale, "fraction": 1.0}, "always"),)
