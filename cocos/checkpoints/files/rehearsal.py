"""Rehearse a pickle of torch before torch loads it: what it would build, and how large.

torch's own reader with `weights_only=True` runs no code, but it believes sizes: `bytearray(2**31)`, a storage of more
numbers than the file has, a tensor that repeats four bytes ten billion times, a tuple nested a million deep as a key
(Python's hash of it overflows the stack). Here every operation that torch would carry out is carried out on stand-ins,
and sizes are compared with those of the file.
"""

import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO

import torch

from cocos.checkpoints.files.operations import TooMuch, lines, most_unpacked, of_today, operations

MAX_TUPLE_DEPTH = 50  # tuples within tuples
MAX_TUPLE_ITEMS = 10_000  # items of a tuple, with those of the tuples in it
MAX_COSTLY_KEYS = 10_000  # keys of dicts that are neither text nor ordinary numbers: their hashes can collide
# Bytes of one number of a storage, by the name of its class without `Storage`.
STORAGE_WIDTHS = {
    **dict.fromkeys(("Byte", "Char", "Bool", "QInt8", "QUInt8", "QUInt4x2", "QUInt2x4", "Untyped"), 1),
    **dict.fromkeys(("Half", "BFloat16", "Short"), 2),
    **dict.fromkeys(("Float", "Int", "QInt32"), 4),
    **dict.fromkeys(("Double", "Long", "ComplexFloat"), 8),
    "ComplexDouble": 16,
}
TENSOR_BUILDERS = {f"torch._utils._rebuild_{name}" for name in ("tensor", "tensor_v2", "tensor_v3", "qtensor")}
TEXT_CODES = {"latin1", "latin-1", "latin_1", "iso-8859-1", "utf-8", "utf8", "ascii"}
# Functions of torch and Python that take numbers; no other name of torch may be called with one.
TAKES_NUMBERS = {
    *TENSOR_BUILDERS,
    "torch.Size",
    "torch.device",
    "builtins.complex",
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_parameter_with_state",
    "torch._utils._rebuild_sparse_tensor",
    "torch._utils._rebuild_meta_tensor_no_storage",
}


class UnsafeOperation(ValueError):
    """An operation that torch does not read safely."""


class Name(str):
    """A class or function, by its name."""


class TupleItems(tuple):
    """A tuple of stand-ins, with its depth and the number of all items in it."""

    def __new__(cls, items=()):
        """Make it, unless it is nested too deep, or too large."""
        made = super().__new__(cls, items)
        inner = [item for item in items if isinstance(item, TupleItems)]
        made.depth = 1 + max((item.depth for item in inner), default=0)
        made.nodes = len(items) + sum(item.nodes for item in inner)
        if made.depth > MAX_TUPLE_DEPTH or inner and made.nodes > MAX_TUPLE_ITEMS:
            raise TooMuch(f"tuples nested {made.depth} deep with {made.nodes} items")
        return made


@dataclass(slots=True)
class Storage:
    """A storage: its bytes in the file, and the bytes of one number."""

    total: int
    width: int


@dataclass(slots=True)
class StandIn:
    """Any other object: the function that made it, and the number of its items whose hashes could collide."""

    kind: str
    costly_items: int = 0


def _is_number(value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _numbers(value) -> bool:
    return _is_number(value) or isinstance(value, TupleItems) and any(_numbers(item) for item in value)


def _costly(key) -> bool:
    """Whether a file can choose the hash of a key."""
    return isinstance(key, TupleItems | StandIn | Storage) or _is_number(key) and abs(key) >= 2**60


class _Rehearsal:
    """The stack machine of one pickle; its arguments are those of `rehearse`."""

    def __init__(self, size: Callable[[str, int], None], inert: Callable[[str], bool], names: set[str]):
        self.size, self.inert, self.names = size, inert, names
        self.stack, self.marks, self.memo, self.storages, self.costly = [], [], {}, {}, 0

    def above_mark(self) -> list:
        """Take the items above the last mark off the stack."""
        items, self.stack = self.stack, self.marks.pop()
        return items

    def step(self, code: bytes, argument: bytes) -> None:
        """Carry out one operation."""
        stack = self.stack
        if code in {b"q", b"r"}:
            self.memo[int.from_bytes(argument, "little")] = stack[-1]
        elif code in {b"h", b"j"}:
            stack.append(self.memo[int.from_bytes(argument, "little")])
        elif code == b"(":
            self.marks.append(stack)
            self.stack = []
        elif code == b"t":
            items = self.above_mark()
            self.stack.append(TupleItems(items))
        elif code in {b"\x85", b"\x86", b"\x87"}:
            number = code[0] - 0x84
            if len(stack) < number:
                raise ValueError("a tuple of too few items")
            stack[-number:] = [TupleItems(stack[-number:])]
        elif code == b"c":
            name = Name(of_today(*lines(argument)))
            self.names.add(str(name))
            stack.append(name)
        elif code == b"Q":
            stack.append(self.storage(stack.pop()))
        elif code == b"R":
            arguments = stack.pop()
            stack[-1] = self.call(stack[-1], arguments)
        elif code == b"\x81":
            arguments = stack.pop()
            if isinstance(arguments, tuple) and _numbers(arguments) and not self.inert(stack[-1]):
                raise TooMuch(f"a new {stack[-1]} of a given size")
            stack[-1] = StandIn(str(stack[-1]))
        elif code == b"b":
            self.build(stack.pop())
        elif code in {b"a", b"e"}:
            items = [stack.pop()] if code == b"a" else self.above_mark()
            self.stack[-1].costly_items += sum(map(_costly, items))
        elif code in {b"s", b"u"}:
            items = [stack.pop(-2), stack.pop()] if code == b"s" else self.above_mark()
            self.keys(sum(map(_costly, items[::2])))
            if not isinstance(self.stack[-1], StandIn):
                raise ValueError("items of no dictionary")
        elif code not in {b"\x80", b"."}:
            raise UnsafeOperation(f"Unsupported operand {code[0]}")

    def keys(self, costly: int) -> None:
        """Count keys whose hashes the file can choose."""
        self.costly += costly
        if self.costly > MAX_COSTLY_KEYS:
            raise TooMuch(f"more than {MAX_COSTLY_KEYS} keys that are neither text nor ordinary numbers")

    def storage(self, identity) -> Storage:
        """Find the storage that a persistent id names."""
        if not isinstance(identity, TupleItems) or len(identity) < 5 or _ascii(identity[0]) != "storage":
            raise ValueError("a persistent id that names no storage")
        _, kind, key, _, numel, *view = identity
        name = str(kind).rpartition(".")[2].removesuffix("Storage") if isinstance(kind, Name) else ""
        width = STORAGE_WIDTHS.get(name)
        if width is None or not _is_number(numel) or numel < 0:
            raise ValueError(f"a storage of {numel!r} numbers of {kind}"[:120])
        if any(part is not None for part in view):
            raise ValueError("a view of a storage")
        place = _ascii(key)
        if place not in self.storages:
            self.size(place, numel * width)
            self.storages[place] = numel * width
        return Storage(self.storages[place], width)

    def call(self, function, arguments):
        """Return the stand-in for the result of a function."""
        if not isinstance(arguments, tuple) or not isinstance(function, str):
            raise ValueError("a call of something else than a function")
        if function in TENSOR_BUILDERS:
            self.view(*arguments[:4], dtype=arguments[6] if function.endswith("v3") else None)
        elif function == "torch._tensor._rebuild_from_type_v2":
            return self.call(arguments[0], arguments[2])
        elif function == "torch.Size" and len(arguments) == 1 and isinstance(arguments[0], tuple):
            return arguments[0]
        elif function == "_codecs.encode":
            if len(arguments) != 2 or _ascii(arguments[1]).lower() not in TEXT_CODES:
                raise TooMuch("text in an unusual code")
            return b""
        elif function in {"builtins.set", "collections.Counter", "collections.OrderedDict"}:
            if any(isinstance(item, int | tuple) for item in arguments):
                raise TooMuch(f"a {function} of a number or tuple")
            self.keys(sum(item.costly_items for item in arguments if isinstance(item, StandIn)))
        elif function not in TAKES_NUMBERS and _numbers(arguments) and not self.inert(function):
            raise TooMuch(f"{function} of a given size")
        return StandIn("tensor" if function in TENSOR_BUILDERS else str(function))

    def build(self, state) -> None:
        """Give a state to the top of the stack; that of a tensor says which view of which storage it is."""
        target = self.stack[-1]
        if isinstance(state, tuple) and not (isinstance(target, StandIn) and self.inert(target.kind)):
            self.view(*state)

    def view(self, storage, offset, size, stride, dtype=None) -> None:
        """Check a tensor, a view of a storage."""
        shape = isinstance(size, tuple) and isinstance(stride, tuple) and len(size) == len(stride) <= 64
        if not isinstance(storage, Storage) or not shape or not all(map(_is_number, (offset, *size, *stride))):
            raise ValueError("a tensor of no storage, shape or stride")
        if min(offset, *size, *stride, 0) < 0:
            raise ValueError(f"a tensor of shape {tuple(size)} and stride {tuple(stride)}"[:120])
        width = storage.width
        if isinstance(dtype, Name) and isinstance(kind := getattr(torch, dtype.rpartition(".")[2], None), torch.dtype):
            width = kind.itemsize
        last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        if 0 not in size and (last + 1) * width > storage.total:
            raise ValueError(f"a tensor of shape {tuple(size)} in a storage of {storage.total} bytes"[:120])
        if (asked := math.prod(size) * width) > most_unpacked(storage.total):
            raise TooMuch(f"a tensor that repeats {storage.total} bytes until they are {asked}")


def _ascii(value) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else str(value)


# Operations that push a value made from their argument alone.
PUSHING = {
    b"N": lambda raw: None,
    b"\x88": lambda raw: True,
    b"\x89": lambda raw: False,
    b")": lambda raw: TupleItems(),
    b"]": lambda raw: StandIn("list"),
    b"}": lambda raw: StandIn("dict"),
    b"\x8f": lambda raw: StandIn("set"),
    b"J": lambda raw: int.from_bytes(raw, "little", signed=True),
    b"K": lambda raw: raw[0],
    b"M": lambda raw: int.from_bytes(raw, "little"),
    b"G": lambda raw: struct.unpack(">d", raw)[0],
    b"X": lambda raw: str(raw, "utf-8", "surrogatepass"),
    b"U": bytes,
    b"\x8a": lambda raw: int.from_bytes(raw, "little", signed=True),
}


def rehearse(
    stream: IO[bytes],
    size: Callable[[str, int], None],
    inert: Callable[[str], bool],
    names: set[str],
    left: Iterator[int],
) -> None:
    """Go through the pickle at the start of a stream as torch would, on stand-ins.

    Args:
        stream: left behind the end of the pickle.
        size: called with the key of each storage and the bytes that it asks for; raises if the file has fewer.
        inert: name of a class -> whether the class only keeps its arguments, whatever they are.
        names: receives the names of all classes and functions that the pickle imports.
        left: operations that the pickles of the file may still have.

    Raises:
        UnsafeOperation: an operation that torch does not read safely.
        ValueError: a damaged pickle, or one that asks for more than the file has.
    """
    machine, number = _Rehearsal(size, inert, names), 0
    try:
        for code, argument in operations(stream, left):
            number += 1
            if (push := PUSHING.get(code)) is not None:
                machine.stack.append(push(argument))
            else:
                machine.step(code, argument)
    except (IndexError, KeyError, AttributeError, TypeError) as error:
        raise ValueError(f"nothing to work on at operation {number} of its pickle") from error
