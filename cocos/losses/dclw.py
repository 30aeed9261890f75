"""DCLW: DCL with a pull weighted by how poorly the positive is placed in the batch."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.base.ranges import Positive
from cocos.embeddings.scores import Pairs, logsumexp, softmax
from cocos.losses.base import Loss


@dataclass(frozen=True)
class DCLW(Loss):
    r"""DCL with a pull that is weighted by a negative von Mises-Fisher function over the batch.

    .. math::
        \ell_i(s) = \sum_{p \in P_i} \Bigl( -v_{ip} \frac{s_{ip}}{\tau}
        + \log \sum_{n \in N_i} e^{s_{in} / \tau} \Bigr), \quad
        v_{ip} = 2 - B \frac{e^{s_{ip} / \sigma}}{\sum_{(j, q)} e^{s_{jq} / \sigma}}

    The sum in v runs over the B positive pairs of the batch, so that v is 1 on average. A pair that is far above the
    others has a v below zero, and is pushed apart; with σ = 0.5 that takes an advantage of about 0.35 in score.

    Args:
        temperature: τ, in units of score; 0.1 as in the paper.
        sigma: σ, in units of score; 0.5 as in the paper. A large σ makes v one for every pair, which is DCL.
        detach: whether v is a constant in training; without it the gradient also flows through v.

    Counts: negatives with more than eps of the softmax over the negatives; unit |P|/τ.
    Net: a query is pushed by 1/τ for each positive and pulled by v times as much. Over the batch they are equal.
    Source: Yeh et al. 2022, Decoupled Contrastive Learning, arXiv:2110.06848, eq. 6 and its weighting function. v is a
        constant in lightly's DCLWLoss; the code that it was inspired by lets the gradient flow, and leaves out B.

    Examples:
        Of two queries the first has its positive better placed, and is pulled less than 1/τ = 10, the second more:

        >>> pairs = cocos.Pairs(torch.tensor([[0.9, 0.3], [0.3, 0.6]]), torch.eye(2, dtype=torch.bool))
        >>> cocos.losses.load("dclw").weight(pairs)
        tensor([[ -7.0869,  10.0000],
                [ 10.0000, -12.9131]])
    """

    temperature: Positive = 0.1
    sigma: Positive = 0.5
    detach: bool = True
    couples = "batch"
    per_positive = True
    share = "probability"
    family = "softmax"
    aliases = {"weighted decoupled contrastive": {}}

    @property
    def gradient(self) -> str:
        """With detach the weights v are constants in training."""
        return "stop_gradient" if self.detach else "exact"

    def _softmax_over_batch(self, scores: Tensor, pairs: Pairs) -> tuple[Tensor, Tensor, Tensor]:
        """Positive pairs that take part, (Q, C) bool; their number B, (); and their softmax over the batch, (Q, C)."""
        included = pairs.positive & pairs.negative.any(dim=1, keepdim=True)
        logits = (scores / self.sigma).masked_fill(~included & included.any(), -torch.inf)
        return included, included.sum(), logits.flatten().softmax(dim=0).view(scores.shape)

    def value(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), in nats, of either sign; 0 for a query without a positive or without a negative."""
        included, number, placed = self._softmax_over_batch(
            pairs.scores.detach() if self.detach else pairs.scores, pairs
        )
        logits = pairs.scores / self.temperature
        total = torch.where(pairs.negative.any(dim=1, keepdim=True), logsumexp(logits, pairs.negative), 0)
        pull = (2 - number * placed) * logits
        return torch.where(included, total - pull, 0).sum(dim=1)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C), by closed form.

        Positives :math:`-v / \tau`, negatives :math:`|P| \, \mathrm{softmax}_N(s / \tau) / \tau`. With detach off a
        positive also has :math:`\frac{B}{\tau \sigma} \pi (s - \bar{s})`, with π its part of the softmax over the
        batch and :math:`\bar{s} = \sum \pi s`.
        """
        included, number, placed = self._softmax_over_batch(pairs.scores, pairs)
        pull = torch.where(included, 2 - number * placed, 0)
        if not self.detach:
            mean = torch.where(included, placed * pairs.scores, 0).sum()
            pull = pull - torch.where(included, number * placed * (pairs.scores - mean), 0) / self.sigma
        push = pairs.positive.sum(dim=1, keepdim=True) * softmax(pairs.scores / self.temperature, pairs.negative)
        return (push - pull) / self.temperature

    def unit(self, pairs: Pairs) -> Tensor:
        """Return the weight of a negative with all of the softmax, for every positive, (Q, 1): |P|/τ."""
        return pairs.positives() / self.temperature
