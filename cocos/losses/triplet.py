"""Triplet: every negative that comes within the margin of a positive."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from cocos.scores import Pairs

__all__ = ["Triplet"]


@dataclass(frozen=True)
class Triplet:
    r"""Hinge over all triplets of a query, summed over its positives and negatives.

    .. math:: \ell(s) = \sum_{p \in P} \sum_{n \in N} [\alpha - s_p + s_n]_+

    A negative weighs as many positives as it violates, a positive minus the number of its violators. With one
    positive the number of contributing negatives is exact and needs no threshold.

    Args:
        margin: α, in units of score: how much a positive must win by.

    Raises:
        ValueError: if the margin is not finite and at least 0.

    Counts: violating negatives, whole numbers; unit 1, one violated triplet.
    Net: push equals pull for every query.
    Source: Faghri et al. 2018, VSE++, arXiv:1707.05612, eq. 5; α of Bleeker & de Rijke 2022, arXiv:2202.07474.
    Also called: sum of hinges, VSE0, N-triplets. A tie (s_p - s_n = α) does not contribute.
    Family: triplet.

    Examples:
        The margin is 0.2: a negative 0.1 below the positive violates it by 0.1, one that is 0.5 below does not.

        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("triplet")
        >>> loss(pairs)
        tensor([0.1000])
        >>> loss.weight(pairs)
        tensor([[-1.,  1.,  0.]])
    """

    margin: float = 0.2
    hinge: ClassVar[str] = "all"  # of margin - positive + negative
    metric: ClassVar[str] = "cosine"
    couples: ClassVar[str] = "query"
    gradient: ClassVar[str] = "exact"
    balanced: ClassVar[bool] = True
    sample: ClassVar[str] = "pairs"

    def __post_init__(self) -> None:
        if not 0 <= self.margin < math.inf:
            raise ValueError(f"margin must be finite and at least 0, got {self.margin}")

    def __call__(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), in units of score; 0 for a query without a positive or without a negative."""
        return pairs.hinge(self.margin)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Closed form of ∂ Σ loss / ∂ score, (Q, C), whole numbers.

        :math:`w_n = \#\{p : s_p - s_n < \alpha\}`, :math:`w_p = -\#\{n : s_p - s_n < \alpha\}`.
        """
        return pairs.violations(self.margin)

    def unit(self, pairs: Pairs) -> Tensor:
        """One violated triplet, (): 1."""
        return pairs.scores.new_ones(())

    def peer(self) -> tuple[str, dict[str, Any], str]:
        """Name the same loss in pytorch-metric-learning: class, arguments, setting."""
        return "TripletMarginLoss", {"margin": self.margin}, "labelled"
