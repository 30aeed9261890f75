"""The product and what sees its scores as one function of the kernel, for float32 on a CPU.

The rows are visited in strips, the columns in blocks whose factors are packed. What sees the scores is a `Watch`: the
address of a structure of the kernel, of its own for every thread.
"""

import ctypes
import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from cocos.tiles._build import loaded
from cocos.tiles._compiled import check, few, within
from cocos.tiles._plain import Owners

__all__ = ["Above", "Exponentials", "Room", "Sigmoids", "Strip", "Watch", "pack", "panel", "strip", "width"]

WIDTH = 384  # columns of a tile, so that one of a strip stays in the cache
ROOM = 200_000  # places that a watch has room for: more than a tile can give, of rows and columns
MANY = 2**15  # places that wait until the next strip
PAD = 16
SPARE = 2**21  # numbers of a room that is kept for the next small pass: its pages cost more than its product


def strip() -> int:
    """Rows of a strip at most."""
    return ctypes.c_int.in_dll(loaded(), "cocos_strip").value


def panel() -> int:
    """Candidates that are packed side by side."""
    return ctypes.c_int.in_dll(loaded(), "cocos_panel").value


def _wide() -> int:
    return ctypes.c_int.in_dll(loaded(), "cocos_wide").value


def _tall() -> int:
    return ctypes.c_int.in_dll(loaded(), "cocos_tall").value


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def width(tile: tuple[int, int] | None) -> int:
    """Columns of a tile: those that are asked for, in whole panels and vectors, if they fit the cache."""
    return min(_up(tile[1], math.lcm(panel(), PAD)), WIDTH) if tile else WIDTH


def pack(
    rows: Tensor,
    packed: Tensor,
    start: int = 0,
    *,
    left: bool = False,
    order: Tensor | None = None,
    origin: Tensor | None = None,
    scale: Tensor | None = None,
    factor: float = 1.0,
    more: Tensor | None = None,
) -> None:
    """Put rows, (n, d), side by side as the kernel multiplies them: factor · scale · (row - origin).

    Args:
        rows: float32, in lines.
        packed: room for them, whole vectors of rows of scores and whole panels of columns, (N, d).
        start: row of `packed` to begin with, that of a panel.
        left: they are rows of scores, not columns.
        order: (k,) int64, which of the rows; None: all of them.
        origin: (d,) float32.
        scale: (k,) float32, of each.
        factor: of all.
        more: (k, 2) float32: two numbers that follow each row, which is d + 2 long then.

    Raises:
        ValueError: a tensor that does not fit the others.
    """
    number, side = len(rows) if order is None else len(order), _tall() if left else panel()
    width, given = rows.shape[1], len(rows)
    if rows.dtype != torch.float32 or rows.stride(1) != 1 or rows.stride(0) < width:
        raise ValueError(f"kernel: rows are {rows.dtype} with strides {rows.stride()}, expected lines of float32")
    check("packed", packed, torch.float32, len(packed), width + (0 if more is None else 2))
    check("order", order, torch.int64, number)
    check("origin", origin, torch.float32, width)
    check("scale", scale, torch.float32, number)
    check("more", more, torch.float32, number, 2)
    if start < 0 or start % side or start + _up(number, max(side, _wide())) > len(packed):
        raise ValueError(f"kernel: {number} rows from {start} on do not fit {len(packed)} packed ones")
    if order is not None:
        within("order", order, given)
    loaded().cocos_pack(
        rows.data_ptr(),
        None if order is None else order.data_ptr(),
        number,
        rows.shape[1],
        rows.stride(0),
        None if origin is None else origin.data_ptr(),
        None if scale is None else scale.data_ptr(),
        factor,
        None if more is None else more.data_ptr(),
        side,
        packed.data_ptr() + packed.element_size() * start * packed.shape[1],
    )


class Room:
    """Memory of float32 numbers, taken from what the last pass gave back, if that is enough."""

    _kept: ClassVar[list[Tensor]] = []

    def __init__(self, number: int):
        try:
            kept = self._kept.pop()
        except IndexError:
            kept = torch.empty(0)
        self._whole = kept if len(kept) >= number else torch.empty(number)
        self._taken = 0

    @classmethod
    def of(cls, block: int, factors: int, columns: int, threads: int) -> "Room":
        """Room for a packed block, and for strips of so many threads against tiles of so many columns."""
        return cls(_up(block, panel()) * factors + threads * strip() * (factors + columns))

    def take(self, rows: int, columns: int) -> Tensor:
        """The next numbers, as a matrix."""
        start = self._taken
        self._taken += rows * columns
        return self._whole[start : self._taken].view(rows, columns)

    def block(self, block: int, factors: int) -> Tensor:
        """The next numbers, for so many packed columns, in whole panels."""
        return self.take(_up(block, panel()), factors)

    def give_back(self) -> None:
        """Nobody looks at it any more."""
        if len(self._whole) <= SPARE and not self._kept:
            self._kept.append(self._whole)


class Watch(Protocol):
    """What sees the scores of one strip and one block."""

    kind: int
    address: int

    def aim(self, rows: slice, columns: slice) -> None:
        """Look at these rows and columns, of which nothing has been seen."""

    def drain(self) -> None:
        """Take what was found out of the kernel's room."""

    def settle(self) -> None:
        """The strip has been seen: take it in. Called for one strip after the other."""

    def close(self) -> None:
        """All strips against this block have been seen."""


class Strip:
    """Room in which one thread visits strips.

    Args:
        watches: what sees the scores.
        room: where it is taken from.
        factors: of a row.
        columns: of a tile, as `width` gives them.
    """

    def __init__(self, watches: list[Watch], room: Room, factors: int, columns: int):
        self.watches, self.columns, self._aimed = watches, columns, False
        self.left, self.tile = room.take(strip(), factors), room.take(strip(), columns)
        self._kinds = (ctypes.c_int32 * len(watches))(*(watch.kind for watch in watches))
        self._states = (ctypes.c_void_p * len(watches))(*(watch.address for watch in watches))

    def visit(
        self,
        right: Tensor,
        rows: slice,
        columns: slice,
        own: tuple[np.ndarray, np.ndarray],
        *,
        root: bool,
    ) -> None:
        """Show the scores of a strip, whose rows are packed into `left`, and a block to all watches.

        Args:
            right: packed rows of the block.
            rows: places of the strip.
            columns: places of the block.
            own: of the rows of the strip, the first place that is no negative and one after the last, int64.
            root: the product gives squares of distances.

        Raises:
            ValueError: more rows or columns than there is room for.
        """
        self._aimed = True
        for watch in self.watches:
            watch.aim(rows, columns)
        number, at = columns.stop - columns.start, 0
        check("right", right, torch.float32, len(right), self.left.shape[1])
        if rows.stop - rows.start > min(strip(), *map(len, own)) or _up(number, panel()) > len(right):
            raise ValueError(f"kernel: {rows} and {columns} do not fit a strip and the {len(right)} packed columns")
        while at < number:
            at = loaded().cocos_pass(
                self.left.data_ptr(),
                right.data_ptr(),
                rows.stop - rows.start,
                number,
                right.shape[1],
                self.columns,
                root,
                rows.start,
                columns.start,
                at,
                own[0].ctypes.data,
                own[1].ctypes.data,
                self.tile.data_ptr(),
                len(self.watches),
                self._kinds,
                self._states,
            )
            for watch in self.watches if at < number else ():
                watch.drain()

    def close(self) -> None:
        """All strips against the block have been seen."""
        if self._aimed:
            self._aimed = False
            for watch in self.watches:
                watch.close()


def _fields(**kinds: str) -> list[tuple[str, type]]:
    types = {"p": ctypes.c_void_p, "l": ctypes.c_int64, "f": ctypes.c_float, "i": ctypes.c_int32}
    return [(name, types[kind]) for kind, names in kinds.items() for name in names.split()]


class _Exponentials(ctypes.Structure):
    _fields_ = _fields(
        p="row_total row_top row_limit row_others row_offset column_sum column_top column_limit column_total "
        "column_known column_others column_offset work top row_floor column_floor at of score sign",
        l="row_step column_step room found",
        f="scale slack square",
        i="spread fresh",
    )


class _Levels(ctypes.Structure):
    _fields_ = _fields(
        p="row_low row_high row_count column_low column_high column_count row_new column_new at of level sign score "
        "again",
        l="column_step block_step room found repeated",
        i="row_levels column_levels dense",
    )


class _Sigmoids(ctypes.Structure):
    _fields_ = [
        *_fields(
            p="row_level row_cost row_rank row_above row_slope row_low row_high column_level column_cost column_rank "
            "column_above column_slope column_low column_high sums work at of level sign score",
            l="column_step block_step room found",
            f="scale reach slack",
        ),
        ("give", ctypes.c_double),
        *_fields(i="row_levels column_levels fresh"),
    ]


def _point(state: ctypes.Structure, offset: int = 0, **tensors: Tensor | None) -> None:
    """Set addresses: of places so many bytes into tensors."""
    for name, tensor in tensors.items():
        setattr(state, name, None if tensor is None else tensor.data_ptr() + offset)


@dataclass(eq=False)
class _Found:
    """Places that the kernel has written, taken out of its room as copies."""

    dtypes: tuple[torch.dtype, ...]

    room: int = ROOM

    def __post_init__(self):
        self.arrays = [torch.empty(self.room, dtype=dtype) for dtype in self.dtypes]
        self.parts: list[tuple[Tensor, ...]] = []

    def drain(self, state: ctypes.Structure) -> None:
        """Empty the room."""
        if state.found:
            self.parts.append(tuple(array[: state.found].clone() for array in self.arrays))
            state.found = 0

    def take(self, state: ctypes.Structure) -> list[tuple[Tensor, ...]]:
        """All that was found since the last call."""
        self.drain(state)
        parts, self.parts = self.parts, []
        return parts

    def many(self, state: ctypes.Structure) -> bool:
        """It is time to take them; with several threads after every strip, so that their order is that of one."""
        return bool(self.parts) or state.found > MANY or torch.get_num_threads() > 1


_ROWS = {"row_total": 8, "row_others": 8, "row_offset": 8, "row_top": 4, "row_limit": 4}  # bytes of a number


class Exponentials:
    """Sums of exponentials of a strip, and what may count of it: `cocos.tiles.exponentials`, for one thread.

    Args:
        columns: of the score matrix.
        block: columns of a block at most.
        two: the columns are summed as well.
        scale: of the exponent, in base 2.
        slack: by which the limits are lower, in units of score.
        square: a score may be off by square / |score| as well.
        floors: scores that are not above it are left out, of the rows, (n,), and of the columns, (more than their
            number,) or None; or one for all; None: all are taken.
        spread: as for `cocos.tiles.sums`.
    """

    kind = 0

    def __init__(
        self,
        block: int,
        *,
        two: bool,
        scale: float,
        slack: float,
        square: float,
        floors: tuple[Tensor, Tensor | None] | float | None,
        spread: bool,
    ):
        self.two, self.block = two, block + PAD
        self._found = _Found((torch.int32, torch.int32, torch.float32, torch.int8))
        self._sum = torch.zeros(3, self.block if two else 0, dtype=torch.float64)
        self._top, self._limit = torch.empty(2, self.block if two else 0)
        self._held = [torch.empty(3 * WIDTH), torch.empty(strip())]
        self._state = _Exponentials(scale=scale, slack=slack, square=square, spread=spread, room=ROOM)
        _point(self._state, work=self._held[0], top=self._held[1])
        self._floors = floors if isinstance(floors, tuple) else None
        if floors is not None and not self._floors:
            self._held.append(torch.full((max(strip(), self.block),), floors))
            _point(self._state, row_floor=self._held[-1], column_floor=self._held[-1])
        _point(self._state, **dict(zip(("at", "of", "score", "sign"), self._found.arrays, strict=True)))
        if two:
            _point(self._state, column_sum=self._sum, column_top=self._top, column_limit=self._limit)
            self._state.column_step = self.block
        self.address, self._owners, self._at = ctypes.addressof(self._state), None, None

    def aim(
        self,
        rows: slice,
        columns: slice,
        owners: tuple[Owners, Owners | None],
        fresh: tuple[bool, bool],
        *,
        given: bool,
    ) -> None:
        """See `Watch`.

        Args:
            rows: of the strip.
            columns: of the block.
            owners: of all rows, added to at once, and of all columns, added to by `settle`.
            fresh: whether limits of the rows, and of the columns, follow from their sums; if not, they stay.
            given: limits of the columns may have been set since the last strip by others than this watch.
        """
        state, copied = self._state, given
        state.fresh = fresh[0] + 2 * fresh[1]
        if self._owners is not owners:
            self._owners, self._at = owners, None
            first = owners[0]
            self._row = {name: getattr(first, name.removeprefix("row_")).data_ptr() for name in _ROWS}
            state.row_step = first.total.stride(0)
        for name, size in _ROWS.items():
            setattr(state, name, self._row[name] + size * rows.start)
        if self._floors:
            _point(state, 4 * rows.start, row_floor=self._floors[0])
            _point(state, 4 * columns.start, column_floor=self._floors[1])
        if self.two and self._at != columns.start:
            self._at, self._number, second = columns.start, columns.stop - columns.start, owners[1]
            place = 8 * columns.start
            _point(state, place, column_total=second.total, column_known=second.known)
            _point(state, place, column_others=second.others, column_offset=second.offset)
            self._known = (second.total.data_ptr() + place, second.total.stride(0))
            self._known += tuple(each.data_ptr() + place // 2 for each in (second.top, second.limit))
            copied = True
        if self.two and copied:
            self._limit[: self._number + PAD] = owners[1].limit[columns.start : columns.stop + PAD]

    def drain(self) -> None:
        """See `Watch`."""
        self._found.drain(self._state)

    def taken(self) -> tuple[Tensor, ...]:
        """What is in the kernel's room: rows, columns, scores and signs, as `cocos.tiles.above`, not copied."""
        number, self._state.found = self._state.found, 0
        return tuple(array[:number] for array in self._found.arrays)

    def settle(self) -> list[tuple[Tensor, ...]]:
        """See `Watch`; gives what was found, if it is much, as `taken` does."""
        if self.two:
            loaded().cocos_strip_seen(self.address, self._number, 3 if self._state.spread else 1, *self._known)
        return self._found.take(self._state) if self._found.many(self._state) else []

    def close(self) -> list[tuple[Tensor, ...]]:
        """See `Watch`; gives what was found."""
        self._at = None
        return self._found.take(self._state)


class Above:
    """Counts above ascending levels of a strip, and what is undecided: `cocos.tiles.levels`, for one thread.

    Args:
        block: columns of a block at most.
        levels: lower and upper ends of the rows, (n, K) each, and of the columns, (L, more than their number) or None.
        dense: a tile with one undecided place in so many is not taken in; 0: all are.
        scored: the scores of undecided places are wanted as well.
    """

    kind = 1

    def __init__(
        self,
        block: int,
        levels: tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor] | None],
        dense: int,
        *,
        scored: bool = False,
    ):
        self._row, self._column = levels
        rows, columns = self._row[0].shape[1], 0 if self._column is None else len(self._column[0])
        few("levels of a row", rows)
        few("levels of a column", columns)
        names = ("at", "of", "level", "sign", "score")[: 5 if scored else 4]
        self._found = _Found((torch.int32, torch.int32, torch.int8, torch.int8, torch.float32)[: len(names)])
        self._count = torch.zeros(columns, block + PAD, dtype=torch.int32)
        new = torch.empty(strip(), rows, dtype=torch.int64), torch.empty(columns, WIDTH + PAD, dtype=torch.int32)
        self._held = [*new, torch.empty(block + PAD, dtype=torch.int32)]
        self._state = _Levels(row_levels=rows, column_levels=columns, dense=dense, room=ROOM, block_step=block + PAD)
        _point(self._state, row_new=new[0], column_new=new[1], again=self._held[2], column_count=self._count)
        _point(self._state, **dict(zip(names, self._found.arrays, strict=True)))
        self.address, self._at = ctypes.addressof(self._state), None

    def aim(self, rows: slice, columns: slice, count: Tensor) -> None:
        """See `Watch`.

        Args:
            rows: of the strip.
            columns: of the block.
            count: (n, K) int64 of the rows, added to.
        """
        (low, high), place = self._row, rows.start * count.shape[1]
        _point(self._state, 4 * place, row_low=low, row_high=high)
        _point(self._state, 8 * place, row_count=count)
        if self._column is not None and self._at != columns.start:
            low, high = self._column
            self._state.column_step = low.stride(0)
            _point(self._state, 4 * columns.start, column_low=low, column_high=high)
        self._at = columns.start

    def drain(self) -> None:
        """See `Watch`."""
        self._found.drain(self._state)

    def settle(self) -> tuple[list[tuple[Tensor, ...]], list[int]]:
        """See `Watch`; gives what is undecided, if it is much, and where tiles begin that were not taken in.

        What is undecided: rows, columns, levels and sides as in `cocos.tiles.levels`, rows and columns of the matrix.
        """
        number, self._state.repeated = self._state.repeated, 0
        again = self._held[2][:number].tolist() if number else []
        return self._found.take(self._state) if self._found.many(self._state) else [], again

    def close(self) -> tuple[Tensor, list[tuple[Tensor, ...]]]:
        """See `Watch`; gives the counts of the columns of the block, (L, block), and what is undecided."""
        count, self._at = self._count.clone(), None
        self._count.zero_()
        return count, self._found.take(self._state)


class Sigmoids:
    """Sums of sigmoids about levels, and the scores in a band about each, of a strip, for one thread.

    Args:
        block: columns of a block at most.
        levels: of the rows, (n, K), and of the columns, (L, more than their number) or None, float32.
        costs: as the levels, float32: a score matters whose slope s (1 - s) is above cost · rank², about that level.
        rank: (n, K) float64, ranks of the rows to begin with.
        scale: as for `cocos.tiles.sigmoids`.
        reach: as there.
        slack: by which a band is wider on each side, in units of score.
        give: by which sums may be too large.
    """

    kind = 2

    def __init__(
        self,
        block: int,
        levels: tuple[Tensor, Tensor | None],
        costs: tuple[Tensor, Tensor | None],
        rank: Tensor,
        *,
        scale: float,
        reach: float,
        slack: float,
        give: float,
    ):
        (self._row, self._column), wide = levels, block + PAD
        rows, columns = self._row.shape[1], 0 if self._column is None else len(self._column)
        few("levels of a row", rows)
        few("levels of a column", columns)
        self._costs, self._rank = costs, rank
        self._found = _Found(
            (torch.int32, torch.int32, torch.int8, torch.int8, torch.float32), (rows + columns) * strip() * WIDTH + MANY
        )
        self.above, self.slope, self._base = torch.zeros(3, columns, wide, dtype=torch.float64)
        size = strip() * rows + columns * (WIDTH + PAD)
        self._held = [
            torch.empty(2 * size, dtype=torch.float64),
            torch.empty(2 * size + 3 * columns * (WIDTH + PAD) + WIDTH + PAD),
        ]
        self._bands = [*torch.full((2, strip(), rows), torch.inf), *torch.full((2, columns, wide), torch.inf)]
        self._state = state = _Sigmoids(
            row_levels=rows, column_levels=columns, room=self._found.room, block_step=wide, give=give
        )
        state.scale, state.reach, state.slack = scale, reach, slack
        _point(state, sums=self._held[0], work=self._held[1], column_rank=self._base)
        _point(state, column_above=self.above, column_slope=self.slope)
        _point(state, **dict(zip(("row_low", "row_high", "column_low", "column_high"), self._bands, strict=True)))
        _point(state, **dict(zip(("at", "of", "level", "sign", "score"), self._found.arrays, strict=True)))
        self.address = ctypes.addressof(state)

    def aim(
        self, rows: slice, columns: slice, sums: tuple[Tensor, Tensor], base: Tensor | None, *, fresh: bool
    ) -> None:
        """See `Watch`.

        Args:
            rows: of the strip.
            columns: of the block.
            sums: (n, K) float64 of all rows, added to: sigmoids, and their slopes.
            base: (L, block) float64, ranks of the columns as far as they are known.
            fresh: whether the bands of the columns follow from their ranks; if not, they stay as they are.
        """
        state, place = self._state, rows.start * self._row.shape[1]
        _point(state, 4 * place, row_level=self._row, row_cost=self._costs[0])
        _point(state, 8 * place, row_rank=self._rank, row_above=sums[0], row_slope=sums[1])
        state.fresh = fresh
        if self._column is not None:
            state.column_step = self._column.stride(0)
            _point(state, 4 * columns.start, column_level=self._column, column_cost=self._costs[1])
            self._base[:, : base.shape[1]] = base

    def drain(self) -> None:
        """See `Watch`."""
        self._found.drain(self._state)

    def settle(self) -> list[tuple[Tensor, ...]]:
        """See `Watch`; gives what was found, if it is much: rows, columns, levels, sides and scores.

        `above` and `slope`, (L, block) and more, are the sums of the columns over this strip.
        """
        return self._found.take(self._state) if self._found.many(self._state) else []

    def close(self) -> list[tuple[Tensor, ...]]:
        """See `Watch`; gives what was found."""
        return self._found.take(self._state)
