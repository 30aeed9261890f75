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
from cocos.counting import statistics, weights
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
# Ratio of the largest value that is tried to the loss's own, and of that to the smallest.
REACH = 1e4  # times and parts of the loss's own value
# Value from which the search begins where the loss's own is not above 0, in units of score.
ZERO_START = 0.1
# First step of the search in the logarithm of the value; each further one is twice as long.
FIRST_STEP = 0.2  # natural logarithm
# Steps, in the logarithm of the value, below which a bracket or a way to a refused value is not followed further.
NARROW = 1e-6  # natural logarithm
SHORT = 0.01  # natural logarithm
# Largest relative difference of effective numbers that no parameter changes.
CONSTANT = 1e-3
# Largest number of values that are tried inside the bracket.
REFINEMENTS = 40
# Part of a bracket that an interpolated value keeps from its ends.
KEPT_OFF = 0.05


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
    """The value of a parameter at which a loss has a wanted effective number of negatives.

    Args:
        loss: the loss with this value, to train with.
        parameter: its name.
        value: the value.
        effective: the effective number that it gives, the mean over the queries with any push.
        bound: `lower` or `upper` where the number lies beyond a bound that was given, else empty.
        tried: (value, effective number) of every evaluation, in their order.
    """

    loss: losses.Loss
    parameter: str
    value: float
    effective: float
    bound: str
    tried: tuple[tuple[float, float], ...]


def parameter_of(loss: losses.Loss, parameter: str | None = None) -> str:
    """Name of the parameter that sets the sharpness of a loss, as `cocos.losses.parameters` has it.

    Args:
        loss: a loss of the shelf, of some negatives (`top_k(ntxent)`), or a sum.
        parameter: the one that is meant, where a loss has several.

    Examples:
        >>> cocos.sharpness.parameter_of(cocos.losses.load("circle"))
        'gamma'
    """
    every = loss.parameters.items()
    there = [name for name, value in every if isinstance(value, Real) and not isinstance(value, bool)]
    name = loss.name
    if parameter is not None:
        same = [each for each in there if parameter in {each, each.rpartition(".")[2]}]
        if len(same) == 1:
            return same[0]
        raise InputError(nearest(f"parameter of {name}", parameter, there))
    sharp = [each for each in there if each.rpartition(".")[2] in SHARPNESS]
    if not sharp:
        raise InputError(
            f"loss {name}: it has no parameter that sets its sharpness ({', '.join(SHARPNESS)}); its parameters: "
            f"{', '.join(there) or 'none'}"
        )
    if len({each.rpartition(".")[0] for each in sharp}) > 1:
        known = " or ".join(sharp)
        raise InputError(f"loss {name}: several parameters set its sharpness; name the one to solve for: {known}")
    return min(sharp, key=lambda each: list(SHARPNESS).index(each.rpartition(".")[2]))


def changed(loss: losses.Loss, parameter: str, value: float) -> losses.Loss:
    """The same loss with another value of a parameter.

    Raises:
        ValueError: the loss refuses the value.

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
    """Search the value of the sharpness at which some effective number, as a function of the loss, is the wanted one.

    It starts at the loss's own value, with steps that double until the number lies between two of them, and then
    interpolates in the logarithms. Where the number is no monotone function of the value, the crossing nearest to the
    loss's own value is found; where it jumps over the wanted number, the nearer side.

    Args:
        mean_at: effective number of a loss; a ValueError where it cannot be computed.
        loss: see `parameter_of`.
        effective: see `solve`, as all others.
        parameter: its name.
        bounds: of the value.
        tolerance: of the effective number.
    """
    name = parameter_of(loss, parameter)
    own = float(loss.parameters[name])
    own = own if own > 0 else ZERO_START
    low, high = (math.log(each) for each in bounds or (own / REACH, own * REACH))
    known = dict(zip((math.log(own), low, high), (own, *(bounds or ())), strict=False))
    tried: dict[float, float] = {}
    refused: list[ValueError] = []

    def off(place: float) -> float | None:
        """Logarithm of the effective number in parts of the wanted one; None where nothing is pushed, or refused."""
        value = known.get(place) or math.exp(place)  # without rounding
        try:
            found = mean_at(changed(loss, name, value))
        except ValueError as error:
            refused.append(error)
            return None
        if not found:
            return None
        tried[value] = found
        return math.log(found / effective)

    enough, start = math.log1p(tolerance), min(max(math.log(own), low), high)
    bracket = bracketed(off, start, (low, high), enough, SHARPNESS.get(name.rpartition(".")[2], ("", 1))[1])
    if len(tried) < 2 and refused:
        raise InputError(f"{loss.name}: {refused[0]}")
    if not tried:
        raise InputError(f"{loss.name}: it pushes no negative of these scores, whatever the {name}")
    least = min(tried, key=lambda value: abs(tried[value] - effective))
    if bracket is None and abs(tried[least] / effective - 1) > tolerance:
        if bounds is None:
            low, high, spelled = min(tried.values()), max(tried.values()), loss.name
            if high - low <= CONSTANT * high:
                said = f"the effective number of {spelled} is {high:.4g} at any {name} on these scores"
            else:
                said = (
                    f"{spelled} has {low:.4g} to {high:.4g} effective negatives on these scores, for {name} from "
                    f"{min(tried):.3g} to {max(tried):.3g}; take a number between"
                )
            raise InputError(f"effective {effective:g}: {said}")
        ends = {value: side for value, side in zip(bounds, ("lower", "upper"), strict=True) if value in tried}
        end = min(ends, key=lambda value: abs(tried[value] - effective), default=least)
        return Solution(changed(loss, name, end), name, end, tried[end], ends.get(end, ""), tuple(tried.items()))
    if bracket is not None:
        refined(off, bracket, enough)
        least = min(tried, key=lambda value: abs(tried[value] - effective))
    return Solution(changed(loss, name, least), name, least, tried[least], "", tuple(tried.items()))


Offset = Callable[[float], float | None]


def bracketed(
    off: Offset, start: float, ends: tuple[float, float], enough: float, softer: int
) -> tuple[float, float, float, float] | None:
    """Two places between which the offset changes its sign, with their offsets; None without, or if the first will do.

    Args:
        off: offset at a place; None where there is none.
        start: first place.
        ends: of the places.
        enough: offset that is small enough.
        softer: 1 where the offset grows with the place, else -1; it is followed first.
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
            found = off(place)
            if found is None:
                step /= 2
                continue
            if found * before <= 0:
                return here, before, place, found
            here, before, step = place, found, 2 * step
    return None


def refined(off: Offset, bracket: tuple[float, float, float, float], enough: float) -> None:
    """Narrow a bracket by false position (Illinois), with a halving in every third place, until an offset is small."""
    one, at_one, other, at_other = bracket
    if min(abs(at_one), abs(at_other)) <= enough:
        return
    for turn in range(REFINEMENTS):
        if abs(other - one) < NARROW:
            return
        part = 0.5 if turn % 3 == 2 else at_one / (at_one - at_other)
        place = one + min(max(part, KEPT_OFF), 1 - KEPT_OFF) * (other - one)
        found = off(place)
        if found is None:
            return
        if abs(found) <= enough:
            return
        if found * at_other < 0:
            one, at_one = other, at_other
        else:
            at_one /= 2
        other, at_other = place, found


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
        bounds: of the value. A number beyond them gives the nearer bound, and `Solution.bound` says which. None: from
            1e-4 to 1e4 times the loss's own value, and a number beyond is refused.
        tolerance: relative difference from the wanted number that is good enough.

    Raises:
        InputError: a number that no value gives (the reachable range is named), a loss whose effective number no
            parameter changes, or an option that cannot be used.

    Examples:
        Two negatives are one effective negative when it is cold and two when it is warm:

        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> found = cocos.sharpness.solve("ntxent", pairs, effective=1.5)
        >>> found.parameter, round(found.value, 2), round(found.effective, 2)
        ('temperature', 0.22, 1.5)
        >>> found.loss(pairs.scores, pairs.positive)
        tensor([0.5535])
    """
    given = [pairs] if isinstance(pairs, Pairs) else list(pairs)
    still = [each.with_scores(each.scores.detach()) for each in given]
    if not still:
        raise InputError("pairs: none were given")
    chosen = losses.load(loss) if isinstance(loss, str) else losses.as_loss(loss)

    def mean_at(other: losses.Loss) -> float:
        """Mean over the queries with any push of each Pairs, then over the Pairs; 0 without any push."""
        found = []
        for each in still:
            weight = weights.of(other, each)
            number = statistics.effective(statistics.spread(weight, each))
            if not weight.isfinite().all():
                raise InputError(f"the weights of {other!r} leave the range of {each.scores.dtype}")
            found.append((number.sum() / (number > 0).sum().clamp(min=1)).item())
        pushed = [mean for mean in found if mean]
        return sum(pushed) / len(pushed) if pushed else 0.0

    return search(mean_at, chosen, effective, parameter=parameter, bounds=bounds, tolerance=tolerance)
