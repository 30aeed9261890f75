"""Where a learned temperature, and the bias beside it, settle on scores that stay as they are: dL/dscale = 0."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor

from cocos import losses
from cocos.base import ranges
from cocos.base.errors import InputError
from cocos.base.ranges import number
from cocos.counting.sharpness import REACH, bracketed, changed, refine
from cocos.embeddings.scores import Pairs

__all__ = ["CLIP", "Equilibrium", "derivatives", "solve"]

CLIP = 100.0  # largest scale that CLIP's training allows; open_clip clips the scale of SigLIP there too
BEYOND_CLIP = 10.0  # ratio of the largest scale that is tried to the clip
BIAS_REACH = 1e4  # largest distance of a bias from its first value
SCALE_POWERS = {"temperature": -1, "scale": 1}  # parameters that divide (-1) or multiply (1) the scores
ROUNDINGS = (
    16  # roundings of the dtype, in parts of the sum of the absolute terms, up to which a derivative counts as 0
)
ROOT_WIDTH = 1e-9  # width of the last bracket of a logarithm of a scale, or a bias
# Mean derivative with respect to the scale, and to the bias if there is one, of a loss.
Means = Callable[[losses.Loss], Sequence[float]]
Clip = Annotated[
    float, number("the largest scale that training allows: finite and above 0", lambda value: 0 < value < math.inf)
]


@dataclass(frozen=True)
class Equilibrium:
    """The scale, and the bias, at which the derivative of a mean loss is 0.

    `state` is `settles`; `clipped`, an equilibrium beyond the clip; `grows`, none, for the loss falls with the scale
    without end; `falls`, none, for the loss grows with the scale from 0 on; or `flat`, no effect.
    """

    loss: losses.Loss | None  # at the equilibrium, or at the clip if that comes first; None if it falls or is flat
    state: str
    scale: float | None  # 1/temperature at the equilibrium
    bias: float | None  # of `loss`

    @property
    def temperature(self) -> float | None:
        """1/scale at the equilibrium; None without one."""
        return None if self.scale is None else 1 / self.scale


def names(loss: losses.Loss) -> tuple[str, str | None]:
    """Return the parameter that multiplies or divides the scores, and the bias of the same term, if it has one."""
    scales = [name for name in loss.parameters if name.rpartition(".")[2] in SCALE_POWERS]
    if len(scales) != 1:
        problem = "several temperatures or scales" if scales else "no temperature or scale"
        raise InputError(
            f"loss {loss.name}: {problem} (parameters: {', '.join(loss.parameters) or 'none'}), expected one"
        )
    bias = f"{scales[0].rpartition('.')[0]}.bias".lstrip(".")
    return scales[0], bias if bias in loss.parameters else None


def values(loss: losses.Loss) -> tuple[float, float | None]:
    """Return the scale, 1/temperature, and the bias of a loss; None without one."""
    (name, bias), parameters = names(loss), loss.parameters
    scale = float(parameters[name]) ** SCALE_POWERS[name.rpartition(".")[2]]
    return scale, None if bias is None else float(parameters[bias])


def at(loss: losses.Loss, scale: float, bias: float | None = None) -> losses.Loss:
    """Return the same loss with another scale, and another bias unless it is None."""
    name, bias_name = names(loss)
    loss = changed(loss, name, scale ** SCALE_POWERS[name.rpartition(".")[2]])
    return loss if bias is None or bias_name is None else changed(loss, bias_name, bias)


def check(loss: losses.Loss, pairs: Pairs) -> None:
    """Refuse a loss that is not a function of scale * score + bias: its weights do not give the derivatives."""
    scale, bias = values(loss)
    tolerance = torch.finfo(pairs.scores.dtype).eps ** 0.5
    same = [at(loss, scale / 2)(pairs.with_scores(2 * pairs.scores))]
    if bias is not None:
        same.append(at(loss, scale, bias - scale)(pairs.with_scores(pairs.scores + 1)))
    loss_values = losses.as_loss(loss)(pairs)
    if not all(torch.allclose(loss_values, other, tolerance, tolerance, equal_nan=True) for other in same):
        function = f"it is not a function of scale * score{' + bias' if bias is not None else ''} alone"
        raise InputError(f"loss {loss.name}: {function}, so its scale has no equilibrium; take a loss like ntxent")


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
    return of_weights(loss.weight(pairs), pairs, *values(loss))


def of_weights(weight: Tensor, pairs: Pairs, scale: float, bias: float | None) -> Tensor:
    """Compute `derivatives` from known weights, (Q, 1), or (Q, 2) with a bias; 0 within rounding."""
    scores = torch.where(pairs.positive | pairs.negative, pairs.scores, 0)
    columns = []
    for terms in [weight * scores] + ([] if bias is None else [weight]):
        total, error = terms.sum(dim=1), ROUNDINGS * torch.finfo(terms.dtype).eps * terms.abs().sum(dim=1)
        columns.append(torch.where(total.abs() > error, total, 0))
    return torch.stack(columns, dim=1) / scale


def find_root(off: Callable[[float], float | None], start: float, ends: tuple[float, float]) -> float | None:
    """Return the place at which a function turns from below 0 to above 0, sought from a start; None without one."""
    bracket = bracketed(off, min(max(start, ends[0]), ends[1]), ends, 0.0, 1)
    if bracket is None:
        return None
    low, high = sorted(bracket)
    return refine(off, (low, high), 0.0, ROOT_WIDTH) if (off(low) or 0) <= 0 <= (off(high) or 0) else None


def even_bias(mean_at: Means, loss: losses.Loss, scale: float | None = None, near: float | None = None) -> float | None:
    """Return the bias at which push and pull are equal, sought from a near one; None without a bias.

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
    root = find_root(lambda place: mean_at(at(loss, scale, place))[1] or None, bias, ends)
    return bias if root is None else root


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
        slope = float(mean_at(at(loss, math.exp(place), near))[0])
        return slope if slope and math.isfinite(slope) else None

    start = math.log(scale)
    ends = start - math.log(REACH), max(start, math.log(clip)) + math.log(BEYOND_CLIP)
    place = find_root(off, start, ends)
    if place is None:
        signs = [slope for slope in map(off, (start, ends[0], math.log(clip))) if slope is not None]
        if not signs or signs[0] > 0:
            return Equilibrium(None, "falls" if signs else "flat", None, None)
    settled = None if place is None else math.exp(place)
    state = "grows" if settled is None else "settles" if settled <= clip else "clipped"
    trained = min(settled or clip, clip)
    bias = even_bias(mean_at, loss, trained, near)
    return Equilibrium(at(loss, trained, bias), state, settled, bias)


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
        >>> equilibrium = cocos.equilibrium.solve("ntxent", pairs)
        >>> equilibrium.state, round(equilibrium.scale, 3)
        ('settles', 4.196)
        >>> cocos.equilibrium.solve("ntxent", cocos.Pairs(pairs.scores[:1], positive[:1])).state
        'grows'
    """
    detached = [part.with_scores(part.scores.detach()) for part in ([pairs] if isinstance(pairs, Pairs) else pairs)]
    if not detached:
        raise InputError("pairs: none were given")
    chosen = losses.load(loss) if isinstance(loss, str) else losses.as_loss(loss)
    check(chosen, detached[0])

    def mean_at(other: losses.Loss) -> list[float]:
        means = torch.stack([derivatives(other, part).double().mean(dim=0) for part in detached])
        return means.mean(dim=0).tolist()

    return search(mean_at, chosen, clip=clip)
