"""The kernel in a pass: which readers it serves, and how a thread sees a part with it. The only user of the kernel.

A reader that the kernel serves has an attribute `kernel`, a subclass of `Arguments`: it puts the tensors of the reader
and of its state into the argument struct of the C primitive of that name.
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
from cocos.engine.kernel import build, structs
from cocos.engine.kernel.structs import struct
from cocos.engine.view import View

__all__ = ["PAD", "Arguments", "Lists", "Pass", "deep", "kernel_name", "kernel_reason", "serves", "shares", "struct"]

PAD = 16  # numbers by which arrays of columns are longer, as in kernel.h
PACKED = 12 * 2**20  # bytes of candidates that are packed at once, for several strips of rows
ONCE = 2**20  # for one strip, which does not come back to them: they stay in the second-level cache
KEPT = 16 * 2**20  # bytes of a whole side up to which it is packed once, for all parts
PATIENCE = 64  # strips between two looks of Python
ROOM = 2**18  # entries of a list: more than a tile can add for its rows and its columns (2 x 256 x 384)
METRICS = {"euclidean": 2, "squared_euclidean": 1}  # ROOT and SQUARE of kernel.h; else PRODUCT
AGAIN = -1


def kernel_name() -> str:
    """`compiled C` or `plain torch`: which code sees float32 scores on a CPU."""
    return "plain torch" if structs.loaded() is None else "compiled C"


def kernel_reason() -> str:
    """Why there is no compiled kernel, with the compiler's last line; empty where there is one."""
    return build.reason()


def serves(view: View, reader) -> bool:
    """Whether the kernel shows the scores of this view to a reader."""
    if view.product != "float32" or devices.ahead(view.device) or structs.loaded() is None:
        return False
    return hasattr(reader, "kernel") and reader.kernel.fits(reader, view)


def deep(view: View, reader) -> int | None:
    """Factors that are summed up at a time in the tiles that a reader is shown: see `bounds.product`."""
    return structs.constant("deep") if serves(view, reader) else None


class Arguments:
    """The arguments of a primitive of the kernel, for one thread; a subclass for each.

    Args:
        reader: the primitive.
        view: the scores.
        chunk: columns of a chunk at most, for scratch; arrays that vectors are loaded from are `PAD` longer.
    """

    name: ClassVar[str]  # of the struct and of the primitive in C

    def __init__(self, reader, view: View, chunk: int):
        self.reader, self.view = reader, view
        self.struct = structs.struct(self.name)

    @classmethod
    def fits(cls, reader, view: View) -> bool:
        """Whether the kernel can serve this reader of this view."""
        return True

    def aim(self, state, part) -> None:
        """A part begins, with this state."""
        raise NotImplementedError

    def full(self) -> None:
        """`ready` found no room in C: make some, else it is asked again for ever."""
        raise NotImplementedError

    def end(self) -> None:
        """The part has been seen."""


class Lists:
    """Memory of a `places` struct of the kernel: entries are taken out as copies, in the order in which they came.

    Args:
        place: the struct, a field of the arguments.
        score: the scores are wanted.
        level: the numbers of the levels, or bands, are wanted.
        side: which of the two owners it was noted for is wanted.
        room: entries.
    """

    def __init__(
        self, place: structs.Struct, *, score: bool = True, level: bool = True, side: bool = True, room: int = ROOM
    ):
        self._place, wanted = place, {"row": torch.int32, "column": torch.int32}
        wanted |= {"score": torch.float32} if score else {}
        wanted |= {name: torch.int8 for name, there in (("level", level), ("side", side)) if there}
        self.arrays = {name: torch.empty(room, dtype=dtype) for name, dtype in wanted.items()}
        place.set(room=room, found=0, **self.arrays)

    def taken(self) -> dict[str, Tensor]:
        """The entries since the last call, (found,) each."""
        found, self._place.found = self._place.found, 0
        return {name: array[:found].clone() for name, array in self.arrays.items()}


_seen: "weakref.WeakKeyDictionary[View, structs.Struct]" = weakref.WeakKeyDictionary()


def seen(view: View) -> structs.Struct:
    """The view as the kernel reads it."""
    if view not in _seen:
        _seen[view] = _struct(view)
    return _seen[view]


def _struct(view: View) -> structs.Struct:
    wide = view.origin is not None and view.origin.dtype == torch.float64
    made = structs.struct("view", d=view.matrices[0].shape[1], blocks=view.blocks, tie=view.tie)
    made.set(metric=METRICS.get(view.metric, 0))
    if view.origin is not None:
        made.set(origin=view.origin.float().contiguous(), centre=view.origin.double().contiguous())
    for k, (side, matrix, block) in enumerate(zip(view.sides, view.matrices, (view.rows, view.columns), strict=True)):
        order = side.order.contiguous()
        if len(order) and not 0 <= int(order.amin()) <= int(order.amax()) < len(matrix):
            raise IndexError(
                f"kernel: places refer to rows {int(order.amin())} to {int(order.amax())} of {len(matrix)}"
            )
        precise = matrix.dtype == torch.float64 or wide or (side.unit and side.extreme)
        beside = None
        if view.distances:
            square, one = side.norm.square().float(), torch.ones(len(side))
            beside = torch.stack([-square, -one] if k == 0 else [one, square], dim=1)
        each = made.sides[k]
        each.set(
            matrix=matrix,
            order=order,
            norm=side.norm.contiguous(),
            scale=(1 / side.norm).float() if side.unit and not precise else None,
            beside=beside,
            first=side.first.contiguous(),
            last=side.last.contiguous(),
            block=torch.from_numpy(np.ascontiguousarray(block, dtype=np.int64)),
            factor=2.0 if view.distances and k == 0 else 1.0,
            wide=matrix.dtype == torch.float64,
            unit=side.unit,
            precise=precise,
        )
        made.keep(each)
    return made


def shares(view: View, asked: structs.Struct) -> None:
    """Count negatives by their share of a sum: see kernel/shares.c."""
    structs.loaded().cocos_shares(seen(view).address, asked.address)


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


class Pass:
    """One pass of the kernel over a view, for readers that it serves; several threads may take workers of it.

    Args:
        view: the scores.
        readers: see `serves`.
    """

    def __init__(self, view: View, readers: list):
        self.view, self.readers, self.struct = view, readers, seen(view)
        self.factors = view.matrices[0].shape[1] + 2 * view.distances
        panel, width = structs.constant("panel"), structs.constant("width")
        most = int(np.diff(view.columns).max())
        packed = PACKED if len(view.sides[0]) > structs.constant("strip") else ONCE
        self.chunk = min(_up(most, panel), max(1, packed // (4 * width * self.factors)) * width)
        self.sides: list[Tensor | None] = [None, None]
        if view.blocks == 1:
            turned = len(view.sides[1]) > len(view.sides[0])  # the longer side is cut into parts
            self._keep(int(not turned))

    def _keep(self, which: int) -> None:
        """Pack the side that is not cut, if it is small enough, once for all parts."""
        number, unit = len(self.view.sides[which]), math.lcm(structs.constant("panel"), structs.constant("lanes"))
        if 4 * number * self.factors <= KEPT:
            self.sides[which] = torch.empty(_up(number, unit), self.factors)
            structs.loaded().cocos_pack(self.struct.address, which, 0, number, self.sides[which].data_ptr())

    def worker(self) -> "Worker":
        """What one thread needs."""
        return Worker(self)


class Worker:
    """Room in which one thread sees parts.

    Args:
        whole: the pass.
    """

    def __init__(self, whole: Pass):
        self._whole, self._kernel = whole, structs.loaded()
        strip, width, lanes = (structs.constant(name) for name in ("strip", "width", "lanes"))
        self._arguments = [reader.kernel(reader, whole.view, whole.chunk) for reader in whole.readers]
        number = len(self._arguments)
        chunk = 0 if whole.sides[1] is not None else _up(whole.chunk, math.lcm(structs.constant("panel"), lanes))
        self._lives = (ctypes.c_void_p * number)(*(structs.life(each.name) for each in self._arguments))
        self._structs = (ctypes.c_void_p * number)(*(each.struct.address for each in self._arguments))
        self._pass = structs.struct(
            "pass",
            view=whole.struct.address,
            left=whole.sides[0],
            right=whole.sides[1],
            strip=torch.empty(0 if whole.sides[0] is not None else strip, whole.factors),
            packed=torch.empty(chunk, whole.factors),
            score=torch.empty(strip, width),
            life=ctypes.addressof(self._lives),
            of=ctypes.addressof(self._structs),
            number=number,
            chunk=whole.chunk,
        )

    def see(self, part, states: list, counter: Callable[[int], None]) -> None:
        """Show the scores of a part to all readers.

        Args:
            part: rows and columns.
            states: of the readers, in their order.
            counter: called with the number of strips of rows that were seen.
        """
        view, todo = self._whole.view, self._pass
        for arguments, state in zip(self._arguments, states, strict=True):
            arguments.aim(state, part)
        rows, columns = part.rows, part.columns
        todo.part.set(row=rows.start, rows=rows.stop - rows.start)
        todo.part.set(column=columns.start, columns=columns.stop - columns.start)
        first, last = (0, 1) if view.blocks == 1 else np.searchsorted(view.rows, (rows.start, rows.stop)).tolist()
        todo.set(block=first, last=last, begin=0, row=0, column=0, strips=0, patience=PATIENCE, opened=0, filled=0)
        steps, done = -(-(rows.stop - rows.start) // structs.constant("strip")), 0
        while code := self._kernel.cocos_pass(todo.address):
            if code != AGAIN:
                self._arguments[code - 1].full()
                continue
            share = (
                todo.begin / (columns.stop - columns.start)
                if view.blocks == 1
                else (todo.block - first) / (last - first)
            )
            now = int(steps * share)
            counter(now - done)
            done = now
        for arguments in self._arguments:
            arguments.end()
        counter(steps - done)
