"""Listwise AP: average precision over a soft histogram of the scores."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from cocos.scores import Pairs

__all__ = ["ListwiseAP"]


@dataclass(frozen=True)
class ListwiseAP:
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

    Raises:
        ValueError: if the bins are not a whole number from 2 to 10000, or low and high not finite and in this order.

    Counts: negatives between two bins whose precision differs; unit a/|P|.
    Net: not balanced: every candidate moves between its own two bins, and no sum is kept.
    Source: Revaud et al. 2019, Learning with Average Precision, arXiv:1906.07589; formula from its published code.
    Family: ranking.

    Examples:
        A positive and a negative in one bin: the precision is a half.

        >>> pairs = cocos.Pairs(torch.tensor([[0.5, 0.5, 0.3]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("listwise_ap")
        >>> loss(pairs)
        tensor([0.5000])
        >>> loss.weight(pairs) / loss.unit(pairs)
        tensor([[-0.2500,  0.2500,  0.0000]])
    """

    bins: int = 20
    low: float = -1.0
    high: float = 1.0
    metric: ClassVar[str] = "cosine"
    couples: ClassVar[str] = "query"
    gradient: ClassVar[str] = "exact"
    balanced: ClassVar[bool] = False
    sample: ClassVar[str] = "groups"

    def __post_init__(self) -> None:
        if not (isinstance(self.bins, int) and 2 <= self.bins <= 10_000):  # (queries, bins) numbers are held
            raise ValueError(f"bins must be a whole number from 2 to 10000, got {self.bins}")
        if not -math.inf < self.low < self.high < math.inf:
            raise ValueError(f"low must be below high and both finite, got {self.low} and {self.high}")

    def _places(self, pairs: Pairs) -> Tensor:
        """Places of the candidates on the axis of the bin centres 0, 1, ..., M - 1, (Q, C)."""
        below = self.high - pairs.scores.clamp(self.low, self.high)
        return below / (self.high - self.low) * (self.bins - 1)

    def _histograms(self, pairs: Pairs) -> tuple[Tensor, Tensor, Tensor]:
        """Positives in each bin, the same as a share of all up to it, and the precision up to it, (Q, M) each."""
        places, positives, negatives = self._places(pairs), [], []
        for centre in range(self.bins):
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

        A candidate between the centres m and m + 1 has :math:`w = -(D_m - D_{m+1}) a / |P|`, where
        :math:`D_m = H^+_m / H_m + \sum_{l \ge m} h^+_l (1 - H^+_l / H_l) / H_l` for a positive and
        :math:`D_m = -\sum_{l \ge m} h^+_l H^+_l / H_l^2` for a negative is what a candidate in bin m adds.
        """
        _, share, precision = self._histograms(pairs)
        gains = precision + (share * (1 - precision)).flip(1).cumsum(dim=1).flip(1)
        costs = -(share * precision).flip(1).cumsum(dim=1).flip(1)
        places, weight = self._places(pairs), torch.zeros_like(pairs.scores)
        for centre in range(self.bins):
            offset, bin_ = places - centre, slice(centre, centre + 1)
            added = torch.where(pairs.positive, gains[:, bin_], torch.where(pairs.negative, costs[:, bin_], 0))
            weight = weight - torch.where(offset.abs() < 1, added * offset.sign(), 0)
        outside = (pairs.scores < self.low) | (pairs.scores > self.high)
        return torch.where(outside, 0, weight * self.unit(pairs))

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of a candidate that gains all of its precision from one bin to the next, (Q, 1): a/|P|."""
        number = pairs.positive.sum(dim=1, keepdim=True).clamp(min=1).to(pairs.scores.dtype)
        return (self.bins - 1) / (self.high - self.low) / number

    def equals(self) -> tuple[tuple[str, dict[str, Any], str], ...]:
        """List the equal losses of the shelf: name, parameters, and condition."""
        whole = (self.low, self.high) == (-1, 1)
        return (("fastap", {"bins": self.bins - 1}, "unit vectors"),) if whole else ()
