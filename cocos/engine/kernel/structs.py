"""Structs of the kernel as `ctypes` classes, read from the C text itself, so that nothing is written down twice."""

import ctypes
import functools
import re
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from cocos.engine import devices
from cocos.engine.kernel import build

__all__ = ["Struct", "constant", "loaded", "struct"]

NUMBERS = {
    "int64_t": (ctypes.c_int64, torch.int64),
    "int32_t": (ctypes.c_int32, torch.int32),
    "int8_t": (ctypes.c_int8, torch.int8),
    "float": (ctypes.c_float, torch.float32),
    "double": (ctypes.c_double, torch.float64),
}
TYPEDEF = re.compile(r"typedef struct \{([^{}()]*)\} (\w+);")
FIELDS = re.compile(r"(?:const )?(\w+) ([^;]*);")
NAME = re.compile(r"(\w+)(?:\[(\w+)\])?$")
FUNCTION = re.compile(r"^(void|int64_t) (cocos_\w+)\(([^)]*)\) \{", re.MULTILINE)


class Struct(ctypes.Structure):
    """Arguments of a function of the kernel: fields are set by name from numbers and tensors, which it keeps alive."""

    POINTED: dict = {}

    def set(self, **fields) -> None:
        """Set fields: a pointer from a contiguous tensor of its type on the host, an array from a sequence, a number.

        Raises:
            ValueError: a tensor of another dtype or layout, or no such field.
        """
        whole = self
        while whole._b_base_ is not None:  # `ctypes` makes the parts of a struct anew whenever they are looked at
            whole = whole._b_base_
        kept = whole.__dict__.setdefault("kept", {})
        for name, value in fields.items():
            if not hasattr(type(self), name):
                raise ValueError(f"kernel: {type(self).__name__} has no field {name}")
            kept[self.address, name] = value
            if isinstance(value, tuple | list):
                place = getattr(self, name)
                for k, each in enumerate(value):
                    place[k] = self._address(name, each)
            else:
                setattr(self, name, self._address(name, value))

    def _address(self, name: str, value):
        if not isinstance(value, Tensor):
            return value
        wanted = NUMBERS.get(self.POINTED.get(name), (None, value.dtype))[1]
        if value.dtype != wanted or not value.is_contiguous() or devices.ahead(value.device):
            found = f"{value.dtype} on {value.device} with strides {value.stride()}"
            raise ValueError(f"kernel: {name} is {found}, expected contiguous {wanted} on the host")
        return value.data_ptr()

    @property
    def address(self) -> int:
        """Where it is."""
        return ctypes.addressof(self)


@functools.cache
def _text() -> str:
    """The kernel in C, without comments, in the order in which kernel.c includes its files."""
    names = re.findall(r'#include "(.*)"', build.SOURCE.read_text("utf-8"))
    text = "".join(Path(build.FOLDER, name).read_text("utf-8") for name in names)
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


@functools.cache
def _structs() -> dict[str, type[Struct]]:
    """The structs of the kernel by their names in C, save those with vectors or room, which never leave it."""
    made: dict[str, type[Struct]] = {}
    for body, name in TYPEDEF.findall(_text()):
        with suppress(KeyError, ValueError):
            made[name] = _read(name, body, made)
    return made


def _read(name: str, body: str, made: dict[str, type[Struct]]) -> type[Struct]:
    """A struct, from its fields in C and the structs before it."""
    fields, pointed = [], {}
    for kind, names in FIELDS.findall(body):
        for each in map(str.strip, names.split(",")):
            field, length = NAME.search(each).groups()
            if "*" in each:
                pointed[field], of = kind, ctypes.c_void_p
            else:
                of = NUMBERS[kind][0] if kind in NUMBERS else made[kind]
            fields.append((field, of * int(length) if length else of))
    return type(name, (Struct,), {"_fields_": fields, "POINTED": pointed})


def struct(name: str, **fields) -> Struct:
    """An argument struct of the kernel, with its size, and with some of its fields set."""
    made = _structs()[name]()
    made.set(size=ctypes.sizeof(made), **fields)
    return made


def loaded() -> ctypes.CDLL | None:
    """The kernel, whose structs have the sizes that Python gives them; None where there is none.

    Raises:
        RuntimeError: a struct of another size.
    """
    found = build.loaded()
    return None if found is None else _declared(found)


@functools.cache
def _declared(found: ctypes.CDLL) -> ctypes.CDLL:
    for name, made in _structs().items():
        if hasattr(made, "size") and (size := constant(f"sizeof_{name}")) != ctypes.sizeof(made):
            raise RuntimeError(f"kernel: {name} has {size} bytes in C and {ctypes.sizeof(made)} in Python")
    for result, name, arguments in FUNCTION.findall(_text()):
        function = getattr(found, name)
        function.restype = ctypes.c_int64 if result == "int64_t" else None
        function.argtypes = [ctypes.c_void_p if "*" in each else ctypes.c_int64 for each in arguments.split(",")]
    return found


def constant(name: str) -> int:
    """A whole number that the kernel exports as cocos_NAME."""
    return ctypes.c_int64.in_dll(build.loaded(), f"cocos_{name}").value


def life(name: str) -> int:
    """Address of the functions of a primitive."""
    return ctypes.addressof(ctypes.c_char.in_dll(build.loaded(), f"cocos_life_{name}"))
