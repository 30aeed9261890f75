"""The parameter that sets how sharply a loss picks its negatives, and its value for a wanted effective number."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass, replace
from numbers import Real
from typing import Annotated, Any, cast

from cocos import losses
from cocos.base import ranges
from cocos.base.errors import InputError, nearest
from cocos.base.ranges import Range, number
from cocos.counting import statistics
from cocos.embeddings.scores import Pairs

__all__ = ["Solution", "changed", "parameter_of", "search", "solve"]

# Parameters that set the sharpness, in the order in which they are looked for: unit, and 1 where more of it is softer.
SHARPNESS = {
    "temperature": ("score", 1),
    "scale": ("1 / score", -1),
    "la": ("1 / score", -1),
    "beta": ("1 / score", -1),
    "gamma": ("1 / score", -1),
    "alpha": ("1 / score", -1),
    "margin": ("score", 1),
    "neg_margin": ("score", -1),
    "t": ("1 / score", -1),
}
REACH = 1e4  # ratio of the largest value that is tried to the loss's own, and of that to the smallest
ZERO_START = 0.1  # units of score: where the search begins if the loss's own value is not above 0
FIRST_STEP = 0.2  # of the search, in the natural logarithm of the value; each further one is twice as long
SHORT = 0.01  # natural logarithm: a way to a refused value is not followed in shorter steps
NARROW = 1e-6  # natural logarithm: width of a bracket that is not narrowed further
CONSTANT = 1e-3  # largest relative difference of effective numbers that no parameter changes
REFINEMENTS = 40  # largest number of values that are tried inside the bracket

Offset = Callable[[float], float | None]
Effective = Annotated[
    float, number("an effective number of negatives: finite and at least 1", lambda value: 1 <= value < math.inf)
]
Bounds = Annotated[
    tuple[float, float],
    Range(
        "two finite values above 0, the smaller one first",
        lambda ends: len(ends) == 2 and 0 < ends[0] < ends[1] < math.inf,
    ),
]
Tolerance = Annotated[float, number("a part of the effective number between 0 and 1", lambda value: 0 < value < 1)]


@dataclass(frozen=True)
class Solution:
    """The value of a parameter at which a loss has a wanted effective number of negatives."""

    loss: losses.Loss  # with this value, to train with
    parameter: str
    value: float
    effective: float  # mean over the queries with any push
    bound: str  # `lower` or `upper` if the number is beyond a given bound, else empty
    tried: tuple[tuple[float, float], ...]  # value and effective number of every evaluation, in order


def parameter_of(loss: losses.Loss, parameter: str | None = None) -> str:
    """Return the parameter that sets the sharpness of a loss, as `loss.parameters` names it.

    Args:
        loss: a built-in loss, a loss of some negatives (`top_k(ntxent)`), or a sum.
        parameter: the intended one, if a loss has several.

    Examples:
        >>> cocos.sharpness.parameter_of(cocos.losses.load("circle"))
        'gamma'
    """
    parameters = loss.parameters.items()
    numbers = [name for name, value in parameters if isinstance(value, Real) and not isinstance(value, bool)]
    if parameter is not None:
        same = [name for name in numbers if parameter in {name, name.rpartition(".")[2]}]
        if len(same) != 1:
            raise InputError(nearest(f"parameter of {loss.name}", parameter, numbers))
        return same[0]
    sharp = [name for name in numbers if name.rpartition(".")[2] in SHARPNESS]
    if not sharp:
        expected = f"({', '.join(SHARPNESS)}); its parameters: {', '.join(numbers) or 'none'}"
        raise InputError(f"loss {loss.name}: it has no parameter that sets its sharpness {expected}")
    if len({name.rpartition(".")[0] for name in sharp}) > 1:
        expected = " or ".join(sharp)
        raise InputError(
            f"loss {loss.name}: several parameters set its sharpness; name the one to solve for: {expected}"
        )
    return min(sharp, key=lambda name: list(SHARPNESS).index(name.rpartition(".")[2]))


def changed(loss: losses.Loss, parameter: str, value: float) -> losses.Loss:
    """Return the same loss with another value of a parameter; a ValueError if the loss refuses it.

    Examples:
        >>> cocos.sharpness.changed(cocos.losses.load("ntxent"), "temperature", 0.5)
        NTXent(temperature=0.5)
    """
    if is_dataclass(loss) and parameter in loss.__dataclass_fields__:
        return cast(losses.Loss, replace(cast(Any, loss), **{parameter: value}))
    return losses.load(loss.name, loss.parameters | {parameter: value})


def search(
    mean_at: Callable[[losses.Loss], float],
    loss: losses.Loss,
    effective: float,
    *,
    parameter: str | None = None,
    bounds: tuple[float, float] | None = None,
    tolerance: float = 1e-3,
) -> Solution:
    """Search the value of the sharpness at which an effective number, as a function of the loss, is the wanted one.

    It starts at the loss's own value, with steps that double until the number is between two of them, and continues
    with Brent's method in the logarithms. If the number is not a monotone function of the value, the crossing nearest
    to the loss's own value is found; if it jumps over the wanted number, the nearer side.

    Args:
        mean_at: effective number of a loss; a ValueError if it cannot be computed.
        loss: see `parameter_of`.
        effective: see `solve`, like the other arguments.
        parameter: its name.
        bounds: of the value.
        tolerance: of the effective number.
    """
    name = parameter_of(loss, parameter)
    own = float(loss.parameters[name])
    own = own if own > 0 else ZERO_START
    low, high = (math.log(bound) for bound in bounds or (own / REACH, own * REACH))
    unrounded = dict(zip((math.log(own), low, high), (own, *(bounds or ())), strict=False))
    tried: dict[float, float] = {}
    refused: list[ValueError] = []

    def off(place: float) -> float | None:
        """Return the logarithm of the effective number over the wanted one; None without push, or if refused."""
        value = unrounded.get(place) or math.exp(place)
        try:
            number = mean_at(changed(loss, name, value))
        except ValueError as error:
            refused.append(error)
            return None
        if not number:
            return None
        tried[value] = number
        return math.log(number / effective)

    enough, start = math.log1p(tolerance), min(max(math.log(own), low), high)
    bracket = bracketed(off, start, (low, high), enough, SHARPNESS.get(name.rpartition(".")[2], ("", 1))[1])
    if bracket is not None:
        refine(off, bracket, enough, NARROW)
    if len(tried) < 2 and refused:
        raise InputError(f"{loss.name}: {refused[0]}")
    if not tried:
        raise InputError(f"{loss.name}: it pushes no negative of these scores, whatever the {name}")
    value, bound = min(tried, key=lambda value: abs(tried[value] - effective)), ""
    if bracket is None and abs(tried[value] / effective - 1) > tolerance:
        low, high = min(tried.values()), max(tried.values())
        reach = f"{low:.4g} to {high:.4g} effective negatives on these scores, for {name} from {min(tried):.3g} to"
        if bounds is None and high - low <= CONSTANT * high:
            constant = f"the effective number of {loss.name} is {high:.4g} at any {name} on these scores"
            raise InputError(f"effective {effective:g}: {constant}")
        if bounds is None:
            reach = f"{loss.name} has {reach} {max(tried):.3g}; take a number between"
            raise InputError(f"effective {effective:g}: {reach}")
        sides = {value: side for value, side in zip(bounds, ("lower", "upper"), strict=True) if value in tried}
        value = min(sides, key=lambda value: abs(tried[value] - effective), default=value)
        bound = sides.get(value, "")
    return Solution(changed(loss, name, value), name, value, tried[value], bound, tuple(tried.items()))


def bracketed(
    off: Offset, start: float, ends: tuple[float, float], enough: float, softer: int
) -> tuple[float, float] | None:
    """Return two places between which the offset changes its sign; None without, or if the first will do.

    Args:
        off: offset at a place, or None.
        start: first place.
        ends: of the places.
        enough: offset that is small enough.
        softer: 1 if the offset grows with the place, else -1; it is followed first.
    """
    first = off(start)
    for way in (softer, -softer):  # until a negative is pushed
        place, step = start, FIRST_STEP
        while first is None and place != ends[way > 0]:
            place, step = min(max(place + way * step, ends[0]), ends[1]), 2 * step
            first = off(place)
        start = start if first is None else place
    if first is None or abs(first) <= enough:
        return None
    ahead = softer if first < 0 else -softer
    for way in (ahead, -ahead):
        here, before, step = start, first, FIRST_STEP
        while step >= SHORT:
            place = min(max(here + way * step, ends[0]), ends[1])
            if place == here:
                break
            offset = off(place)
            if offset is None:
                step /= 2
                continue
            if offset * before <= 0:
                return here, place
            here, before, step = place, offset, 2 * step
    return None


def refine(off: Offset, bracket: tuple[float, float], enough: float, width: float) -> float:
    """Narrow a bracket by Brent's method until an offset is small or absent, or the bracket has this width."""
    from scipy.optimize import brentq

    def offset(place: float) -> float:
        value = off(place)
        return 0.0 if value is None or abs(value) <= enough else value

    return brentq(offset, *bracket, xtol=width, maxiter=REFINEMENTS, disp=False)


@ranges.checked
def solve(
    loss: Any,
    pairs: Pairs | Sequence[Pairs],
    effective: Effective,
    *,
    parameter: str | None = None,
    bounds: Bounds | None = None,
    tolerance: Tolerance = 1e-3,
) -> Solution:
    """Find the temperature, scale or margin at which a loss has a wanted mean effective number of negatives.

    The mean is over the queries with any push, and over several Pairs, such as the two directions of a batch, the mean
    of their means. In a training it holds the number while the scores change: start from the last loss, which is near.

    Args:
        loss: a loss, or its name; its own value is where the search starts.
        pairs: the scores of a batch; no gradient flows through them.
        effective: the wanted number, at least 1.
        parameter: name of the parameter; None: the one that sets the sharpness of the loss (see `parameter_of`).
        bounds: of the value. A number beyond them gives the nearer bound, named in `Solution.bound`. None: from 1e-4 to
            1e4 times the loss's own value, and a number beyond is refused.
        tolerance: relative difference from the wanted number that is good enough.

    Raises:
        InputError: a number that no value gives (the reachable range is named), a loss with an effective number that no
            parameter changes, or an option that cannot be used.

    Examples:
        Two negatives are one effective negative when it is cold and two when it is warm:

        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> solution = cocos.sharpness.solve("ntxent", pairs, effective=1.5)
        >>> solution.parameter, round(solution.value, 2), round(solution.effective, 2)
        ('temperature', 0.22, 1.5)
        >>> solution.loss(pairs.scores, pairs.positive)
        tensor([0.5535])
    """
    detached = [part.with_scores(part.scores.detach()) for part in ([pairs] if isinstance(pairs, Pairs) else pairs)]
    if not detached:
        raise InputError("pairs: none were given")

    def mean_at(other: losses.Loss) -> float:
        """Return the mean over the queries with any push of each Pairs, then over the Pairs; 0 without any push."""
        means = []
        for part in detached:
            weight = other.weight(part)
            number = statistics.effective(statistics.spread(weight, part))
            if not weight.isfinite().all():
                raise InputError(f"the weights of {other!r} leave the range of {part.scores.dtype}")
            means.append((number.sum() / (number > 0).sum().clamp(min=1)).item())
        pushed = [mean for mean in means if mean]
        return sum(pushed) / len(pushed) if pushed else 0.0

    chosen = losses.load(loss) if isinstance(loss, str) else losses.as_loss(loss)
    return search(mean_at, chosen, effective, parameter=parameter, bounds=bounds, tolerance=tolerance)
