"""The shelf of losses: one file per loss, found by its name."""

import dataclasses
import importlib
import pkgutil
import types
import typing
from typing import Protocol

from cocos.errors import InputError, nearest

__all__ = ["UNSPECIFIED", "Loss", "load", "module_name", "name_of", "names", "parameters", "source"]

UNSPECIFIED = {"osap": "only its abstract could be read, and it has no published code, so its formula would be a guess"}


class Loss(Protocol):
    """What a file on this shelf holds: a frozen dataclass whose fields are the parameters of the loss.

    Three more methods are found by their names where a loss has them. `radial(pairs)`, (Q,): closed form of
    ∂ Σ loss / ∂ norm of the query, for losses that read norms. `equals()`: other losses of the shelf that it is, as
    (name, parameters, where), which `cocos losses NAME` and the tests check. `peer()`: the same loss in
    pytorch-metric-learning, as (class, arguments, setting), which `cocos verify` compares.
    """

    metric: str  # of `cocos.scores.METRICS`: what `Pairs.scores` must hold
    couples: (
        str  # "query": queries are independent; "batch": they share a term; "candidate": candidates are the anchors
    )
    gradient: str  # "exact", "stop_gradient", "pseudo" (made up by its authors) or "autograd" (no closed form)
    balanced: bool  # the weights of a query sum to zero
    sample: str  # how its training batches are drawn: "pairs", or "groups" for several positives a query

    def __call__(self, pairs):
        """Loss of each query, (Q,), not reduced."""

    def weight(self, pairs):
        """Closed form of ∂ Σ loss / ∂ score, (Q, C): below zero pulls, above zero pushes."""

    def unit(self, pairs):
        """Natural size of one weight, broadcastable to (Q, C): share = |weight| / unit."""


def names() -> list[str]:
    """Names of all losses on the shelf."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


def module_name(name: str) -> str:
    """The loss's file name; a hyphen may stand for an underscore.

    Raises:
        InputError: no such loss (the nearest one is named).
    """
    module = name.strip().lower().replace("-", "_")
    if module in UNSPECIFIED:
        raise InputError(f"loss {name!r} is unspecified: {UNSPECIFIED[module]}")
    if module not in names():
        raise InputError(nearest("loss", name, names()))
    return module


def _class(name: str) -> type:
    module = importlib.import_module(f"{__name__}.{module_name(name)}")
    return getattr(module, module.__all__[0])


def name_of(loss) -> str:
    """What a loss is called: its file on the shelf."""
    return type(loss).__module__.rsplit(".", 1)[-1]


def parameters(loss) -> dict:
    """The parameters of a loss by their names in the literature (a field `weight_` is the parameter `weight`)."""
    return {name.rstrip("_"): value for name, value in dataclasses.asdict(loss).items()}


def source(name: str) -> str:
    """Where a loss is from: the `Source:` line of its docstring."""
    lines = (_class(name).__doc__ or "").splitlines()
    return next((line.strip().removeprefix("Source:").strip() for line in lines if "Source:" in line), "")


def _value(parameter: str, text, kind):
    """A parameter as its dataclass field wants it; text comes from the command line or a file's record.

    Raises:
        InputError: the value is not of that type.
    """
    options = typing.get_args(kind)
    if isinstance(kind, types.UnionType):  # a number, or None
        return None if text is None or str(text).lower() == "none" else _value(parameter, text, options[0])
    if typing.get_origin(kind) is tuple:
        parts = text if isinstance(text, list | tuple) else str(text).strip("()[] ").split(",")
        return tuple(_value(parameter, part, options[0]) for part in parts)
    if kind is bool and str(text).lower() in {"true", "false", "1", "0"}:
        return str(text).lower() in {"true", "1"}
    if kind is bool:
        raise InputError(f"parameter {parameter}: {text!r} is not true or false")
    try:
        return int(str(text)) if kind is int else kind(text)
    except (TypeError, ValueError):
        raise InputError(f"parameter {parameter}: {text!r} is not a {kind.__name__}") from None


def load(name: str, parameters: dict | None = None):
    """Build a loss from its name and parameters.

    Args:
        name: a file of the shelf, e.g. `ntxent`.
        parameters: its fields, as numbers or as text; those left out have the paper's value.

    Raises:
        InputError: an unknown loss or parameter (the nearest one is named), or a value out of range.
    """
    cls = _class(name)
    fields = {f.name.rstrip("_"): f for f in dataclasses.fields(cls)}
    chosen = {}
    for key, value in (parameters or {}).items():
        if key not in fields:
            raise InputError(nearest(f"parameter of {name}", key, fields))
        chosen[fields[key].name] = _value(key, value, fields[key].type)
    try:
        return cls(**chosen)
    except ValueError as error:
        raise InputError(f"{name}: {error}") from None


def __getattr__(name: str):
    """`cocos.losses.ntxent` without an import statement.

    Raises:
        AttributeError: there is no such loss.
    """
    if not name.startswith("_") and name in names():
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
