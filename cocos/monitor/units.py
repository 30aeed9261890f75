"""The natural unit of the weights of an unknown loss: of a softmax, a sigmoid or a hinge of its own scores.

A share is |weight| / unit (docs/eps.md). A loss of the shelf knows its unit; that of another one is found on a batch:
scale and unit are measured on the scores and the weights, and the unit is known only if the weights are those of the
closed form with this scale. So a loss of the shelf that somebody has written anew gets the shares of the shelf.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.embeddings.scores import Pairs

# Kind of a share by the form of the weights.
SHARES = {"softmax": "probability", "sigmoid": "probability", "hinge": "violations"}
# Maximum number of scores that are compared with a closed form: of more, every k-th query is.
COMPARED_SCORES = 2**16
# Largest difference of all shares of a batch from the closed form, in parts of their sum. Rounding in float32 makes up
# to 7e-4, where almost nothing is left to push; an error of 1e-3 of a share moves across eps only what is within 1e-3
# of it.
CLOSE_SHARES = 1e-3
# The same in numbers of the spacing of half precision, in which scores, logits and gradients are rounded: 0.03 in
# bfloat16, 0.004 in float16.
CLOSE_IN_HALF = 4
# Numbers of the spacing of float32 by which the pull may differ, 1 - p of a probability p near 1.
ROUNDED_PULL = 4
# Steps by which scale, bias and unit of a sigmoid are fitted; each squares the error.
STEPS = 8


@dataclass(frozen=True, eq=False)
class Unit:
    """A unit that was found.

    Args:
        size: natural size of one weight, broadcastable to (Q, C).
        share: kind of a share: `probability` or `violations`.
        form: `softmax`, `sigmoid` or `hinge`.
    """

    size: Tensor
    share: str
    form: str


@dataclass(frozen=True, eq=False)
class _SomeQueries:
    """Some queries of a batch, in float64 where the device has it; (q, C) each.

    Args:
        scores: 0 where a pair takes no part.
        weights: likewise.
        positive: 0 or 1.
        negative: 0 or 1.
        pushed: 0 or 1, negatives with a weight above 0.
        number: (q, 1) of positives.
        lost: sum of weights of a query that may be lost below the smallest number of the dtype.
        normal: smallest weight with all digits in this dtype.
        close: largest difference of the shares in parts of their sum.
    """

    scores: Tensor
    weights: Tensor
    positive: Tensor
    negative: Tensor
    pushed: Tensor
    number: Tensor
    lost: Tensor | float
    normal: Tensor | float
    close: float

    @property
    def part(self) -> Tensor:
        return self.positive + self.pushed


def found(
    scores: Tensor,
    weights: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    kind: str | None = None,
    factor: float | None = None,
    upstream: Tensor | None = None,
) -> Unit | None:
    r"""Find the unit of weights that are those of a softmax, a sigmoid or a hinge of the scores.

    With logits :math:`x = \lambda s`, positives P and negatives N of a query, and an unknown factor of the reduction,
    the closed forms are those of `ntxent`, `dcl`, `supcon`, `supcon` summed over the positives, the softmax of all
    positives together, `siglip` and `triplet`. :math:`\lambda` is the slope of the logarithm of the weights of the
    negatives of a query, so that scores that are logits already have the slope 1. A negative with a weight of 0 was
    left out, as by a mask or a choice of the hardest.

    Args:
        scores: (Q, C), larger is closer, in the dtype in which the loss computed them.
        weights: (Q, C) ∂ loss / ∂ score, up to a factor above 0 of the whole batch.
        positive: (Q, C) bool.
        negative: (Q, C) bool.
        kind: `softmax`, `sigmoid` or `hinge`, where it is known which one the loss computes; None: any.
        factor: about λ; None: unknown.
        upstream: gradient that arrived at the loss, (), a factor of the weights while they were in the dtype of the
            scores, in which small ones may have been lost; None: 1.

    Returns:
        The unit; None where the weights are of no such form.

    Examples:
        >>> scores, positive = torch.tensor([[0.9, 0.5, 0.1], [0.2, 0.8, 0.3]]), torch.eye(2, 3) > 0
        >>> weights = (20 * scores).softmax(dim=1) - positive.float()  # of the logits; over the scores, 20 times that
        >>> found = cocos.monitor.units.found(scores, 20 / 2 * weights, positive, ~positive)
        >>> found.share, [round(size, 2) for size in found.size.flatten().tolist()]
        ('probability', [10.0, 10.0])
    """
    rows = _some_queries(scores, weights, positive, negative, upstream)
    if kind in {"hinge", None}:
        error, unit = _hinge_error(rows, sure=kind == "hinge")
        if error <= rows.close:
            return _unit(unit, False, positive, "hinge")
    if kind in {"softmax", None}:
        for logits in _logits(rows, scores.dtype, factor):
            for forms in (_forms_of_one_positive, _forms_of_positives):
                tried = [_difference_from(rows, *form) for form in forms(rows, logits)]
                errors = torch.stack([error for error, _, _ in tried]).tolist()  # one transfer from the device
                level = [max(error, rows.close / 100) for error in errors]  # of two forms as good, the first
                best = level.index(min(level))
                if errors[best] <= rows.close:
                    return _unit(*tried[best][1:], positive, "softmax")
    if kind in {"sigmoid", None}:
        error, unit, each = _difference_from(rows, _sigmoid_form(rows, factor), False)
        size = rows.weights.abs()
        even = size.amax() <= (1 + rows.close) * size.masked_fill(size == 0, torch.inf).amin()  # of a step, no sigmoid
        if error <= rows.close and not even:
            return _unit(unit, each, positive, "sigmoid")
    return None


def of(weights: Tensor, pairs: Pairs, form: str | None) -> Tensor:
    """Unit of the weights of a loss of unknown unit, broadcastable to (Q, C); NaN where it stays unknown.

    Args:
        weights: (Q, C).
        pairs: that the loss read.
        form: that its weights have on other batches; None: none.

    Examples:
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> cocos.monitor.units.of(cocos.losses.load("ntxent").weight(pairs), pairs, "softmax")
        tensor([[10.0000]])
        >>> cocos.monitor.units.of(torch.tensor([[-1.0, 0.7, 0.3]]), pairs, None)
        tensor(nan)
    """
    if form is None:
        return weights.new_tensor(torch.nan)
    if not weights.any():
        return weights.new_tensor(1.0)  # of which nothing is a share
    unit = found(pairs.scores, weights, pairs.positive, pairs.negative, kind=form)
    return weights.new_tensor(torch.nan) if unit is None else unit.size.to(weights.dtype)


def _unit(unit: Tensor, each: bool, positive: Tensor, form: str) -> Unit:
    """The unit of all queries; that of a loss which is summed over the positives grows with their number."""
    size = unit * positive.sum(dim=1, keepdim=True).clamp(min=1) if each else unit
    return Unit(size, SHARES[form], form)


def _some_queries(
    scores: Tensor, weights: Tensor, positive: Tensor, negative: Tensor, upstream: Tensor | None
) -> _SomeQueries:
    queries, candidates = scores.shape
    about = torch.finfo(scores.dtype)
    normal = about.smallest_normal / (1 if upstream is None else upstream.detach().abs())
    some = slice(None, None, max(1, -(-queries * candidates // COMPARED_SCORES)))
    dtype = torch.float32 if scores.device.type == "mps" else torch.float64
    scores, weights, positive, negative = (each[some].detach() for each in (scores, weights, positive, negative))
    part = positive | negative
    weights = torch.where(part, weights, 0).to(dtype)
    pushed = negative & (weights > 0)
    return _SomeQueries(
        torch.where(part, scores, 0).to(dtype),
        weights,
        positive.to(dtype),
        negative.to(dtype),
        pushed.to(dtype),
        positive.sum(dim=1, keepdim=True),
        candidates * about.eps * normal,
        normal,
        max(CLOSE_SHARES, CLOSE_IN_HALF * about.eps),
    )


def _logits(rows: _SomeQueries, dtype: torch.dtype, factor: float | None) -> Iterator[Tensor]:
    """Yield the logits, (q, C): the scores times the slope of log weights over scores; in half precision, rounded.

    The negatives of each query have a line of their own, and all lines one slope: weighted least squares.
    """
    push = rows.weights * rows.pushed * (rows.weights >= rows.normal)
    total = push.sum(dim=1, keepdim=True)
    part = push / torch.where(total > 0, total, 1)
    heights = torch.where(push > 0, push, 1).log()
    over, up = (each - (part * each).sum(dim=1, keepdim=True) for each in (rows.scores, heights))
    spread = (part * over.square()).sum()
    slope = (part * over * up).sum() / torch.where(spread > 0, spread, 1)
    if dtype.itemsize < 4:
        for scale in (slope,) if factor is None else (factor, slope):
            yield (rows.scores * scale).to(dtype).to(rows.scores.dtype)
    yield rows.scores * slope


def _softmax(rows: _SomeQueries, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Sizes exp(logit - largest one of the query), 0 where a pair takes no part, (q, C), and their sum of negatives."""
    top = logits.masked_fill(rows.part == 0, -torch.inf).amax(dim=1, keepdim=True)
    size = (logits - torch.where(top.isfinite(), top, 0)).clamp(max=0).exp() * rows.part
    return size, (size * rows.pushed).sum(dim=1, keepdim=True)


def _ratio(values: Tensor, total: Tensor) -> Tensor:
    return values / torch.where(total > 0, total, 1)


def _forms_of_one_positive(rows: _SomeQueries, logits: Tensor) -> Iterator[tuple[Tensor, bool]]:
    """Yield the weights over unit and number of positives of NT-Xent and DCL, and that they are per positive."""
    size, away = _softmax(rows, logits)
    some = (away > 0).to(size.dtype)
    part = _ratio(size * rows.pushed, away)
    left = rows.positive * _ratio(away, size + away) * some
    yield left.sum(dim=1, keepdim=True) * part - left, True
    yield rows.number * part - rows.positive * some, True


def _forms_of_positives(rows: _SomeQueries, logits: Tensor) -> Iterator[tuple[Tensor, bool]]:
    """Yield the weights of SupCon, as mean and as sum over the positives, and of the positives' softmax as a whole."""
    size, away = _softmax(rows, logits)
    some = ((away > 0) & (rows.number > 0)).to(size.dtype)
    near = (size * rows.positive).sum(dim=1, keepdim=True)
    part = _ratio(size, near + away) * some
    mean = part - rows.positive * _ratio(some, rows.number)
    yield mean, False
    yield mean * rows.number, True
    yield part - _ratio(size * rows.positive, near) * some, False


def _difference_from(rows: _SomeQueries, form: Tensor, each: bool) -> tuple[Tensor, Tensor, bool]:
    """Difference of the shares from a closed form, (), the unit, (), and whether it is per positive.

    The difference is in parts of the sum of the shares.
    """
    unit = (rows.weights * rows.pushed).sum() / (form * rows.pushed).sum()
    number = rows.number.clamp(min=1) if each else 1
    difference = ((rows.weights / unit - form) / number).abs().sum()
    room = (ROUNDED_PULL * torch.finfo(torch.float32).eps + rows.lost / unit) / rows.close
    error = difference / ((form / number).abs().sum() + len(form) * room)
    pulled = (rows.weights * rows.negative < 0).any()
    return torch.where((unit > 0) & unit.isfinite() & ~pulled & error.isfinite(), error, torch.inf), unit, each


def _sigmoid_form(rows: _SomeQueries, factor: float | None) -> Tensor:
    """Weights of SigLIP over their unit, (q, C), with the scale, bias and unit that are fitted to their logarithms."""
    size = rows.weights.abs()
    known = rows.part * (size > 0)
    heights = torch.where(known > 0, size, 1).log()
    sides = [size * known * side for side in (rows.pushed, rows.positive)]
    share = sum(_ratio(each, each.sum()) for each in sides)  # of the sum of squares, half a side
    side = rows.pushed - rows.positive
    # Starts where all negatives have small probabilities: log weight = log unit + bias + scale * score.
    part = _ratio(sides[0], sides[0].sum())
    over, up = (each - (part * each).sum() for each in (rows.scores, heights))
    scale = (part * over * up).sum() / (part * over.square()).sum() if factor is None else size.new_tensor(factor)
    unit = (_ratio(sides[1], sides[1].sum()) * heights).sum()
    fitted = torch.stack([unit, scale, (part * (heights - scale * rows.scores)).sum() - unit])
    for _ in range(STEPS):
        signed = side * (fitted[1] * rows.scores + fitted[2])
        slope = side * (-signed).sigmoid()
        rest = heights - fitted[0] - torch.nn.functional.logsigmoid(signed)
        columns = torch.stack([torch.ones_like(slope), slope * rows.scores, slope])
        normal = torch.einsum("iqc,jqc,qc->ij", columns, columns, share)
        right = torch.einsum("iqc,qc,qc->i", columns, rest, share)
        ridge = 1e-12 * torch.eye(3, dtype=size.dtype, device=size.device) * normal.diagonal().amax()
        fitted = fitted + torch.linalg.solve_ex(normal + ridge, right).result
    return side * (side * (fitted[1] * rows.scores + fitted[2])).sigmoid() * rows.part


def _hinge_error(rows: _SomeQueries, *, sure: bool) -> tuple[Tensor, Tensor]:
    """Difference of the shares from whole numbers of violations, (), and the unit, (): the smallest weight; 1 for none.

    A negative violates no more positives than there are, and push equals pull for every query.

    Args:
        rows: of the batch.
        sure: the loss computes hinges; else one margin must part the violations of all negatives, or of the hardest one
            of each query, from what is no violation.
    """
    push = rows.weights * rows.pushed
    size = rows.weights.abs()
    unit = torch.where(rows.pushed.any(), size.masked_fill(size == 0, torch.inf).amin(), 1)
    share = push / unit
    whole = share.round()
    error = ((share - whole).abs() / whole.clamp(min=1)).amax()
    uneven = (rows.weights.sum(dim=1).abs() / push.sum(dim=1).clamp(min=unit)).amax()
    fits = (whole <= rows.number).all() & ((rows.weights >= 0) | (rows.positive > 0)).all()
    if not sure:
        fits &= rows.pushed.any() & _one_margin_fits(rows, whole.clamp(max=share.shape[1]).nan_to_num().long())
    return torch.where(fits, torch.maximum(error, uneven), torch.inf), unit


def _one_margin_fits(rows: _SomeQueries, violated: Tensor) -> Tensor:
    """Whether one margin makes these numbers of violated positives, (q, C): of all negatives, or of the hardest, ()."""
    positives = rows.scores.masked_fill(rows.positive == 0, torch.inf).sort(dim=1).values
    ends = torch.cat([torch.full_like(positives[:, :1], -torch.inf), positives], dim=1)
    last, first = (ends.gather(1, (violated + k).clamp(0, ends.shape[1] - 1)) for k in (0, 1))
    inside, outside = rows.scores - last, rows.scores - first  # of the margin: smallest violation, largest other gap
    hardest = rows.scores.masked_fill(rows.negative == 0, -torch.inf)
    hardest = rows.negative * (hardest == hardest.amax(dim=1, keepdim=True))
    found = []
    for among in (rows.negative, hardest):
        least = inside.masked_fill(among == 0, torch.inf).amin()
        most = outside.masked_fill(among == 0, -torch.inf).amax()
        found.append((most > -torch.inf) & (most <= least) & (rows.pushed <= among).all())
    return found[0] | found[1]
