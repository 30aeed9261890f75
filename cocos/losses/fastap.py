"""FastAP: average precision over a soft histogram of the distances."""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from cocos.base.ranges import whole
from cocos.embeddings.scores import Pairs
from cocos.losses.families.binned import BinnedAP

MAX_SQUARED_DISTANCE = 4.0  # squared distance of two opposite unit vectors


@dataclass(frozen=True)
class FastAP(BinnedAP):
    r"""One minus the average precision of distances that are sorted into bins.

    .. math::
        \ell = 1 - \frac{1}{|P|} \sum_{l=0}^{L} \frac{h^+_l H^+_l}{H_l}, \quad
        h_l = \sum_{j} \delta_l(d_j^2), \quad H_l = \sum_{m \le l} h_m, \quad
        \delta_l(x) = \left[1 - \frac{|x - l \Delta|}{\Delta}\right]_+, \quad \Delta = \frac{4}{L}

    :math:`d_j^2 = -s_j` is the squared distance of candidate j, and :math:`\delta_l` shares it out between the two
    nearest of L + 1 bin centres. :math:`h^+, H^+` count positives only, h and H positives and negatives. The range
    of the bins, 0 to 4, fits unit embeddings; a squared distance above 4 falls into the last bin, with weight 0.
    A distance on a bin centre has weight 0 as well.

    Args:
        bins: L, whole; the centres are L + 1. Default of the published code.

    Counts: negatives between two bins of different precision; unit 1/(Δ|P|).
    Net: not balanced: every candidate moves between its own two bins, and no sum is kept.
    Source: Cakir et al. 2019, Deep Metric Learning to Rank, doi:10.1109/CVPR.2019.00196; bins of its published code.

    Examples:
        A positive and a negative in one bin: the precision is a half.

        >>> pairs = cocos.Pairs(torch.tensor([[-1.0, -1.0, -2.0]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("fastap")
        >>> loss(pairs)
        tensor([0.5000])
        >>> loss.weight(pairs) / loss.unit(pairs)
        tensor([[-0.2500,  0.2500,  0.0000]])
    """

    bins: Annotated[int, whole(1, 10_000)] = 10  # (queries, bins) numbers are stored
    metric = "squared_euclidean"
    sample = "groups"
    family = "ranking"

    @property
    def centres(self) -> int:
        """Number of bin centres: L + 1."""
        return self.bins + 1

    @property
    def density(self) -> float:
        """Bins per unit of squared distance: 1/Δ."""
        return self.bins / MAX_SQUARED_DISTANCE

    def places(self, pairs: Pairs) -> Tensor:
        """Places of the candidates on the axis of the bin centres 0, 1, ..., L, (Q, C)."""
        return (-pairs.scores).clamp(max=MAX_SQUARED_DISTANCE) * (self.bins / MAX_SQUARED_DISTANCE)

    def beyond(self, pairs: Pairs) -> Tensor:
        """Whether a squared distance is above 4, (Q, C) bool."""
        return pairs.scores < -MAX_SQUARED_DISTANCE
