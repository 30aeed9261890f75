"""GE2E, contrast form: the own prototype against the nearest other one."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from cocos.embeddings.scores import Pairs
from cocos.losses._shelf import Finite, Positive, ShelfLoss


@dataclass(frozen=True)
class GE2EContrast(ShelfLoss):
    r"""Probability missing of the positive and that of the hardest negative, each by its own logistic function.

    .. math:: \ell(s) = \sum_{p \in P} \Bigl[ 1 - \sigma(w s_p + b) + \max_{n \in N} \sigma(w s_n + b) \Bigr]

    P is the prototype of the query's own class, N those of the others and s their cosines. In the paper a query is an
    utterance and a prototype the mean of a speaker's utterances, the own one without the query itself: give these
    means as candidates. The weights are those on the prototypes; training hands each on to the rows of its mean. (The
    softmax form of the paper is `ntxent` with the temperature 1/w.)

    Args:
        scale: w, learned in training and kept above 0; 10 is its initial value in the paper.
        bias: b, learned in training; -5 is its initial value in the paper.

    Counts: the hardest negative of a query, where its slope exceeds eps of the steepest, at σ = 1/2; unit w|P|/4. Both
        ends of the logistic function are flat: a negative that is surely taken for the positive has no weight either.
    Net: pull and push follow their own pairs.
    Source: Wan et al. 2018, Generalized End-to-End Loss for Speaker Verification, arXiv:1710.10467, eq. 7.
    Also called: GE2E (the contrast form), generalized end-to-end contrast.
    Family: proxy.

    Examples:
        Positive and hardest negative at the middle of the logistic function have the largest weights, w/4:

        >>> pairs = cocos.Pairs(torch.tensor([[0.5, 0.5, 0.4]]), torch.tensor([[True, False, False]]))
        >>> cocos.losses.load("ge2e_contrast").weight(pairs)
        tensor([[-2.5000,  2.5000,  0.0000]])
    """

    scale: Positive = 10.0
    bias: Finite = -5.0
    per_positive: ClassVar[bool] = True

    def _taking_part(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Logits, 0 outside of both masks, and how often a pair counts, (Q, C): positives once, the hardest |P|."""
        logits = torch.where(pairs.positive | pairs.negative, self.scale * pairs.scores + self.bias, 0)
        both = pairs.positive.any(dim=1, keepdim=True) & pairs.negative.any(dim=1, keepdim=True)
        hardest = pairs.scores.detach().masked_fill(~pairs.negative, -torch.inf).max(dim=1, keepdim=True).indices
        number = (pairs.positive & both).to(logits.dtype)
        return logits, torch.zeros_like(logits).scatter_add(1, hardest, number.sum(dim=1, keepdim=True)) - number

    def __call__(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), dimensionless; 0 for a query without a positive or without a negative."""
        logits, number = self._taking_part(pairs)
        return (number * torch.where(number < 0, -((-logits).sigmoid()), logits.sigmoid())).sum(dim=1)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Closed form of ∂ Σ loss / ∂ score, (Q, C): 0 for all negatives but the hardest one.

        With :math:`g(s) = w \, \sigma (1 - \sigma)`: positives :math:`-g(s_p)`, the hardest negative
        :math:`|P| \, g(s_n)`.
        """
        logits, number = self._taking_part(pairs)
        return self.scale * number * logits.sigmoid() * (-logits).sigmoid()

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of a negative at the steepest place, for every positive, (Q, 1): w|P|/4."""
        return self.scale / 4 * pairs.positives()
