"""FastAP: average precision over a soft histogram of the distances."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from cocos.scores import Pairs

__all__ = ["FastAP"]

MAX_SQUARED_DISTANCE = 4.0  # squared distance of two opposite unit vectors


@dataclass(frozen=True)
class FastAP:
    r"""One minus the average precision of distances that are sorted into bins.

    .. math::
        \ell = 1 - \frac{1}{|P|} \sum_{l=0}^{L} \frac{h^+_l H^+_l}{H_l}, \quad
        h_l = \sum_{j} \delta_l(d_j^2), \quad H_l = \sum_{m \le l} h_m, \quad
        \delta_l(x) = \left[1 - \frac{|x - l \Delta|}{\Delta}\right]_+, \quad \Delta = \frac{4}{L}

    :math:`d_j^2 = -s_j` is the squared distance of candidate j, and :math:`\delta_l` shares it out between the two
    nearest of L + 1 bin centres. :math:`h^+, H^+` count positives only, h and H positives and negatives. The range
    of the bins, 0 to 4, is that of unit embeddings; a squared distance above 4 lies in the last bin, with weight 0.
    A distance on a bin centre has weight 0 as well.

    Args:
        bins: L, whole; the centres are L + 1. Default of the published code.

    Raises:
        ValueError: if the bins are not a whole number from 1 to 10000.

    Counts: negatives between two bins whose precision differs; unit 1/(Δ|P|).
    Net: not balanced: every candidate moves between its own two bins, and no sum is kept.
    Source: Cakir et al. 2019, Deep Metric Learning to Rank, doi:10.1109/CVPR.2019.00196; bins of its published code.
    Family: ranking.

    Examples:
        A positive and a negative in one bin: the precision is a half.

        >>> pairs = cocos.Pairs(torch.tensor([[-1.0, -1.0, -2.0]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("fastap")
        >>> loss(pairs)
        tensor([0.5000])
        >>> loss.weight(pairs) / loss.unit(pairs)
        tensor([[-0.2500,  0.2500,  0.0000]])
    """

    bins: int = 10
    metric: ClassVar[str] = "squared_euclidean"
    couples: ClassVar[str] = "query"
    gradient: ClassVar[str] = "exact"
    balanced: ClassVar[bool] = False
    sample: ClassVar[str] = "groups"

    def __post_init__(self) -> None:
        if not (isinstance(self.bins, int) and 1 <= self.bins <= 10_000):  # (queries, bins) numbers are held
            raise ValueError(f"bins must be a whole number from 1 to 10000, got {self.bins}")

    def _places(self, pairs: Pairs) -> Tensor:
        """Places of the candidates on the axis of the bin centres 0, 1, ..., L, (Q, C)."""
        return (-pairs.scores).clamp(max=MAX_SQUARED_DISTANCE) * (self.bins / MAX_SQUARED_DISTANCE)

    def _histograms(self, pairs: Pairs) -> tuple[Tensor, Tensor, Tensor]:
        """Positives in each bin, the same as a share of all up to it, and the precision up to it, (Q, L + 1) each."""
        places, positives, negatives = self._places(pairs), [], []
        for centre in range(self.bins + 1):
            pulse = (1 - (places - centre).abs()).relu()
            positives.append(torch.where(pairs.positive, pulse, 0).sum(dim=1))
            negatives.append(torch.where(pairs.negative, pulse, 0).sum(dim=1))
        own, other = torch.stack(positives, dim=1), torch.stack(negatives, dim=1)
        total = (own + other).cumsum(dim=1)
        total = torch.where(total > 0, total, 1)
        return own, own / total, own.cumsum(dim=1) / total

    def __call__(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), from 0 to 1; 0 for a query without a positive."""
        own, _, precision = self._histograms(pairs)
        number = pairs.positive.sum(dim=1)
        return torch.where(number > 0, 1 - (own * precision).sum(dim=1) / number.clamp(min=1), 0)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Closed form of ∂ Σ loss / ∂ score, (Q, C).

        A candidate between the centres l and l + 1 has :math:`w = -(D_l - D_{l+1}) / (\Delta |P|)`, where
        :math:`D_l = H^+_l / H_l + \sum_{m \ge l} h^+_m (1 - H^+_m / H_m) / H_m` for a positive and
        :math:`D_l = -\sum_{m \ge l} h^+_m H^+_m / H_m^2` for a negative is what a candidate in bin l adds.
        """
        _, share, precision = self._histograms(pairs)
        gains = precision + (share * (1 - precision)).flip(1).cumsum(dim=1).flip(1)
        costs = -(share * precision).flip(1).cumsum(dim=1).flip(1)
        places, weight = self._places(pairs), torch.zeros_like(pairs.scores)
        for centre in range(self.bins + 1):
            offset, bin_ = places - centre, slice(centre, centre + 1)
            added = torch.where(pairs.positive, gains[:, bin_], torch.where(pairs.negative, costs[:, bin_], 0))
            weight = weight - torch.where(offset.abs() < 1, added * offset.sign(), 0)
        return torch.where(pairs.scores < -MAX_SQUARED_DISTANCE, 0, weight * self.unit(pairs))

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of a candidate that gains all of its precision from one bin to the next, (Q, 1): 1/(Δ|P|)."""
        number = pairs.positive.sum(dim=1, keepdim=True).clamp(min=1).to(pairs.scores.dtype)
        return self.bins / MAX_SQUARED_DISTANCE / number

    def equals(self) -> tuple[tuple[str, dict[str, Any], str], ...]:
        """List the equal losses of the shelf: name, parameters, and condition."""
        return (("listwise_ap", {"bins": self.bins + 1, "low": -1.0, "high": 1.0}, "unit vectors"),)

    def peer(self) -> tuple[str, dict[str, Any], str]:
        """Name the same loss in pytorch-metric-learning: class, arguments, setting."""
        return "FastAPLoss", {"num_bins": self.bins, "distance.normalize_embeddings": True}, "labelled"
