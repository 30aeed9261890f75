"""Alignment and uniformity: draw positives together, and spread all over the sphere."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.base.ranges import Positive
from cocos.embeddings.scores import Pairs, logsumexp, softmax
from cocos.losses.base import Loss


@dataclass(frozen=True)
class AlignUniform(Loss):
    r"""Squared distance to each positive, and log of the mean Gaussian potential of all negative pairs of the batch.

    .. math::
        \ell_q(d) = \sum_{p \in P_q} \Bigl(d_{qp}^2 + \gamma \log \frac{1}{|T|}
        \sum_{(k, n) \in T} e^{-t d_{kn}^2}\Bigr)

    :math:`P_q` are the positives of query q, d² the squared distances of unit vectors, minus the score (rows are
    divided by their norms), and T all negative pairs of the batch, also of queries without a positive; in a labelled
    set, where every sample is query and candidate, pairs of two classes. The paper's loss is the mean over the positive
    pairs; its published code computes the uniformity within each view.

    Args:
        t: t, in units of 1/score; 2 as in the paper.
        weight: γ, weight of the uniformity; 1 as in the paper.

    Counts: negatives with more than eps of γt; every query pushes every pair, so shares may exceed 1; unit γt|P|.
    Net: a positive pulls with 1 at any distance; the push over the batch is γt for each positive pair.
    Source: Wang & Isola 2020, Alignment and Uniformity on the Hypersphere, arXiv:2005.10242, section 4.

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
    metric = "squared_chord"
    couples = "batch"
    per_positive = True
    family = "pair"
    aliases = {"alignment and uniformity": {}}

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,), of either sign; 0 for a query without a positive."""
        number = pairs.negative.sum()
        mean = logsumexp(self.t * pairs.scores, pairs.negative, (0, 1)) - number.clamp(min=1).to(pairs.scores).log()
        spread = torch.where(number > 0, mean, 0)
        return torch.where(pairs.positive, self.weight_ * spread - pairs.scores, 0).sum(dim=1)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C), by closed form: the sum over the losses of all queries.

        Positives -1; negatives :math:`\gamma t K \, \mathrm{softmax}_T(-t d^2)` with K the positive pairs of the batch.
        """
        pull = pairs.positive.to(pairs.scores.dtype)
        return self.weight_ * self.t * pull.sum() * softmax(self.t * pairs.scores, pairs.negative, (0, 1)) - pull

    def unit(self, pairs: Pairs) -> Tensor:
        """Return the push of a positive pair on all pairs together, for every positive, (Q, 1): γt|P|."""
        return self.weight_ * self.t * pairs.positives()
