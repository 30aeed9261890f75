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

from cocos.embeddings.scores import Pairs
from cocos.losses import catalogue
from cocos.losses.base import Loss
from cocos.losses.combined import HardestPositive

# Largest summed difference of the weights of a query, relative to the largest sum of a query. Rounding is below 1e-9.
SAME_WEIGHTS = 1e-6
SCALES = (1e-3, 1e5)  # scale times standard deviation of the scores; outside, a softmax is a maximum or a mean
STARTS = (1.0, 2.0, 0.5)  # of the fitted scale, in estimated scales: two directions have a biased estimate
MAX_FITTED = 32  # queries and candidates of a fit if each pair has its own term
SOFTMAXES = ("ntxent", "supcon", "dcl", "mil_nce")
# Triplet loss of a metric; others read scores.
TRIPLETS = {"euclidean": "triplet_euclidean", "chord": "triplet_euclidean", "squared_euclidean": "triplet_squared"}
NOTHING = 1e-9  # largest margin or bias that is a rounding error
DIGITS = (6, 17)  # 0.07 rather than 0.0700000000001


@dataclass(frozen=True)
class Probe:
    """Pairs with the weights (Q, C) and the summed value of a loss, in float64 on the CPU."""

    pairs: Pairs
    weights: Tensor
    value: float

    def corner(self, size: int) -> "Probe":
        """Return the first queries and candidates, for losses in which each pair has its own term."""
        pairs, part = self.pairs, (slice(size), slice(size))
        return Probe(Pairs(pairs.scores[part], pairs.positive[part], pairs.negative[part]), self.weights[part], 0.0)


@dataclass(frozen=True)
class Recognised:
    """A built-in loss with the weights of unknown code, up to one factor per batch.

    Args:
        loss: the built-in loss.
        both_directions: whether the weights of both directions are added up.
        symmetric: whether the weights of (i, j) and (j, i) in a labelled set are averaged.
    """

    loss: Loss
    both_directions: bool = False
    symmetric: bool = False

    def weight(self, pairs: Pairs) -> Tensor:
        """Return the weights (Q, C)."""
        weights = self.loss.weight(pairs)
        if self.both_directions:
            transposed = Pairs(pairs.scores.T, pairs.positive.T, pairs.negative.T)
            weights = weights + self.loss.weight(transposed).T
        return (weights + weights.T) / 2 if self.symmetric else weights

    def explains(self, probe: Probe) -> bool:
        """Return whether these are its weights, up to a positive factor."""
        return difference(self.weight(probe.pairs), probe.weights) <= SAME_WEIGHTS


Form = Callable[..., Recognised]  # of the scale and a further number


def difference(form: Tensor, weights: Tensor) -> float:
    """Return the largest summed difference per query after fitting one factor, relative to the largest sum."""
    total = weights.abs().sum(dim=1).max()
    if not bool(form.isfinite().all()) or not float(total):
        return 0.0 if not form.any() and not float(total) else math.inf
    factor = (weights * form).sum() / form.square().sum().clamp(min=1e-300)
    return math.inf if float(factor) <= 0 else float((weights - factor * form).abs().sum(dim=1).max() / total)


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
    """Yield built-in losses with parameters fitted to a probe, which need not explain it."""
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
    bounds = [bound / float(pairs.scores.std()) for bound in SCALES]
    if not bounds[0] < scale < bounds[1]:
        return
    for both_directions in directions:
        for name in SOFTMAXES:

            def softmax(scale: float, name: str = name, both_directions: bool = both_directions) -> Recognised:
                return Recognised(catalogue.class_in_file(name)(temperature=1 / scale), both_directions, symmetric)

            starts = [[scale * factor] for factor in (STARTS if both_directions or symmetric else STARTS[:1])]
            yield from fit(softmax, starts, bounds, probe)

    def cosface(scale: float, margin: float) -> Recognised:
        return Recognised(catalogue.class_in_file("cosface")(scale, max(margin, 0.0)), symmetric=symmetric)

    def siglip(scale: float, threshold: float) -> Recognised:  # the score at which the logit is 0
        return Recognised(catalogue.class_in_file("siglip")(scale, -threshold * scale), symmetric=symmetric)

    margin = 0.2 * float(pairs.scores.max() - pairs.scores.min())
    yield from fit(cosface, [[scale * factor, start] for start in (margin, 0.0) for factor in STARTS], bounds, probe)
    # If all negatives have small probabilities the slope is the scale; the bias is unknown.
    starts = [[scale * step * factor, shift] for step, shift in ((1, 0.5), (1, 0.0), (1.6, 1.0)) for factor in STARTS]
    yield from fit(siglip, starts, bounds, probe.corner(MAX_FITTED))


def fit(form: Form, starts: Sequence[Sequence[float]], bounds: Sequence[float], probe: Probe) -> Iterator[Recognised]:
    """Yield the form with parameters fitted by least squares from several starts if it explains the probe.

    Args:
        form: a loss of the scale and perhaps a further number.
        starts: of these parameters.
        bounds: of the scale.
        probe: with the weights.
    """
    from scipy.optimize import least_squares  # not loaded by a count of a built-in loss

    largest, logs = float(probe.weights.abs().max()), [math.log(bound) for bound in bounds]

    def residuals(x: np.ndarray) -> np.ndarray:
        weights = form(math.exp(x[0]), *x[1:]).weight(probe.pairs)
        factor = (probe.weights * weights).sum() / weights.square().sum().clamp(min=1e-300)
        return ((probe.weights - factor * weights) / largest).nan_to_num(1e3, 1e3, 1e3).flatten().numpy()

    for scale, *further in starts:
        x = [min(max(math.log(scale), logs[0]), logs[1]), *further]
        limits = [[logs[0], *(-math.inf for _ in further)], [logs[1], *(math.inf for _ in further)]]
        x = least_squares(residuals, x, bounds=limits, xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=60).x
        fitted = form(math.exp(x[0]), *x[1:])
        for digits in DIGITS:
            rounded = {name: float(f"{value:.{digits}g}") for name, value in fitted.loss.parameters.items()}
            rounded = {name: value if abs(value) > NOTHING else 0.0 for name, value in rounded.items()}
            recognised = replace(fitted, loss=type(fitted.loss)(**rounded))
            if recognised.explains(probe):
                yield recognised
                return


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
    for name in (TRIPLETS.get(metric, "triplet"), "triplet_sh"):
        for digits in DIGITS:
            loss = catalogue.class_in_file(name)(float(f"{margin:.{digits}g}"))
            for both_directions in directions:
                yield Recognised(loss, both_directions)
                yield Recognised(HardestPositive(loss), both_directions)
