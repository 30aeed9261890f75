"""Identify the built-in loss that unknown code computes, by its weights at random scores.

The scores are not separated and cover the range of the metric, so that losses that agree on trained embeddings differ.
The weights must equal a closed form in float64, up to one factor per batch.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from cocos import losses
from cocos.embeddings.scores import Pairs
from cocos.losses.base import Loss

# Largest summed difference of the weights of a query, relative to the largest sum of a query. Rounding is below 1e-9.
SAME_WEIGHTS = 1e-6
SCALES = (1e-3, 1e5)  # scale times standard deviation of the scores; outside, a softmax is a maximum or a mean
STARTS = (1.0, 2.0, 0.5)  # of the fitted scale, in estimated scales: two directions have a biased estimate
Parameters = Callable[[Sequence[float]], dict[str, float]]
SOFTMAXES = ("ntxent", "supcon", "dcl", "mil_nce")
# Built-in loss of the same form for distances.
TRIPLETS = {
    "euclidean": "triplet_euclidean",
    "chord": "triplet_euclidean",
    "squared_euclidean": "triplet_squared",
}
NOTHING = 1e-9  # largest margin or bias that is a rounding error
DIGITS = (6, 17)  # 0.07 rather than 0.0700000000001


@dataclass(frozen=True)
class Probe:
    """Pairs with the weights (Q, C) and the summed value of a loss, in float64 on the CPU."""

    pairs: Pairs
    weights: Tensor
    value: float


@dataclass(frozen=True)
class Recognised:
    """A built-in loss with the weights of unknown code, up to one factor per batch.

    Args:
        loss: the built-in loss.
        both: whether the weights of both directions are added up.
        symmetric: whether the weights of (i, j) and (j, i) in a labelled set are averaged.
    """

    loss: Loss
    both: bool = False
    symmetric: bool = False

    def weight(self, pairs: Pairs) -> Tensor:
        """Return the weights (Q, C)."""
        weights = self.loss.weight(pairs)
        if self.both:
            weights = weights + self.loss.weight(transpose(pairs)).T
        return (weights + weights.T) / 2 if self.symmetric else weights

    def explains(self, probe: Probe) -> bool:
        """Return whether these are its weights, up to a positive factor."""
        return difference(self.weight(probe.pairs), probe.weights) <= SAME_WEIGHTS


def difference(form: Tensor, weights: Tensor) -> float:
    """Return the largest summed difference per query after fitting one factor, relative to the largest sum."""
    total = weights.abs().sum(dim=1).max()
    if not bool(form.isfinite().all()) or not float(total):
        return 0.0 if not form.any() and not float(total) else math.inf
    factor = (weights * form).sum() / form.square().sum().clamp(min=1e-300)
    return math.inf if float(factor) <= 0 else float((weights - factor * form).abs().sum(dim=1).max() / total)


def transpose(pairs: Pairs) -> Pairs:
    """Return the pairs of the other direction."""
    return Pairs(pairs.scores.T, pairs.positive.T, pairs.negative.T)


def plain(pairs: Pairs, weights: Tensor, value: Tensor) -> Probe:
    """Return a probe of scores and masks alone."""
    masks = pairs.positive.cpu(), pairs.negative.cpu()
    pairs = Pairs(pairs.scores.detach().cpu().double(), *masks)
    return Probe(pairs, torch.where(masks[0] | masks[1], weights.cpu(), 0).double(), float(value.sum()))


def recognise(probes: Sequence[Probe], batch: Probe, metric: str, *, symmetric: bool = False) -> Recognised | None:
    """Return the built-in loss with these weights, or None.

    Args:
        probes: random pairs, at least one.
        batch: a given batch, which only confirms: all of its weights may be 0.
        metric: of the scores.
        symmetric: the weights of (i, j) and (j, i) are averaged.
    """
    for candidate in candidates(probes[0], metric, symmetric=symmetric):
        if all(candidate.explains(probe) for probe in [*probes, batch]):
            return candidate
    return None


def candidates(probe: Probe, metric: str, *, symmetric: bool) -> Iterator[Recognised]:
    """Yield the built-in losses that explain a probe, with fitted parameters."""
    pairs = probe.pairs
    push = torch.where(pairs.negative, probe.weights, 0).clamp(min=0)
    if not push.any():
        return
    eye = torch.eye(*pairs.scores.shape, dtype=torch.bool)
    matched = pairs.scores.shape[0] == pairs.scores.shape[1] and torch.equal(pairs.positive, eye)
    directions = (False, True) if matched and bool((pairs.positive | pairs.negative).all()) else (False,)
    if not symmetric:
        yield from hinges(probe, metric, directions)
    scale = slope(pairs.scores, push)
    bounds = [math.log(bound / float(pairs.scores.std())) for bound in SCALES]
    if not scale > 0 or not bounds[0] < math.log(scale) < bounds[1]:
        return
    fits: list[tuple[Recognised, Parameters, Sequence[Sequence[float]]]] = [
        (Recognised(losses.load(name), both, symmetric=symmetric), temperature, [[0.0]])
        for both in directions
        for name in SOFTMAXES
    ]
    margins = [[0.0, 0.2 * float(pairs.scores.max() - pairs.scores.min())], [0.0, 0.0]]
    # If all negatives have small probabilities the slope is the scale; the bias is unknown.
    biases = [[0.0, -0.5], [0.0, 0.0], [0.5, -1.0]]
    fits += [
        (Recognised(losses.load("cosface"), symmetric=symmetric), scale_and_margin, margins),
        (Recognised(losses.load("siglip"), symmetric=symmetric), scale_and_bias, biases),
    ]
    for form, parameters, starts in fits:
        recognised = fit(form, parameters, starts, scale, bounds, probe)
        if recognised is not None:
            yield recognised


def temperature(x: Sequence[float]) -> dict[str, float]:
    """Return the temperature for the logarithm of the scale."""
    return {"temperature": math.exp(-x[0])}


def scale_and_margin(x: Sequence[float]) -> dict[str, float]:
    """Return scale and margin for the logarithm of the scale and the margin."""
    return {"scale": math.exp(x[0]), "margin": max(x[1], 0.0)}


def scale_and_bias(x: Sequence[float]) -> dict[str, float]:
    """Return scale and bias for the logarithm of the scale and the score at which the logit is 0, with a minus."""
    return {"scale": math.exp(x[0]), "bias": x[1] * math.exp(x[0])}


def fit(
    form: Recognised,
    parameters: Parameters,
    starts: Sequence[Sequence[float]],
    scale: float,
    bounds: Sequence[float],
    probe: Probe,
) -> Recognised | None:
    """Return the form with parameters fitted by least squares from several starts, or None if it differs.

    Args:
        form: a loss with any parameters.
        parameters: of the loss, from the logarithm of the scale and a further number.
        starts: logarithm of the scale relative to the estimate, and the further number.
        scale: the estimate.
        bounds: of the logarithm of the scale.
        probe: with the weights.
    """
    from scipy.optimize import least_squares  # not loaded by a count of a built-in loss

    largest = float(probe.weights.abs().max())

    def load(x: Sequence[float], digits: int = DIGITS[-1]) -> Recognised:
        named = {name: float(f"{value:.{digits}g}") for name, value in parameters(x).items()}
        named = {name: 0.0 if abs(value) < NOTHING else value for name, value in named.items()}
        return replace(form, loss=losses.load(form.loss.name, named))

    def residuals(x: np.ndarray) -> np.ndarray:
        weights = load(x).weight(probe.pairs)
        factor = (probe.weights * weights).sum() / weights.square().sum().clamp(min=1e-300)
        return ((probe.weights - factor * weights) / largest).nan_to_num(1e3, 1e3, 1e3).flatten().numpy()

    for start in starts:
        for factor in STARTS if form.both or len(start) > 1 else STARTS[:1]:
            x = np.array([math.log(scale * factor) + start[0], *start[1:]])
            x[0] = min(max(x[0], bounds[0]), bounds[1])
            limits = ([bounds[0], -math.inf][: len(x)], [bounds[1], math.inf][: len(x)])
            x = least_squares(residuals, x, bounds=limits, xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=60).x
            for digits in DIGITS:
                if (recognised := load(x, digits)).explains(probe):
                    return recognised
    return None


def slope(scores: Tensor, push: Tensor) -> float:
    """Return the slope of log push over score within the queries, weighted by the push: the scale of a softmax."""
    share = push / push.sum(dim=1, keepdim=True).clamp(min=1e-300)
    height = torch.where(push > 0, push, 1).log()
    centred, rise = (values - (share * values).sum(dim=1, keepdim=True) for values in (scores, height))
    return float((share * centred * rise).sum() / (share * centred.square()).sum().clamp(min=1e-300))


def hinges(probe: Probe, metric: str, directions: Sequence[bool]) -> Iterator[Recognised]:
    """Yield triplet losses with the margin that follows from the value.

    A sum of hinges is linear in its active scores, Σ w s + margin · Σ_{w > 0} w.
    """
    pairs, weights = probe.pairs, probe.weights
    push = torch.where(pairs.negative, weights, 0).clamp(min=0).sum()
    margin = float((probe.value - (weights * pairs.scores).sum()) / push)
    if not 0 <= margin < math.inf:
        return
    for name in ("triplet", "triplet_sh"):
        built_in = TRIPLETS.get(metric, name) if name == "triplet" else name
        for both in directions:
            for wrapper in ("{}", "hardest_positive({})"):
                for digits in DIGITS:
                    loss = losses.load(wrapper.format(built_in), margin=float(f"{margin:.{digits}g}"))
                    recognised = Recognised(loss, both)
                    if recognised.explains(probe):
                        yield recognised
                        break
