"""Structs of the kernel as `ctypes` classes, field by field as in its C source; `loaded` compares their sizes."""

import ctypes
import functools
from typing import Any, ClassVar

import torch
from torch import Tensor

from cocos.base.errors import InputError
from cocos.engine import devices
from cocos.engine.kernel import native

INT32, INT64, FLOAT, DOUBLE = ctypes.c_int32, ctypes.c_int64, ctypes.c_float, ctypes.c_double
# Type of a pointer to anything; a pointer to elements of one type is given by the dtype of its tensors.
ANY = ctypes.c_void_p


class Struct(ctypes.Structure):
    """Arguments of a kernel function: fields are set by name from numbers and tensors, which the struct keeps alive."""

    # Dtype of the tensors that each pointer takes, by field.
    POINTED: ClassVar[dict[str, torch.dtype]] = {}

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


def _struct(name: str, *fields: tuple) -> type[Struct]:
    """Make a struct class of (type, names separated by spaces) or (type, names, length of each array)."""
    layout, pointed = [], {}
    for kind, names, *length in fields:
        for field in names.split():
            pointed |= {field: kind} if isinstance(kind, torch.dtype) else {}
            element = ANY if isinstance(kind, torch.dtype) else kind
            layout.append((field, element * length[0] if length else element))
    return type(name, (Struct,), {"_fields_": layout, "POINTED": pointed})


SIDE = _struct(
    "side",
    (ANY, "matrix"),
    (torch.int64, "order"),
    (torch.float64, "norm"),
    (torch.float32, "scale beside"),
    (torch.int64, "first last block"),
    (DOUBLE, "factor"),
    (INT32, "wide unit precise"),
)
VIEW = _struct(
    "view",
    (INT64, "size"),
    (SIDE, "sides", 2),
    (torch.float32, "origin"),
    (torch.float64, "centre"),
    (INT64, "d blocks"),
    (DOUBLE, "tie"),
    (INT32, "metric"),
)
AREA = _struct("area", (INT64, "row rows column columns"))
PLACES = _struct("places", (torch.int32, "row column"), (torch.float32, "score"), (INT64, "room found"))
PAIRS = _struct(
    "pairs",
    (INT64, "size"),
    (ANY, "left right"),
    (torch.int64, "of with_"),
    (torch.float64, "joined left_square right_square"),
    (INT64, "number d"),
    (INT32, "left_wide right_wide gaps"),
)
THRESHOLD = _struct(
    "threshold",
    (INT64, "size"),
    (torch.float32, "low high", 2),
    (torch.float64, "level", 2),
    (torch.int64, "above ties", 2),
    (torch.int32, "count"),
    (INT64, "step", 2),
    (INT64, "line at"),
    (INT32, "levels", 2),
)
ASKER = _struct(
    "asker",
    (torch.float64, "total"),
    (torch.float32, "top reference floor limit"),
    (torch.float64, "base offset"),
    (PLACES, "list"),
    (INT64, "step number kept"),
    (INT32, "full"),
)
LOGSUMEXP = _struct(
    "logsumexp",
    (INT64, "size"),
    (ASKER, "asking", 2),
    (DOUBLE, "room square root"),
    (FLOAT, "scale"),
    (INT32, "sides moments grows"),
)
SHARES = _struct(
    "shares",
    (INT64, "size"),
    (torch.int32, "row column"),
    (torch.float32, "score"),
    (INT64, "number queries"),
    (torch.float64, "base known"),
    (torch.float32, "low high"),
    (torch.int64, "above uncertain"),
    (torch.float64, "mass"),
    (DOUBLE, "eps scale off square root"),
    (INT32, "side fresh"),
)
PASS = _struct(
    "pass",
    (INT64, "size"),
    (ANY, "view"),
    (AREA, "part"),
    (torch.float32, "left right strip packed score"),
    (ANY, "life of"),
    (INT64, "number chunk block last begin patience"),
)
STRUCTS = {made.__name__: made for made in (VIEW, PAIRS, THRESHOLD, LOGSUMEXP, SHARES, PASS)}
# Arguments of the functions of the kernel, and the type of the result.
FUNCTIONS = {
    "cocos_pairs": ((ANY,), None),
    "cocos_shares": ((ANY, ANY), None),
    "cocos_pack": ((ANY, INT64, INT64, INT64, ANY), None),
    "cocos_pass": ((ANY,), INT64),
}


def struct(name: str, **fields) -> Struct:
    """Create an argument struct of the kernel, with its size and the given fields set."""
    made = STRUCTS[name]()
    made.set(size=ctypes.sizeof(made), **fields)
    return made


def loaded() -> ctypes.CDLL | None:
    """Return the kernel, after checking that C and Python agree on the sizes of its structs; None if there is none."""
    library = native.library()
    return None if library is None else _declared_functions(library)


@functools.cache
def _declared_functions(library: ctypes.CDLL) -> ctypes.CDLL:
    for name, made in STRUCTS.items():
        if (size := constant(f"sizeof_{name}")) != ctypes.sizeof(made):
            raise InputError(
                f"kernel: {name} has {size} bytes, expected {ctypes.sizeof(made)}; it was built from other sources, "
                "build it again: python cocos/engine/kernel/build.py"
            )
    for name, (arguments, result) in FUNCTIONS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, result
    return library


def kernel() -> ctypes.CDLL:
    """Return the kernel, where `loaded` is not None.

    Raises:
        RuntimeError: there is none.
    """
    library = native.library()
    if library is None:
        raise RuntimeError(f"kernel: there is none, {native.reason()}")
    return library


def constant(name: str) -> int:
    """Read an integer that the kernel exports as cocos_NAME."""
    return ctypes.c_int64.in_dll(kernel(), f"cocos_{name}").value


def life(name: str) -> int:
    """Address of the `life` (the functions) of a primitive."""
    return ctypes.addressof(ctypes.c_char.in_dll(kernel(), f"cocos_life_{name}"))
