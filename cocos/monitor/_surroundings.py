"""Around a monitor: its options, the other processes of a training, and the function that takes the numbers."""

import contextlib
import inspect
import math
import os
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import torch

from cocos.base.errors import InputError

# Number of letters of an error in a warning.
MOST_LETTERS = 300


class Hook:
    """A hook of a module that stays with it: in a copy or a pickle of the module it does nothing, without cocos too.

    Args:
        function: that is called.
    """

    def __init__(self, function: Callable[..., Any]):
        self._function = function

    def __call__(self, *given: Any) -> Any:
        """Call the function."""
        return self._function(*given)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (contextlib.nullcontext(), "__exit__")  # takes anything and returns None


def _joined() -> bool:
    """Whether this process has joined those that train together."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def world() -> int:
    """Number of processes that train together."""
    return torch.distributed.get_world_size() if _joined() else 1


def rank() -> int:
    """Number of this process among those that train together."""
    return torch.distributed.get_rank() if _joined() else 0


def first() -> bool:
    """Whether this process writes and logs: rank 0, also by the environment before the processes have joined."""
    text = os.environ.get("RANK", "0")
    return rank() == 0 if _joined() or not text.isdecimal() else int(text) == 0


def check(every: Any, eps: Any, budget: Any, **functions: Any) -> None:
    """Refuse options that cannot be used."""
    if isinstance(every, bool) or not isinstance(every, Integral) or every < 1:
        raise InputError(f"every: {every!r}, expected a whole number of calls, at least 1")
    if not isinstance(eps, Real) or not 0 <= float(eps) < math.inf:
        raise InputError(f"eps: {eps!r}, expected a share: finite and at least 0")
    if budget is not None and (not isinstance(budget, Real) or not 0 < float(budget) <= 100):
        raise InputError(f"budget: {budget!r}, expected percent of the time, above 0 and at most 100")
    expected = {"log": "of (dict, step), like wandb.log", "groups": "that returns the ids of the rows of a batch"}
    for name, function in functions.items():
        if function is not None and not callable(function):
            words = expected.get(name, "that returns whether the next call is recorded")
            raise InputError(f"{name}: {type(function).__name__}, expected a function {words}")


def brief(error: Exception) -> str:
    """First line of an error, cut where it is long: an operator that is missing is followed by hundreds of lines."""
    return next(iter(str(error).splitlines()), "")[:MOST_LETTERS]


def plain(alarm: dict[str, Any]) -> dict[str, Any]:
    """An alarm whose numbers JSON has."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in alarm.items()
    }


def caller(log: Callable[..., object]) -> Callable[[dict[str, float], int], object]:
    """Call `log` with the step as it takes it: by keyword where it has a parameter `step`, else as the second one."""
    try:
        parameters = inspect.signature(log).parameters
    except (TypeError, ValueError):  # a function of C may have no signature
        return log
    named = "step" in parameters and parameters["step"].kind is not inspect.Parameter.POSITIONAL_ONLY
    return (lambda numbers, step: log(numbers, step=step)) if named else log
