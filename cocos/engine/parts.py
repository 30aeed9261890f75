"""Pieces of the score matrix: the parts that threads work on, their tiles in PyTorch, and a ready-made reader state."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Self

import numpy as np
import torch
from torch import Tensor

from cocos.engine import devices
from cocos.engine.view import View

# Maximum number of parts into which one matrix is cut: enough for load balancing, few enough that merging states is
# cheap.
MAX_PARTS = 12
# Rows, or columns, of which the size of a part is a multiple: the strip of the kernel (STRIP in kernel.h).
PART_STEP = 256
# Scores of a stacked tile: 2 MiB in float32.
STACKED_SCORES = 2**19
# Scores that can be compared with two places in the time in which one non-negative is masked by itself.
MASKED_APART = 8


@dataclass(frozen=True)
class Part:
    """A piece of the score matrix: the unit of work of one thread."""

    rows: slice
    columns: slice


# (low, high): scores with low < score <= high are listed; high None: no upper end.
Ends = tuple[Tensor, Tensor | None]


@dataclass(frozen=True, eq=False)
class Entries:
    """Listed scores of a tile, (found,) each; no pair occurs twice.

    Args:
        row: int64.
        column: int64.
        score: as in the tile.
        side: int64, 1 if the ends of its row list it, 2 if those of its column do, 3 for both.
    """

    row: Tensor
    column: Tensor
    score: Tensor
    side: Tensor

    @property
    def places(self) -> tuple[Tensor, Tensor]:
        """Rows and columns, (found,) each."""
        return self.row, self.column


@dataclass(frozen=True, eq=False)
class Tile:
    """Scores of some rows and columns, (m, n), -inf for non-negatives; the next tile reuses the memory.

    A stacked tile has the scores of several whole blocks of one size, (blocks, m, n); its rows and columns are those of
    all these blocks. Readers with `stacks = True` receive such tiles, and read them by `lines`.
    """

    view: View
    scores: Tensor
    rows: slice
    columns: slice

    def lines(self, direction: int) -> Tensor:
        """Scores of each query of a direction, (blocks, queries of a block, others of a block)."""
        scores = self.scores.view(-1, *self.scores.shape[-2:])
        return scores.mT if direction else scores

    def between(self, row_ends: Ends | None, column_ends: Ends | None = None) -> Entries:
        """List the scores above the lower and not above the upper end of their row, or of their column.

        Args:
            row_ends: (m,) each, in the dtype of the tile, see `Ends`; None: rows list nothing.
            column_ends: (n,) each, likewise.
        """
        lines = self.scores.view(-1, *self.scores.shape[-2:])
        inside = [
            None if ends is None else _inside(lines, *(end if end is None else end.view(shape) for end in ends))
            for ends, shape in ((row_ends, (len(lines), -1, 1)), (column_ends, (len(lines), 1, -1)))
        ]
        either = [mask for mask in inside if mask is not None]
        block, row, column = (either[0] if len(either) == 1 else either[0] | either[1]).nonzero(as_tuple=True)
        side = torch.zeros_like(row)
        for bit, mask in zip((1, 2), inside, strict=True):
            if mask is not None:
                side += bit * mask[block, row, column]
        score = lines[block, row, column]
        row, column = row + block * lines.shape[1], column + block * lines.shape[2]
        return Entries(row + self.rows.start, column + self.columns.start, score, side)


def _inside(score: Tensor, low: Tensor, high: Tensor | None) -> Tensor:
    above = score > low if devices.ahead(score.device) else ones_above(score, low).bool()
    return above if high is None else above & (score <= high)


def ones_above(scores: Tensor, end: Tensor | float) -> Tensor:
    """1 where a score is above an end, else 0, in the dtype of the scores.

    On the host, PyTorch compares to numbers five times as fast as to truth values.
    """
    return torch.gt(scores, end, out=torch.empty_like(scores))


@dataclass(eq=False)
class Tally:
    """A ready-made `State`: tensors by name, whose first axis is the rows or the columns of the view.

    Args:
        rows: (queries, ...) sums.
        columns: (candidates, ...) sums.
        largest: (queries, ...) maxima.
        lists: tensors to be concatenated.
    """

    rows: dict[str, Tensor] = field(default_factory=dict)
    columns: dict[str, Tensor] = field(default_factory=dict)
    largest: dict[str, Tensor] = field(default_factory=dict)
    lists: dict[str, list[Tensor]] = field(default_factory=dict)

    def merge(self, other: Self, part: Part) -> None:
        """Add the sums, take the maxima and append the lists of another part."""
        for mine, its, where in ((self.rows, other.rows, part.rows), (self.columns, other.columns, part.columns)):
            for name, values in mine.items():
                values[where] += its[name][where]
        for name, values in self.largest.items():
            torch.maximum(values[part.rows], other.largest[name][part.rows], out=values[part.rows])
        for name in self.lists:
            self.lists[name] += other.lists[name]


def zeros(*shape: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Allocate zeros; on a host, memory is committed on the first write, so a part pays only for its own rows."""
    if devices.ahead(device):
        return torch.zeros(shape, dtype=dtype, device=device)
    return torch.from_numpy(np.zeros(shape, dtype=str(dtype).removeprefix("torch.")))


def parts_of(view: View, *, whole_lines: bool = False) -> list[Part]:
    """Cut a view into parts: whole blocks of a stack, or ranges of the longer side of one block.

    With `whole_lines` all scores of a query are in one part.
    """
    rows, columns = view.rows.tolist(), view.columns.tolist()
    if view.blocks > 1 or (whole_lines and view.two):
        edges = sorted({view.blocks * k // MAX_PARTS for k in range(MAX_PARTS + 1)})
        ends = list(zip(edges[:-1], edges[1:], strict=True))
        return [Part(slice(rows[a], rows[b]), slice(columns[a], columns[b])) for a, b in ends]
    turned = columns[-1] > rows[-1] and not whole_lines
    longer = (rows, columns)[turned][-1]
    size = -(-longer // (MAX_PARTS * PART_STEP)) * PART_STEP
    cuts = [slice(a, min(a + size, longer)) for a in range(0, longer, size)]
    whole = slice(0, (columns, rows)[turned][-1])
    return [Part(whole, cut) if turned else Part(cut, whole) for cut in cuts]


def tiles_of(view: View, tile: tuple[int, int], part: Part, *, stacked: bool = False) -> Iterator[Tile]:
    """Compute every tile of a part: whole blocks where they are small, row by row of tiles where they are not.

    With `stacked`, neighbouring blocks of one size are one tile, as many as fit.
    """
    buffer = torch.empty(tile, dtype=view.dtype, device=view.device)
    first = int(np.searchsorted(view.rows, part.rows.start, side="right")) - 1
    last = int(np.searchsorted(view.rows, part.rows.stop, side="left"))
    runs = _runs(view, tile, first, last) if stacked else range(first, last + 1)
    for k, end in pairwise(runs):
        if end - k > 1:
            yield _stacked(view, buffer, k, end)
            continue
        rows = slice(max(int(view.rows[k]), part.rows.start), min(int(view.rows[k + 1]), part.rows.stop))
        columns = slice(max(int(view.columns[k]), part.columns.start), min(int(view.columns[k + 1]), part.columns.stop))
        for a in range(rows.start, rows.stop, tile[0]):
            left = view.operand(0, a, min(a + tile[0], rows.stop))
            for c in range(columns.start, columns.stop, tile[1]):
                right = view.operand(1, c, min(c + tile[1], columns.stop))
                scored = buffer.view(-1)[: len(left) * len(right)].view(len(left), len(right))
                torch.mm(left, right.T, out=scored)
                yield _finished(Tile(view, scored, slice(a, a + len(left)), slice(c, c + len(right))))


def _runs(view: View, tile: tuple[int, int], first: int, last: int) -> list[int]:
    """Edges of the runs of blocks, from the first to before the last, that are one tile each."""
    sizes = np.stack([np.diff(view.rows), np.diff(view.columns)], axis=1)
    ends = [first]
    for k in range(first + 1, last):
        rows, columns = sizes[k].tolist()
        number = min(math.prod(tile), STACKED_SCORES) // max(1, rows * columns)
        if (sizes[k] != sizes[k - 1]).any() or rows > tile[0] or columns > tile[1] or k - ends[-1] >= number:
            ends.append(k)
    return [*ends, last]


def _stacked(view: View, buffer: Tensor, k: int, end: int) -> Tile:
    """Compute the scores of some blocks of one size."""
    rows, columns = (slice(int(edges[k]), int(edges[end])) for edges in (view.rows, view.columns))
    left, right = (view.operand(j, each.start, each.stop) for j, each in enumerate((rows, columns)))
    left, right = (each.unflatten(0, (end - k, -1)) for each in (left, right))
    shape = (end - k, left.shape[1], right.shape[1])
    scored = buffer.view(-1)[: math.prod(shape)].view(shape)
    torch.bmm(left, right.mT, out=scored)
    return _finished(Tile(view, scored, rows, columns))


def _finished(tile: Tile) -> Tile:
    """Take the root of squared distances, and mask the non-negatives."""
    if tile.view.metric == "euclidean":
        tile.scores.clamp_(max=0).neg_().sqrt_().neg_()
    _mask(tile)
    return tile


def _mask(tile: Tile) -> None:
    """Set non-negatives to -inf; the host knows without a transfer which tiles contain any."""
    first, last = (own[tile.rows] for own in tile.view.sides[0].own)
    first, last = np.maximum(first, tile.columns.start), np.minimum(last, tile.columns.stop)
    if not (last > first).any():
        return
    lines, number = tile.lines(0), (last - first).clip(min=0)
    if not devices.ahead(tile.scores.device) and number.sum() * MASKED_APART < tile.scores.numel():
        row = np.repeat(np.arange(len(number)), number)
        column = (first - tile.columns.start)[row] + np.arange(len(row)) - (number.cumsum() - number)[row]
        place = row * lines.shape[2] + column - row // lines.shape[1] * lines.shape[2]
        tile.scores.view(-1).index_fill_(0, torch.from_numpy(place), -torch.inf)
        return
    side, columns = tile.view.sides[0], torch.arange(tile.columns.start, tile.columns.stop, device=tile.scores.device)
    columns = columns.view(len(lines), 1, -1)
    ends = (each[tile.rows].view(len(lines), -1, 1) for each in (side.first, side.last))
    lines.masked_fill_((columns >= next(ends)) & (columns < next(ends)), -torch.inf)
