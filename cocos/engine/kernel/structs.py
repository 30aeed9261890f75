"""Structs of the kernel as `ctypes` classes, read from the C text itself, so that nothing is written down twice."""

import ctypes
import functools
import re
from pathlib import Path

import torch
from torch import Tensor

from cocos.engine import devices
from cocos.engine.kernel import build

__all__ = ["Struct", "constant", "loaded", "struct"]

NUMBERS = {
    "int64_t": ctypes.c_int64,
    "int32_t": ctypes.c_int32,
    "int8_t": ctypes.c_int8,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}
DTYPES = {
    "int64_t": torch.int64,
    "int32_t": torch.int32,
    "int8_t": torch.int8,
    "float": torch.float32,
    "double": torch.float64,
}
TYPEDEF = re.compile(r"typedef struct \{(?P<body>[^{}]*)\} (?P<name>\w+);")
FUNCTION = re.compile(r"^(void|int64_t) (cocos_\w+)\(([^)]*)\) \{", re.MULTILINE)
FIELD = re.compile(r"(?P<stars>[*\s]*(?:const\s*)?[*\s]*)(?P<name>\w+)(?:\[(?P<length>\d+)\])?")


class Struct(ctypes.Structure):
    """Arguments of a function of the kernel: fields are set by name from numbers and tensors, which it keeps alive."""

    POINTED: dict = {}

    def set(self, **fields) -> None:
        """Set fields: a pointer from a contiguous tensor of its type on the host, an array from a sequence, a number.

        Raises:
            ValueError: a tensor of another dtype or layout, or no such field.
        """
        kept = self.__dict__.setdefault("kept", {})
        for name, value in fields.items():
            if not hasattr(type(self), name):
                raise ValueError(f"kernel: {type(self).__name__} has no field {name}")
            kept[name] = value
            if isinstance(value, tuple | list):
                place = getattr(self, name)
                for k, each in enumerate(value):
                    place[k] = self._address(name, each)
            else:
                setattr(self, name, self._address(name, value))

    def keep(self, part: "Struct") -> None:
        """Keep the tensors of a struct inside this one alive, which `ctypes` makes anew whenever it is looked at."""
        self.__dict__.setdefault("kept", {})[part.address] = part.kept

    def _address(self, name: str, value):
        if not isinstance(value, Tensor):
            return value
        wanted = DTYPES.get(self.POINTED.get(name), value.dtype)
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
    """All structs of the kernel by their names in C, in the order in which kernel.c includes its files."""
    made: dict[str, type[Struct]] = {}
    for found in TYPEDEF.finditer(_text()):
        fields, pointed = [], {}
        for line in filter(None, map(str.strip, found["body"].split(";"))):
            if "(*" in line:  # a pointer to a function
                fields.append((re.search(r"\(\*(\w+)\)", line)[1], ctypes.c_void_p))
                continue
            kind, rest = re.fullmatch(r"(?:const )?(\w+)(.*)", line, flags=re.DOTALL).groups()
            for each in rest.split(","):
                if (name := FIELD.fullmatch(each.strip())) is None:
                    fields.append((each, None))
                    continue
                of = ctypes.c_void_p if "*" in name["stars"] else NUMBERS.get(kind) or made.get(kind)
                if of is ctypes.c_void_p:
                    pointed[name["name"]] = kind
                fields.append((name["name"], of * int(name["length"]) if name["length"] else of))
        if all(kind is not None for _, kind in fields):  # else it never leaves the kernel
            made[found["name"]] = type(found["name"], (Struct,), {"_fields_": fields, "POINTED": pointed})
    return made


def struct(name: str, **fields) -> Struct:
    """An argument struct of the kernel, with its size, and with some of its fields set."""
    made = _structs()[name]()
    made.size = ctypes.sizeof(made)
    made.set(**fields)
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
        if any(field == "size" for field, _ in made._fields_):
            size = constant(f"sizeof_{name}")
            if size != ctypes.sizeof(made):
                raise RuntimeError(f"kernel: {name} has {size} bytes in C and {ctypes.sizeof(made)} in Python")
    for result, name, arguments in FUNCTION.findall(_text()):
        function = getattr(found, name)
        function.restype = NUMBERS.get(result)
        function.argtypes = [
            ctypes.c_void_p if "*" in each else NUMBERS[each.split()[0]] for each in arguments.split(",")
        ]
    return found


def constant(name: str) -> int:
    """A whole number that the kernel exports as cocos_NAME."""
    return ctypes.c_int64.in_dll(build.loaded(), f"cocos_{name}").value


def life(name: str) -> int:
    """Address of the functions of a primitive."""
    return ctypes.addressof(ctypes.c_char.in_dll(build.loaded(), f"cocos_life_{name}"))
