"""One exact pass over the score matrix: tile by tile, never held, every reader served by the same product.

    view = sweep.view(embeddings, batch, metric="cosine")
    found = sweep.run(view, [reader, ...])

Rows and columns are sorted by group, so that the positives of a query, and what else is no negative of it, are one
stretch of columns. There the tile holds -inf: a reader meets negatives only, and knows the positives from
`View.positives`. Both directions are served by one visit: the queries of the second one are the columns.
"""

import copy
import itertools
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from cocos import scores, shards, tiles
from cocos.batches import Batch, matches
from cocos.embeddings import Embeddings
from cocos.errors import InputError

__all__ = [
    "METRICS",
    "PRODUCTS",
    "Reader",
    "Side",
    "View",
    "fits",
    "fuses",
    "multiply",
    "product_name",
    "run",
    "tile_of",
    "tiles_of",
    "view",
    "visit",
]

PRODUCTS = {  # rounding of the factors, and of every sum: relative, in units of the dtype of the tile
    "float64": (2.0**-53, 2.0**-53),
    "float32": (2.0**-24, 2.0**-24),
    "tf32": (2.0**-11, 2.0**-24),
    "bfloat16": (2.0**-8, 2.0**-24),
}
METRICS = ("cosine", "cosine_dot", "dot", "euclidean", "squared_euclidean")
FEW = 8  # positives of a query up to which their scores are kept
NEAR = 4e-7  # rows whose norms are so near to 1 are taken as they are
HELD = 2**23  # bytes of candidates that are prepared at once
PARTS = (
    12  # the rows are visited in at most so many parts, whose column sums are added in order: any number of processes
)
# up to it gives the same sums
PROBE = 0.02  # seconds that may go into choosing the product
GAIN = 0.9  # a product is taken over torch.mm if it needs at most this part of its time
IMAGES = 16  # images that a convolution sees the rows as: oneDNN is chosen from 16 on
LARGEST = 1e36  # of what float32 multiplies and adds
SIDES = ("query", "candidate")
FUSED = True  # scores are seen inside the kernel where they can be
PACKED = 12 * 2**20  # bytes of candidates that are packed for it at once
PREPARED = 1008  # of them, where they must be prepared first: whole panels of any size
DEARER = 1.4  # its product may take so much longer than PyTorch's: what sees the scores need not fetch them again
PROBED = 2**18  # scores of a tile from which it is measured
EXACTLY = (1024, 512)  # queries and candidates that are scored in float64 at once
TIES = 1e-12  # scores of unit vectors that differ by less in float64 are equal

Progress = Callable[[int, int], None]


class Reader(Protocol):
    """What looks at every tile once.

    A reader may have `watch(block, width)` as well: for blocks and tiles of so many columns at most, what sees the
    scores inside the kernel in its place, a list of `cocos.tiles.fused.Watch`, or None if it must see the tiles.
    """

    def begin(self, view: "View") -> None:
        """Make the state for this view."""

    def tile(self, tile: Tensor, rows: slice, columns: slice) -> None:
        """Take in one tile, (m, n); columns beyond those of the view are -inf."""

    def fold(self) -> None:
        """A part of the rows is done: add what is known of the columns to the whole."""

    def merge(self) -> None:
        """Other processes have seen the other parts of the rows: put together what all of them know."""

    def finish(self):
        """The result, in the order of the batch."""


@dataclass(frozen=True, eq=False)
class Side:
    """Queries, or candidates, in the order in which they are visited.

    Args:
        matrix: (N, D) embeddings, as the model gave them.
        order: (n,) row of the matrix at each place; sorted by group.
        place: (n,) place in the batch of each.
        first: (n,) first place of the other side that is no negative of each.
        last: (n,) one after the last such place.
        partner: (n,) the only positive of each, where rows of the batch are pairs.
        norm: (n,) float64.
        unit: the metric divides each by its norm.
    """

    matrix: Tensor
    order: Tensor
    place: Tensor
    first: Tensor
    last: Tensor
    partner: Tensor | None
    norm: Tensor
    unit: bool
    _beside: dict = field(default_factory=dict, init=False, repr=False)

    def __len__(self) -> int:
        return len(self.order)

    @cached_property
    def own(self) -> tuple[np.ndarray, np.ndarray]:
        """`first` and `last` on the host."""
        return self.first.cpu().numpy(), self.last.cpu().numpy()

    @cached_property
    def extreme(self) -> bool:
        """The rows, or what they are divided by, may leave the range of float32."""
        return self.matrix.dtype == torch.float64 or float(self.norm.min()) < 1e-30

    @cached_property
    def near(self) -> float:
        """How far a norm is from 1 at most."""
        return float((self.norm - 1).abs().max())

    @cached_property
    def inverse(self) -> Tensor:
        """(n,) float32, what a row is multiplied by to have length 1."""
        return (1 / self.norm).float()

    def beside(self, *, left: bool) -> Tensor:
        """(n, 2) float32, what follows a row in a product that gives squared distances; the left side has the signs."""
        if left not in self._beside:
            square, one = self.norm.square().float(), torch.ones_like(self.norm, dtype=torch.float32)
            self._beside[left] = torch.stack([-square, -one] if left else [one, square], dim=1)
        return self._beside[left]

    @cached_property
    def straight(self) -> bool:
        """The rows stand in the matrix as they are visited."""
        first = int(self.order[0])
        return bool((self.order == torch.arange(first, first + len(self), device=self.order.device)).all())

    @cached_property
    def longest(self) -> float:
        """Largest norm of what is multiplied."""
        return 1.0 if self.unit else float(self.norm.max())

    def divided(self, values: Tensor, places: Tensor) -> Tensor:
        """Values of some places by their norms, where the metric does so."""
        return values / self.norm[places] if self.unit else values

    @cached_property
    def in_order(self) -> bool:
        """The places are those of the batch."""
        return bool((self.place == torch.arange(len(self), device=self.place.device)).all())

    def unsorted(self, values: Tensor) -> Tensor:
        """Values of the places, (n, ...), in the order of the batch."""
        if self.in_order:
            return values
        result = torch.empty_like(values)
        result[self.place] = values
        return result


@dataclass(frozen=True, eq=False)
class View:
    """The score matrix of a batch, never held: what is scored, what belongs together, and how exact a score is.

    Args:
        sides: queries and candidates.
        metric: as in `cocos.scores.METRICS`, without `mahalanobis`.
        two: candidates ask as well: there are two directions.
        shared: both sides are rows of one matrix, and no row is its own candidate.
        product: one of `PRODUCTS`: what the tiles are multiplied in.
        embeddings: the rows that are scored.
        origin: (D,) is taken off both sides where the metric is a distance, which makes the rounding smaller.
        together: processes that have joined (`cocos.shards`) visit this matrix together, each some of the rows.
    """

    sides: tuple[Side, Side]
    metric: str
    two: bool
    shared: bool
    product: str
    embeddings: Embeddings
    origin: Tensor | None
    together: bool = False
    _scored: dict = field(default_factory=dict, init=False, repr=False)

    @property
    def dtype(self) -> torch.dtype:
        """Of the tiles."""
        return torch.float64 if self.product == "float64" else torch.float32

    @property
    def device(self) -> torch.device:
        """Where everything is."""
        return self.sides[0].matrix.device

    @property
    def directions(self) -> tuple[int, ...]:
        """0 for the queries, and 1 for the candidates where they ask as well."""
        return (0, 1) if self.two else (0,)

    @property
    def distances(self) -> bool:
        """The metric is a distance: the product gives its square."""
        return self.metric in {"euclidean", "squared_euclidean"}

    @cached_property
    def most(self) -> float:
        """No score is larger than this in size."""
        left, right = (side.longest for side in self.sides)
        if not self.distances:
            return left * right
        return left + right if self.metric == "euclidean" else (left + right) ** 2

    @cached_property
    def rounding(self) -> float:
        """No product of two rows of unit length is further than this from the true one (any order of the sums)."""
        factor, total = PRODUCTS[self.product]
        width = self.sides[0].matrix.shape[1]
        store = PRODUCTS["float64" if self.product == "float64" else "float32"][0]
        return 2 * factor * (factor > store) + (width + 8) * total

    def slack(self, score: Tensor | float = 0.0) -> Tensor | float:
        """How far a score of the tiles may be from the true one; near `score`, for distances."""
        if not self.distances:
            left, right = self.sides
            return (self.rounding + sum(min(side.near, NEAR) for side in (left, right) if side.unit)) * self.most
        if self.metric == "squared_euclidean":
            return self.square
        return (self.square / torch.as_tensor(score).abs().clamp(min=1e-300)).clamp(max=self.square**0.5)

    @cached_property
    def square(self) -> float:
        """How far the square of a distance may be from the true one."""
        return 2 * self.rounding * (self.sides[0].longest + self.sides[1].longest) ** 2

    def ready(self, direction: int) -> bool:
        """The rows of one side are multiplied where they are: nothing is copied."""
        side = self.sides[direction]
        fit = side.matrix.dtype == self.dtype and side.matrix.is_contiguous() and not self.distances
        return fit and self.product != "bfloat16" and (not side.unit or side.near <= NEAR) and side.straight

    def operand(self, direction: int, start: int, stop: int) -> Tensor:
        """Some places of one side as what is multiplied, (n, D), or (n, D + 2) for distances."""
        side = self.sides[direction]
        if self.ready(direction):
            first = int(side.order[0])
            return side.matrix[first + start : first + stop]
        rows = side.matrix.index_select(0, side.order[start:stop])
        if side.unit:
            norm = side.norm[start:stop, None]
            rows = rows.double() / norm if side.extreme else rows.to(self.dtype).mul_((1 / norm).to(self.dtype))
        if self.distances:
            rows = rows.to(torch.promote_types(rows.dtype, self.dtype)) - self.origin
        rows = rows.to(self.dtype)
        if self.distances:
            square, one = side.norm[start:stop, None].square().to(self.dtype), rows.new_ones(len(rows), 1)
            rows = torch.cat([2 * rows, -square, -one] if direction == 0 else [rows, one, square], dim=1)
        if self.product == "bfloat16" and rows.device.type == "cpu":
            rows = rows.bfloat16().float()
        return rows

    def pack(self, direction: int, start: int, stop: int, packed: Tensor, place: int = 0) -> None:
        """Put some places of one side as `operand` has them, side by side, into `packed`, from one place on."""
        side, left = self.sides[direction], direction == 0
        if side.matrix.dtype != torch.float32 or not side.matrix.is_contiguous() or (side.unit and side.extreme):
            for a in range(start, stop, PREPARED):
                rows = self.operand(direction, a, min(a + PREPARED, stop))
                tiles.fused.pack(rows, packed, place + a - start, left=left)
            return
        how = {}
        if self.distances:
            how = {"origin": self.origin, "factor": 2.0 if left else 1.0, "more": side.beside(left=left)[start:stop]}
        elif side.unit:
            how = {"scale": side.inverse[start:stop]}
        tiles.fused.pack(side.matrix, packed, place, left=left, order=side.order[start:stop], **how)

    def exact(self, row: Tensor, column: Tensor) -> Tensor:
        """Scores of some pairs of places in float64, (P,), from the embeddings as they are."""
        left, right = self.sides
        of, with_ = left.order[row.long()], right.order[column.long()]
        if left.unit and (left.extreme or right.extreme):
            parts, chunk = [], max(1, 2**19 // left.matrix.shape[1])
            for a, b in zip(row.long().split(chunk), column.long().split(chunk), strict=True):
                query, candidate = (
                    side.divided(side.matrix[side.order[k]].double().T, k).T for side, k in ((left, a), (right, b))
                )
                parts.append((query * candidate).sum(dim=1))
            return torch.cat(parts) if parts else left.norm.new_empty(0)
        if not self.distances:
            return right.divided(left.divided(tiles.dots(left.matrix, right.matrix, of, with_), row), column)
        square = tiles.gaps(left.matrix, right.matrix, of, with_)
        return -square.sqrt() if self.metric == "euclidean" else -square

    def exact_tile(self, rows: slice, columns: slice) -> Tensor:
        """One tile in float64, -inf where a pair is no negative."""
        left, right = (
            side.matrix[side.order[where]].double() for side, where in zip(self.sides, (rows, columns), strict=True)
        )
        tile = scores.METRICS[self.metric](left, right)
        _mask(self, tile, rows, columns)
        return tile

    def exact_some(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Scores of some places with some others in float64, -inf where a pair is no negative."""
        first, last = (each[rows, None] for each in (self.sides[0].first, self.sides[0].last))
        left, right = (
            side.matrix[side.order[where]].double() for side, where in zip(self.sides, (rows, columns), strict=True)
        )
        return scores.METRICS[self.metric](left, right).masked_fill_((columns >= first) & (columns < last), -torch.inf)

    def exact_rows(self, direction: int, places: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Scores of some queries of a direction in float64, -inf where a pair is no negative, some at a time.

        Yields:
            Which of the queries, and their scores with some candidates.
        """
        side, other = self.sides[direction], self.sides[1 - direction]
        plain = not self.distances and not (side.unit and (side.extreme or other.extreme))
        for start in range(0, len(places), EXACTLY[0]):
            part = slice(start, min(start + EXACTLY[0], len(places)))
            some = places[part]
            first, last = side.first[some, None], side.last[some, None]
            if plain:
                query = side.divided(side.matrix[side.order[some]].double().T, some).T
            for begin in range(0, len(other), EXACTLY[1]):
                columns = torch.arange(begin, min(begin + EXACTLY[1], len(other)), device=self.device)
                if plain:
                    candidate = other.divided(other.matrix[other.order[columns]].double().T, columns).T
                    score = query @ candidate.T
                    yield part, score.masked_fill_((columns >= first) & (columns < last), -torch.inf)
                else:
                    pair = (some, columns) if direction == 0 else (columns, some)
                    score = self.exact_some(*pair)
                    yield part, score if direction == 0 else score.T

    def positives(self, direction: int, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Positive pairs of some queries: their places counted from `start`, and the places of the positives."""
        side = self.sides[direction]
        if side.partner is not None:
            return torch.arange(stop - start, device=self.device), side.partner[start:stop]
        first, last = side.first[start:stop], side.last[start:stop]
        number = last - first
        query = torch.repeat_interleave(torch.arange(stop - start, device=self.device), number)
        turn = torch.arange(len(query), device=self.device) - (number.cumsum(0) - number)[query]
        other = first[query] + turn
        if self.shared and side.partner is None:
            keep = self.sides[1 - direction].order[other] != side.order[query + start]
            query, other = query[keep], other[keep]
        return query, other

    def scored(self, direction: int, start: int, stop: int) -> tuple[Tensor, Tensor, Tensor]:
        """`positives` with their scores in float64; kept where they are few."""
        key = (direction, start, stop)
        turned = self._scored.get((0, 0, len(self.sides[0])))
        if direction == 1 and stop - start == len(self.sides[1]) and turned:
            if bool((turned[1][1:] > turned[1][:-1]).all()):
                return turned[1], turned[0], turned[2]
            order = turned[1].argsort(stable=True)
            return turned[1][order], turned[0][order], turned[2][order]
        if key not in self._scored:
            query, other = self.positives(direction, start, stop)
            places = (query + start, other) if direction == 0 else (other, query + start)
            found = (query, other, self.exact(*places))
            if len(query) > FEW * (stop - start):
                return found
            self._scored[key] = found
        return self._scored[key]

    def negatives(self, direction: int) -> Tensor:
        """Number of negatives of each query, (n,) int64."""
        side = self.sides[direction]
        return len(self.sides[1 - direction]) - (side.last - side.first)

    def counted(self, direction: int) -> Tensor:
        """Number of positives of each query, (n,) int64."""
        side = self.sides[direction]
        if side.partner is not None:
            return torch.ones_like(side.first)
        number = side.last - side.first
        if self.shared:
            number = number - torch.bincount(self.sides[1 - direction].order, minlength=len(side.matrix))[side.order]
        return number

    def chunks(self, direction: int, width: int = 1) -> Iterator[tuple[int, int]]:
        """Queries in stretches, such that none has above 2^18 positives, or places `width` wide."""
        number = self.counted(direction).cpu().numpy()
        most = np.maximum(number, width).cumsum() // 2**18
        edges = [0, *(np.flatnonzero(np.diff(most)) + 1).tolist(), len(number)]
        yield from zip(edges[:-1], edges[1:], strict=True)

    def dense(self, direction: int, places: Tensor) -> scores.Pairs:
        """Some queries against all candidates of their direction, in float64: (places, candidates) pairs."""
        side, other = self.sides[direction], self.sides[1 - direction]
        part = self.embeddings if direction == 0 else self.embeddings.flip()
        part = part.rows(side.order[places], other.order).to(dtype=torch.float64)
        column = torch.arange(len(other), device=self.device)
        own = (column >= side.first[places, None]) & (column < side.last[places, None])
        positive = own if side.partner is None else column == side.partner[places, None]
        if self.shared and side.partner is None:
            positive = positive & (other.order != side.order[places, None])
        return scores.Pairs(
            scores.METRICS[self.metric](part.query, part.candidate),
            positive,
            ~own,
            candidate_group=part.candidate_group,
            query_norm=scores.length(part.query),
            candidate_norm=scores.length(part.candidate),
            embeddings=part,
        )


def _sorted(group: Tensor) -> Tensor:
    """Places of the groups in ascending order, the first ones first."""
    if bool((group[1:] >= group[:-1]).all()):
        return torch.arange(len(group), device=group.device)
    return group.argsort(stable=True)


def _own(groups: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Where the groups of each side begin and end among those of the other, all sorted."""
    if torch.equal(*groups) and bool((groups[0][1:] > groups[0][:-1]).all()):
        place = torch.arange(len(groups[0]), device=groups[0].device)
        return [(place, place + 1)] * 2
    return [
        (torch.searchsorted(other, group), torch.searchsorted(other, group, right=True))
        for group, other in (groups, groups[::-1])
    ]


def fits(embeddings: Embeddings, metric: str) -> bool:
    """Whether one product gives the scores of every direction."""
    return metric in METRICS and not (metric == "cosine_dot" and len(embeddings.directions) == 2)


def view(
    embeddings: Embeddings,
    batch: Batch | None = None,
    *,
    metric: str = "cosine",
    same_group: str = "ignore",
    product: str = "float32",
    together: bool = False,
) -> View:
    """The scores of a batch, to be visited.

    Args:
        embeddings: the whole set.
        batch: the rows seen together; None is the whole set.
        metric: `cosine`, `cosine_dot`, `dot`, `euclidean` or `squared_euclidean`.
        same_group: what two rows of one group that are no pair are to each other, in a batch of pairs: `ignore` or
            `negative`.
        product: one of `PRODUCTS`. `tf32` and `bfloat16` are for GPUs: counts come with wider intervals.
        together: processes that have joined visit the matrix together; all must ask the same, in the same order.

    Raises:
        InputError: a metric without a product, an unknown product, a batch of pairs whose rows are no pairs, or one of
            two directions with hard negatives.
    """
    if metric not in METRICS:
        raise InputError(f"metric: {metric!r}, expected what a product of two vectors gives: {', '.join(METRICS)}")
    if product not in PRODUCTS:
        raise InputError(f"product: {product!r}, expected one of {', '.join(PRODUCTS)}")
    two = len(embeddings.directions) == 2
    if metric == "cosine_dot" and two:
        raise InputError(
            "metric: cosine_dot divides by the norms of the queries, so each direction has its own product"
        )
    matrices, device = (embeddings.query, embeddings.candidate), embeddings.query.device
    if batch is None:
        index = tuple(torch.arange(len(matrix), device=device) for matrix in matrices)
        batch = Batch(*index, paired=False)
    if two and not batch.square:
        raise InputError("batch: with hard negatives each direction has candidates of its own, and so its own view")
    matches(embeddings, batch)
    index = (batch.query_index.long(), batch.candidate_index.long())
    groups = [embeddings.query_group[index[0]], embeddings.candidate_group[index[1]]]
    if batch.paired and same_group == "negative":
        groups = [torch.arange(len(each), device=device) for each in index]
    place = [_sorted(group) for group in groups]
    sorted_ = [group[p] for group, p in zip(groups, place, strict=True)]
    partner = (None, None)
    if batch.paired:
        turned = [torch.empty_like(p).index_copy_(0, p, torch.arange(len(p), device=device)) for p in place]
        partner = (turned[1][place[0]], None if batch.extra else turned[0][place[1]])
    origin = (
        embeddings.candidate.mean(dim=0, dtype=torch.promote_types(embeddings.candidate.dtype, torch.float32))
        if metric in {"euclidean", "squared_euclidean"}
        else None
    )
    sides, own = [], _own(sorted_)
    orders = [each[p] for each, p in zip(index, place, strict=True)]
    only = partner[0] if batch.paired else None if embeddings.shared else _only(own)
    norms, dots = _norms(matrices, orders, origin, only)
    for k, (name, matrix) in enumerate(zip(SIDES, matrices, strict=True)):
        order, norm = orders[k], norms[k]
        first, last = own[k]
        unit = name in scores.UNIT.get(metric, ())
        if unit and not norm.min() > 0:
            scores.check(embeddings, metric)
        sides.append(Side(matrix, order, place[k], first, last, partner[k], norm, unit))
    made = View((sides[0], sides[1]), metric, two, embeddings.shared, product, embeddings, origin, together)
    longest = made.sides[0].longest + made.sides[1].longest
    if not longest < torch.finfo(torch.float64).max ** 0.5:
        raise InputError(
            f"{metric} scores of embeddings with lengths of up to {longest:.1e} leave the range of float64; divide all "
            "embeddings by one number"
        )
    largest = longest**2
    if product != "float64" and not largest < LARGEST:
        raise InputError(
            f"{metric} scores of these embeddings may reach {largest:.1e}, beyond the range of float32; choose "
            "the dtype float64"
        )
    if dots is not None and not any(side.extreme for side in made.sides):
        row = torch.arange(len(only), device=device)
        made._scored[0, 0, len(row)] = (row, only, made.sides[1].divided(made.sides[0].divided(dots, row), only))
    return made


def _only(own: list[tuple[Tensor, Tensor]]) -> Tensor | None:
    """The only candidate of the group of each query; None where some have others."""
    (first, last), (start, stop) = own
    only = len(first) == len(start) and bool((last - first == 1).all()) and bool((stop - start == 1).all())
    return first if only else None


def _norms(
    matrices: tuple[Tensor, Tensor], orders: list[Tensor], origin: Tensor | None, only: Tensor | None
) -> tuple[list[Tensor], Tensor | None]:
    """Norms of the rows of both sides in float64, right for the smallest and the largest numbers.

    Args:
        matrices: of both sides.
        orders: row of the matrix at each place.
        origin: what the norms are about; None: 0.
        only: place of the only positive of each query, if each has one: then their dot products come along.
    """
    if origin is None and all(matrix.dtype == torch.float32 for matrix in matrices):
        if only is not None and len(only) == len(orders[1]):
            dots, left, right = tiles.squares(*matrices, orders[0], orders[1][only])
            return [left.sqrt(), torch.empty_like(right).index_copy_(0, only, right.sqrt())], dots
        pairs = zip(matrices, orders, strict=True)
        return [tiles.dots(matrix, matrix, order, order).sqrt() for matrix, order in pairs], None
    if origin is not None and all(matrix.dtype == torch.float32 for matrix in matrices):
        gaps = (
            tiles.gaps(m, origin[None], order, torch.zeros_like(order))
            for m, order in zip(matrices, orders, strict=True)
        )
        return [square.sqrt() for square in gaps], None
    norms = []
    for matrix, order in zip(matrices, orders, strict=True):
        parts = (matrix[part].double() for part in order.split(max(1, 2**19 // matrix.shape[1])))
        norms.append(torch.cat([scores.length(part if origin is None else part - origin.double()) for part in parts]))
    return norms, None


def _mm(left: Tensor, right: Tensor, out: Tensor) -> Tensor:
    return torch.mm(left, right.T, out=out)


def _convolution(left: Tensor, right: Tensor, out: Tensor) -> Tensor:
    """The product as a convolution with 1 x 1 kernels: oneDNN's float32 code, where MKL's is slower."""
    rows, width = left.shape
    images = left.view(IMAGES, rows // IMAGES, 1, width).permute(0, 3, 1, 2)
    made = F.conv2d(images, right.view(len(right), width, 1, 1))
    return out.copy_(made.permute(0, 2, 3, 1).reshape(rows, len(right)))


_chosen: dict[tuple, tuple[str, Callable]] = {}
_paying: dict[tuple[int, int], bool] = {}


def _product(left: Tensor, right: Tensor, out: Tensor) -> tuple[str, Callable]:
    """The fastest product there is for these shapes, found by measuring, once."""
    key = (left.device.type, left.dtype, left.shape, right.shape, torch.get_num_threads())
    if key not in _chosen:
        _chosen[key] = ("torch.mm", _mm)
        if left.device.type == "cpu" and left.dtype == torch.float32 and len(left) % IMAGES == 0 and len(left) >= 256:
            needed = {}
            for name, product in (("torch.mm", _mm), ("1x1 convolution", _convolution)):
                product(left, right, out)
                times, end = [], time.perf_counter() + PROBE / 2
                while len(times) < 2 or time.perf_counter() < end:
                    start = time.perf_counter()
                    product(left, right, out)
                    times.append(time.perf_counter() - start)
                needed[name] = min(times)
            if needed["1x1 convolution"] < GAIN * needed["torch.mm"]:
                _chosen[key] = ("1x1 convolution", _convolution)
    return _chosen[key]


def multiply(left: Tensor, right: Tensor, out: Tensor) -> None:
    """Put left @ right.T into `out`, by the fastest product there is."""
    _product(left, right, out)[1](left, right, out)


def product_name(view: View) -> str:
    """PyTorch's fastest product for the tiles of this view: `torch.mm` or `1x1 convolution`."""
    m, n = tile_of(view)
    left, right = view.operand(0, 0, m), view.operand(1, 0, n)
    return _product(left, right, torch.empty(m, n, dtype=view.dtype, device=view.device))[0]


def tile_of(view: View) -> tuple[int, int]:
    """Rows and columns of a tile: what stays in the cache of a processor, and fills a GPU."""
    most = 1024 if view.device.type == "cpu" else 8192
    return tuple(min(most, len(side)) for side in view.sides)


@contextmanager
def _as_asked(view: View) -> Generator[None]:
    """The GPU multiplies in what the view says, whatever the process has set."""
    if view.device.type != "cuda":
        yield
        return
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = view.product == "tf32"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _mask(view: View, tile: Tensor, rows: slice, columns: slice) -> None:
    """-inf where a pair is no negative; their places are found on the host, so that nothing waits for a device."""
    first, last = (own[rows] for own in view.sides[0].own)
    if last[-1] <= columns.start or first[0] >= columns.stop:
        return
    first, last = np.maximum(first, columns.start), np.minimum(last, columns.stop)
    number = np.maximum(last - first, 0)
    if not number.any():
        return
    row = np.repeat(np.arange(len(number)), number)
    column = np.arange(len(row)) - np.repeat(number.cumsum() - number - first + columns.start, number)
    places = torch.from_numpy(row * tile.stride(0) + column)
    flat = tile.as_strided((int(places[-1]) + 1,), (1,))
    if tiles.ahead(tile.device):
        places = places.to(tile.device, non_blocking=True)
    flat.index_fill_(0, places, -torch.inf)


def parts_of(view: View, tile: tuple[int, int]) -> list[range]:
    """First rows of the tiles, in at most `PARTS` parts."""
    starts = range(0, len(view.sides[0]), tile[0])
    size = -(-len(starts) // PARTS)
    return [starts[k : k + size] for k in range(0, len(starts), size)]


def tiles_of(view: View, tile: tuple[int, int], part: range) -> Iterator[tuple[Tensor, slice, slice]]:
    """Every tile of some rows: its scores, rows and columns. The scores are overwritten by the next one."""
    (m, n), rows, columns = tile, len(view.sides[0]), len(view.sides[1])
    wide = -(-n // tiles.PAD) * tiles.PAD
    buffer = torch.empty((m, wide), dtype=view.dtype, device=view.device)
    size = view.sides[0].matrix.shape[1] * buffer.element_size()
    held = columns if view.ready(1) else max(1, HELD // (n * size)) * n
    for begin in range(0, columns, held):
        right = view.operand(1, begin, min(begin + held, columns))
        for a in part:
            b = min(a + m, rows)
            left = view.operand(0, a, b)
            for c in range(begin, min(begin + held, columns), n):
                d = min(c + n, columns)
                block = right[c - begin : d - begin]
                scored = buffer[: b - a, : -(-(d - c) // tiles.PAD) * tiles.PAD]
                inside = scored[:, : d - c]
                multiply(left, block, inside)
                scored[:, d - c :] = -torch.inf
                if view.metric == "euclidean":
                    tiles.distances(scored)
                _mask(view, scored, slice(a, b), slice(c, d))
                yield scored, slice(a, b), slice(c, d)


def run(
    view: View, readers: Sequence[Reader], *, tile: tuple[int, int] | None = None, progress: Progress | None = None
) -> list:
    """Visit every score once and give each reader's result.

    Args:
        view: the scores.
        readers: what looks at them.
        tile: rows and columns of a tile; None: as fits the device. No count depends on it.
        progress: called with (tiles done, in all).

    Raises:
        InputError: a reader of a loss that reads other scores.
    """
    for reader in readers:
        loss = getattr(reader, "loss", None)
        if loss is not None and loss.metric != view.metric:
            raise InputError(f"{loss!r} reads {loss.metric} scores; this view has {view.metric}, make one for it")
    seeing, found = [copy.copy(reader) for reader in readers], []  # what they come to hold ends with the run
    with _as_asked(view):
        for reader in seeing:
            reader.begin(view)
        visit(view, seeing, tile=tile, progress=progress)
        while seeing:
            found.append(seeing.pop(0).finish())
    return found


def visit(
    view: View, readers: Sequence[Reader], *, tile: tuple[int, int] | None = None, progress: Progress | None = None
) -> None:
    """Show every tile to readers that have begun, which is all that `run` does in between."""
    size = tile or tile_of(view)
    parts = parts_of(view, size)
    together = view.together and shards.world().size > 1
    mine, strips = shards.mine(parts) if together else parts, _Strips.of(view, readers, tile)
    every = strips.steps(parts) if strips else sum(len(part) for part in parts) * -(-len(view.sides[1]) // size[1])
    for done, _ in enumerate(strips.visit(mine) if strips else _tiled(view, readers, size, mine)):
        if progress:
            progress(done + 1, every)
    for reader in readers if together else ():
        reader.merge()


def _tiled(view: View, readers: Sequence[Reader], tile: tuple[int, int], parts: list[range]) -> Iterator[None]:
    """Show all tiles of some rows to readers, one a step."""
    for part in parts:
        for scored, rows, columns in tiles_of(view, tile, part):
            for reader in readers:
                reader.tile(scored, rows, columns)
            yield
        for reader in readers:
            reader.fold()


class _Strips:
    """The pass inside the kernel: strips of rows, each against blocks of columns that are packed.

    Args:
        view: the scores.
        readers: what looks at them.
        block: columns of a block.
        width: columns of a tile.
        watches: of each thread, what sees the scores for each reader.
    """

    def __init__(self, view: View, readers: Sequence[Reader], block: int, width: int, watches: list[list]):
        self.view, self.readers, self.block = view, readers, block
        factors = view.operand(1, 0, 1).shape[1]
        self.room = tiles.fused.Room.of(block, factors, width, len(watches))
        self.packed = self.room.block(block, factors)
        self.workers = [tiles.fused.Strip(each, self.room, factors, width) for each in watches]
        self.begin = None  # of the block that is packed

    @classmethod
    def of(cls, view: View, readers: Sequence[Reader], tile: tuple[int, int] | None) -> "_Strips | None":
        """For readers that all see scores inside the kernel, where its product is not slower than PyTorch's."""
        if not (_fusible(view) and readers and all(hasattr(reader, "watch") for reader in readers)):
            return None
        columns, factors = len(view.sides[1]), view.operand(1, 0, 1).shape[1]
        width = tiles.fused.width(tile)
        block = min(columns, max(1, PACKED // (4 * width * factors)) * width)
        every = []
        for _ in range(torch.get_num_threads()):
            watches = [reader.watch(block, width) for reader in readers]
            if None in watches or not (every or _pays(view)):
                return None
            every.append(list(itertools.chain(*watches)))
        return cls(view, readers, block, width, every)

    def steps(self, parts: list[range]) -> int:
        """How many there are in all."""
        return len(self._strips(parts)) * -(-len(self.view.sides[1]) // self.block)

    def _strips(self, parts: list[range]) -> list[tuple[slice, bool]]:
        """Rows of each strip, and whether it is the last one of its part."""
        found = []
        for part in parts:
            stop = min(part[-1] + part.step, len(self.view.sides[0]))
            high = min(part.step, tiles.fused.strip())
            found += [(slice(a, min(a + high, stop)), a + high >= stop) for a in range(part.start, stop, high)]
        return found

    def visit(self, parts: list[range]) -> Iterator[None]:
        """Show all scores of some rows to the readers, a strip and a block a step.

        Each block is packed once, and the parts of the rows follow each other in it; where processes exchange what they
        know of each part, all blocks of a part do.
        """
        blocks = range(0, len(self.view.sides[1]), self.block)
        if self.view.together:
            turns = [(begin, [part]) for part in parts for begin in blocks]
        else:
            turns = [(begin, parts) for begin in blocks]
        for begin, some in turns:
            self._pack(begin)
            yield from self._turn(begin, some)
            for worker in self.workers:
                worker.close()
            if self.view.together and begin == blocks[-1]:
                self._fold()
        self.room.give_back()

    def _turn(self, begin: int, parts: list[range]) -> Iterator[None]:
        """Some rows against one block."""
        columns = slice(begin, min(begin + self.block, len(self.view.sides[1])))
        strips, threads = self._strips(parts), len(self.workers)
        for k in range(0, len(strips), threads):
            turns = list(zip(self.workers, strips[k : k + threads], strict=False))
            tiles.each(lambda turn: self._strip(turn[0], turn[1][0], columns), turns)
            for worker, (_, last) in turns:
                for watch in worker.watches:
                    watch.settle()
                if last and not self.view.together:
                    self._fold()
                yield

    def _fold(self) -> None:
        for reader in self.readers:
            reader.fold()

    def _pack(self, begin: int) -> None:
        if begin == self.begin:
            return
        self.view.pack(1, begin, min(begin + self.block, len(self.view.sides[1])), self.packed)
        self.begin = begin

    def _strip(self, worker: tiles.fused.Strip, rows: slice, columns: slice) -> None:
        view = self.view
        view.pack(0, rows.start, rows.stop, worker.left)
        own = tuple(each[rows] for each in view.sides[0].own)
        worker.visit(self.packed, rows, columns, own, root=view.metric == "euclidean")


def _fusible(view: View) -> bool:
    return FUSED and tiles.fuses(view.device) and view.product == "float32"


def fuses(view: View) -> bool:
    """Whether readers that can are shown the scores of this view inside the kernel, which multiplies them itself."""
    return _fusible(view) and _pays(view)


def _pays(view: View) -> bool:
    """Whether the kernel multiplies about as fast as PyTorch, found by measuring, once."""
    m, n = tile_of(view)
    if m * n < PROBED:
        return True
    left, right = view.operand(0, 0, m), view.operand(1, 0, n)
    key = (left.shape[1], torch.get_num_threads())
    if key not in _paying:
        out, factors, width = torch.empty(m, n), left.shape[1], tiles.fused.width(None)
        room = tiles.fused.Room.of(n, factors, width, key[1])
        packed = room.block(n, factors)
        tiles.fused.pack(right, packed)
        high, none = tiles.fused.strip(), np.zeros(m, dtype=np.int64)
        workers = [tiles.fused.Strip([], room, factors, width) for _ in range(key[1])]

        def own(turn: int) -> None:
            rows = slice(turn * high, min((turn + 1) * high, m))
            worker = workers[turn % len(workers)]
            tiles.fused.pack(left[rows], worker.left, left=True)
            worker.visit(packed, rows, slice(0, n), (none, none), root=False)

        calls = (lambda: multiply(left, right, out), lambda: tiles.each(own, range(-(-m // high))))
        least, end, turns = [np.inf, np.inf], time.perf_counter() + PROBE, 0
        while turns < 3 or time.perf_counter() < end:
            for k, call in enumerate(calls):
                start = time.perf_counter()
                call()
                least[k] = min(least[k], time.perf_counter() - start)
            turns += 1
        _paying[key] = least[1] < DEARER * least[0]
    return _paying[key]
