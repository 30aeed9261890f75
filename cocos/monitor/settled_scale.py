"""Where the scale of a loss would settle on the scores of a call, and on which side of it the scale is.

A softmax and a sigmoid are convex in their scale and bias, so the equilibrium is their one minimum. Comparisons of the
scores decide whether there is one, and Newton's method finds it: the equilibrium of `cocos.equilibrium.solve` at a
fraction of the cost, since a training waits for it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.counting.equilibrium import BEYOND_CLIP, CLIP, ROUNDINGS
from cocos.engine import weighing
from cocos.monitor.calls import Seen, first_positives

# Maximum number of scores of one direction that are weighed again and again: queries are drawn from more.
SETTLED_SCORES = 2**16
# Queries of one direction at least, with more candidates than that too.
LEAST_SAMPLE = 16
# Cosine of the weights that arrived with those of the closed form, from which on the loss has this form.
SAME_FORM = 0.995
# Largest distance of a bias that is looked for from 0.
BIASES = 100.0
# Width, of a bias, of a bracket that is narrow enough.
NARROW_BIAS = 1e-5
# Maximum number of steps of Newton's method, and of shorter trials of each: 6 and 0 are usual.
MOST_STEPS, MOST_TRIALS = 60, 30
# Largest change of a number in one step, as a ratio of its absolute value, or of 1 where that is larger.
STEP_REACH = 2.0
# Part of a scale that a step leaves at least, so that it stays above 0.
LEAST_PART = 0.1
# Part of the slope along a step that may be left, with the opposite sign, at its end.
OVERSHOT = 0.5
# Relative change in a step of Newton's method from which on the next one, whose change is about the square of it,
# changes no digit of a record.
CONVERGED = 1e-3

# A scale, or a scale and a bias.
Place = tuple[float, ...]


@dataclass(frozen=True, eq=False)
class _Sample:
    """Cosines of some queries of a direction with masks and weights, (q, C), on the CPU, in float32 at least."""

    scores: Tensor  # 0 where a pair takes no part
    positive: Tensor  # bool
    negative: Tensor  # bool
    weights: Tensor  # 0 where a pair takes no part
    rounding: float  # difference of two scores that is none
    whole: bool  # every pair takes part
    plain: bool  # the weights are those of a softmax with one positive of each query


def of(seen: Sequence[Seen], generator: torch.Generator, near: Place | None = None) -> dict[str, float]:
    """Find the slope at the scale and bias of a record, and the scale and bias without one; {} for other losses.

    A loss is read as NT-Xent or SigLIP if its weights are those of this closed form, up to a factor.

    Args:
        seen: directions of one call, or of several.
        generator: of the samples of queries, on the CPU.
        near: where the search begins, as at the equilibrium of the last batch; None: at the scale and bias of the loss.
    """
    known = [each for each in seen if each.kind in FORMS and each.scale and each.stretch]
    if not known or len(known) < len(seen) or len({each.kind for each in known}) > 1:
        return {}
    first, scale = known[0], float(known[0].scale or 0)
    if all(each.kind == "softmax" and each.plain and each.whole for each in known):
        if all(weighing.readable(each.scores) for each in known):
            return _settled([_margins(each, generator) for each in known], scale, near)
    small = first.scores.numel() <= SETTLED_SCORES
    if small and all(each.plain and each.scores.shape == first.scores.shape for each in known):
        groups = [known]  # the mean over the queries of all is that over the directions
    else:
        groups = [[each] for each in known]
    samples = [_sample(each, generator) for each in groups]
    return FORMS[str(known[0].kind)](samples, scale, known[0].bias, near)


def _margins(seen: Seen, generator: torch.Generator) -> weighing.Margins:
    """Distances of the scores from those of the positives, of all queries of a direction or a sample of them."""
    scores, first, stretch = seen.scores, first_positives(seen.positive).places, float(seen.stretch or 1)
    number = _sampled(*scores.shape)
    if number < len(scores):
        rows = torch.randperm(len(scores), generator=generator)[:number].sort().values
        scores, first = scores[rows], first[rows]
    return weighing.Margins(scores, first, 1 / stretch, _rounding(scores) / abs(stretch))


def _settled(margins: Sequence[weighing.Margins], scale: float, near: Place | None) -> dict[str, float]:
    """Slope, and equilibrium, of a softmax with one positive of each query by the kernel: see `_softmax`."""

    def bend(place: Place) -> tuple[list[float], list[list[float]]]:
        mean, variance, *_ = _mean([each.bent(place[0]) for each in margins])
        return [mean], [[variance]]

    made = [each.bent(scale) for each in margins]
    slope, curvature, at_zero, _ = _mean(made)
    found = {"scale_slope": slope}
    if max(each[3] for each in made) > 0 and at_zero < 0:
        there = _least(bend, (scale,) if near is None else near[:1], None if near else ([slope], [[curvature]]))
        found |= {} if there is None else {"equilibrium_scale": there[0]}
    return found


def _mean(rows: Sequence[Sequence[float]]) -> list[float]:
    return [sum(each) / len(rows) for each in zip(*rows, strict=True)]


def _sampled(queries: int, candidates: int) -> int:
    """Number of queries of a direction that are weighed."""
    return min(queries, max(LEAST_SAMPLE, SETTLED_SCORES // candidates))


def _rounding(scores: Tensor) -> float:
    """Difference of two scores that is none."""
    return ROUNDINGS * torch.finfo(scores.dtype).eps * max(abs(float(each)) for each in scores.aminmax())


def _sample(group: Sequence[Seen], generator: torch.Generator) -> _Sample:
    """Draw queries of a direction, or take all of several."""
    seen, (queries, candidates) = group[0], group[0].scores.shape
    number = _sampled(queries, candidates)
    parts = [[each.scores, each.positive, each.negative, each.weights] for each in group]
    part = [torch.cat(each) if len(each) > 1 else each[0].detach() for each in zip(*parts, strict=True)]
    if number < queries:
        rows = torch.randperm(queries, generator=generator)[:number].sort().values.to(seen.scores.device)
        part = [each[rows] for each in part]
    scores, positive, negative, weights = (each.cpu() for each in part)
    dtype = torch.promote_types(scores.dtype, torch.float32)
    scores, weights = scores.to(dtype) / float(seen.stretch or 1), weights.to(dtype)
    whole = all(each.whole for each in group)
    whole = whole or int(positive.count_nonzero()) + int(negative.count_nonzero()) == scores.numel()
    if not whole:
        taking = positive | negative
        scores, weights = torch.where(taking, scores, 0), torch.where(taking, weights, 0)
    return _Sample(scores, positive, negative, weights, _rounding(scores), whole, seen.plain)


def _softmax(samples: Sequence[_Sample], scale: float, _: float | None, near: Place | None) -> dict[str, float]:
    """Slope, and equilibrium, of NT-Xent with one positive a query; {} for another loss.

    With d the score of a candidate less that of the positive, the loss of a query is log Σ exp(λ d). Its derivatives
    are the mean and the variance of d under the softmax, so that it has a minimum if some d is above 0 and their mean
    at λ = 0 is below.
    """
    margins: list[tuple[Tensor, Tensor | None, int]] = []
    at_zero, ahead, alike = 0.0, False, False
    slope = curvature = 0.0
    for each in samples:
        positive = each.positive.view(torch.uint8).to(each.scores.dtype)
        number = None if each.plain else positive.sum(dim=1)
        if number is not None and number.max() > 1:
            return {}  # the slope of a softmax is that of one positive
        apart = each.scores - (each.scores * positive).sum(dim=1, keepdim=True)
        apart *= (apart.abs() - each.rounding).gt_(0)
        outside, counts = None, apart.new_tensor(apart.shape[1])
        queries, weights = len(apart), each.weights
        if not each.whole:
            taking = each.positive | each.negative
            apart, counts = torch.where(taking, apart, 0), taking.sum(dim=1)
            outside = torch.where(taking, 0.0, -torch.inf).to(apart)
        if not each.whole or (number is not None and number.min() < 1):
            some = each.positive.any(dim=1) & each.negative.any(dim=1)
            if not some.any():
                return {}
            apart, positive, weights = apart[some], positive[some], weights[some]
            counts = counts.expand(queries)[some]
            outside = None if outside is None else outside[some]
        margins.append((apart, outside, queries))
        at_zero += float((apart.sum(dim=1) / counts).sum()) / queries
        ahead |= float(apart.max()) > 0
        mass = _mass(apart, outside, scale)
        alike = alike or each.plain or _alike(mass - positive, weights)
        if not alike:
            return {}
        more = _bent(mass, apart, queries)
        slope, curvature = slope + more[0] / len(samples), curvature + more[1] / len(samples)

    def bend(place: Place) -> tuple[list[float], list[list[float]]]:
        made = [_bent(_mass(apart, outside, place[0]), apart, queries) for apart, outside, queries in margins]
        means = _mean(made)
        return means[:1], [means[1:]]

    found = {"scale_slope": slope}
    if ahead and at_zero < 0:
        there = _least(bend, (scale,) if near is None else near[:1], None if near else ([slope], [[curvature]]))
        found |= {} if there is None else {"equilibrium_scale": there[0]}
    return found


def _mass(apart: Tensor, outside: Tensor | None, scale: float) -> Tensor:
    """Softmax of margins times a scale, (q, C)."""
    return (apart * scale if outside is None else torch.add(outside, apart, alpha=scale)).softmax(dim=1)


def _bent(mass: Tensor, apart: Tensor, queries: int) -> tuple[float, float]:
    """Sums of mean and variance of margins under their softmax over a number of queries, which may be more."""
    part = mass.mul_(apart)
    mean = part.sum(dim=1)
    curved = torch.vdot(part.flatten(), apart.flatten()) - torch.vdot(mean, mean)
    slope, curvature = torch.stack([mean.sum(), curved]).tolist()
    return slope / queries, curvature / queries


def _sigmoid(samples: Sequence[_Sample], scale: float, bias: float | None, near: Place | None) -> dict[str, float]:
    """Slope, and equilibrium, of SigLIP; {} for another loss.

    It has a minimum if a negative scores above some positive, and negatives less than positives in the mean.
    """
    first = samples[0]
    bias = _bias(first, scale) if bias is None else bias
    if bias is None:
        return {}
    signs = [
        each.positive.to(each.scores) - each.negative.to(each.scores) for each in samples
    ]  # 0 where a pair takes no part
    if not _alike(-signs[0] * (-signs[0] * (scale * first.scores + bias)).sigmoid(), first.weights):
        return {}

    def bend(place: Place) -> tuple[list[float], list[list[float]]]:
        sums = torch.zeros(5, dtype=torch.float64)
        for each, sign in zip(samples, signs, strict=True):
            wrong = (sign * (-place[0] * each.scores - place[1])).sigmoid()  # the part that is left of the loss
            push, bent = -sign * wrong, sign.abs() * wrong * (1 - wrong)
            curved = bent * each.scores
            made = (push * each.scores, push, curved * each.scores, curved, bent)
            sums += torch.stack([part.sum(dtype=torch.float64) for part in made]) / (len(each.scores) * len(samples))
        by_scale, by_bias, both_scale, mixed, both_bias = sums.tolist()
        return [by_scale, by_bias], [[both_scale, mixed], [mixed, both_bias]]

    positive = torch.cat([each.scores[each.positive] for each in samples])
    negative = torch.cat([each.scores[each.negative] for each in samples])
    found = {"scale_slope": bend((scale, bias))[0][0], "bias": bias}
    mixed = bool(positive.min() + max(each.rounding for each in samples) < negative.max())
    there = None
    if mixed and bool(positive.mean() > negative.mean()):
        there = _least(bend, near if near is not None and len(near) > 1 else (scale, bias))
    if there is not None:
        found |= {"equilibrium_scale": there[0]} | ({"equilibrium_bias": there[1]} if there[0] <= CLIP else {})
    return found


def _alike(closed: Tensor, weights: Tensor) -> bool:
    """Whether weights are those of a closed form, up to a factor."""
    size = float((closed.square().sum() * weights.square().sum()).sqrt())
    return size > 0 and float((closed * weights).sum()) >= SAME_FORM * size


def _bias(sample: _Sample, scale: float) -> float | None:
    """Find the bias of a sigmoid whose ratio of push to pull is that of the weights."""
    push, pull = float(sample.weights.clamp(min=0).sum()), float((-sample.weights).clamp(min=0).sum())
    if not (push > 0 and pull > 0):
        return None
    wanted, low, high = math.log(push / pull), -BIASES, BIASES
    negative, positive = (scale * sample.scores[mask] for mask in (sample.negative, sample.positive))
    while high - low > NARROW_BIAS:
        middle = (low + high) / 2
        pushed, pulled = (negative + middle).sigmoid().sum(), (-positive - middle).sigmoid().sum()
        low, high = (middle, high) if float((pushed / pulled).log()) < wanted else (low, middle)
    return (low + high) / 2


Bend = Callable[[Place], tuple[list[float], list[list[float]]]]


def _least(bend: Bend, start: Place, bent: tuple[list[float], list[list[float]]] | None = None) -> Place | None:
    """Find the minimum of a convex function that has one, by Newton's method; None beyond the reach of scales.

    A step is shortened until the slope along it has not turned by much, which suffices for a convex function. `bend`
    has gradient and curvature at a place, `bent` those at the start, where they are known.
    """
    here, (slope, curvature) = start, bent or bend(start)
    for _ in range(MOST_STEPS):
        step = _newton(slope, curvature)
        if max(abs(move) / max(1.0, abs(each)) for each, move in zip(here, step, strict=True)) <= CONVERGED:
            there = tuple(each + move for each, move in zip(here, step, strict=True))
            return there if 0 < there[0] <= CLIP * BEYOND_CLIP else None
        if here[0] > CLIP * BEYOND_CLIP and slope[0] < 0 and len(here) == 1:
            return None
        limits = [STEP_REACH * max(1.0, abs(each)) / abs(move) for each, move in zip(here, step, strict=True) if move]
        limits += [(1 - LEAST_PART) * here[0] / -step[0]] if step[0] < 0 else []
        part, before = min([1.0, *limits]), sum(a * b for a, b in zip(slope, step, strict=True))
        for _ in range(MOST_TRIALS):
            there = tuple(each + part * move for each, move in zip(here, step, strict=True))
            slope, curvature = bend(there)
            after = sum(a * b for a, b in zip(slope, step, strict=True))
            if after <= -OVERSHOT * before:
                break
            part *= max(before / (before - after), LEAST_PART)
        here = there
    return None


def _newton(slope: list[float], curvature: list[list[float]]) -> list[float]:
    """Make a step of Newton's method, with enough curvature added that rounding makes none of it 0."""
    tiny = torch.finfo(torch.float64)
    if len(slope) == 1:
        return [-slope[0] / max(curvature[0][0], tiny.tiny)]
    (a, b), (_, c) = curvature
    more = tiny.eps * (a + c) + tiny.tiny
    a, c = a + more, c + more
    size = max(a * c - b * b, tiny.tiny)
    return [(b * slope[1] - c * slope[0]) / size, (b * slope[0] - a * slope[1]) / size]


FORMS = {"softmax": _softmax, "sigmoid": _sigmoid}
