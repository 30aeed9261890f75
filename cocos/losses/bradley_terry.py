"""Bradley-Terry: the loss of a reward model, with a margin and with centred rewards."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cocos.embeddings.scores import Pairs
from cocos.losses._differences import Differences
from cocos.losses._shelf import Finite, NonNegative


@dataclass(frozen=True)
class BradleyTerry(Differences):
    r"""Logistic loss of the difference of the rewards of a chosen and a rejected answer.

    .. math:: \ell(r) = \sum_{p \in P} \sum_{n \in N} \bigl[ -\log \sigma(r_p - r_n - m) + c \, (r_p + r_n)^2 \bigr]

    p is the chosen answer, n the rejected one, and r their rewards, which are the scores. Only differences of rewards
    are learned, so that all of them may drift together; c draws their sum to 0.

    Args:
        margin: m, in units of reward, by which the chosen answer must win: one number for all pairs.
        centring: c, in 1/reward²; 0.01 in common trainings.

    Counts: rejected answers that win with a probability of more than eps, at the margin, and with c > 0 those whose
        reward is centred by more than eps; unit |P|.
    Net: push equals pull for every pair where c is 0; with it the larger of the two sizes is pushed, both ways.
    Source: Ouyang et al. 2022, InstructGPT, arXiv:2203.02155, eq. 1, by Bradley & Terry 1952; margin of Touvron et al.
        2023, Llama 2, arXiv:2307.09288, eq. 2; centring of Eisenstein et al. 2023, arXiv:2312.09244, eq. 2.
    Also called: reward model loss, preference loss, pairwise ranking of rewards.
    Family: preference.

    Examples:
        Equal rewards: the chosen answer wins in half of the cases. Centring draws both rewards down by 2 · 0.01 · 8:

        >>> pairs = cocos.Pairs(torch.tensor([[4.0, 4.0]]), torch.tensor([[True, False]]))
        >>> cocos.losses.load("bradley_terry").weight(pairs)
        tensor([[-0.5000,  0.5000]])
        >>> cocos.losses.load("bradley_terry", {"centring": 0.01}).weight(pairs)
        tensor([[-0.3400,  0.6600]])
    """

    margin: Finite = 0.0
    centring: NonNegative = 0.0

    @property
    def balanced(self) -> bool:
        """Whether the weights of a query sum to zero: without centring."""
        return self.centring == 0

    @property
    def share(self) -> str | None:
        """A share is a probability where nothing is centred."""
        return None if self.centring else "probability"

    def value(self, difference: Tensor) -> Tensor:
        """Compute -log σ(h - m)."""
        return torch.logaddexp(self.margin - difference, torch.zeros_like(difference))

    def slope(self, difference: Tensor) -> Tensor:
        """Compute -σ(m - h)."""
        return -(self.margin - difference).sigmoid()

    def _sums(self, pairs: Pairs) -> Tensor:
        r"""Sums of the comparisons of each pair, (Q, C): :math:`\sum_n (r_p + r_n)` or :math:`\sum_p (r_p + r_n)`."""
        rewards = pairs.scores
        found = torch.zeros_like(rewards)
        for own, others in ((pairs.positive, pairs.negative), (pairs.negative, pairs.positive)):
            number = others.sum(dim=1, keepdim=True).to(rewards.dtype)
            together = torch.where(others, rewards, 0).sum(dim=1, keepdim=True)
            found = torch.where(own, number * rewards + together, found)
        return found

    def __call__(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), in nats; 0 for a query without a positive or without a negative."""
        found = super().__call__(pairs)
        if not self.centring:
            return found
        return found + self.centring * (self._sums(pairs) * pairs.scores).sum(dim=1)  # Σ (a + b) a + Σ (a + b) b

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Closed form of ∂ Σ loss / ∂ score, (Q, C).

        Chosen :math:`\sum_n [-\sigma(m - h) + 2 c (r_p + r_n)]`, rejected :math:`\sum_p [\sigma(m - h) + 2 c (r_p +
        r_n)]` with :math:`h = r_p - r_n`.
        """
        found = super().weight(pairs)
        return found + 2 * self.centring * self._sums(pairs) if self.centring else found

    def equals(self) -> tuple[tuple[str, dict[str, Any], str], ...]:
        """List the equal losses of the shelf: name, parameters, and condition."""
        return (("bpr", {}, "always"),) if self.margin == self.centring == 0 else ()
