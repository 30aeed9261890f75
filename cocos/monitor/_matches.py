"""Which candidates match which queries, read from the arguments of a loss, where its targets point elsewhere."""

from collections.abc import Sequence

import torch
from torch import Tensor

# Cosine from which two rows are the same: the arguments of a loss may be normalised and rounded before they are scored.
SAME_ROW = 1 - 1e-4


def _unit(rows: Tensor) -> Tensor:
    return torch.nn.functional.normalize(rows.float(), dim=1)


def positives(query: Tensor, candidate: Tensor, target: Tensor | None, given: Sequence[Tensor]) -> Tensor | None:
    """Positives of candidates that a loss assembled from several arguments, such as positives and hard negatives.

    Row i of one argument belongs to row i of every other. A target is right where its column is row i of some
    argument. Elsewhere the positive of query i is row i of the argument to which most of the other targets point, or of
    the first one.

    Args:
        query: (Q, D).
        candidate: (C, D), C above Q.
        target: (Q,) columns.
        given: matrices among the arguments of the loss, in their order.

    Returns:
        (Q, C) bool; None where no target is seen to be wrong.
    """
    shape = len(query), len(candidate)
    if target is None or shape[1] <= shape[0] or len(target) != shape[0]:
        return None
    sides = [each for each in given if each.shape == query.shape and each.device == query.device]
    anchors, columns = _unit(query), _unit(candidate)
    others = [each for each in map(_unit, sides) if not bool(((each * anchors).sum(dim=1) > SAME_ROW).all())]
    if not others or len(others) == len(sides):
        return None
    inside = (target >= 0) & (target < shape[1])
    column = target.clamp(0, shape[1] - 1)[:, None]
    same = [each @ columns.T > SAME_ROW for each in others]
    right = torch.stack([each.gather(1, column)[:, 0] & inside for each in same])
    match = same[int(right.sum(dim=1).argmax())]
    wrong = ~right.any(dim=0) & match.any(dim=1) & inside
    if not bool(wrong.any()):
        return None
    found = torch.zeros(shape, dtype=torch.bool, device=query.device).scatter_(1, column, inside[:, None])
    return torch.where(wrong[:, None], match, found)
