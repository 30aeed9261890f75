"""Parameters of a built-in loss: the fields of its dataclass, read from numbers or from text."""

import contextlib
import dataclasses
import json
import math
import typing
from typing import Any

from cocos.base.errors import InputError, nearest
from cocos.losses.base import Loss

INVERSE = {"temperature": "scale", "scale": "temperature"}


def fields_by_name(loss_class: type[Loss]) -> dict[str, dataclasses.Field[Any]]:
    """Return the fields by the names of their parameters; a field `weight_` is the parameter `weight`."""
    return {field.name.rstrip("_"): field for field in dataclasses.fields(loss_class)}


def accepted_names(loss_class: type[Loss]) -> set[str]:
    """Return the names of the parameters, with both `scale` and `temperature` if the loss has one of them.

    Examples:
        >>> sorted(accepted_names(cocos.losses.NTXent))
        ['scale', 'temperature']
    """
    names = {*fields_by_name(loss_class)}
    return names | INVERSE.keys() if INVERSE.keys() & names else names


def resolve_scale(name: str, loss_class: type[Loss], values: dict[str, Any]) -> dict[str, Any]:
    """Replace `scale` by 1/temperature if the loss has only a temperature, and the other way round.

    Raises:
        InputError: both are given, or the number has no inverse.

    Examples:
        >>> resolve_scale("ntxent", cocos.losses.NTXent, {"scale": 10})
        {'temperature': 0.1}
    """
    fields = fields_by_name(loss_class)
    for alias, parameter in INVERSE.items():
        if alias not in values or alias in fields or parameter not in fields:
            continue
        if parameter in values:
            raise InputError(f"{name}: temperature and scale are given; give one of them, scale is 1/temperature")
        value = convert(alias, values[alias], float)
        if not (0 < value < math.inf and 1 / value < math.inf):
            raise InputError(f"{name}: {alias} is 1/{parameter}, finite and above 0, got {value}")
        return {key: number for key, number in values.items() if key != alias} | {parameter: 1 / value}
    return values


def convert(parameter: str, value: Any, annotation: Any) -> Any:
    """Convert a number or text from the command line or a checkpoint to the type of a field.

    Raises:
        InputError: the value is not of this type.
    """
    options = typing.get_args(annotation)
    if typing.get_origin(annotation) is typing.Annotated:  # a type and its range
        return convert(parameter, value, options[0])
    if type(None) in options:  # a number, or None
        return None if value is None or str(value).lower() == "none" else convert(parameter, value, options[0])
    if typing.get_origin(annotation) is tuple:
        parts = value if isinstance(value, list | tuple) else str(value).strip("()[] ").split(",")
        return tuple(convert(parameter, part.strip() if isinstance(part, str) else part, options[0]) for part in parts)
    try:
        if annotation is bool:
            return {"true": True, "1": True, "false": False, "0": False}[str(value).lower()]
        return int(str(value)) if annotation is int else annotation(value)
    except (KeyError, TypeError, ValueError):
        expected = {bool: "true or false", int: "an integer", float: "a number"}.get(annotation, annotation.__name__)
        raise InputError(f"parameter {parameter}: {value!r}, expected {expected}") from None


def literal(text: Any) -> Any:
    """Return a number, true, false, none or a JSON list from text, or the text.

    Examples:
        >>> literal("0.5"), literal("none"), literal("[1, 2]"), literal("mean")
        (0.5, None, [1, 2], 'mean')
    """
    words = {"true": True, "false": False, "none": None, "inf": math.inf, "nan": math.nan}
    if not isinstance(text, str) or text.strip().lower() in words:
        return words[text.strip().lower()] if isinstance(text, str) else text
    for read in (int, float, json.loads):
        with contextlib.suppress(ValueError):
            return read(text.strip())
    return text


def build(name: str, loss_class: type[Loss], values: dict[str, Any], **arguments: Any) -> Loss:
    """Build a loss from its class and parameters; `arguments` are fields that need no conversion.

    Raises:
        InputError: an unknown parameter (the message contains the nearest one), or a value out of range.

    Examples:
        >>> build("ntxent", cocos.losses.NTXent, {"temperature": "0.07"})
        NTXent(temperature=0.07)
    """
    fields = fields_by_name(loss_class)
    for key, value in resolve_scale(name, loss_class, values).items():
        if key not in fields:
            raise InputError(nearest(f"parameter of {name}", key, fields))
        arguments[fields[key].name] = convert(key, value, fields[key].type)
    for parameter, field in fields.items():
        if field.default is dataclasses.MISSING and field.name not in arguments:
            raise InputError(f"{name}: {parameter}: missing, such as -p {parameter}=16")
    try:
        return loss_class(**arguments)
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{name}: {error}") from None
