"""Values of options: read from text as a parameter is annotated, and written as they are typed."""

import inspect
import re
from collections.abc import Iterable, Sequence
from types import NoneType, UnionType
from typing import get_args, get_origin

from cocos.errors import InputError

# Largest number of digits of an integer: with at most 15, float64 represents it exactly.
DIGITS = 15
NUMBERS = {int: "whole number", float: "number"}


def written(default) -> str:
    """Write a default as it is typed on the command line; empty where there is none."""
    if default is None or default is inspect.Parameter.empty:
        return ""
    return ",".join(map(str, default)) if isinstance(default, list | tuple) else str(default)


def read(text: str, annotation, option: str):
    """Read a text as the annotated type of a parameter.

    Several values are separated by commas; a single one of them ends with a comma.

    Raises:
        InputError: the text is not of that type.
    """
    text, option = text.strip(), option.removesuffix("=")
    if any(len(digits) > DIGITS for digits in re.findall(r"\d+", text) if int in (*get_args(annotation), annotation)):
        raise InputError(f"{option} {text!r}: expected a number of at most {DIGITS} digits")
    wanted = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    several = [get_args(each)[0] for each in wanted if get_origin(each) in {Sequence, Iterable}]
    if str in wanted:
        return int(text) if int in wanted and text.lstrip("-").isdecimal() else text
    if bool in wanted and text.lower() in {"true", "false"}:
        return text.lower() == "true"
    if NoneType in wanted and text.lower() in {"all", "none"}:
        return None
    split = text.removesuffix(",").split(",")
    for kind, parts in (*((kind, None) for kind in wanted), *((kind, split) for kind in several)):
        if kind in NUMBERS:
            try:
                return kind(text) if parts is None else tuple(kind(part) for part in parts)
            except ValueError:
                continue
    right = [f"a {NUMBERS[kind]}" for kind in wanted if kind in NUMBERS]
    right += [f"{NUMBERS[kind]}s, separated by commas" for kind in several if kind in NUMBERS]
    right += ["true or false"] if bool in wanted else []
    right += ["all"] if NoneType in wanted else []
    raise InputError(f"{option} {text!r}: expected {' or '.join(right)}")
