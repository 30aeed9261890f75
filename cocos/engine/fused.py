"""The compiled kernel within a pass: which readers it serves, and how a thread visits a part. The kernel's only user.

A reader that the kernel serves has an attribute `kernel`, a subclass of `Arguments`, which copies the reader's numbers
and the addresses of its tensors into the argument struct of the C primitive of that name. The kernel computes a strip
of scores while it is in the cache and passes it to all primitives (kernel/pass.c).
"""

import ctypes
import math
import weakref
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from cocos.engine import devices
from cocos.engine.kernel import native, structs
from cocos.engine.view import View

# Extra elements at the end of arrays of columns, so that vector loads stay inside; PAD in kernel.h.
PAD = 16
# Bytes of candidates packed at once if several strips of rows reuse them.
PACKED_BYTES = 12 * 2**20
# Bytes of candidates packed at once for a single strip: they stay in the second-level cache.
PACKED_BYTES_OF_ONE_STRIP = 2**20
# Largest size in bytes at which a whole side is packed once for all parts.
PACKED_SIDE_BYTES = 16 * 2**20
# Strips visited per call of the kernel; between calls Python reports progress and handles signals.
STRIPS_PER_CALL = 64
# Entries of a list: more than one tile can add for its rows and its columns (2 x 256 x 384).
LIST_ROOM = 2**18
# Memory reserved for a list, in multiples of its room; the system provides only the pages written to.
LIST_RESERVE = 4
# ROOT and SQUARE of kernel.h; other metrics are PRODUCT (0).
KERNEL_METRICS = {"euclidean": 2, "squared_euclidean": 1}


def kernel_name() -> str:
    """Name of the code that computes float32 scores on a CPU: `compiled C` or `plain torch`."""
    return "plain torch" if structs.loaded() is None else "compiled C"


def kernel_reason() -> str:
    """Why there is no compiled kernel; empty if there is one."""
    return native.reason()


def serves(view: View, reader) -> bool:
    """Whether the kernel shows the scores of this view to a reader."""
    if view.product != "float32" or devices.ahead(view.device) or structs.loaded() is None:
        return False
    return getattr(reader, "kernel", None) is not None


def deep(view: View, reader) -> int | None:
    """Number of products that a tile of a reader sums at a time, see `bounds.product`; None: in any order."""
    return structs.constant("deep") if serves(view, reader) else None


class Arguments:
    """Arguments of one C primitive for one thread; each primitive has a subclass.

    Args:
        reader: the Python reader that the primitive serves.
        view: the scores.
        chunk: maximum number of columns of a chunk, for scratch arrays; arrays read as vectors are `PAD` longer.
    """

    name: ClassVar[str]  # name of the struct and of the primitive in C

    def __init__(self, reader, view: View, chunk: int):
        self.reader, self.view = reader, view
        self.struct = structs.struct(self.name)

    def aim(self, state, part) -> None:
        """Point the struct at the state of a part, before the part is visited."""
        raise NotImplementedError

    def end(self) -> None:
        """Move lists from the kernel to the state, after the part has been visited."""


class Lists:
    """Memory of a `places` struct of the kernel, from which entries are taken in order of arrival, without a copy.

    Args:
        place: the struct, a field of the arguments.
        room: maximum number of entries.
    """

    def __init__(self, place: structs.Struct, room: int):
        self._place, self._room = place, room
        self._dtypes = {"row": torch.int32, "column": torch.int32, "score": torch.float32}
        self._ensure_room({})

    def _ensure_room(self, rest: dict[str, Tensor]) -> None:
        """Write to the rest of the memory, or to new memory if too little is left."""
        if not rest or len(rest["row"]) < self._room:
            rest = {name: torch.empty(LIST_RESERVE * self._room, dtype=dtype) for name, dtype in self._dtypes.items()}
        self._arrays = rest
        self._place.set(room=self._room, found=0, **rest)

    def take(self) -> dict[str, Tensor]:
        """Return the entries since the last call, (found,) each."""
        arrays, found = self._arrays, self._place.found
        self._ensure_room({name: array[found:] for name, array in arrays.items()})
        return {name: array[:found] for name, array in arrays.items()}


_view_structs: "weakref.WeakKeyDictionary[View, structs.Struct]" = weakref.WeakKeyDictionary()


def view_struct(view: View) -> structs.Struct:
    """Return the view as a struct of the kernel, cached."""
    if view not in _view_structs:
        _view_structs[view] = _struct(view)
    return _view_structs[view]


def _struct(view: View) -> structs.Struct:
    wide = view.origin is not None and view.origin.dtype == torch.float64
    metric = KERNEL_METRICS.get(view.metric, 0)
    struct = structs.struct("view", d=view.width, blocks=view.blocks, tie=view.tie, metric=metric)
    if view.origin is not None:
        struct.set(origin=view.origin.float().contiguous(), centre=view.origin.double().contiguous())
    for k, (side, matrix, block) in enumerate(zip(view.sides, view.matrices, (view.rows, view.columns), strict=True)):
        least, largest = side.order.aminmax() if len(side) else (0, 0)
        if not 0 <= least <= largest < len(matrix):
            raise IndexError(f"kernel: places refer to rows {int(least)} to {int(largest)} of {len(matrix)}")
        precise, factors = matrix.dtype == torch.float64 or wide or (side.unit and side.extreme), None
        if view.distances:
            square, one = side.norm.square().float(), torch.ones(len(side), dtype=torch.float32)
            factors = torch.stack([-square, -one] if k == 0 else [one, square], dim=1)
        struct.sides[k].set(
            matrix=matrix,
            **{name: getattr(side, name).contiguous() for name in ("order", "norm", "first", "last")},
            scale=(1 / side.norm).float() if side.unit and not precise else None,
            beside=factors,
            block=torch.from_numpy(np.ascontiguousarray(block, dtype=np.int64)),
            factor=2.0 if view.distances and k == 0 else 1.0,
            wide=matrix.dtype == torch.float64,
            unit=side.unit,
            precise=precise,
        )
    return struct


def shares(view: View, question: structs.Struct) -> None:
    """Count negatives by their share of a sum, see kernel/shares.c."""
    structs.kernel().cocos_shares(view_struct(view).address, question.address)


def _rounded_up(number: int, *units: int) -> int:
    """Round up to the next common multiple of the units."""
    return -(-number // math.lcm(*units)) * math.lcm(*units)


class Pass:
    """One pass of the kernel over a view; several threads may take workers of it."""

    def __init__(self, view: View, readers: list):
        self.view, self.readers = view, readers
        self.struct = view_struct(view)
        self.factors = view.width + 2 * view.distances
        self.panel, self.lanes, self.width, strip = map(structs.constant, ("panel", "lanes", "width", "strip"))
        most = _rounded_up(int(np.diff(view.columns).max()), self.panel)
        packed = PACKED_BYTES if len(view.sides[0]) > strip else PACKED_BYTES_OF_ONE_STRIP
        self.chunk = min(most, max(1, packed // (4 * self.width * self.factors)) * self.width)
        self.sides: list[Tensor | None] = [None, None]
        if view.blocks == 1:
            self._pack_once(int(len(view.sides[1]) <= len(view.sides[0])))  # the longer side is cut into parts

    def _pack_once(self, which: int) -> None:
        """Pack one side once for all parts, if it is small enough."""
        number = len(self.view.sides[which])
        if 4 * number * self.factors <= PACKED_SIDE_BYTES:
            packed = self.sides[which] = torch.empty(
                _rounded_up(number, self.panel, self.lanes), self.factors, dtype=torch.float32
            )
            structs.kernel().cocos_pack(self.struct.address, which, 0, number, packed.data_ptr())

    def worker(self) -> "Worker":
        """Create the buffers and arguments of one thread."""
        return Worker(self)


class Worker:
    """Buffers and arguments with which one thread visits parts."""

    def __init__(self, kernel_pass: Pass):
        self._view, self._strip = kernel_pass.view, structs.constant("strip")
        self._arguments = [reader.kernel(reader, kernel_pass.view, kernel_pass.chunk) for reader in kernel_pass.readers]
        number, (left, right) = len(self._arguments), kernel_pass.sides
        self._lives = (ctypes.c_void_p * number)(*(structs.life(each.name) for each in self._arguments))
        self._structs = (ctypes.c_void_p * number)(*(each.struct.address for each in self._arguments))
        packed = _rounded_up(kernel_pass.chunk, kernel_pass.panel, kernel_pass.lanes)
        self._pass = structs.struct(
            "pass",
            view=kernel_pass.struct.address,
            left=left,
            right=right,
            strip=torch.empty(0 if left is not None else self._strip, kernel_pass.factors, dtype=torch.float32),
            packed=torch.empty(0 if right is not None else packed, kernel_pass.factors, dtype=torch.float32),
            score=torch.empty(self._strip, kernel_pass.width, dtype=torch.float32),
            life=ctypes.addressof(self._lives),
            of=ctypes.addressof(self._structs),
            number=number,
            chunk=kernel_pass.chunk,
            patience=STRIPS_PER_CALL,
        )

    def see(self, part, states: list, counter: Callable[[int], None]) -> None:
        """Show the scores of a part to all readers; `counter` is called with the number of strips done since then."""
        view, kernel_pass, rows, columns = self._view, self._pass, part.rows, part.columns
        for arguments, state in zip(self._arguments, states, strict=True):
            arguments.aim(state, part)
        kernel_pass.part.set(row=rows.start, rows=rows.stop - rows.start)
        kernel_pass.part.set(column=columns.start, columns=columns.stop - columns.start)
        first, last = (0, 1) if view.blocks == 1 else np.searchsorted(view.rows, (rows.start, rows.stop)).tolist()
        kernel_pass.set(block=first, last=last, begin=0)
        steps, done = -(-(rows.stop - rows.start) // self._strip), 0
        while structs.kernel().cocos_pass(kernel_pass.address):
            within = kernel_pass.begin / (columns.stop - columns.start) if view.blocks == 1 else 0
            now = int(steps * (kernel_pass.block - first + within) / (last - first))
            counter(now - done)
            done = now
        for arguments in self._arguments:
            arguments.end()
        counter(steps - done)
