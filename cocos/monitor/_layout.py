"""Which entries of a matrix of scores are positives, where the loss does not say so itself."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor

# Maximum number of pairs of a mask that is kept for the next call, and of shapes of which one is.
KEPT_PAIRS, KEPT_SHAPES = 2**16, 8
# Part of the pull that must lie on the positives of a layout.
HELD = 0.5
LENGTHS = "the groups are not used: their lengths are not those of the queries and candidates"
UNPULLED = (
    "its matrix of scores only pushes: the positives are scored apart, by other rows or in a way that is not known, so "
    "that they cannot be told from negatives; give the monitor the groups of the rows, or the name of the loss and the "
    "embeddings"
)
PULLED = "the positives are the entries that are pulled: neither labels nor the order of the rows say which they are"


# The last target of a shape, with its masks of positives and of negatives.
_KEPT: dict[torch.Size, tuple[Tensor, Tensor, Tensor]] = {}


class Unread(Exception):
    """A call whose scores can be seen and not be counted, with the reason."""


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


def _equal(groups: Any, shape: torch.Size, device: torch.device) -> Tensor | None:
    """(Q, C) bool where groups agree; None where their lengths are others.

    Args:
        groups: whole numbers or text for each row, or a tuple of those of both sides.
        shape: (Q, C).
        device: of the mask.
    """
    sides = groups if isinstance(groups, tuple) else (groups, groups)
    ids = [each.tolist() if isinstance(each, Tensor) else list(each) for each in sides]
    if [len(each) for each in ids] != list(shape):
        return None
    known: dict[Any, int] = {}
    first, second = (torch.tensor([known.setdefault(each, len(known)) for each in side], device=device) for side in ids)
    return first[:, None] == second[None]


def placed(columns: Tensor, shape: torch.Size) -> Tensor:
    """(Q, C) bool with one entry per row; none for a column outside."""
    inside = (columns >= 0) & (columns < shape[1])
    found = torch.zeros(shape, dtype=torch.bool, device=columns.device)
    rows = torch.arange(shape[0], device=columns.device)
    found[rows, columns.clamp(0, shape[1] - 1)] = inside
    return found


def _of_target(target: Tensor, shape: torch.Size) -> tuple[Tensor, Tensor]:
    """Masks of the positives and the negatives of a target; those of the last call of its shape, if it had the same.

    Nobody changes a mask, so that what is known of one stays true.
    """
    few = target.device.type == "cpu" and shape.numel() <= KEPT_PAIRS
    kept = _KEPT.pop(shape, None) if few else None
    if kept is None or kept[0].dtype != target.dtype or not torch.equal(kept[0], target):
        positive = placed(target, shape)
        kept = target.clone(), positive, ~positive
    if few:
        _KEPT[shape] = kept
        while len(_KEPT) > KEPT_SHAPES:
            _KEPT.pop(next(iter(_KEPT)), None)
    return kept[1:]


def _by_labels(labels: Sequence[Tensor], shape: torch.Size, head: bool) -> Iterator[Tensor]:
    """Masks that whole numbers among the arguments of a loss may mean."""
    queries, candidates = shape
    for k, each in enumerate(labels):
        if len(each) == queries and head:
            yield placed(each.long(), shape)
        elif len(each) == queries == candidates:
            yield each[:, None] == each[None]
        elif len(each) == queries:
            yield from (each[:, None] == other[None] for other in labels[k + 1 :] if len(other) == candidates)
        elif queries == candidates and len(each) and queries % len(each) == 0:
            views = queries // len(each)
            for spread in (each.repeat(views), each.repeat_interleave(views)):
                yield spread[:, None] == spread[None]


def _by_order(shape: torch.Size, same: bool, offsets: Sequence[int], device: torch.device) -> Iterator[Tensor]:
    """Masks without labels: the diagonal, from the rows of this process on; two views of each sample."""
    queries, candidates = shape
    rows = torch.arange(queries, device=device)
    if same and queries % 2 == 0:
        yield placed(offsets[0] + (rows + queries // 2) % queries, shape)
        yield placed(offsets[0] + (rows ^ 1), shape)
    elif not same:
        for start in dict.fromkeys(offsets):
            yield placed(rows + start, shape)
        if queries and candidates % queries == 0 and candidates > queries:
            yield placed(rows * (candidates // queries), shape)  # its positive, then its own negatives


def held(positive: Tensor, weights: Tensor) -> bool:
    """Whether most of the pull lies on these entries."""
    pull = (-weights).clamp(min=0)
    return bool((pull * positive).sum() > HELD * pull.sum())


def find(
    weights: Tensor,
    others: Tensor | None,
    *,
    same: bool = False,
    head: bool = False,
    target: Tensor | None = None,
    match: Tensor | None = None,
    paired: Tensor | None = None,
    groups: Any = None,
    labels: Sequence[Tensor] = (),
    offsets: Sequence[int] = (0,),
) -> Layout:
    """Choose the positives of a matrix.

    In order: groups that were given, matches that the target of a cross-entropy misses, that target, labels among the
    arguments of the loss, pairs whose scores it computes apart, and the order of the rows; the last three only if most
    of the pull lies there. Otherwise, the entries that are pulled.

    Args:
        weights: (Q, C); below 0 is pull.
        others: (Q, C) bool, entries of two different rows; None: all.
        same: queries and candidates are the same rows.
        head: candidates are class vectors.
        target: (Q,) columns of the positives.
        match: (Q, C) bool, from the arguments of the loss; None: the target misses none.
        paired: (Q, C) bool, entries whose score the loss computes apart as well; None: there are none.
        groups: (Q,) ids, or those of both sides.
        labels: whole numbers among the arguments.
        offsets: columns at which a diagonal may begin, the likeliest first.
    """
    shape, device = weights.shape, weights.device
    positive = _equal(groups, shape, device) if groups is not None else None
    notes = (LENGTHS,) if groups is not None and positive is None else ()
    positive = match if positive is None else positive
    if positive is None and target is not None and len(target) == shape[0]:
        if others is None:
            return Layout(*_of_target(target, shape), notes)
        positive = placed(target, shape)
    others = torch.ones_like(weights, dtype=torch.bool) if others is None else others
    if positive is None:
        known = [each.to(device) for each in labels]
        apart, counted = [] if paired is None else [paired], torch.where(others, weights, 0)
        guesses = chain(_by_labels(known, shape, head), apart, _by_order(shape, same, offsets, device))
        positive = next((each for each in guesses if _fits(each & others, counted)), None)
    if positive is not None:
        return Layout(positive & others, ~positive & others, notes)
    pulled = (weights < 0) & others
    if not pulled.any():
        raise Unread(UNPULLED)
    return Layout(pulled, ~pulled & others, (*notes, PULLED))


def _fits(positive: Tensor, weights: Tensor) -> bool:
    """Whether most of the pull lies on these entries, or of the push of a loss with the other sign.

    Where nothing is pulled at all, as where every positive is near enough for its loss, nothing of them is pushed.
    """
    if bool((weights < 0).any()):
        return held(positive, weights) or (held(positive, -weights) and not bool(((weights < 0) & positive).any()))
    return not bool(weights[positive].any())
