"""Kinds of pairs of a batch, by the row that a gradient reaches and the row along which it points; their ratios."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

# Kinds of rows that a gradient reaches.
ENDS = ("queries", "candidates", "hard negatives")
# Kinds of pairs: a query and its candidate, and the sources of negatives.
PAIR_KINDS = ("positives", "in-batch", "own hard", "others' hard", "query-query", "candidate-candidate")


@dataclass(frozen=True, eq=False)
class RowKinds:
    """Rows of a batch: N queries, their candidates, and K hard negatives of each.

    Args:
        number: N.
        hard: K.
        device: of the masks.
    """

    number: int
    hard: int
    device: torch.device

    @cached_property
    def end(self) -> Tensor:
        """Index into `ENDS` of each row, (R,)."""
        sizes = torch.tensor([self.number, self.number, self.number * self.hard])
        return torch.repeat_interleave(torch.arange(3), sizes).to(self.device)

    @cached_property
    def pair(self) -> Tensor:
        """Number of the pair that each row belongs to, (R,)."""
        own = torch.arange(self.number)
        return torch.cat([own, own, own.repeat_interleave(self.hard)]).to(self.device)

    @cached_property
    def kind(self) -> Tensor:
        """Index into `PAIR_KINDS` of each pair of rows, (R, R), symmetric."""
        query = self.end == 0
        own = self.pair[:, None] == self.pair[None, :]
        hard = (self.end[:, None] == 2) | (self.end[None, :] == 2)
        mixed = query[:, None] != query[None, :]
        kind = torch.where(query[:, None] & query[None, :], 4, 5)
        crossed = torch.where(hard, torch.where(own, 2, 3), torch.where(own, 0, 1))
        return torch.where(mixed, crossed, kind)

    def rows(self, end: int) -> slice:
        """Rows of one end."""
        sizes = (0, self.number, 2 * self.number, (2 + self.hard) * self.number)
        return slice(sizes[end], sizes[end + 1])


@dataclass(frozen=True)
class Fit:
    """How far one set of numbers is a multiple of another.

    Args:
        ratio: least-squares factor of the second over the first; NaN where the first is zero and the second is not.
        off: largest difference from that multiple, in the unit of the numbers.
        size: largest number of the first.
        other: largest number of the second.
    """

    ratio: float
    off: float
    size: float
    other: float


def fit(first: Tensor, second: Tensor, mask: Tensor | None = None) -> Fit:
    """Fit one tensor, where a mask is set, as a multiple of another of the same shape.

    Examples:
        >>> found = fit(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0, 4.0, 0.0]), torch.tensor([True, True, False]))
        >>> found.ratio, found.off
        (2.0, 0.0)
    """
    if mask is not None:
        first, second = first[mask], second[mask]
    if not first.numel():
        return Fit(1.0, 0.0, 0.0, 0.0)
    size, other = float(first.abs().max()), float(second.abs().max())
    if size == 0:
        return Fit(1.0 if other == 0 else float("nan"), other, size, other)
    scaled = first / size
    ratio = float((scaled * second).sum() / (scaled * first).sum())
    return Fit(ratio, float((second - ratio * first).abs().max()), size, other)
