"""Hinges over all negatives or the hardest one: the triplet losses. Their counts are exact."""

import math

import torch
from torch import Tensor

from cocos.readers._held import weighed
from cocos.readers._levels import OnLevels

__all__ = ["Hinge", "reads"]


def reads(loss, eps: float, *, spread: bool, relative: bool) -> "Hinge | None":
    """The reader of a loss; None where it is not a hinge of (margin - positive + negative)."""
    hinge = getattr(loss, "hinge", None)
    return Hinge(loss, eps, spread=spread, relative=relative) if hinge in {"all", "hardest"} else None


class Hinge(OnLevels):
    """Violations of a margin. A negative weighs as many positives as it violates, so levels of positives say it all.

    Where a query has more positives than a pass can count above, a few rows of scores at a time are held instead.

    Args:
        loss: with a margin, and a hinge of `all` or of the `hardest` negative.
        eps: smallest weight that counts.
        spread: the effective number and the participation ratio are wanted.
        relative: the negatives whose part of the push is above eps are wanted.
    """

    def __init__(self, loss, eps: float, *, spread: bool, relative: bool = False):
        self.loss, self.eps, self.spread, self.relative, self.margin = loss, eps, spread, relative, loss.margin

    def finish(self) -> tuple[dict[str, Tensor], ...]:
        """The statistics of every query, one dict a direction: see `cocos.readers`."""
        if self.state is None:
            return weighed(self.view, self.loss, self.eps)
        return tuple(self._result(direction) for direction in self.view.directions)

    def _result(self, direction: int) -> dict[str, Tensor]:
        above, ties = self.state.above[direction], self.state.ties[direction]
        first = math.floor(self.eps)  # levels that a negative must be above, and one more
        if self.loss.hinge == "hardest":
            doubtful = ((above == 0) & (ties > 0)).long()
            above = (above > 0).long().sum(dim=1, keepdim=True)  # levels that the hardest one is above
            weight = torch.arange(1, self.state.levels[direction].shape[1] + 1, device=above.device)
            number = (above == weight).long()
        else:
            doubtful = ties
            weight = torch.arange(1, above.shape[1] + 1, device=above.device)
            number = above - torch.cat([above[:, 1:], torch.zeros_like(above[:, :1])], dim=1)
        mass = (number * weight).double()
        total, counts = mass.sum(dim=1), weight > self.eps
        uncertain = doubtful[:, first] if first < doubtful.shape[1] else torch.zeros_like(doubtful[:, 0])
        result = {
            "contributing": (number * counts).sum(dim=1),
            "uncertain": uncertain,
            "weight_above": (mass * counts).sum(dim=1),
            "weight_below": (mass * ~counts).sum(dim=1),
            "weight_positive": total,
            "push": total,
            "pull": total,
            "hardest_share": ((number > 0) * weight).amax(dim=1) / total.clamp(min=1),
            "negatives": self.view.negatives(direction),
        }
        part = weight / total[:, None].clamp(min=1)
        if self.relative:
            # A tie changes the push of its query, and so the part of every negative in it.
            tied = (doubtful > 0).any(dim=1)
            result["relative"] = (number * (part > self.eps)).sum(dim=1)
            result["relative_uncertain"] = torch.where(tied, number.sum(dim=1) + doubtful[:, 0], 0)
        if self.spread:
            active = total > 0
            result["effective"] = torch.where(active, (number * torch.special.entr(part)).sum(dim=1).exp(), 0)
            squares = (number * part.square()).sum(dim=1)
            result["participation"] = torch.where(active, 1 / torch.where(active, squares, 1), 0)
        side = self.view.sides[direction]
        return {name: side.unsorted(values) for name, values in result.items()}
