"""The scores of a stack of batches as one block-diagonal matrix that is never stored; `cocos.engine.view` builds it.

In: embeddings and the rows of each batch. Out: any score on request, with a proven bound on its error (`View.bound`),
in the arithmetic of the tiles or in float64 (`View.exact`).

The queries of all batches are numbered consecutively, and so are the candidates; only pairs within one block (batch)
take part. Within a block both sides are sorted by group, so that the non-negatives of a query are one contiguous range
of candidates. The number of a row in this sorted order is its **place**; the visiting order is the order of places.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from cocos.embeddings import Embeddings, similarities
from cocos.engine import bounds, devices, exact, native, plain

# Arithmetic of the tiles; see `bounds.UNITS`.
PRODUCTS = tuple(bounds.UNITS)
# Mean number of positives per query up to which their float64 scores are cached.
CACHED_POSITIVES = 8
# Maximum number of positive pairs processed at once.
POSITIVES_AT_ONCE = 2**18
# Queries and candidates of a tile of float64 scores: 4 MiB.
EXACT_TILE = (1024, 512)


@dataclass(frozen=True, eq=False)
class ViewSide:
    """One side of the matrix, the queries or the candidates, in visiting order.

    Args:
        matrix: (N, D) embeddings as the model returned them.
        order: (n,) row of the matrix at each place; sorted by group within a block.
        place: (n,) position of each row in the order of the batches.
        first: (n,) first place on the other side that is not a negative of each row.
        last: (n,) one past the last such place.
        partner: (n,) place of the only positive of each row, where rows of a batch are pairs.
        norm: (n,) float64.
        unit: whether the metric divides each row by its norm.
    """

    matrix: Tensor
    order: Tensor
    place: Tensor
    first: Tensor
    last: Tensor
    partner: Tensor | None
    norm: Tensor
    unit: bool

    def __len__(self) -> int:
        return len(self.order)

    @cached_property
    def host_ranges(self) -> tuple[np.ndarray, np.ndarray]:
        """`first` and `last` as NumPy arrays on the host."""
        return self.first.cpu().numpy(), self.last.cpu().numpy()

    @cached_property
    def extreme(self) -> bool:
        """Whether the rows, or their norms, may leave the range of float32."""
        return self.matrix.dtype == torch.float64 or float(self.norm.min()) < 1e-30

    @cached_property
    def longest(self) -> float:
        """Largest norm of a row after the division by norms, if any."""
        return 1.0 if self.unit else float(self.norm.max())

    @cached_property
    def in_order(self) -> bool:
        """Whether places equal positions in the batches."""
        return bool((self.place == torch.arange(len(self), device=self.place.device)).all())

    def divided(self, values: Tensor, places: Tensor | slice) -> Tensor:
        """Divide the values at the given places by their norms, if the metric does so."""
        return values / self.norm[places] if self.unit else values

    def unsorted(self, values: Tensor) -> Tensor:
        """Reorder values from visiting order, (n, ...), to the order of the batches."""
        if self.in_order:
            return values
        return torch.empty_like(values).index_copy_(0, self.place, values)


@dataclass(frozen=True, eq=False)
class View:
    """Score matrices of a stack of batches: their rows, which pairs are positive or negative, and the error of a score.

    Args:
        sides: queries and candidates.
        rows: (K + 1,) int64, place of the first query of each of K blocks, then the number of queries.
        columns: (K + 1,) int64, the same for candidates.
        metric: one of `PRODUCT_METRICS`.
        two: whether there are two directions: candidates are queries as well.
        shared: whether both sides are rows of one matrix; no row is then its own candidate.
        product: arithmetic of the tiles, one of `PRODUCTS`.
        embeddings: the rows that are scored.
        origin: (D,) subtracted from both sides if the metric is a distance, which reduces rounding.
    """

    sides: tuple[ViewSide, ViewSide]
    rows: np.ndarray
    columns: np.ndarray
    metric: str
    two: bool
    shared: bool
    product: str
    embeddings: Embeddings
    origin: Tensor | None
    _scored: dict = field(default_factory=dict, init=False, repr=False)
    _edges: dict = field(default_factory=dict, init=False, repr=False)
    _counted: dict = field(default_factory=dict, init=False, repr=False)

    @property
    def blocks(self) -> int:
        """Number of batches."""
        return len(self.rows) - 1

    @property
    def dtype(self) -> torch.dtype:
        """Floating-point type of the tiles."""
        return torch.float64 if self.product == "float64" else torch.float32

    @property
    def device(self) -> torch.device:
        """Device of all tensors; the block offsets are NumPy arrays."""
        return self.sides[0].matrix.device

    @property
    def directions(self) -> tuple[int, ...]:
        """0 for the queries, and 1 for the candidates if they are queries as well."""
        return (0, 1) if self.two else (0,)

    @property
    def distances(self) -> bool:
        """Whether the metric is a distance; the matrix product then gives its square."""
        return self.metric in {"euclidean", "squared_euclidean"}

    @cached_property
    def most(self) -> float:
        """Upper bound on |score|."""
        left, right = (side.longest for side in self.sides)
        if not self.distances:
            return left * right
        return left + right if self.metric == "euclidean" else (left + right) ** 2

    @property
    def width(self) -> int:
        """Dimension of the embeddings."""
        return self.sides[0].matrix.shape[1]

    @cached_property
    def exactness(self) -> float:
        """Bound on the error of a float64 score."""
        if self.distances:
            return bounds.exact_distance(self.width) * (1 if self.metric == "euclidean" else 2) * self.most
        return bounds.exact_dot(self.width) * self.most

    @cached_property
    def tie(self) -> float:
        """Largest difference of two float64 scores that counts as a tie."""
        return bounds.ties(self.width, self.most)

    @cached_property
    def compiled(self) -> bool:
        """Whether the compiled kernel fills and reads the tiles."""
        return self.product == "float32" and not devices.ahead(self.device) and native.library() is not None

    def bound(self, score: Tensor | float = 0.0) -> Tensor | float:
        """Bound on the difference between a score of the tiles and the true one; for distances, at the given score."""
        return bounds.distance(self._rounding, score, self.product) if self.metric == "euclidean" else self._rounding

    @cached_property
    def _rounding(self) -> float:
        """Bound on the error of a product of the tiles: a score, or a squared distance."""
        left, right = (side.longest for side in self.sides)
        error = bounds.squared_distance if self.distances else bounds.product
        deep = {"float32": native.constant("deep") if self.compiled else plain.DEEP}.get(self.product)
        return error(self.width, self.product, left, right, deep)

    @cached_property
    def matrices(self) -> tuple[Tensor, Tensor]:
        """Contiguous rows of both sides in float32 or float64; half precision is widened, which is exact."""
        left, right = (side.matrix for side in self.sides)
        wide = [rows if rows.dtype in {torch.float32, torch.float64} else rows.float() for rows in (left, right)]
        first = wide[0].contiguous()
        return first, first if right is left else wide[1].contiguous()

    def block_of(self, direction: int, places: Tensor) -> Tensor:
        """Block of each of the given places of one direction, (P,)."""
        edges = torch.from_numpy((self.rows, self.columns)[direction]).to(places.device)
        return torch.searchsorted(edges, places.long(), right=True) - 1

    def operand(self, direction: int, start: int, stop: int) -> Tensor:
        """Rows of one side prepared as a matmul operand: (n, D), or (n, D + 2) for distances."""
        side = self.sides[direction]
        rows = side.matrix.index_select(0, side.order[start:stop])
        if side.unit:
            norm = side.norm[start:stop, None]
            rows = rows.double() / norm if side.extreme else rows.to(self.dtype).mul_((1 / norm).to(self.dtype))
        if self.origin is not None:
            rows = rows.to(torch.promote_types(rows.dtype, self.dtype)) - self.origin
        rows = rows.to(self.dtype)
        if self.distances:
            square, one = side.norm[start:stop, None].square().to(self.dtype), rows.new_ones(len(rows), 1)
            rows = torch.cat([2 * rows, -square, -one] if direction == 0 else [rows, one, square], dim=1)
        return rows

    def exact(self, row: Tensor, column: Tensor) -> Tensor:
        """Float64 scores of pairs of places, (P,), from the embeddings as they were given."""
        (left, right), row, column = self.sides, row.long(), column.long()
        rows = left.order[row], right.order[column]
        if self.distances:
            square = exact.pairs(left.matrix, right.matrix, *rows, gaps=True)
            return -square.sqrt() if self.metric == "euclidean" else -square
        if left.unit and (left.extreme or right.extreme):
            norms = left.norm[row], right.norm[column] if right.unit else torch.ones_like(left.norm[row])
            return exact.pairs(left.matrix, right.matrix, *rows, norms=norms)
        return right.divided(left.divided(exact.pairs(left.matrix, right.matrix, *rows), row), column)

    def exact_rows(self, direction: int, places: Tensor) -> Iterator[tuple[Tensor, slice, Tensor]]:
        """Compute all scores of the given queries of one direction in float64, block by block, also of non-negatives.

        Yields:
            Which of the queries, (m,) positions in `places`; the range of candidates in the block; and their scores,
            (m, n).
        """
        side, other, edges = self.sides[direction], self.sides[1 - direction], (self.rows, self.columns)[1 - direction]
        norms_divide = not self.distances and not side.extreme and not other.extreme  # the product
        block = self.block_of(direction, places)
        for k in block.unique().tolist():
            start, end = edges[k : k + 2].tolist()
            for positions in (block == k).nonzero().flatten().split(EXACT_TILE[0]):
                queries = places[positions]
                query = side.matrix[side.order[queries]].double()
                query = side.divided(query, queries[:, None]) if norms_divide else query
                for begin in range(start, end, EXACT_TILE[1]):
                    stop = min(begin + EXACT_TILE[1], end)
                    candidate = other.matrix.index_select(0, other.order[begin:stop]).double()
                    if norms_divide:
                        score = other.divided(query @ candidate.T, slice(begin, stop))
                    else:
                        pair = (query, candidate) if direction == 0 else (candidate, query)
                        score = similarities.METRICS[self.metric](*pair)
                        score = score if direction == 0 else score.T
                    yield positions, slice(begin - start, stop - start), score

    def positives(self, direction: int, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Positive pairs of a range of queries: query places relative to `start`, and places of the positives."""
        side = self.sides[direction]
        if side.partner is not None:
            return torch.arange(stop - start, device=self.device), side.partner[start:stop]
        first, last = side.first[start:stop], side.last[start:stop]
        number = last - first
        total = int(number.sum())
        query = torch.repeat_interleave(torch.arange(stop - start, device=self.device), number, output_size=total)
        column = first[query] + torch.arange(total, device=self.device) - (number.cumsum(0) - number)[query]
        if self.shared:
            distinct = self.sides[1 - direction].order[column] != side.order[query + start]
            query, column = query[distinct], column[distinct]
        return query, column

    def scored(self, direction: int, start: int, stop: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return `positives` with their float64 scores, (P,) each; few positives are scored once and cached."""
        edges = self.positive_edges(direction)
        if edges[-1] > CACHED_POSITIVES * (len(edges) - 1):
            query, column = self.positives(direction, start, stop)
            pair = (query + start, column)
            return query, column, self.exact(*pair[:: 1 - 2 * direction])
        if direction not in self._scored:
            query, column = self.positives(direction, 0, len(edges) - 1)
            if direction == 1 and 0 in self._scored and self.sides[1].partner is not None:
                score = self._scored[0][2][column]
            else:
                score = self.exact(*(query, column)[:: 1 - 2 * direction])
            self._scored[direction] = (query, column, score)
        query, column, score = (values[edges[start] : edges[stop]] for values in self._scored[direction])
        return query - start, column, score

    def positive_edges(self, direction: int) -> np.ndarray:
        """Number of positives before each query, (n + 1,)."""
        if direction not in self._edges:
            number = self.counted(direction).cpu().numpy()
            self._edges[direction] = np.concatenate([[0], number.cumsum()])
        return self._edges[direction]

    def negatives(self, direction: int) -> Tensor:
        """Number of negatives of each query, (n,) int64."""
        side, (rows, columns) = self.sides[direction], (self.rows, self.columns)[:: 1 - 2 * direction]
        size = torch.from_numpy(np.repeat(np.diff(columns), np.diff(rows))).to(self.device)
        return size - (side.last - side.first)

    def counted(self, direction: int) -> Tensor:
        """Number of positives of each query, (n,) int64."""
        side, other = self.sides[direction], self.sides[1 - direction]
        if side.partner is not None:
            return torch.ones_like(side.first)
        if direction not in self._counted:
            number = side.last - side.first
            if self.shared:
                size = len(side.matrix)
                key = self.block_of(1 - direction, torch.arange(len(other), device=self.device)) * size + other.order
                query = self.block_of(direction, torch.arange(len(side), device=self.device)) * size + side.order
                number = number - torch.bincount(key, minlength=self.blocks * size)[query]
            self._counted[direction] = number
        return self._counted[direction]

    def chunks(self, direction: int, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, int]]:
        """Yield ranges of queries, of those from start to stop, with at most `POSITIVES_AT_ONCE` positives each."""
        edges = self.positive_edges(direction)
        stop = len(edges) - 1 if stop is None else stop
        if edges[stop] - edges[start] < POSITIVES_AT_ONCE:
            yield start, stop
            return
        number = np.maximum(np.diff(edges[start : stop + 1]), 1)
        most = number.cumsum() // POSITIVES_AT_ONCE
        ends = [start, *(np.flatnonzero(np.diff(most)) + 1 + start).tolist(), stop]
        yield from zip(ends[:-1], ends[1:], strict=True)
