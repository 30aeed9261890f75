"""Hinges over all negatives or the hardest one (the triplet losses). Their counts are exact.

The weight of a negative is the number of positives whose margin it violates: the number of levels (positive score minus
margin) that its score exceeds. Counts above these levels therefore determine every statistic.
"""

import math

import torch
from torch import Tensor

from cocos.counting import statistics
from cocos.engine.readers.rows import weighed
from cocos.engine.sweep import Passes
from cocos.engine.thresholds import Threshold, about_positives, few
from cocos.engine.view import View


def reads(loss, eps: float, *, spread: bool, relative: bool) -> "HingeReader | None":
    """Return the reader of a loss; None if it is not a hinge of margin - positive + negative."""
    usable = loss.hinge in {"all", "hardest"} and not loss.adds_statistics
    return HingeReader(loss, eps, spread=spread, relative=relative) if usable else None


class HingeReader:
    """Statistics of margin violations, from counts above the levels of the positives.

    If a query has more positives than a pass has levels, a few rows of scores at a time are stored instead.
    """

    def __init__(self, loss, eps: float, *, spread: bool, relative: bool = False):
        self.loss, self.eps, self.spread, self.relative = loss, eps, spread, relative

    def passes(self, view: View) -> Passes:
        """Yield passes; return the statistics of every query, one dict a direction: see `cocos.engine.readers`."""
        if not few(view):
            return weighed(view, self.loss, self.eps)
        levels, _ = about_positives(view, self.loss.margin)
        counts = yield Threshold(view, levels)
        return tuple(self._result(view, direction, *counts[direction]) for direction in view.directions)

    def _result(self, view: View, direction: int, above: Tensor, ties: Tensor) -> dict[str, Tensor]:
        number, doubtful = self._weights(above, ties)
        weight = torch.arange(1, number.shape[1] + 1, device=number.device)
        mass, counted = (number * weight).double(), weight > self.eps
        total, first = mass.sum(dim=1), math.floor(self.eps)  # a counted negative exceeds more levels than `first`
        result = {
            "contributing": (number * counted).sum(dim=1),
            "uncertain": doubtful[:, first] if first < doubtful.shape[1] else torch.zeros_like(doubtful[:, 0]),
            "weight_above": (mass * counted).sum(dim=1),
            "weight_below": (mass * ~counted).sum(dim=1),
            "weight_positive": total,
            "push": total,
            "pull": total,
            "negatives": view.negatives(direction),
            "pushed_positives": torch.zeros_like(total, dtype=torch.int64),
        }
        part = weight / total[:, None].clamp(min=1)
        if self.relative:  # a tie changes the push of its query, hence every negative's part of it
            tied = (doubtful > 0).any(dim=1)
            result["relative"] = (number * (part > self.eps)).sum(dim=1)
            result["relative_uncertain"] = torch.where(tied, number.sum(dim=1) + doubtful[:, 0], 0)
        heaviest, spread = ((number > 0) * weight).amax(dim=1) / total.clamp(min=1), []
        if self.spread:
            active, squares = total > 0, (number * part.square()).sum(dim=1)
            spread.append(torch.where(active, (number * torch.special.entr(part)).sum(dim=1).exp(), 0))
            spread.append(torch.where(active, 1 / torch.where(active, squares, 1), 0))
        result |= statistics.how_spread(heaviest, *spread)
        side = view.sides[direction]
        return {name: side.unsorted(values) for name, values in result.items()}

    def _weights(self, above: Tensor, ties: Tensor) -> tuple[Tensor, Tensor]:
        """Number of negatives that violate exactly 1, 2, ... positives, and those that ties may add, (n, K) each."""
        if self.loss.hinge == "hardest":
            levels = (above > 0).long().sum(dim=1, keepdim=True)  # exceeded by the hardest negative
            weight = torch.arange(1, above.shape[1] + 1, device=above.device)
            return (levels == weight).long(), ((above == 0) & (ties > 0)).long()
        return above - torch.cat([above[:, 1:], torch.zeros_like(above[:, :1])], dim=1), ties
