"""DPO: a model is trained as its own reward model, on chosen and rejected answers."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from torch import Tensor

from cocos.losses._preferences import Preferences, log_sigmoid
from cocos.losses._shelf import Positive, Range


@dataclass(frozen=True)
class DPO(Preferences):
    r"""Logistic loss of the difference of a chosen and a rejected answer, measured from a reference model.

    .. math:: \ell = \sum_{p \in P} \sum_{n \in N}
        \bigl[ -(1 - \varepsilon) \log \sigma(\beta h) - \varepsilon \log \sigma(-\beta h) \bigr], \quad
        h = (s_p - s_n) - (r_p - r_n)

    p is the chosen answer, n the rejected one, s their log-probabilities under the model, which are the scores, and r
    those under the reference model (`teacher`). The loss reads h alone: the pull on the chosen and the push on the
    rejected log-probability are the same number, so that both may fall while it does.

    Args:
        beta: β, dimensionless; 0.1 as in the paper's experiments.
        label_smoothing: ε, the probability that a label is wrong (conservative DPO); 0 as in the paper. A pair with
            σ(βh) above 1 - ε is drawn back.

    Counts: rejected answers whose probability σ(-βh) of being the better one exceeds eps; unit β|P|. A pair without any
        is idle.
    Net: push equals pull for every pair, 1:1 on the two log-probabilities.
    Source: Rafailov et al. 2023, Direct Preference Optimization, arXiv:2305.18290, eq. 7; label smoothing of its code,
        Mitchell 2023, https://ericmitchell.ai/cdpo.pdf, eq. 3.
    Also called: direct preference optimization, conservative DPO (label_smoothing=0.1), cDPO (label_smoothing=0.1).
    Family: preference.

    Examples:
        The model agrees with its reference: β/2 of pull on the chosen answer, β/2 of push on the rejected one.

        >>> pairs = cocos.Pairs(torch.tensor([[-12.0, -9.0]]), torch.tensor([[True, False]]),
        ...                     teacher=torch.tensor([[-12.0, -9.0]]))
        >>> cocos.losses.load("dpo").weight(pairs)
        tensor([[-0.0500,  0.0500]])
    """

    beta: Positive = 0.1
    label_smoothing: Annotated[float, Range("at least 0 and below 0.5", lambda value: 0 <= value < 0.5)] = 0.0
    requires: ClassVar[tuple[str, ...]] = ("teacher",)

    def value(self, difference: Tensor) -> Tensor:
        """Compute -(1 - ε) log σ(βh) - ε log σ(-βh)."""
        logit = self.beta * difference
        return -(1 - self.label_smoothing) * log_sigmoid(logit) - self.label_smoothing * log_sigmoid(-logit)

    def slope(self, difference: Tensor) -> Tensor:
        """Compute β (ε - σ(-βh)), which is β (ε σ(βh) - (1 - ε) σ(-βh))."""
        return self.beta * (self.label_smoothing - (-self.beta * difference).sigmoid())
