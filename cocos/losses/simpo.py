"""SimPO: preferences without a reference model, on log-probabilities per token."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from cocos.embeddings.scores import Pairs
from cocos.losses._differences import Differences
from cocos.losses._preferences import log_sigmoid
from cocos.losses._shelf import Finite, Positive


@dataclass(frozen=True)
class SimPO(Differences):
    r"""Logistic loss of the difference of a chosen and a rejected answer, with a target margin.

    .. math:: \ell = -\sum_{p \in P} \sum_{n \in N} \log \sigma(\beta (s_p - s_n) - \gamma)

    p is the chosen answer, n the rejected one, and s their log-probabilities, divided by the number of their tokens,
    which are the scores: give them per token. No reference model is read.

    Args:
        beta: β, in 1/score; 2 as in the paper's range of 2 to 2.5.
        gamma: γ, the margin of β times the difference; 1, as in the paper's range of 0.5 to 1.5.

    Counts: rejected answers whose probability σ(γ - β (s_p - s_n)) of winning at the margin exceeds eps; unit β|P|.
    Net: push equals pull for every pair, 1:1 on the two log-probabilities.
    Source: Meng et al. 2024, SimPO: Simple Preference Optimization with a Reference-Free Reward, arXiv:2405.14734,
        eq. 6.
    Also called: simple preference optimization.
    Family: preference.

    Examples:
        The chosen answer wins by γ/β, 0.5 per token: half a unit is left.

        >>> pairs = cocos.Pairs(torch.tensor([[-0.5, -1.0]]), torch.tensor([[True, False]]))
        >>> cocos.losses.load("simpo").weight(pairs)
        tensor([[-1.,  1.]])
    """

    beta: Positive = 2.0
    gamma: Finite = 1.0

    def value(self, difference: Tensor) -> Tensor:
        """Compute -log σ(βh - γ)."""
        return -log_sigmoid(self.beta * difference - self.gamma)

    def slope(self, difference: Tensor) -> Tensor:
        """Compute -β σ(γ - βh)."""
        return -self.beta * (self.gamma - self.beta * difference).sigmoid()

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of a rejected answer that certainly wins against every chosen one, (Q, 1): β|P|."""
        return self.beta * pairs.positives()

    def equals(self) -> tuple[tuple[str, dict[str, Any], str], ...]:
        """List the equal losses of the shelf: name, parameters, and condition."""
        return (("bradley_terry", {"margin": self.gamma}, "always"),) if self.beta == 1 else ()
