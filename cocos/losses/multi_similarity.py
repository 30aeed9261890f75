"""Multi-similarity: two soft thresholds, one for the positives and one for the negatives."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.base.ranges import Finite, NonNegative, Positive
from cocos.embeddings.scores import Pairs, logsumexp, softmax
from cocos.losses.base import Loss


@dataclass(frozen=True)
class MultiSimilarity(Loss):
    r"""Soft hinges of the positives below a base score and of the negatives above it.

    .. math::
        \ell(s) = \frac{1}{\alpha} \log \Bigl(1 + \sum_{p \in P} e^{-\alpha (s_p - \lambda)}\Bigr)
        + \frac{1}{\beta} \log \Bigl(1 + \sum_{n \in N} e^{\beta (s_n - \lambda)}\Bigr)

    P are the positives of a query, N its negatives and s their scores. With mining only the positives with
    :math:`s_p - \epsilon < \max_N s` and the negatives with :math:`s_n + \epsilon > \min_P s` are kept; a query without
    positives or without negatives then keeps nothing. Without mining it still pushes, or pulls, those it has.

    Args:
        alpha: α, in 1/score, of the positives; 2 as in the paper.
        beta: β, in 1/score, of the negatives; 50 as in the paper.
        base: λ, in units of score; 0.5 as in the published code.
        mining: ε, in units of score (0.1 in the paper); None: all pairs take part.

    Counts: negatives with more than eps of the soft threshold; unit 1. Mined-out pairs have weight 0.
    Net: pull and push each lie between 0 and 1; nothing ties one to the other.
    Source: Wang et al. 2019, Multi-Similarity Loss with General Pair Weighting, arXiv:1904.06627; λ from its published
        code.

    Examples:
        At the base, 0.5, either side has half of its soft hinge.

        >>> pairs = cocos.Pairs(torch.tensor([[0.5, 0.5]]), torch.tensor([[True, False]]))
        >>> loss = cocos.losses.load("multi_similarity")
        >>> loss.weight(pairs)
        tensor([[-0.5000,  0.5000]])
    """

    alpha: Positive = 2.0
    beta: Positive = 50.0
    base: Finite = 0.5
    mining: NonNegative | None = None
    sample = "groups"
    family = "pair"
    aliases = {"MS loss": {}}

    def _mined(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Positives and negatives that take part, (Q, C) bool each."""
        if self.mining is None:
            return pairs.positive, pairs.negative
        scores = pairs.scores.detach()
        hardest = scores.masked_fill(~pairs.negative, -torch.inf).amax(dim=1, keepdim=True)
        farthest = scores.masked_fill(~pairs.positive, torch.inf).amin(dim=1, keepdim=True)
        positive = pairs.positive & (scores - self.mining < hardest)
        return positive, pairs.negative & (scores + self.mining > farthest)

    def _sides_of_loss(self, pairs: Pairs) -> tuple[tuple[Tensor, Tensor, float], ...]:
        """Logits, those that take part, and their slope, for positives and for negatives."""
        positive, negative = self._mined(pairs)
        above = pairs.scores - self.base
        return (-self.alpha * above, positive, -self.alpha), (self.beta * above, negative, self.beta)

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,), in units of score."""
        total = pairs.scores.new_zeros(pairs.scores.shape[0])
        for logits, mask, slope in self._sides_of_loss(pairs):
            side = logsumexp(logits, mask)
            total = total + torch.logaddexp(side, torch.zeros_like(side)).squeeze(dim=1) / abs(slope)
        return total

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C), by closed form.

        With :math:`h_M(x)_j = e^{x_j} / (1 + \sum_{k \in M} e^{x_k})`: positives
        :math:`-h_P(-\alpha (s - \lambda))`, negatives :math:`h_N(\beta (s - \lambda))`.
        """
        pull, push = (softmax(z, mask) * logsumexp(z, mask).sigmoid() for z, mask, _ in self._sides_of_loss(pairs))
        return push - pull
