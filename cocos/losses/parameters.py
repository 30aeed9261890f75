"""Parameters of a loss of the shelf: the fields of its dataclass, read from numbers or from text."""

import dataclasses
import math
import typing
from typing import Any, cast

from cocos.base.errors import InputError, nearest
from cocos.losses.base import Loss


def accepted(cls: type) -> set[str]:
    """Names of the parameters of a class of losses, `scale` beside a temperature, and `temperature` beside a scale.

    Examples:
        >>> sorted(accepted(cocos.losses.ntxent.NTXent))
        ['scale', 'temperature']
    """
    names = fields(cls).keys()
    return {*names, "scale", "temperature"} if {"scale", "temperature"} & {*names} else {*names}


def fields(cls: type) -> dict[str, dataclasses.Field[Any]]:
    """Fields by the name of their parameter (a field `weight_` is the parameter `weight`)."""
    return {field.name.rstrip("_"): field for field in dataclasses.fields(cls)}


def settled(name: str, cls: type, parameters: dict[str, Any]) -> dict[str, Any]:
    """Read a `scale` as 1/temperature, where the class has a temperature and no scale, and the other way round.

    Examples:
        >>> settled("ntxent", cocos.losses.ntxent.NTXent, {"scale": 10})
        {'temperature': 0.1}
    """
    own = fields(cls)
    if "temperature" in parameters and "scale" in own and "temperature" not in own:
        return _inverted(name, parameters, "temperature", "scale")
    if "scale" not in parameters or "scale" in own or "temperature" not in own:
        return parameters
    return _inverted(name, parameters, "scale", "temperature")


def _inverted(name: str, parameters: dict[str, Any], given: str, own: str) -> dict[str, Any]:
    """Replace a parameter by another that is one over it."""
    if own in parameters:
        raise InputError(f"{name}: temperature and scale are given; give one of them, scale is 1/temperature")
    value = _value(given, parameters[given], float)
    if not (0 < value < math.inf and 1 / value < math.inf):
        raise InputError(f"{name}: {given} is 1/{own}, finite and above 0, got {value}")
    return {key: each for key, each in parameters.items() if key != given} | {own: 1 / value}


def _value(parameter: str, text: Any, kind: Any) -> Any:
    """Convert a parameter to the type of its field; text comes from the command line or from a checkpoint."""
    options = typing.get_args(kind)
    if typing.get_origin(kind) is typing.Annotated:  # a type and its range
        return _value(parameter, text, options[0])
    if type(None) in options:  # a number, or None
        return None if text is None or str(text).lower() == "none" else _value(parameter, text, options[0])
    if typing.get_origin(kind) is tuple:
        parts = text if isinstance(text, list | tuple) else str(text).strip("()[] ").split(",")
        return tuple(_value(parameter, part.strip() if isinstance(part, str) else part, options[0]) for part in parts)
    if kind is bool and str(text).lower() in {"true", "false", "1", "0"}:
        return str(text).lower() in {"true", "1"}
    if kind is bool:
        raise InputError(f"parameter {parameter}: {text!r} is not true or false")
    try:
        return int(str(text)) if kind is int else kind(text)
    except (TypeError, ValueError):
        raise InputError(f"parameter {parameter}: {text!r} is not a {kind.__name__}") from None


def build(name: str, cls: type, parameters: dict[str, Any]) -> Loss:
    """Build a loss from its class and parameters.

    Examples:
        >>> build("ntxent", cocos.losses.ntxent.NTXent, {"temperature": "0.07"})
        NTXent(temperature=0.07)
    """
    own: dict[str, Any] = fields(cls)
    chosen = {}
    for key, value in settled(name, cls, parameters).items():
        if key not in own:
            raise InputError(nearest(f"parameter of {name}", key, own))
        chosen[own[key].name] = _value(key, value, own[key].type)
    try:
        return cast(Loss, cls(**chosen))
    except ValueError as error:
        raise InputError(f"{name}: {error}") from None
