"""Average precision over a soft histogram: formula and closed form of the losses that sort scores into bins."""

import torch
from torch import Tensor

from cocos.embeddings.scores import Pairs
from cocos.losses.base import Loss


class BinnedAP(Loss):
    r"""One minus the average precision of candidates shared out between the two nearest bin centres, best bin first.

    .. math::
        \ell = 1 - \frac{1}{|P|} \sum_m \frac{h^+_m H^+_m}{H_m}, \quad
        h_m = \sum_j [1 - |x_j - m|]_+, \quad H_m = \sum_{l \le m} h_l, \quad
        \frac{\partial \ell}{\partial x_j} = \frac{D_m - D_{m+1}}{|P|} \text{ for } m < x_j < m + 1

    :math:`h^+, H^+` count positives only, h and H positives and negatives, and x is the place of a candidate on the
    axis of the bin centres 0, 1, ... (0 is best). A candidate in bin m adds :math:`D_m = H^+_m / H_m + \sum_{l \ge m}
    h^+_l (1 - H^+_l / H_l) / H_l` as a positive and :math:`D_m = -\sum_{l \ge m} h^+_l H^+_l / H_l^2` as a negative. A
    place on a bin centre, and one beyond the first or the last, has weight 0.
    """

    def places(self, pairs: Pairs) -> Tensor:
        """Places of the candidates on the axis of the bin centres, (Q, C), those beyond it on its ends."""
        raise NotImplementedError

    def beyond(self, pairs: Pairs) -> Tensor:
        """Whether a candidate is beyond the first or the last bin centre, (Q, C) bool."""
        raise NotImplementedError

    @property
    def centres(self) -> int:
        """Number of bin centres."""
        raise NotImplementedError

    @property
    def density(self) -> float:
        """Bins per unit of score."""
        raise NotImplementedError

    def _shares_and_precision(self, pairs: Pairs) -> tuple[Tensor, Tensor, Tensor]:
        """Positives in each bin, their share of all up to it, and the precision up to it, (Q, centres) each."""
        places, positives, negatives = self.places(pairs), [], []
        positive, negative = (mask.to(places.dtype) for mask in (pairs.positive, pairs.negative))
        for centre in range(self.centres):
            pulse = (1 - (places - centre).abs()).relu()
            positives.append((pulse * positive).sum(dim=1))
            negatives.append((pulse * negative).sum(dim=1))
        positive_mass, negative_mass = torch.stack(positives, dim=1), torch.stack(negatives, dim=1)
        total = (positive_mass + negative_mass).cumsum(dim=1)
        total = torch.where(total > 0, total, 1)
        return positive_mass, positive_mass / total, positive_mass.cumsum(dim=1) / total

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,), from 0 to 1; 0 for a query without a positive."""
        positive_mass, _, precision = self._shares_and_precision(pairs)
        number = pairs.positive.sum(dim=1)
        return torch.where(number > 0, 1 - (positive_mass * precision).sum(dim=1) / number.clamp(min=1), 0)

    def weight(self, pairs: Pairs) -> Tensor:
        """Return ∂ Σ value / ∂ score, (Q, C), by closed form, see the class."""
        _, share, precision = self._shares_and_precision(pairs)
        gains = precision + (share * (1 - precision)).flip(1).cumsum(dim=1).flip(1)
        costs = -(share * precision).flip(1).cumsum(dim=1).flip(1)
        places, weight = self.places(pairs), torch.zeros_like(pairs.scores)
        positive, negative = (mask.to(places.dtype) for mask in (pairs.positive, pairs.negative))
        for centre in range(self.centres):
            offset, bin_ = places - centre, slice(centre, centre + 1)
            inside = (1 - offset.abs()).relu().sign()  # products are faster than `torch.where` of irregular masks
            weight = weight - (gains[:, bin_] * positive + costs[:, bin_] * negative) * inside * offset.sign()
        return torch.where(self.beyond(pairs), 0, weight * self.unit(pairs))

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of a candidate that gains all of its precision from one bin to the next, (Q, 1): density / |P|."""
        return self.density / pairs.positives()
