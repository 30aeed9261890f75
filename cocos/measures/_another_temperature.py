"""Tell whether two gradients are those of a softmax at two temperatures."""

import math

import torch
from torch import Tensor

from cocos.measures._compared import STRUCTURE, Compared, Outcome, number
from cocos.measures._kinds_of_pairs import PAIR_KINDS, fit

# Part of the largest weight below which a weight says nothing on a temperature: in float64, and in narrower dtypes.
SEEN_WEIGHT, SEEN_NARROW = 1e-8, 1e-3
# Largest difference of the logarithm of a weight from a line, in parts of the line's range.
STRAIGHT = 1e-2
# Largest difference from the pull of a softmax at the other temperature, in parts of the largest pull.
PULL_ERROR = 1e-2


def another_temperature(both: Compared) -> Outcome | None:
    """Say by how much B multiplies its scores more than A, where the weights of both are those of a softmax.

    The logarithm of the ratio of two weights is then linear in the score, with the difference of both factors as its
    slope.
    """
    if both.pairs is None:
        return None
    rows = both.layout.rows(0)
    slope = _slope(both, *(each[rows] for each in both.pairs))
    if slope is None:
        return None
    known = both.scale
    said = (
        f"another temperature: B multiplies its scores by {number(abs(slope))} {'more' if slope > 0 else 'less'} than A"
    )
    if known is None or known + slope <= 0:
        return Outcome(said, False, math.nan, "temperature")
    said += f" (temperature {1 / (known + slope):.4g} in place of {1 / known:.4g})"
    return Outcome(said + _beside(both, known + slope), False, (known + slope) / known, "temperature")


def _slope(both: Compared, a: Tensor, b: Tensor) -> float | None:
    """Slope of log (b / a) of the in-batch negatives against their scores; None where it is no line."""
    scores = both.cosines[both.layout.rows(0)]
    seen = SEEN_NARROW if both.narrow else SEEN_WEIGHT
    least = seen * float(a.max()), seen * float(b.max())
    inside = both.layout.kind[both.layout.rows(0)] == PAIR_KINDS.index("in-batch")
    used = inside & (a > least[0]) & (b > least[1])
    ratios = torch.where(used, b / torch.where(used, a, 1), 1).log()
    many = used.sum(dim=1, keepdim=True).clamp(min=1)
    x, y = (torch.where(used, each - (each * used).sum(dim=1, keepdim=True) / many, 0) for each in (scores, ratios))
    if not float(x.square().sum()) or int(used.sum()) < 4 * both.layout.number:
        return None
    slope = float((x * y).sum() / x.square().sum())
    off = float((y - slope * x).abs().max())
    return None if abs(slope) <= STRUCTURE or off > STRAIGHT * abs(slope) * float(x.abs().max()) else slope


def _beside(both: Compared, scale: float) -> str:
    """What differs from the mean of cross-entropies at that scale; empty where nothing does."""
    assert both.pairs is not None
    rows = both.layout.rows(0)
    kind, b = both.layout.kind[rows], both.pairs[1][rows]
    candidates = kind < PAIR_KINDS.index("query-query")
    shares = (scale * both.cosines[rows]).masked_fill(~candidates, -math.inf).softmax(dim=1)
    positive = kind == PAIR_KINDS.index("positives")
    pull = fit((scale * (shares - 1) / both.layout.number)[positive], b[positive])
    if pull.off > PULL_ERROR * pull.other:
        return ", of the negatives alone"
    return "" if abs(pull.ratio - 1) <= PULL_ERROR else f", and the loss by {number(pull.ratio)}"
