"""Where the scale of a loss would settle on the scores of a call, and on which side of it the scale is."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from cocos import equilibrium, losses
from cocos.errors import InputError
from cocos.monitor._seen import Seen
from cocos.scores import Pairs
from cocos.weights import analytic as closed_form

# Maximum number of scores of one direction that are weighed again and again: queries are drawn from more.
SETTLED_SCORES = 2**16
# Queries of one direction at least, with more candidates than that too.
LEAST_SAMPLE = 16
# Cosine of the weights that arrived with those of the closed form, from which on the loss has this form.
SAME_FORM = 0.995
# Part of the smaller offset at the ends of a bracket that is small enough for a record.
SMALL = 1e-4
# Losses of the shelf that have the form of a kind.
FORMS = {"softmax": "ntxent", "sigmoid": "siglip"}
# Largest distance of a bias that is looked for from 0.
BIASES = 100.0


def of(seen: Sequence[Seen], generator: torch.Generator) -> dict[str, float]:
    """The slope at the scale of a record, the scale at which it is 0, and the biases of a sigmoid; {} for other losses.

    A loss is read as NT-Xent or SigLIP if its weights are those of this closed form, up to a factor. The derivative is
    taken at the bias at which push equals pull.

    Args:
        seen: directions of one call, or of several.
        generator: of the samples of queries, on the CPU.
    """
    known = [each for each in seen if each.kind in FORMS and each.scale and each.stretch]
    if not known or len(known) < len(seen) or len({each.kind for each in known}) > 1:
        return {}
    form, scale = losses.load(FORMS[str(known[0].kind)]), float(known[0].scale or 0)
    samples = [_sample(each, generator) for each in known]
    try:
        loss = _as_read(form, scale, known[0].bias, *samples[0])
        if loss is None:
            return {}
        return _at(loss, [pairs for pairs, _ in samples])
    except (InputError, ValueError):  # numbers beyond the range of the loss
        return {}


def _sample(seen: Seen, generator: torch.Generator) -> tuple[Pairs, Tensor]:
    """Cosines of some queries with their masks, and their weights, in float64 on the CPU."""
    queries, candidates = seen.scores.shape
    number = min(queries, max(LEAST_SAMPLE, SETTLED_SCORES // candidates))
    rows = torch.randperm(queries, generator=generator)[:number].sort().values if number < queries else slice(None)
    places = rows.to(seen.scores.device) if isinstance(rows, Tensor) else rows
    part = [each[places].detach() for each in (seen.scores, seen.positive, seen.negative, seen.weights)]
    scores, positive, negative, weights = (each.cpu() for each in part)
    taking = positive | negative
    cosines = torch.where(taking, scores.double() / float(seen.stretch or 1), 0)
    return Pairs(cosines, positive, negative), torch.where(taking, weights.double(), 0)


def _as_read(form: losses.TrainingLoss, scale: float, bias: float | None, pairs: Pairs, weights: Tensor) -> Any:
    """The loss of the shelf that has these weights, up to a factor; None without one."""
    loss = equilibrium.at(form, scale)
    if equilibrium.values(form)[1] is None and bool((pairs.positive.sum(dim=1) > 1).any()):
        return None  # the slope of a softmax is that of one positive
    if equilibrium.values(form)[1] is not None:
        bias = _bias(loss, pairs, weights) if bias is None else bias
        if bias is None:
            return None
        loss = equilibrium.at(form, scale, bias)
    closed = closed_form(loss, pairs)
    size = (closed.square().sum() * weights.square().sum()).sqrt()
    alike = float((closed * weights).sum() / size) if size > 0 else 0.0
    return loss if alike >= SAME_FORM else None


def _bias(loss: losses.TrainingLoss, pairs: Pairs, weights: Tensor) -> float | None:
    """The bias of a sigmoid whose push is to its pull as that of the weights."""
    push, pull = weights.clamp(min=0).sum(), (-weights).clamp(min=0).sum()
    if not (push > 0 and pull > 0):
        return None
    wanted, low, high = float((push / pull).log()), -BIASES, BIASES
    logits = equilibrium.values(loss)[0] * pairs.scores
    while high - low > 1e-5:
        middle = (low + high) / 2
        pushed = torch.where(pairs.negative, (logits + middle).sigmoid(), 0).sum()
        pulled = torch.where(pairs.positive, (-logits - middle).sigmoid(), 0).sum()
        low, high = (middle, high) if float((pushed / pulled).log()) < wanted else (low, middle)
    return (low + high) / 2


def _at(loss: Any, samples: Sequence[Pairs]) -> dict[str, float]:
    """Slope at the scale of the loss, the equilibrium, and the biases."""
    scale, bias = equilibrium.values(loss)
    slope = _softmax_slopes if bias is None else _sigmoid_slopes
    numbers = [each.positive.any(dim=1, keepdim=True) & each.negative.any(dim=1, keepdim=True) for each in samples]
    logits = [each.scores.masked_fill(~(each.positive | each.negative), -torch.inf) for each in samples]
    parts = [
        (each.scores, each.positive, mask, some) for each, mask, some in zip(samples, logits, numbers, strict=True)
    ]

    def slopes(scale: float, bias: float | None) -> list[float]:
        found = torch.stack([slope(*part, scale, bias or 0.0) for part in parts])
        return [float(each) for each in found.mean(dim=0)]

    state, there, held = equilibrium.settled(slopes, scale, bias, small=SMALL)
    even = equilibrium.even_bias(slopes, scale, bias, SMALL)
    known = {
        "scale_slope": slopes(scale, even)[0],
        "equilibrium_scale": there,
        "bias": bias,
        "equilibrium_bias": held if state == "settles" else None,
    }
    return {name: float(value) for name, value in known.items() if value is not None and math.isfinite(value)}


def _softmax_slopes(
    scores: Tensor, positive: Tensor, masked: Tensor, some: Tensor, scale: float, bias: float
) -> Tensor:
    """Mean derivative of NT-Xent with respect to its scale, (1,): E[s] - s_p, for one positive a query."""
    part = (scale * masked).softmax(dim=1)
    each = (part * scores).sum(dim=1) - torch.where(positive, scores, 0).sum(dim=1)
    return torch.where(some[:, 0], each, 0).mean()[None]


def _sigmoid_slopes(
    scores: Tensor, positive: Tensor, masked: Tensor, some: Tensor, scale: float, bias: float
) -> Tensor:
    """Mean derivatives of SigLIP with respect to its scale and bias, (2,)."""
    away = torch.where(masked > -torch.inf, (scale * scores + bias).sigmoid() - positive.to(scores.dtype), 0)
    return torch.stack([(away * scores).sum(), away.sum()]) / len(scores)
