"""IPO: the difference of a chosen and a rejected answer shall reach one number, and not go on."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from cocos.embeddings.scores import Pairs
from cocos.losses._preferences import Preferences
from cocos.losses._shelf import Positive


@dataclass(frozen=True)
class IPO(Preferences):
    r"""Squared distance of a difference of log-probabilities, measured from a reference model, from a target.

    .. math:: \ell = \sum_{p \in P} \sum_{n \in N} \Bigl(h - \frac{1}{2 \beta}\Bigr)^2, \quad
        h = (s_p - s_n) - (r_p - r_n)

    p is the chosen answer, n the rejected one, s their log-probabilities under the model, which are the scores, and r
    those under the reference model (`teacher`). Where h is beyond its target the chosen answer is pushed and the
    rejected one pulled. Trainers give log-probabilities per token, so that the target is one for all lengths.

    Args:
        beta: β, of which 1/(2β) is the target, in units of score; 0.1 (τ in the paper).

    Counts: rejected answers more than eps of the target away from it; unit |P|/β, the weight at h = 0.
    Net: push equals pull for every pair, 1:1 on the two log-probabilities.
    Source: Azar et al. 2023, A General Theoretical Paradigm to Understand Learning from Human Preferences,
        arXiv:2310.12036, eq. 17.
    Also called: identity preference optimization.
    Family: preference.

    Examples:
        The target is 5: at half of the way half a unit is left, at twice the target the signs are turned.

        >>> scores, positive = torch.tensor([[2.5, 0.0], [10.0, 0.0]]), torch.tensor([[True, False]] * 2)
        >>> pairs, loss = cocos.Pairs(scores, positive, teacher=torch.zeros(2, 2)), cocos.losses.load("ipo")
        >>> loss.weight(pairs) / loss.unit(pairs)
        tensor([[-0.5000,  0.5000],
                [ 1.0000, -1.0000]])
    """

    beta: Positive = 0.1
    requires: ClassVar[tuple[str, ...]] = ("teacher",)
    share: ClassVar[str | None] = None

    def value(self, difference: Tensor) -> Tensor:
        """Compute (h - 1/(2β))²."""
        return (difference - 1 / (2 * self.beta)).square()

    def slope(self, difference: Tensor) -> Tensor:
        """Compute 2 h - 1/β."""
        return 2 * difference - 1 / self.beta

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of a rejected answer at h = 0, for every chosen one, (Q, 1): |P|/β."""
        return pairs.positives() / self.beta
