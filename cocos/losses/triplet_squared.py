"""Triplet on squared Euclidean distances: FaceNet."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from cocos.scores import Pairs

__all__ = ["TripletSquared"]


@dataclass(frozen=True)
class TripletSquared:
    r"""Hinge over all triplets of a query on squared Euclidean distances, summed over its positives and negatives.

    .. math:: \ell(d) = \sum_{p \in P} \sum_{n \in N} [\alpha + d_p^2 - d_n^2]_+

    :math:`d^2` is the squared Euclidean distance, minus the score, of the positives P and the negatives N of a query. A
    negative weighs as many positives as it violates, a positive minus the number of its violators. The force on an
    embedding is the weight times twice the distance, so that near duplicates hardly act.

    Args:
        margin: α, in units of squared distance: how much closer a positive must be; 0.2 as in the paper.

    Raises:
        ValueError: if the margin is not finite and at least 0.

    Counts: violating negatives, whole numbers; unit 1, one violated triplet.
    Net: push equals pull for every query.
    Source: Schroff et al. 2015, FaceNet, arXiv:1503.03832.
    Also called: FaceNet loss. A tie (d_n² - d_p² = α) does not contribute.
    Family: triplet.

    Examples:
        The margin is 0.2: a negative whose squared distance is 0.1 larger than the positive's violates it by 0.1.

        >>> pairs = cocos.Pairs(torch.tensor([[-0.5, -0.6, -1.0]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("triplet_squared")
        >>> loss(pairs)
        tensor([0.1000])
        >>> loss.weight(pairs)
        tensor([[-1.,  1.,  0.]])
    """

    margin: float = 0.2
    hinge: ClassVar[str] = "all"  # of margin - positive + negative
    metric: ClassVar[str] = "squared_euclidean"
    couples: ClassVar[str] = "query"
    gradient: ClassVar[str] = "exact"
    balanced: ClassVar[bool] = True
    sample: ClassVar[str] = "pairs"

    def __post_init__(self) -> None:
        if not 0 <= self.margin < math.inf:
            raise ValueError(f"margin must be finite and at least 0, got {self.margin}")

    def __call__(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), in units of squared distance; 0 for a query that lacks a positive or a negative."""
        return pairs.hinge(self.margin)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Closed form of ∂ Σ loss / ∂ score, (Q, C), whole numbers.

        :math:`w_n = \#\{p : d_n^2 - d_p^2 < \alpha\}`, :math:`w_p = -\#\{n : d_n^2 - d_p^2 < \alpha\}`.
        """
        return pairs.violations(self.margin)

    def unit(self, pairs: Pairs) -> Tensor:
        """One violated triplet, (): 1."""
        return pairs.scores.new_ones(())

    def peer(self) -> tuple[str, dict[str, Any], str]:
        """Name the same loss in pytorch-metric-learning: class, arguments, setting."""
        return "TripletMarginLoss", {"margin": self.margin}, "labelled"
