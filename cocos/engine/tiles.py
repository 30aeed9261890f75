"""Tiles of the score matrix: the parts that threads work on, the product that fills a tile, and a ready-made state."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Self

import numpy as np
import torch
from torch import Tensor

from cocos.engine import devices, native, plain
from cocos.engine.view import View

# Maximum number of parts into which one matrix is cut: enough for load balancing, few enough that merging states is
# cheap.
MAX_PARTS = 12
# Rows, or columns, of which the size of a part is a multiple, as it is of all panels of product.c.
PART_STEP = 240
# Scores of a tile of several batches: 4 MiB in float32. Smaller tiles stay in the second-level cache of a core, but
# each costs some hundred operations on its queries.
STACKED_SCORES = 2**20
# Largest number of scores of a batch that is one tile: 16 MiB in float32.
WHOLE_SCORES = 2**22
# Rows and columns of the tiles of a larger batch: 2 MiB in float32, and a multiple of all panels of product.c.
HOST_TILE = (256, 2016)
# Rows and columns of a tile on a GPU: 32 MiB, which fit with the operands into the L2 cache of a data-centre GPU (40 MB
# on an A100, 50 MB on an H100: NVIDIA Hopper Architecture In-Depth, developer.nvidia.com, 2022).
DEVICE_TILE = (2048, 4096)
# Bytes of candidates that are multiplied with all rows of a part before the next ones.
OPERAND_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Part:
    """A piece of the score matrix: the unit of work of one thread."""

    rows: slice
    columns: slice


@dataclass(frozen=True, eq=False)
class Tile:
    """Scores of one or several blocks, (blocks, m, n), -inf for non-negatives; the next tile reuses the memory.

    Args:
        view: the scores.
        scores: in the dtype of the view.
        rows: places of all rows.
        columns: places of all columns.
        whole: whether it has all scores of its rows and of its columns.
    """

    view: View
    scores: Tensor
    rows: slice
    columns: slice
    whole: bool

    @property
    def places(self) -> tuple[slice, ...]:
        """Places of the queries of each direction."""
        return (self.rows, self.columns)[: len(self.view.directions)]

    def lines(self, direction: int) -> Tensor:
        """Scores of each query of a direction, (blocks, queries of a block, others of a block)."""
        return self.scores.mT if direction else self.scores

    @property
    def functions(self) -> ModuleType:
        """The functions that read this tile."""
        return native if self.view.compiled else plain


@dataclass(eq=False)
class Tally:
    """A ready-made state of a reader: tensors by name, whose last axis is the rows or the columns of the view.

    Args:
        sums: for each direction, tensors that are added up.
        largest: for each direction, tensors of which the maximum counts.
        lists: tensors to be concatenated.
    """

    sums: list[dict[str, Tensor]] = field(default_factory=list)
    largest: list[dict[str, Tensor]] = field(default_factory=list)
    lists: dict[str, list[Tensor]] = field(default_factory=dict)

    def merge(self, other: Self, part: Part) -> None:
        """Add the sums, take the maxima and append the lists of another part."""
        places = (part.rows, part.columns)
        for totals, added, where in zip(self.sums, other.sums, places, strict=False):
            for name, values in totals.items():
                values[..., where] += added[name][..., where]
        for totals, added, where in zip(self.largest, other.largest, places, strict=False):
            for name, values in totals.items():
                torch.maximum(values[where], added[name][where], out=values[where])
        for name in self.lists:
            self.lists[name] += other.lists[name]


def zeros(*shape: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Allocate zeros; on a host, memory is committed on the first write, so a part pays only for its own rows."""
    if devices.ahead(device):
        return torch.zeros(shape, dtype=dtype, device=device)
    return torch.from_numpy(np.zeros(shape, dtype=str(dtype).removeprefix("torch.")))


class Product:
    """The score matrix of a view, tile by tile.

    Args:
        view: the scores.
        tile: rows and columns of a tile, into which larger blocks are cut; None fits the device.
    """

    def __init__(self, view: View, tile: tuple[int, int] | None = None):
        self.view, self.compiled = view, view.compiled
        self.tile = tile or (DEVICE_TILE if devices.ahead(view.device) else HOST_TILE)
        self.stacked = devices.at_once(STACKED_SCORES, view.device)
        self.stride = native.constant("wide") if self.compiled else 1
        if self.compiled:  # a tile begins with a panel
            panel = native.constant("panel")
            self.tile = (self.tile[0], -(-self.tile[1] // panel) * panel)
        self.shared: Tensor | None = None
        columns = len(view.sides[1])
        self.whole = devices.at_once(WHOLE_SCORES, view.device) if tile is None else math.prod(tile)
        large = view.blocks == 1 and len(view.sides[0]) * columns > self.whole
        if self.compiled and large and 4 * columns * view.width <= OPERAND_BYTES:
            self.shared = self._packed(1, slice(0, columns))

    def parts(self, *, whole_rows: bool = False) -> list[Part]:
        """Cut the view into parts: whole blocks, or ranges of the longer side, or of the rows, of one large block.

        Args:
            whole_rows: cut no row.
        """
        view, rows, columns = self.view, self.view.rows.tolist(), self.view.columns.tolist()
        if view.blocks > 1 or rows[-1] * columns[-1] <= self.whole:
            number = min(MAX_PARTS, -(-int(np.diff(view.rows) @ np.diff(view.columns)) // self.stacked))
            edges = sorted({view.blocks * k // number for k in range(number + 1)})
            ends = list(zip(edges[:-1], edges[1:], strict=True))
            return [Part(slice(rows[a], rows[b]), slice(columns[a], columns[b])) for a, b in ends]
        turned = columns[-1] > rows[-1] and not whole_rows
        length, width = (columns[-1], rows[-1]) if turned else (rows[-1], columns[-1])
        size = -(-length // (MAX_PARTS * PART_STEP)) * PART_STEP
        if devices.ahead(view.device):
            size = max(size, self.tile[turned])
        cuts = [slice(a, min(a + size, length)) for a in range(0, length, size)]
        return [Part(slice(0, width), cut) if turned else Part(cut, slice(0, width)) for cut in cuts]

    def _side(self, k: int, places: slice) -> tuple[Tensor, Tensor, Tensor]:
        """A float32 matrix, and order and factors of the rows at the given places."""
        side, matrix = self.view.sides[k], self.view.matrices[k]
        if matrix.dtype == torch.float32 and not (side.unit and side.extreme):
            factor = (
                (1 / side.norm[places]).float()
                if side.unit
                else torch.ones(places.stop - places.start, dtype=torch.float32)
            )
            return matrix, side.order[places].contiguous(), factor
        rows = self.view.operand(k, places.start, places.stop)
        return rows, torch.arange(len(rows)), torch.ones(len(rows), dtype=torch.float32)

    def _packed(self, k: int, places: slice) -> Tensor:
        """Pack rows of a side for the compiled product; its panels are padded with zeros."""
        number = places.stop - places.start + 2 * native.constant("panel")
        packed = torch.empty(number, self.view.width, dtype=torch.float32)
        native.pack(*self._side(k, places), packed, right=k == 1)
        return packed

    def tiles(self, part: Part) -> Iterator[Tile]:
        """Compute every tile of a part: stacks of blocks of one size, whole blocks, or pieces of large blocks."""
        view, compiled = self.view, self.compiled
        first = int(np.searchsorted(view.rows, part.rows.start, side="right")) - 1
        last = int(np.searchsorted(view.rows, part.rows.stop, side="left"))
        buffer = torch.empty(0, dtype=view.dtype, device=view.device)
        rows, columns = np.diff(view.rows), np.diff(view.columns)
        k = first
        while k < last:
            m, n = int(rows[k]), int(columns[k])
            if m * n > self.whole:
                yield from self._pieces(k, part)
                k += 1
                continue
            end = k + 1
            while end < last and rows[end] == m and columns[end] == n and (end + 1 - k) * m * n <= self.stacked:
                end += 1
            where = [slice(int(edges[k]), int(edges[end])) for edges in (view.rows, view.columns)]
            buffer, scores = self._room(buffer, end - k, m, n)
            if compiled:
                native.stack(self._side(0, where[0]), self._side(1, where[1]), scores)
            else:
                left, right = (view.operand(j, places.start, places.stop) for j, places in enumerate(where))
                plain.product(left, right, scores)
            yield self._masked(Tile(view, scores, *where, whole=True))
            k = end

    def _pieces(self, k: int, part: Part) -> Iterator[Tile]:
        """Compute the tiles of the rows and columns of a part in one large block."""
        view = self.view
        buffer = torch.empty(0, dtype=view.dtype, device=view.device)
        rows = slice(max(int(view.rows[k]), part.rows.start), min(int(view.rows[k + 1]), part.rows.stop))
        columns = slice(max(int(view.columns[k]), part.columns.start), min(int(view.columns[k + 1]), part.columns.stop))
        step = max(1, OPERAND_BYTES // (4 * view.width * self.tile[1])) * self.tile[1]
        for begin in range(columns.start, columns.stop, step):
            chunk = slice(begin, min(begin + step, columns.stop))
            if self.shared is not None:
                right, offset = self.shared, 0
            else:
                right = self._packed(1, chunk) if self.compiled else view.operand(1, chunk.start, chunk.stop)
                offset = chunk.start
            for a in range(rows.start, rows.stop, self.tile[0]):
                strip = slice(a, min(a + self.tile[0], rows.stop))
                left = self._packed(0, strip) if self.compiled else view.operand(0, strip.start, strip.stop)
                for c in range(chunk.start, chunk.stop, self.tile[1]):
                    part_columns = slice(c, min(c + self.tile[1], chunk.stop))
                    buffer, scores = self._room(buffer, 1, strip.stop - a, part_columns.stop - c)
                    if self.compiled:
                        native.product(left, right, c - offset, scores)
                    else:
                        plain.product(left, right[c - offset : part_columns.stop - offset], scores)
                    yield self._masked(Tile(view, scores, strip, part_columns, whole=False))

    def _room(self, buffer: Tensor, blocks: int, rows: int, columns: int) -> tuple[Tensor, Tensor]:
        """Return memory and a tile in it; the compiled product writes whole vectors, and some rows beyond the last."""
        stride = -(-columns // self.stride) * self.stride
        needed = (blocks * rows + (self.stride > 1) * self.stride) * stride
        if len(buffer) < needed:
            buffer = buffer.new_empty(needed)
        return buffer, buffer[: blocks * rows * stride].view(blocks, rows, stride)[:, :, :columns]

    def _masked(self, tile: Tile) -> Tile:
        """Take the root of squared distances, and mask the non-negatives; the host knows which tiles contain any."""
        if self.view.metric == "euclidean":
            tile.scores.clamp_(max=0).neg_().sqrt_().neg_()
        side = self.view.sides[0]
        first, last = (ends[tile.rows] for ends in side.host_ranges)
        if tile.whole or (np.minimum(last, tile.columns.stop) > np.maximum(first, tile.columns.start)).any():
            tile.functions.mask(tile.scores, side.first[tile.rows], side.last[tile.rows], tile.columns.start)
        return tile
