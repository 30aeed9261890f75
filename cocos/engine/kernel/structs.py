"""Structs of the kernel as `ctypes` classes, parsed from the C source, so that no layout is written down twice."""

import ctypes
import functools
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from cocos.engine import devices
from cocos.engine.kernel import build, native

# The ctypes class and the torch dtype of each C type that structs use.
C_TYPES = {
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
    """Arguments of a kernel function: fields are set by name from numbers and tensors, which the struct keeps alive."""

    # Dtype of the tensors that each pointer takes; None: any.
    POINTED: ClassVar[dict[str, torch.dtype | None]] = {}

    def set(self, **fields) -> None:
        """Set fields: pointers from contiguous host tensors of the right dtype, arrays from sequences, or numbers."""
        whole: Any = self
        while whole._b_base_ is not None:  # `ctypes` creates nested structs anew on every access
            whole = whole._b_base_
        kept, address = whole.__dict__.setdefault("kept", {}), self.address
        for name, value in fields.items():
            if not hasattr(type(self), name):
                raise ValueError(f"kernel: {type(self).__name__} has no field {name}")
            kept[address, name] = value
            if isinstance(value, Tensor):
                setattr(self, name, self._pointer(name, value))
            elif isinstance(value, tuple | list):
                place = getattr(self, name)
                for k, each in enumerate(value):
                    place[k] = self._pointer(name, each) if isinstance(each, Tensor) else each
            else:
                setattr(self, name, value)

    def _pointer(self, name: str, value: Tensor) -> int:
        wanted = self.POINTED.get(name) or value.dtype
        if value.dtype != wanted or not value.is_contiguous() or devices.ahead(value.device):
            found = f"{value.dtype} on {value.device} with strides {value.stride()}"
            raise ValueError(f"kernel: {name} is {found}, expected contiguous {wanted} on the host")
        return value.data_ptr()

    @property
    def address(self) -> int:
        """Memory address of the struct."""
        return ctypes.addressof(self)


@functools.cache
def _source_code() -> str:
    """Return the kernel's C source without comments, in the order in which kernel.c includes its files."""
    names = re.findall(r'#include "(.*)"', build.KERNEL_SOURCE.read_text("utf-8"))
    text = "".join(Path(build.KERNEL_FOLDER, name).read_text("utf-8") for name in names)
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


@functools.cache
def _structs() -> dict[str, type[Struct]]:
    """Parse the structs of the kernel, by name, except internal ones with vectors or scratch memory."""
    made: dict[str, type[Struct]] = {}
    for body, name in TYPEDEF.findall(_source_code()):
        with suppress(KeyError, ValueError):
            made[name] = _struct_class(name, body, made)
    return made


def _struct_class(name: str, body: str, made: dict[str, type[Struct]]) -> type[Struct]:
    """Build a struct class from its C fields and the structs before it."""
    fields, pointed = [], {}
    for kind, names in FIELDS.findall(body):
        for each in map(str.strip, names.split(",")):
            field, length = NAME.findall(each)[0]
            of: Any
            if "*" in each:
                pointed[field], of = C_TYPES[kind][1] if kind in C_TYPES else None, ctypes.c_void_p
            else:
                of = C_TYPES[kind][0] if kind in C_TYPES else made[kind]
            fields.append((field, of * int(length) if length else of))
    return type(name, (Struct,), {"_fields_": fields, "POINTED": pointed})


def struct(name: str, **fields) -> Struct:
    """Create an argument struct of the kernel, with its size and the given fields set."""
    made = _structs()[name]()
    made.set(size=ctypes.sizeof(made), **fields)
    return made


def loaded() -> ctypes.CDLL | None:
    """Return the kernel, after checking that C and Python agree on the sizes of its structs; None if there is none."""
    found = native.library()
    return None if found is None else _declared_fields(found)


@functools.cache
def _declared_fields(found: ctypes.CDLL) -> ctypes.CDLL:
    for name, made in _structs().items():
        if hasattr(made, "size") and (size := constant(f"sizeof_{name}")) != ctypes.sizeof(made):
            raise RuntimeError(f"kernel: {name} has {size} bytes in C and {ctypes.sizeof(made)} in Python")
    for result, name, arguments in FUNCTION.findall(_source_code()):
        function = getattr(found, name)
        function.restype = ctypes.c_int64 if result == "int64_t" else None
        function.argtypes = [ctypes.c_void_p if "*" in each else ctypes.c_int64 for each in arguments.split(",")]
    return found


def kernel() -> ctypes.CDLL:
    """Return the kernel, where `loaded` is not None.

    Raises:
        RuntimeError: there is none.
    """
    found = native.library()
    if found is None:
        raise RuntimeError(f"kernel: there is none, {native.reason()}")
    return found


def constant(name: str) -> int:
    """Read an integer that the kernel exports as cocos_NAME."""
    return ctypes.c_int64.in_dll(kernel(), f"cocos_{name}").value


def life(name: str) -> int:
    """Address of the `life` (the functions) of a primitive."""
    return ctypes.addressof(ctypes.c_char.in_dll(kernel(), f"cocos_life_{name}"))
