"""Hinge DPO: pairs whose difference has reached a margin are left alone."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from cocos.embeddings.scores import Pairs
from cocos.losses._preferences import Preferences
from cocos.losses._shelf import Positive


@dataclass(frozen=True)
class DPOHinge(Preferences):
    r"""Hinge of the difference of a chosen and a rejected answer, measured from a reference model.

    .. math:: \ell = \sum_{p \in P} \sum_{n \in N} [1 - \beta h]_+, \quad h = (s_p - s_n) - (r_p - r_n)

    p is the chosen answer, n the rejected one, s their log-probabilities under the model, which are the scores, and r
    those under the reference model (`teacher`). A pair with h of 1/β or more is idle.

    Args:
        beta: β, dimensionless; 1/β is the margin, in units of score; 0.1 as for `dpo`.

    Counts: rejected answers that violate the margin; unit β, one violation.
    Net: push equals pull for every pair, 1:1 on the two log-probabilities.
    Source: Zhao et al. 2023, SLiC-HF, arXiv:2305.10425, eq. 1, measured from the reference as in Liu et al. 2023, RSO,
        arXiv:2309.06657, eq. 9.
    Also called: SLiC, hinge-norm.
    Family: preference.

    Examples:
        The margin is 10: a difference of 9 violates it, one of 11 does not.

        >>> scores, positive = torch.tensor([[9.0, 0.0], [11.0, 0.0]]), torch.tensor([[True, False]] * 2)
        >>> cocos.losses.load("dpo_hinge").weight(cocos.Pairs(scores, positive, teacher=torch.zeros(2, 2)))
        tensor([[-0.1000,  0.1000],
                [ 0.0000,  0.0000]])
    """

    beta: Positive = 0.1
    requires: ClassVar[tuple[str, ...]] = ("teacher",)
    per_positive: ClassVar[bool] = False
    share: ClassVar[str | None] = None

    def value(self, difference: Tensor) -> Tensor:
        """Compute [1 - βh]_+."""
        return (1 - self.beta * difference).relu()

    def slope(self, difference: Tensor) -> Tensor:
        """Compute -β where βh < 1, else 0."""
        return torch.where(self.beta * difference < 1, difference.new_tensor(-self.beta), 0)

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of one violation, (): β."""
        return pairs.scores.new_tensor(self.beta)
