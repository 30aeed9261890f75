"""Rebuild the content of a file from values of known types, so that no method that a file planted is ever called.

Stand-ins take the place of numpy's objects and check what the file says: numpy's own `__setstate__` trusts its pickle,
and a crafted dtype makes it read bytes of the file as pointers.
"""

import argparse
import math
import pathlib
import re
import types
from collections import Counter, OrderedDict

import numpy as np
import torch
from torch import Tensor

NUMBER_DTYPE = re.compile(r"[?bhilqBHILQefdgFD]|[biufc]\d{1,2}")
TEXT_DTYPE = re.compile(r"U[1-9]\d{0,4}")
MAX_PICKLED_ARRAY = 2**31  # bytes of one array in a pickle
NAMESPACES = (argparse.Namespace, types.SimpleNamespace)
MAX_NESTING = 60  # containers within containers
MAX_VALUES = 200_000  # plain values that a record may hold
MAX_CHARACTERS = 10_000  # characters of a text
ATOMS = (type(None), bool, int, float, complex, str, bytes, bytearray, torch.dtype, torch.device, torch.layout)


class Dtype:
    """A numpy dtype of plain numbers or text."""

    def __init__(self, code="", align=False, copy=False):
        if not isinstance(code, str) or not (NUMBER_DTYPE.fullmatch(code) or TEXT_DTYPE.fullmatch(code)):
            raise ValueError(f"an array of Python objects or records (dtype {code!r})")
        self.dtype = np.dtype(code)

    def __setstate__(self, state):
        order, fields = state[1], state[2:5]
        if order not in {"<", ">", "=", "|"} or any(part is not None for part in fields):
            raise ValueError("an array of records")
        self.dtype = self.dtype.newbyteorder(order)


class Array:
    """A numpy array whose bytes fit its shape and dtype; `value` holds it.

    Attributes:
        value: the array, None until its state was read.
    """

    def __init__(self, *arguments):
        self.value = None

    def __setstate__(self, state):
        _, shape, kind, fortran, raw = state
        if not isinstance(kind, Dtype) or not isinstance(raw, bytes):
            raise ValueError("an array of Python objects")
        if len(raw) != kind.dtype.itemsize * int(np.prod(shape, dtype=object)) or len(raw) > MAX_PICKLED_ARRAY:
            raise ValueError(f"an array of shape {shape} with {len(raw)} bytes")
        self.value = np.frombuffer(raw, kind.dtype).reshape(shape, order="F" if fortran else "C").copy()


def scalar(kind, raw):
    """Convert a numpy scalar to a Python number or text."""
    if not isinstance(kind, Dtype) or not isinstance(raw, bytes) or len(raw) != kind.dtype.itemsize:
        raise ValueError("a scalar that is no number")
    return np.frombuffer(raw, kind.dtype)[0].item()


NUMPY_STAND_INS = {
    "numpy.dtype": Dtype,
    "numpy.ndarray": Array,
    **{f"{home}.multiarray.scalar": scalar for home in ("numpy.core", "numpy._core")},
    **{f"{home}.multiarray._reconstruct": Array for home in ("numpy.core", "numpy._core")},
}


def bare(value, *, deep: int = 0, memo: dict | None = None):
    """Rebuild loaded content from dicts, lists, tuples, sets, namespaces, tensors, arrays and plain values.

    Objects of other classes are refused. The memo has rebuilt values by the id of the original, so that shared values
    stay shared.
    """
    memo = {} if memo is None else memo
    kind = type(value)
    if kind in ATOMS:
        return value
    if id(value) in memo:
        return memo[id(value)][1]
    if deep > MAX_NESTING:
        raise ValueError(f"containers nested more than {MAX_NESTING} deep")

    def inner(item):
        return bare(item, deep=deep + 1, memo=memo)

    if isinstance(value, Tensor):
        made = torch.Tensor.detach(value)  # without attributes: a parameter may have an `item` or `numel` of the file's
        if type(made) is not Tensor:
            raise ValueError(f"a tensor of class {type(made).__name__}")
    elif kind in {dict, OrderedDict, Counter}:
        made = {} if kind is dict else OrderedDict()
        memo[id(value)] = value, made  # it may hold itself
        for key, item in dict.items(value):
            made[inner(key)] = inner(item)
        if type(versions := vars(value).get("_metadata") if kind is OrderedDict else None) in {dict, OrderedDict}:
            vars(made)["_metadata"] = inner(versions)  # versions of the modules in a state dict
    elif kind is list:
        made = []
        memo[id(value)] = value, made
        made += map(inner, value)
    elif kind is set:
        made = set(map(inner, value))
    elif kind in {tuple, torch.Size}:
        made = tuple(map(inner, value)) if kind is tuple else value
    elif kind in NAMESPACES:
        made = kind()
        memo[id(value)] = value, made
        vars(made).update((str(key), inner(item)) for key, item in vars(value).items())
    elif kind in {pathlib.PurePosixPath, pathlib.PureWindowsPath}:
        made = kind(str(value))
    elif kind is Array:
        made = value.value
    elif kind is Dtype:
        made = value.dtype
    else:
        raise ValueError(f"an object of class {kind.__name__}")
    memo[id(value)] = value, made
    return made


def plain(value, *, budget: list[int] | None = None, deep: int = 0):
    """Convert to data that JSON can hold: dicts with keys of text, lists, text, numbers, booleans and None.

    A tensor or array of one number becomes that number, a larger one its shape; numbers that are not finite, and other
    types, become text. More values than a record has, or nested too deep (as one that holds itself is), are a
    ValueError.
    """
    budget = [MAX_VALUES] if budget is None else budget
    budget[0] -= 1
    if budget[0] < 0 or deep > MAX_NESTING:
        raise ValueError(f"a record of more than {MAX_VALUES} values, or more than {MAX_NESTING} deep")
    if isinstance(value, Tensor):
        if torch.Tensor.numel(value) != 1 or value.layout != torch.strided or value.is_quantized or value.is_meta:
            return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
        value = torch.Tensor.item(value)
    elif isinstance(value, np.ndarray | np.generic):
        if value.size != 1 or value.dtype.kind not in "biufU":
            return f"{value.shape} {value.dtype}"
        value = value.item()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else f"{value:.3e}" if abs(value) < 10**300 else "a huge number"
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return value if len(value) <= MAX_CHARACTERS else f"{value[:MAX_CHARACTERS]}..."
    if isinstance(value, NAMESPACES):
        value = vars(value)
    if isinstance(value, dict):
        return {
            str(plain(key, budget=budget, deep=deep + 1)): plain(item, budget=budget, deep=deep + 1)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item, budget=budget, deep=deep + 1) for item in value]
    if isinstance(value, bytes | bytearray):
        return f"{len(value)} bytes" if len(value) > 100 else repr(bytes(value))
    return (
        str(value)[:MAX_CHARACTERS]
        if isinstance(value, pathlib.PurePath | complex | torch.dtype | torch.device)
        else type(value).__name__
    )
