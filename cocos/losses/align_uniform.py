"""Alignment and uniformity: draw positives together, and spread all over the sphere."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from cocos.losses._shelf import Positive, ShelfLoss
from cocos.scores import Pairs, logsumexp, softmax

__all__ = ["AlignUniform"]


@dataclass(frozen=True)
class AlignUniform(ShelfLoss):
    r"""Squared distance to each positive, and log of the mean Gaussian potential of all negative pairs of the batch.

    .. math::
        \ell_q(d) = \sum_{p \in P_q} \Bigl(d_{qp}^2 + \gamma \log \frac{1}{|T|}
        \sum_{(k, n) \in T} e^{-t d_{kn}^2}\Bigr)

    :math:`P_q` are the positives of query q, T the negative pairs of the batch, also of queries without a positive, and
    d² the squared distances of unit vectors, minus the score. The paper's loss is the mean of these over the positive
    pairs; in a labelled set, where every sample is query and candidate, T has all of its pairs of two classes.

    Args:
        t: t, in units of 1/score; 2 as in the paper.
        weight: γ, weight of the uniformity; 1 as in the paper.

    Counts: negatives with more than eps of γt; every query pushes every pair, so shares may exceed 1; unit γt|P|.
    Net: a positive pulls with 1 at any distance; the push over the batch is γt for each positive pair.
    Source: Wang & Isola 2020, Alignment and Uniformity on the Hypersphere, arXiv:2005.10242, section 4.
    Also called: alignment and uniformity.
    Family: pair.

    Examples:
        Two queries with their positives at distance 0 and one negative each at 1: 2 of the push on each, -1 of pull.

        >>> pairs = cocos.Pairs(torch.tensor([[0.0, -1.0], [-1.0, 0.0]]), torch.eye(2, dtype=torch.bool))
        >>> loss = cocos.losses.load("align_uniform")
        >>> loss(pairs)
        tensor([-2., -2.])
        >>> loss.weight(pairs)
        tensor([[-1.,  2.],
                [ 2., -1.]])
    """

    t: Positive = 2.0
    weight_: Positive = 1.0
    metric: ClassVar[str] = "squared_euclidean"
    couples: ClassVar[str] = "batch"
    per_positive: ClassVar[bool] = True

    def __call__(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), of either sign; 0 for a query without a positive."""
        number = pairs.negative.sum()
        spread = logsumexp(self.t * pairs.scores, pairs.negative, (0, 1)) - number.clamp(min=1).to(pairs.scores).log()
        each = self.weight_ * torch.where(number > 0, spread, 0) - pairs.scores
        return torch.where(pairs.positive, each, 0).sum(dim=1)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Closed form of ∂ Σ loss / ∂ score, (Q, C): the sum over the losses of all queries.

        Positives -1; negatives :math:`\gamma t K \, \mathrm{softmax}_T(-t d^2)` with K the positive pairs of the batch.
        """
        push = softmax(self.t * pairs.scores, pairs.negative, (0, 1))
        pull = pairs.positive.to(pairs.scores.dtype)
        return self.weight_ * self.t * pull.sum() * push - pull

    def unit(self, pairs: Pairs) -> Tensor:
        """Push of a positive pair on all pairs together, for every positive, (Q, 1): γt|P|."""
        return self.weight_ * self.t * pairs.positives()
