"""Which entries of a matrix of scores are positives, where the loss does not say so itself."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

# Part of the pull that must lie on the positives of a layout.
HELD = 0.5
UNKNOWN = "the positives are the entries that are pulled: neither labels nor a diagonal say which they are"


@dataclass(frozen=True, eq=False)
class Layout:
    """The masks of a matrix.

    Args:
        positive: (Q, C) bool.
        negative: (Q, C) bool.
        notes: remarks for the user.
    """

    positive: Tensor
    negative: Tensor
    notes: tuple[str, ...] = ()


def _equal(groups: Any, shape: tuple[int, int], device: torch.device) -> Tensor | None:
    """(Q, C) bool where groups agree; None without groups, or where their lengths are others."""
    if groups is None:
        return None
    sides = groups if isinstance(groups, tuple) else (groups, groups)
    if len(sides) != 2:
        return None
    first, second = (torch.as_tensor(each, device=device) for each in sides)
    if (*first.shape, *second.shape) != shape:
        return None
    return first[:, None] == second[None]


def _placed(columns: Tensor, shape: tuple[int, int]) -> Tensor:
    """(Q, C) bool with one entry per row; none for a column outside."""
    inside = (columns >= 0) & (columns < shape[1])
    found = torch.zeros(shape, dtype=torch.bool, device=columns.device)
    rows = torch.arange(shape[0], device=columns.device)
    found[rows, columns.clamp(0, shape[1] - 1)] = inside
    return found


def _guesses(shape: tuple[int, int], same: bool, offset: int, device: torch.device) -> Iterator[Tensor]:
    """Layouts without labels: the diagonal, from the rows of this process on; two views of each sample."""
    queries, candidates = shape
    rows = torch.arange(queries, device=device)
    if not same:
        if offset:
            yield _placed(rows + offset, shape)
        yield _placed(rows, shape)
        if queries and candidates % queries == 0:
            yield _placed(rows * (candidates // queries), shape)  # its positive, then its own negatives
    elif queries == candidates and queries % 2 == 0:
        yield _placed((rows + queries // 2) % queries, shape)
        yield _placed(rows ^ 1, shape)


def find(
    weights: Tensor,
    *,
    same: bool,
    target: Tensor | None = None,
    match: Tensor | None = None,
    groups: Any = None,
    labels: Any = None,
    offset: int = 0,
) -> Layout:
    """Choose the positives of a matrix.

    In order: groups that were given, matches that the target of a cross-entropy misses, that target, labels among the
    arguments of the loss, and the layout without labels on which most of the pull lies.

    Args:
        weights: (Q, C); below 0 is pull.
        same: queries and candidates are the same rows: no row is a candidate of itself.
        target: (Q,) columns of the positives.
        match: (Q, C) bool, from the arguments of the loss; None: the target misses none.
        groups: (Q,) ids, or those of both sides.
        labels: as groups, found among the arguments.
        offset: row of this process's first query in the rows of all.
    """
    shape, device = (weights.shape[0], weights.shape[1]), weights.device
    others = ~torch.eye(*shape, dtype=torch.bool, device=device) if same else torch.ones_like(weights, dtype=torch.bool)
    positive = _equal(groups, shape, device)
    positive = match if positive is None else positive
    if positive is None and target is not None and len(target) == shape[0]:
        positive = _placed(target, shape)
    if positive is None:
        positive = _equal(labels, shape, device)
        positive = positive if positive is not None and _held(positive & others, weights) else None
    if positive is not None:
        return Layout(positive & others, ~positive & others)
    for positive in _guesses(shape, same, offset, device):
        if _held(positive, weights):
            return Layout(positive, ~positive & others)
    pulled = (weights < 0) & others
    return Layout(pulled, ~pulled & others, (UNKNOWN,))


def _held(positive: Tensor, weights: Tensor) -> bool:
    """Whether most of the pull lies on these entries."""
    pull = (-weights).clamp(min=0)
    return bool((pull * positive).sum() > HELD * pull.sum())
