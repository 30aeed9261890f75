"""MIL-NCE: several positives inside the logarithm, of which one is enough."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.base.ranges import Positive
from cocos.embeddings.scores import Pairs, logsumexp, softmax
from cocos.losses.base import Loss


@dataclass(frozen=True)
class MILNCE(Loss):
    r"""Cross-entropy of all positives of a query together against its negatives: it is enough that one ranks high.

    .. math:: \ell(s) = -\log \frac{\sum_{p \in P} e^{s_p / \tau}}
        {\sum_{p \in P} e^{s_p / \tau} + \sum_{n \in N} e^{s_n / \tau}}

    P are the positives of the query, N its negatives and s their scores. The pull goes to the positives by their
    softmax, so that the best one has most of it and a false positive that scores low is left alone. NT-Xent and
    SupCon pull the worst one most. In the source N also has the negatives of the other direction: their sum is
    `count` of both directions here.

    Args:
        temperature: τ, in units of score; 1 as in the paper, whose scores are inner products of raw embeddings.

    Counts: negatives with a softmax probability above eps; unit 1/τ.
    Net: push equals pull for every query.
    Source: Miech et al. 2020, End-to-End Learning of Visual Representations from Uncurated Instructional Videos,
        arXiv:1912.06430, eq. 1; with minus the squared distance for a score it is the soft nearest neighbour loss,
        Frosst et al. 2019, arXiv:1902.01889, eq. 1; SupCon's L_in (arXiv:2004.11362, eq. 3) is larger by log |P|.

    Examples:
        Two positives and a negative with equal scores: the negative has a third of the probability, and each positive
        has half of the pull.

        >>> pairs = cocos.Pairs(torch.tensor([[0.5, 0.5, 0.5]]), torch.tensor([[True, True, False]]))
        >>> cocos.losses.load("mil_nce").weight(pairs)
        tensor([[-0.1667, -0.1667,  0.3333]])
    """

    temperature: Positive = 1.0
    metric = "dot"
    balanced = True
    sample = "groups"
    share = "probability"
    family = "softmax"
    aliases = {"multiple instance NCE": {}, "multi-positive NCE": {}, "soft nearest neighbour": {}, "L_in": {}}

    @property
    def softmax_scale(self) -> float:
        """λ of Σ exp(λ s), the only term of the loss in which the negatives of a query appear."""
        return 1 / self.temperature

    def _missing(self, pairs: Pairs) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, (Q, C), log of the odds of the negatives, and which queries have both kinds, (Q, 1) each."""
        logits = pairs.scores / self.temperature
        mixed = pairs.positive.any(dim=1, keepdim=True) & pairs.negative.any(dim=1, keepdim=True)
        sides = (torch.where(mixed, logsumexp(logits, mask), 0) for mask in (pairs.negative, pairs.positive))
        negative, positive = sides
        return logits, negative - positive, mixed

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,), in nats; 0 for a query without a positive or without a negative."""
        _, odds, mixed = self._missing(pairs)
        return torch.where(mixed, torch.logaddexp(odds, torch.zeros_like(odds)), 0).squeeze(dim=1)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C), by closed form. Each row sums to zero.

        With m the probability of all negatives together: positives :math:`-m\, \mathrm{softmax}_P(s / \tau) / \tau`,
        negatives :math:`m\, \mathrm{softmax}_N(s / \tau) / \tau`.
        """
        logits, odds, mixed = self._missing(pairs)
        missing = torch.where(mixed, odds.sigmoid(), 0)
        return missing * (softmax(logits, pairs.negative) - softmax(logits, pairs.positive)) / self.temperature

    def unit(self, pairs: Pairs) -> Tensor:
        """Return the weight of a negative with all of the softmax, (): 1/τ."""
        return pairs.scores.new_tensor(1 / self.temperature)
