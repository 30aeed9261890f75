"""Parameters of a built-in loss: the fields of its dataclass, read from numbers or from text."""

import dataclasses
import math
import typing
from typing import Any

from cocos.base.errors import InputError, nearest
from cocos.losses.base import Loss


def fields_by_name(loss_class: type[Loss]) -> dict[str, dataclasses.Field[Any]]:
    """Return the fields by the names of their parameters; a field `weight_` is the parameter `weight`."""
    return {field.name.rstrip("_"): field for field in dataclasses.fields(loss_class)}


def accepted_names(loss_class: type[Loss]) -> set[str]:
    """Return the names of the parameters, with both `scale` and `temperature` if the loss has one of them.

    Examples:
        >>> sorted(accepted_names(cocos.losses.NTXent))
        ['scale', 'temperature']
    """
    names = fields_by_name(loss_class).keys()
    return {*names, "scale", "temperature"} if {"scale", "temperature"} & names else {*names}


def resolve_scale(name: str, loss_class: type[Loss], parameters: dict[str, Any]) -> dict[str, Any]:
    """Replace `scale` by 1/temperature if the loss has only a temperature, and the other way round.

    Raises:
        InputError: both are given, or the number has no inverse.

    Examples:
        >>> resolve_scale("ntxent", cocos.losses.NTXent, {"scale": 10})
        {'temperature': 0.1}
    """
    fields = fields_by_name(loss_class)
    for alias, name_of_field in (("temperature", "scale"), ("scale", "temperature")):
        if alias not in parameters or alias in fields or name_of_field not in fields:
            continue
        if name_of_field in parameters:
            raise InputError(f"{name}: temperature and scale are given; give one of them, scale is 1/temperature")
        value = convert(alias, parameters[alias], float)
        if not (0 < value < math.inf and 1 / value < math.inf):
            raise InputError(f"{name}: {alias} is 1/{name_of_field}, finite and above 0, got {value}")
        return {key: number for key, number in parameters.items() if key != alias} | {name_of_field: 1 / value}
    return parameters


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
    if annotation is bool and str(value).lower() in {"true", "false", "1", "0"}:
        return str(value).lower() in {"true", "1"}
    if annotation is bool:
        raise InputError(f"parameter {parameter}: {value!r}, expected true or false")
    try:
        return int(str(value)) if annotation is int else annotation(value)
    except (TypeError, ValueError):
        expected = {int: "an integer", float: "a number"}.get(annotation, annotation.__name__)
        raise InputError(f"parameter {parameter}: {value!r}, expected {expected}") from None


def build(name: str, loss_class: type[Loss], parameters: dict[str, Any], **arguments: Any) -> Loss:
    """Build a loss from its class and parameters; `arguments` are fields that need no conversion.

    Raises:
        InputError: an unknown parameter (the message contains the nearest one), or a value out of range.

    Examples:
        >>> build("ntxent", cocos.losses.NTXent, {"temperature": "0.07"})
        NTXent(temperature=0.07)
    """
    fields = fields_by_name(loss_class)
    for key, value in resolve_scale(name, loss_class, parameters).items():
        if key not in fields:
            raise InputError(nearest(f"parameter of {name}", key, fields))
        arguments[fields[key].name] = convert(key, value, fields[key].type)
    try:
        return loss_class(**arguments)
    except ValueError as error:
        raise InputError(f"{name}: {error}") from None
