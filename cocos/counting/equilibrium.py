"""Where a learned temperature, and the bias beside it, settle on scores that stay as they are: dL/dscale = 0."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any

import torch
from torch import Tensor

from cocos import losses
from cocos.base import ranges
from cocos.base.errors import InputError
from cocos.base.ranges import number
from cocos.counting import weights
from cocos.counting.sharpness import REACH, bracketed, changed, refined
from cocos.embeddings.scores import Pairs

__all__ = ["CLIP", "Equilibrium", "derivatives", "solve"]

# Largest scale that CLIP's training allows; open_clip clips that of SigLIP there too.
CLIP = 100.0
# Parameters that multiply or divide the scores: 1 for a scale, -1 for a temperature.
SCALE_POWERS = {"temperature": -1, "scale": 1}
# Roundings of the dtype, in parts of the sum of the absolute terms, up to which a derivative counts as 0.
ROUNDINGS = 16
# Part of the smaller offset at the ends of a bracket that is small enough.
SMALL_OFFSET = 1e-8
# Largest distance of two places between which a function has turned: a place is a logarithm of a scale, or a bias.
WIDEST_TURN = 0.01
# Ratio of the largest scale that is tried to the clip.
BEYOND_CLIP = 10.0
# Largest distance of a bias from its first value.
BIAS_REACH = 1e4
# Mean derivative with respect to the scale, and to the bias where there is one, of a loss.
Means = Callable[[losses.Loss], Sequence[float]]
# Largest scale of a training.
Clip = Annotated[
    float, number("the largest scale that training allows: finite and above 0", lambda value: 0 < value < math.inf)
]


@dataclass(frozen=True)
class Equilibrium:
    """The scale, and the bias, at which the derivative of a mean loss is 0.

    Args:
        loss: the loss where training would hold it: at the equilibrium, or at the clip if that comes first; None where
            the scale falls or has no effect.
        state: `settles`; `clipped`, an equilibrium beyond the clip; `grows`, none, for the loss falls with the scale
            without end; `falls`, none, for the loss grows with the scale from 0 on; or `flat`, no effect.
        scale: 1/temperature at the equilibrium; None without one.
        bias: of `loss`; None where it has none.
    """

    loss: losses.Loss | None
    state: str
    scale: float | None
    bias: float | None

    @property
    def temperature(self) -> float | None:
        """1/scale at the equilibrium; None without one."""
        return None if self.scale is None else 1 / self.scale


def names(loss: losses.Loss) -> tuple[str, str | None]:
    """Names of the parameter that multiplies or divides the scores, and of the bias beside it, if there is one."""
    every = loss.parameters
    found = [name for name in every if name.rpartition(".")[2] in SCALE_POWERS]
    if len(found) != 1:
        known = ", ".join(every) or "none that is known"
        raise InputError(
            f"loss {loss.name}: {'several parameters multiply' if found else 'no parameter multiplies'} its "
            f"scores (its parameters: {known}); an equilibrium is of one temperature or scale"
        )
    bias = f"{found[0].rpartition('.')[0]}.bias".lstrip(".")
    return found[0], bias if bias in every else None


def values(loss: losses.Loss) -> tuple[float, float | None]:
    """Scale, 1/temperature, and bias of a loss; None without one."""
    name, bias = names(loss)
    every = loss.parameters
    return float(every[name]) ** SCALE_POWERS[name.rpartition(".")[2]], None if bias is None else float(every[bias])


def at(loss: losses.Loss, scale: float, bias: float | None = None) -> losses.Loss:
    """The same loss with another scale, and another bias unless it is None."""
    name, beside = names(loss)
    made = changed(loss, name, scale ** SCALE_POWERS[name.rpartition(".")[2]])
    return made if bias is None or beside is None else changed(made, beside, bias)


def check(loss: losses.Loss, pairs: Pairs) -> None:
    """Refuse a loss that is no function of scale * score + bias, so that its weights do not give the derivatives."""
    scale, bias = values(loss)
    exact = torch.finfo(pairs.scores.dtype).eps ** 0.5
    there = losses.as_loss(loss)(pairs)
    others = [at(loss, scale / 2)(pairs.with_scores(2 * pairs.scores))]
    if bias is not None:
        others.append(at(loss, scale, bias - scale)(pairs.with_scores(pairs.scores + 1)))
    if not all(torch.allclose(there, other, rtol=exact, atol=exact, equal_nan=True) for other in others):
        raise InputError(
            f"loss {loss.name}: it is no function of scale * score{' + bias' if bias is not None else ''} "
            "alone (a margin or a curve comes between), so its scale has no equilibrium here; take a loss like ntxent"
        )


def derivatives(loss: losses.Loss, pairs: Pairs) -> Tensor:
    r"""Derivatives of the summed loss with respect to its scale and, if it has one, its bias: (Q, 1) or (Q, 2).

    A loss that reads λ s + b has :math:`\partial L / \partial \lambda = \sum_{ij} w_{ij} s_{ij} / \lambda` and
    :math:`\partial L / \partial b = \sum_{ij} w_{ij} / \lambda`, with w its weights. The terms of each query are its
    row; where a loss couples queries only their sum is a derivative. For NT-Xent with one positive a row is
    :math:`\mathrm{E}_\pi[s] - s_p`, π being the softmax over the positive and the negatives.

    Args:
        loss: of `scale * score + bias`, see `check`.
        pairs: scores and masks.

    Examples:
        Two equal candidates: half of the probability is on the negative, which scores 0.4 less than the positive.

        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.4]]), torch.tensor([[True, False]]))
        >>> loss = cocos.losses.load("ntxent", {"temperature": 0.4 / 0.6931472})
        >>> cocos.equilibrium.derivatives(loss, pairs)
        tensor([[-0.1333]])
    """
    return of_weights(weights.of(loss, pairs), pairs, *values(loss))


def of_weights(weight: Tensor, pairs: Pairs, scale: float, bias: float | None) -> Tensor:
    """Compute `derivatives` from known weights, (Q, 1), or (Q, 2) with a bias; 0 within rounding."""
    scores = torch.where(pairs.positive | pairs.negative, pairs.scores, 0)
    found = []
    for terms in [weight * scores] + ([] if bias is None else [weight]):
        whole, error = terms.sum(dim=1), ROUNDINGS * torch.finfo(terms.dtype).eps * terms.abs().sum(dim=1)
        found.append(torch.where(whole.abs() > error, whole, 0))
    return torch.stack(found, dim=1) / scale


def _root(off: Callable[[float], float | None], start: float, ends: tuple[float, float]) -> float | None:
    """Place at which a function turns from below 0 to above 0, sought from a start between two ends; None without.

    It turns between two places that are near each other, or where its offset is small, between two that are not.
    """
    tried: dict[float, float] = {}

    def noted(place: float) -> float | None:
        found = off(place)
        if found is not None:
            tried[place] = found
        return found

    bracket = bracketed(noted, min(max(start, ends[0]), ends[1]), ends, 0.0, 1)
    enough = 0.0 if bracket is None else SMALL_OFFSET * min(abs(bracket[1]), abs(bracket[3]))
    if bracket is not None:
        refined(noted, bracket, enough)
    turns = [(b - a, a, b) for a, b in pairwise(sorted(tried)) if tried[a] < 0 < tried[b]]
    width, *turn = min(turns, default=(math.inf,))
    place = min(turn, key=lambda place: abs(tried[place]), default=None)
    return place if place is not None and (width < WIDEST_TURN or abs(tried[place]) <= enough) else None


def even_bias(mean_at: Means, loss: losses.Loss, scale: float | None = None, near: float | None = None) -> float | None:
    """Bias at which push and pull are equal, sought from a near one; None without a bias.

    Args:
        mean_at: mean derivatives with respect to scale and bias, at a loss.
        loss: the loss.
        scale: None: its own.
        near: None: its own.
    """
    own, bias = values(loss)
    if bias is None:
        return None
    bias, scale = bias if near is None else near, own if scale is None else scale
    ends = bias - BIAS_REACH, bias + BIAS_REACH
    found = _root(lambda place: mean_at(at(loss, scale, place))[1] or None, bias, ends)
    return bias if found is None else found


def search(mean_at: Means, loss: losses.Loss, *, clip: float = CLIP) -> Equilibrium:
    """Search the scale, and the bias, at which mean derivatives, as functions of the loss, are 0.

    A softmax or sigmoid of scores is convex in its scale and bias, so that there is one equilibrium or none. Of another
    loss it is one to which the scale moves from its own value. It is sought from 1e-4 of the loss's own scale up to ten
    times the clip.

    Args:
        mean_at: mean derivatives with respect to scale and bias, at a loss.
        loss: its own values are where the search starts.
        clip: largest scale that training allows; the bias is that at the scale where training would hold it.
    """
    scale, near = values(loss)

    def off(place: float) -> float | None:
        nonlocal near
        near = even_bias(mean_at, loss, math.exp(place), near)
        found = float(mean_at(at(loss, math.exp(place), near))[0])
        return found if found and math.isfinite(found) else None

    def held(state: str, scale: float | None) -> Equilibrium:
        there = min(scale or clip, clip)
        bias = even_bias(mean_at, loss, there, near)
        return Equilibrium(at(loss, there, bias), state, scale, bias)

    start = math.log(scale)
    ends = start - math.log(REACH), max(start, math.log(clip)) + math.log(BEYOND_CLIP)
    place = _root(off, start, ends)
    if place is not None:
        return held("settles" if math.exp(place) <= clip else "clipped", math.exp(place))
    signs = [each for each in map(off, (start, ends[0], math.log(clip))) if each is not None]
    if signs and signs[0] < 0:
        return held("grows", None)
    return Equilibrium(None, "falls" if signs else "flat", None, None)


@ranges.checked
def solve(loss: Any, pairs: Pairs | Sequence[Pairs], *, clip: Clip = CLIP) -> Equilibrium:
    r"""Find where a learned temperature, and bias, would settle if the scores stayed as they are.

    Gradient descent on the scale alone ends where :math:`\mathrm{mean}(\mathrm{E}_\pi[s] - s_p) = 0`: the expected
    score under the softmax equals that of the positive. Where every positive ranks first it never does, and the scale
    grows until it is clipped. With a bias, as in SigLIP, push and pull are equal as well.

    Args:
        loss: a loss of `scale * score + bias`, or its name.
        pairs: scores of a batch, or of several whose means count alike, such as both directions; no gradient flows
            through them.
        clip: largest scale that training allows; 100 is CLIP's.

    Raises:
        InputError: a loss that has no scale, or is no function of scale * score + bias; no pairs; or a clip that cannot
            be.

    Source: clip: Radford et al. 2021, arXiv:2103.00020, section 2.5; bias: Zhai et al. 2023, arXiv:2303.15343.

    Examples:
        The positive of the first query is ahead by 0.2, that of the second behind by 0.1. The scale settles where the
        first negative has a softmax probability half as large as the second: 1 + e^(0.2 λ) = 2 (1 + e^(-0.1 λ)).

        >>> positive = torch.tensor([[True, False], [True, False]])
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.6], [0.5, 0.6]]), positive)
        >>> found = cocos.equilibrium.solve("ntxent", pairs)
        >>> found.state, round(found.scale, 3)
        ('settles', 4.196)
        >>> cocos.equilibrium.solve("ntxent", cocos.Pairs(pairs.scores[:1], positive[:1])).state
        'grows'
    """
    given = [pairs] if isinstance(pairs, Pairs) else list(pairs)
    still = [each.with_scores(each.scores.detach()) for each in given]
    if not still:
        raise InputError("pairs: none were given")
    chosen = losses.load(loss) if isinstance(loss, str) else losses.as_loss(loss)
    check(chosen, still[0])

    def mean_at(other: losses.Loss) -> list[float]:
        means = torch.stack([derivatives(other, each).double().mean(dim=0) for each in still])
        return means.mean(dim=0).tolist()

    return search(mean_at, chosen, clip=clip)
