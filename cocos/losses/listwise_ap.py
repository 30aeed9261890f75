"""Listwise AP: average precision over a soft histogram of the scores."""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from cocos.base.ranges import Finite, whole
from cocos.embeddings.scores import Pairs
from cocos.losses.families.binned import BinnedAP


@dataclass(frozen=True)
class ListwiseAP(BinnedAP):
    r"""One minus the average precision of scores that are sorted into bins, best bin first.

    .. math::
        \ell(s) = 1 - \frac{1}{|P|} \sum_{m=0}^{M-1} \frac{h^+_m H^+_m}{H_m}, \quad
        h_m = \sum_j \left[1 - a |s_j - x_m|\right]_+, \quad H_m = \sum_{l \le m} h_l, \quad
        x_m = \text{high} - \frac{m}{a}, \quad a = \frac{M - 1}{\text{high} - \text{low}}

    :math:`x_m` are the M bin centres; :math:`h^+, H^+` count positives only, h and H positives and negatives. The
    first and the last bin are flat outwards: a score above high or below low lies in them, with weight 0. A score on
    a bin centre has weight 0 as well. The shares of a score add up to 1, so that the published normaliser
    :math:`\sum_m h^+_m` is |P|. With M bins on unit vectors this is FastAP with M - 1 bins.

    Args:
        bins: M, the bin centres; 20 as in the paper (secondary source), 25 in its published code.
        low: score of the last centre, -1 as cosines need; the published code has 0.
        high: score of the first centre.

    Counts: negatives between two bins of different precision; unit a/|P|.
    Net: not balanced: every candidate moves between its own two bins, and no sum is kept.
    Source: Revaud et al. 2019, Learning with Average Precision, arXiv:1906.07589; formula from its published code.

    Examples:
        A positive and a negative in one bin: the precision is a half.

        >>> pairs = cocos.Pairs(torch.tensor([[0.5, 0.5, 0.3]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("listwise_ap")
        >>> loss(pairs)
        tensor([0.5000])
        >>> loss.weight(pairs) / loss.unit(pairs)
        tensor([[-0.2500,  0.2500,  0.0000]])
    """

    bins: Annotated[int, whole(2, 10_000)] = 20  # (queries, bins) numbers are stored
    low: Finite = -1.0
    high: Finite = 1.0
    sample = "groups"
    family = "ranking"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low < self.high:
            raise ValueError(f"low must be below high, got {self.low} and {self.high}")

    @property
    def centres(self) -> int:
        """Number of bin centres: M."""
        return self.bins

    @property
    def density(self) -> float:
        """Bins per unit of score: a."""
        return (self.bins - 1) / (self.high - self.low)

    def places(self, pairs: Pairs) -> Tensor:
        """Places of the candidates on the axis of the bin centres 0, 1, ..., M - 1, (Q, C)."""
        below = self.high - pairs.scores.clamp(self.low, self.high)
        return below / (self.high - self.low) * (self.bins - 1)

    def beyond(self, pairs: Pairs) -> Tensor:
        """Whether a score is above high or below low, (Q, C) bool."""
        return (pairs.scores < self.low) | (pairs.scores > self.high)
