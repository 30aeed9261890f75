"""Types of options with the values that they may have, for the check, its sentence, help texts and tests."""

import functools
import inspect
import math
import typing
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Annotated, Any, ParamSpec, TypeVar

from cocos.base.errors import InputError

Options = ParamSpec("Options")
Result = TypeVar("Result")


class Range:
    """Values that an option of a measure, or a parameter of a loss, may have; its words stand in the signature.

    Args:
        words: end of the sentence "it must be ...".
        holds: whether a value is one of them; False for NaN.

    Examples:
        >>> from cocos.base.ranges import Range, whole
        >>> whole(1).holds(3), whole(1).holds(0), whole(1, 2)
        (True, False, 'an integer from 1 to 2')
    """

    def __init__(self, words: str, holds: Callable[[Any], bool]):
        self.words, self.holds = words, holds

    def __repr__(self) -> str:
        return repr(self.words)


def whole(least: int, most: int | None = None) -> Range:
    """Integers from `least` to `most`, if there is one."""
    words = f"of at least {least}" if most is None else f"from {least} to {most}"

    def holds(n: Any) -> bool:
        number = isinstance(n, Integral) and not isinstance(n, bool)
        return number and least <= int(n) <= (int(n) if most is None else most)

    return Range(f"an integer {words}", holds)


def one_of(names: tuple[str, ...]) -> Range:
    """Names from a list."""
    return Range(f"one of {', '.join(names)}", lambda value: value in names)


def different(least: float, most: float) -> Range:
    """Different numbers from `least` to `most`, at least one."""
    return Range(
        f"different numbers from {least:g} to {most:g}",
        lambda values: 0 < len(values) == len(set(values)) and all(least <= value <= most for value in values),
    )


def number(words: str, holds: Callable[[Any], bool]) -> Range:
    """Real numbers for which `holds` is true."""
    return Range(words, lambda value: isinstance(value, Real) and holds(value))


Finite = Annotated[float, number("finite", math.isfinite)]
Fraction = Annotated[float, number("above 0 and at most 1", lambda value: 0 < value <= 1)]
NonNegative = Annotated[float, number("finite and at least 0", lambda value: 0 <= value < math.inf)]
Positive = Annotated[float, number("finite and above 0", lambda value: 0 < value < math.inf)]
Level = Annotated[float, number("between 0 and 1, like 0.95", lambda value: 0 < value < 1)]
Share = Annotated[float, number("a share: finite and at least 0", lambda value: 0 <= value < math.inf)]


def of(kind: Any) -> tuple[Range | None, bool]:
    """Return the range of an annotation, and whether it allows None."""
    kinds = typing.get_args(kind)
    if typing.get_origin(kind) is Annotated:
        return next((part for part in kinds[1:] if isinstance(part, Range)), None), False
    if type(None) in kinds:
        return next((allowed for part in kinds if (allowed := of(part)[0])), None), True
    return None, False


def check(signature: inspect.Signature, arguments: Mapping[str, Any]) -> None:
    """Refuse a value that is out of the range of its parameter."""
    for name, value in arguments.items():
        allowed, optional = of(signature.parameters[name].annotation) if name in signature.parameters else (None, False)
        if allowed and not (optional and value is None) and not allowed.holds(value):
            partial = allowed.words.split()[0] in {"above", "between", "finite"}
            words = f"a number {allowed.words}" if partial else allowed.words
            raise InputError(f"{name.replace('_', ' ')}: {value!r}, expected {words}{', or none' * optional}")


def checked(function: Callable[Options, Result]) -> Callable[Options, Result]:
    """Decorate a function: a value that is out of the range of its parameter is refused before it runs.

    Examples:
        >>> from cocos.base import ranges
        >>> ranges.checked(lambda x: x)(3)
        3
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def within(*args: Options.args, **kwargs: Options.kwargs) -> Result:
        check(signature, {**dict(zip(signature.parameters, args, strict=False)), **kwargs})
        return function(*args, **kwargs)

    return within
