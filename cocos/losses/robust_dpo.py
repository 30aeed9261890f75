"""Robust DPO: the loss of noisy preferences, corrected so that its mean is that of clean ones."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from torch import Tensor

from cocos.losses._preferences import Preferences, log_sigmoid
from cocos.losses._shelf import Positive, Range


@dataclass(frozen=True)
class RobustDPO(Preferences):
    r"""Unbiased estimate of DPO's loss from preferences of which a part is flipped.

    .. math:: \ell = \sum_{p \in P} \sum_{n \in N} \frac{-(1 - \varepsilon) \log \sigma(\beta h)
        + \varepsilon \log \sigma(-\beta h)}{1 - 2 \varepsilon}, \quad h = (s_p - s_n) - (r_p - r_n)

    p is the chosen answer, n the rejected one, s their log-probabilities under the model, which are the scores, and r
    those under the reference model (`teacher`). The value may be negative, and has no lower bound.

    Args:
        beta: β, dimensionless; 0.1.
        label_smoothing: ε, the part of the preferences that is flipped; 0.1. With 0 it is DPO.

    Counts: rejected answers whose weight exceeds eps units; unit β|P|. No pair is ever idle: a share is between
        ε/(1 - 2ε) and (1 - ε)/(1 - 2ε), so that it may exceed one.
    Net: push equals pull for every pair, 1:1 on the two log-probabilities.
    Source: Chowdhury et al. 2024, Provably Robust DPO, arXiv:2403.00409, eq. 12.
    Also called: rDPO, provably robust DPO.
    Family: preference.

    Examples:
        At h = 0 the weights are those of DPO over 1 - 2ε:

        >>> pairs = cocos.Pairs(torch.zeros(1, 2), torch.tensor([[True, False]]), teacher=torch.zeros(1, 2))
        >>> cocos.losses.load("robust_dpo", {"label_smoothing": 0}).weight(pairs)
        tensor([[-0.0500,  0.0500]])
        >>> cocos.losses.load("robust_dpo", {"label_smoothing": 0.25}).weight(pairs)
        tensor([[-0.1000,  0.1000]])
    """

    beta: Positive = 0.1
    label_smoothing: Annotated[float, Range("at least 0 and below 0.5", lambda value: 0 <= value < 0.5)] = 0.1
    requires: ClassVar[tuple[str, ...]] = ("teacher",)
    share: ClassVar[str | None] = None

    def value(self, difference: Tensor) -> Tensor:
        """Compute ((1 - ε) · -log σ(βh) + ε log σ(-βh)) / (1 - 2ε)."""
        logit, wrong = self.beta * difference, self.label_smoothing
        return (wrong * log_sigmoid(-logit) - (1 - wrong) * log_sigmoid(logit)) / (1 - 2 * wrong)

    def slope(self, difference: Tensor) -> Tensor:
        """Compute -β ((1 - ε) σ(-βh) + ε σ(βh)) / (1 - 2ε)."""
        logit, wrong = self.beta * difference, self.label_smoothing
        return -self.beta * ((1 - wrong) * (-logit).sigmoid() + wrong * logit.sigmoid()) / (1 - 2 * wrong)

    def equals(self) -> tuple[tuple[str, dict[str, Any], str], ...]:
        """List the equal losses of the shelf: name, parameters, and condition."""
        return (("dpo", {"beta": self.beta}, "always"),) if self.label_smoothing == 0 else ()
