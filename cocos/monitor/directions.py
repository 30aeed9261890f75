"""From the scores of a call to the directions of its loss: names, positives, scale, sources of negatives."""

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from typing import Any

import torch
from torch import Tensor

from cocos.embeddings.sources import DIRECTIONS, IN_BATCH, OTHERS_HARD, OWN_HARD, SOURCES
from cocos.monitor.calls import Call, Seen
from cocos.monitor.products import Flow, Join, PairScores, Product

# Rows by which two sides are compared.
COMPARED_ROWS = 64
# Number of times the spacing of floating-point numbers by which equal rows may differ.
ROW_ROUNDING = 64
# Maximum number of scores of a matrix that are copied into the order of their queries.
COPIED_SCORES = 2**20
# Largest relative difference of two factors of scores that are the same.
FACTOR_ROUNDING = 1e-5
# Largest relative difference of the scores of equal rows that were computed in two ways: distances add 1e-6 to each.
PAIR_ROUNDING = 1e-4


# Results of comparisons of rows while a call is read; None: they are not kept.
_COMPARISONS: ContextVar[dict[Any, Any] | None] = ContextVar("_COMPARISONS", default=None)
# Maximum number of pairs of a mask that is kept for the next call, and of shapes of which one is.
REMEMBERED_PAIRS, REMEMBERED_SHAPES = 2**20, 8
# Part of the pull that must lie on the positives of a layout.
MOST_PULL = 0.5
LENGTHS = "the groups are not used: their lengths are not those of the queries and candidates"
UNPULLED = (
    "its matrix of scores only pushes: the positives are scored apart, by other rows or in a way that is not known, so "
    "that they cannot be told from negatives; give the monitor the groups of the rows, or the name of the loss and the "
    "embeddings"
)
PULLED = "the positives are the entries that are pulled: neither labels nor the order of the rows say which they are"
# The last target of a shape, with its masks of positives and of negatives.
_LAST_MASKS: dict[torch.Size, tuple[Tensor, Tensor, Tensor]] = {}
# Cosine from which two rows are the same: the arguments of a loss may be normalised and rounded before they are scored.
SAME_ROW = 1 - 1e-4
MORE = "the loss compares other rows as well: only its first matrix, and the same one turned, are read"


@dataclass(frozen=True, eq=False)
class Piece:
    """A matrix of scores with queries as rows, and what the backward pass gave it."""

    scores: Tensor  # (Q, C); larger is closer
    weights: Tensor | None  # (Q, C) ∂ returned loss / ∂ scores; None: no gradient arrived
    parts: tuple[tuple[Tensor, Tensor], ...]  # (Q, D) and (c, D) of each block of columns
    factor: float | None  # from the scores to what the loss reads; None: it is not one number
    kind: str | None  # of the loss
    target: Tensor | None  # (Q,) columns of the positives
    of_classes: bool  # the candidates are class vectors
    upstream: Tensor | None  # () gradient that arrived at the loss
    join: Join | None = None  # the wider matrix of which it is a part
    lost: int = 0  # number of entries without a gradient
    order: int = 0  # of its computation
    # (Q, C) bool, entries whose score the loss computes apart as well; None: there are none
    paired: Tensor | None = None
    own_columns: tuple[tuple[int, int], ...] = ()  # first and last + 1 of the columns that are each query's own
    # the side that needs no gradient while the other one does: `queries`, `candidates`, or neither
    no_gradient: str = ""

    @property
    def query(self) -> Tensor:
        """Rows that ask, (Q, D)."""
        return self.parts[0][0]

    @property
    def candidate(self) -> Tensor:
        """Rows of all columns, (C, D)."""
        return self.parts[0][1] if len(self.parts) == 1 else torch.cat([each for _, each in self.parts])

    @property
    def filled(self) -> Tensor:
        """The weights, (Q, C), of 0 where no gradient arrived."""
        return torch.zeros_like(self.scores) if self.weights is None else self.weights


def pieces_of(
    read: Sequence[tuple[Product, Sequence[Flow]]],
    pairs: Sequence[tuple[PairScores, Sequence[Tensor]]],
    upstream: Tensor | None,
) -> list[Piece]:
    """Make a piece of every direction of every product of one backward pass, parts of a wider matrix joined.

    Args:
        read: products, and their gradients.
        pairs: scores of pairs that are computed apart, and their gradients.
        upstream: () gradient that arrived at the loss; None: none did.
    """
    found = _summed([_piece(product, flow, upstream) for product, flows in read for flow in flows])
    for each, arrived in pairs:
        if arrived and upstream is not None:
            found = _with_pairs(found, each, torch.stack([*arrived]).sum(dim=0), upstream)
    joins: dict[object, list[Piece]] = {}
    for k, piece in enumerate(found):
        joins.setdefault(piece.join.token if piece.join is not None else k, []).append(piece)
    return [_side_by_side(each) if len(each) > 1 else each[0] for each in joins.values()]


def _piece(product: Product, flow: Flow, upstream: Tensor | None) -> Piece:
    """Make a piece of one direction of a product."""
    gradient, scores, weights = flow.gradient(), product.scores if product.sign > 0 else -product.scores, None
    if gradient is not None and upstream is not None:
        weights = gradient.to(torch.promote_types(gradient.dtype, torch.float32))
        if not _is_on_host(upstream, product.sign):
            weights = weights * (product.sign / upstream)
    scores = scores.T if flow.transposed else scores
    if scores.numel() <= COPIED_SCORES:  # in the order of their queries all that follows is faster
        scores, weights = scores.contiguous(), None if weights is None else weights.contiguous()
    sides = ("columns", "rows") if flow.transposed else ("rows", "columns")
    names = dict(zip(sides, ("queries", "candidates"), strict=True))
    return Piece(
        scores,
        weights,
        ((product.columns, product.rows) if flow.transposed else (product.rows, product.columns),),
        factor=flow.factor if product.sign > 0 else None,
        kind=flow.kind,
        target=flow.target,
        of_classes=bool(product.class_side),
        upstream=upstream,
        join=flow.join,
        order=product.order,
        own_columns=product.own_columns,
        no_gradient=names.get(product.no_gradient, ""),
    )


def _is_on_host(number: Tensor, value: float) -> bool:
    """Whether a number on the host has this value; one on a device is not asked, since that waits for it."""
    return number.device.type == "cpu" and float(number) == value


def _summed(found: list[Piece]) -> list[Piece]:
    """Add up products of the same rows: the derivative of their scores is the sum of all."""
    kept: list[Piece] = []
    for piece in found:
        same = (k for k, each in enumerate(kept) if each.order != piece.order and each.join is piece.join is None)
        same = (k for k in same if kept[k].scores.shape == piece.scores.shape)
        at = next((k for k in same if all(map(same_rows, kept[k].parts[0], piece.parts[0]))), None)
        times = None if at is None else _factor_between(kept[at].scores, piece.scores)
        if at is None or times is None or piece.weights is None:
            kept.append(piece)
            continue
        first, more, factors = kept[at], piece.weights * times, [kept[at].factor, piece.factor]
        alike = None not in factors and math.isclose(
            factors[0] or 0, (factors[1] or 0) * times, rel_tol=FACTOR_ROUNDING
        )
        kept[at] = replace(
            first,
            weights=more if first.weights is None else first.weights + more,
            factor=first.factor if alike else None,
            kind=first.kind or piece.kind,
            target=piece.target if first.target is None else first.target,
        )
    return kept


def _factor_between(scores: Tensor, others: Tensor) -> float | None:
    """Find the factor from scores to others of the same rows, which may have an offset; None where there is none."""
    if not scores.numel():
        return None
    one, two = (each.to(torch.promote_types(each.dtype, torch.float32)).flatten() for each in (scores, others))
    enough = PAIR_ROUNDING * two.abs().amax() + rounding(scores, others) * two.abs().amax()
    times = (one * two).sum() / one.square().sum()
    if bool((two - times * one).abs().amax() <= enough):
        return float(times)
    one, two = one - one.mean(), two - two.mean()
    times = (one * two).sum() / one.square().sum()
    return float(times) if len(one) > 2 and bool((two - times * one).abs().amax() <= enough) else None


def _with_pairs(found: list[Piece], pairs: PairScores, gradient: Tensor, upstream: Tensor) -> list[Piece]:
    """Add the gradient of scores of pairs that were computed apart to the same entries of the matrices.

    The derivative of a score is that of every place where the loss reads it. Where a matrix has a pair in both orders,
    as one of two views of each sample, it is shared such that each query's weights sum to zero.
    """
    precise = gradient.to(torch.promote_types(gradient.dtype, torch.float32))
    if gradient.ndim == 2 and pairs.values is None:  # of the products of entries, whose sum is the score
        arrived = precise.mean(dim=1)
        if not bool((precise - arrived[:, None]).abs().amax() <= rounding(gradient) * arrived.abs().amax()):
            return found
    else:
        arrived = precise.reshape(-1)
    values = (pairs.rows * pairs.columns).sum(dim=1) if pairs.values is None else pairs.values
    left, made, known = torch.ones(len(values), dtype=torch.bool, device=values.device), list(found), False
    for k, piece in enumerate(found):
        query, candidate = piece.parts[0]
        if piece.weights is None or candidate.shape[1:] != pairs.rows.shape[1:] or not left.any():
            continue
        ways = [
            (_found_in(one, query), _found_in(two, candidate))
            for one, two in ((pairs.rows, pairs.columns), (pairs.columns, pairs.rows))
        ]
        both = [(rows, columns, (rows >= 0) & (columns >= 0) & left) for rows, columns in ways]
        there = both[0][2] | both[1][2]
        known |= bool(there.any())
        row, column = (
            torch.where(both[0][2], *each).clamp(min=0) for each in zip(both[0][:2], both[1][:2], strict=True)
        )
        times = _factor_between(piece.scores[row, column][there], values[there])
        if times is None:
            continue
        part = torch.where(there, arrived * (times / upstream), 0).to(piece.weights.dtype)
        weights, paired = piece.weights.clone(), torch.zeros_like(piece.weights, dtype=torch.bool)
        other_row, other_column, _ = both[1]
        twice = both[0][2] & both[1][2] & ((row != other_row) | (column != other_column))
        missing = weights.sum(dim=1).clamp(min=0)
        mine, other = missing[row], missing[other_row.clamp(min=0)]
        share = torch.where(twice, torch.where(mine + other > 0, mine / (mine + other), 0.5), 1)
        weights.index_put_((row, column), part * share, accumulate=True)
        paired[row[there], column[there]] = True
        if twice.any():
            place = other_row.clamp(min=0), other_column.clamp(min=0)
            weights.index_put_(place, part * (1 - share), accumulate=True)
            paired[other_row[twice], other_column[twice]] = True
        made[k] = replace(piece, weights=weights, paired=paired if piece.paired is None else piece.paired | paired)
        left = left & ~there
    return made if known else _with_column(made, pairs, values, arrived / upstream)


def _with_column(found: list[Piece], pairs: PairScores, values: Tensor, arrived: Tensor) -> list[Piece]:
    """Put the pairs as a first column into a matrix of the same queries in which nothing is pulled."""
    if bool(arrived.sum() >= 0):
        return found
    for k, piece in enumerate(found):
        (query, candidate), weights = piece.parts[0], piece.weights
        if weights is None or piece.join is not None or not candidate.shape[1] or bool((weights < 0).any()):
            continue
        if any(same_rows(each, query) for each in (pairs.rows, pairs.columns)):
            scores = torch.cat([values[:, None].to(piece.scores.dtype), piece.scores], dim=1)
            paired = torch.zeros_like(scores, dtype=torch.bool)
            paired[:, 0] = True
            wide = replace(
                piece,
                scores=scores,
                weights=torch.cat([arrived[:, None].to(weights.dtype), weights], dim=1),
                parts=((query, candidate.new_empty(len(candidate) + 1, 0)),),
                factor=None,
                target=None,
                paired=paired,
            )
            return [*found[:k], wide, *found[k + 1 :]]
    return found


def _found_in(rows: Tensor, of: Tensor) -> Tensor:
    """Find each row in a matrix, (n,), its own place first, up to lengths; -1: it is not there."""
    places = torch.arange(len(rows), device=rows.device)
    one, two = unit_rows(rows), unit_rows(of)
    enough = rounding(rows, of)
    if len(rows) == len(of) and bool((one - two).abs().amax() <= enough):
        return places
    cosines = one @ two.T
    best = cosines.max(dim=1)
    found = torch.where(best.values >= 1 - enough, best.indices, -1)
    if len(rows) <= len(of):
        found = torch.where(cosines[places, places] >= 1 - enough, places, found)
    return found


def _side_by_side(parts: list[Piece]) -> Piece:
    parts = sorted(parts, key=lambda each: each.join.index if each.join is not None else 0)
    if len({len(each.scores) for each in parts}) > 1:
        return parts[0]
    parts = [_in_units_of(parts[0], each) for each in parts]
    factors, arrived = {each.factor for each in parts}, any(each.weights is not None for each in parts)
    return replace(
        parts[0],
        scores=torch.cat([each.scores for each in parts], dim=1),
        weights=torch.cat([each.filled for each in parts], dim=1) if arrived else None,
        parts=tuple(side for each in parts for side in each.parts),
        factor=factors.pop() if len(factors) == 1 else None,
        target=parts[0].join.target if parts[0].join is not None else parts[0].target,
        join=None,
        lost=sum(each.lost for each in parts),
        paired=_masks(parts, dim=1),
        no_gradient=parts[0].no_gradient if len({each.no_gradient for each in parts}) == 1 else "",
    )


def _in_units_of(first: Piece, piece: Piece) -> Piece:
    """Express scores and weights in the units of another matrix."""
    if first.factor is None or piece.factor is None or not piece.factor or first.factor == piece.factor:
        return piece
    times = piece.factor / first.factor
    weights = None if piece.weights is None else piece.weights / times
    return replace(piece, scores=piece.scores * times, weights=weights, factor=first.factor)


def _masks(pieces: list[Piece], dim: int) -> Tensor | None:
    """Join the masks of pairs that are computed apart; None where there are none."""
    if all(each.paired is None for each in pieces):
        return None
    none = (torch.zeros_like(each.scores, dtype=torch.bool) for each in pieces)
    masks = [each.paired if each.paired is not None else zeros for each, zeros in zip(pieces, none, strict=True)]
    return torch.cat(masks, dim=dim)


def unit_rows(rows: Tensor) -> Tensor:
    """Normalise rows in at least float32; a row of zeros stays."""
    rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
    return rows / torch.linalg.vector_norm(rows, dim=1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)


def rounding(*rows: Tensor) -> float:
    """Difference of numbers near 1 that rounding makes."""
    return ROW_ROUNDING * max(torch.finfo(each.dtype).eps for each in rows)


@contextmanager
def remembered() -> Generator[None]:
    """Compare the rows of the same two matrices only once while a call is read."""
    token = _COMPARISONS.set({})
    try:
        yield
    finally:
        _COMPARISONS.reset(token)


def _remember(made: Callable[..., Any], *of: Tensor) -> Any:
    known = _COMPARISONS.get()
    if known is None:
        return made(*of)
    key = made, *map(id, of)
    if key not in known:
        known[key] = of, made(*of)  # the tensors are kept, so that no other one gets their id
    return known[key][1]


def _first_unit_rows(rows: Tensor) -> Tensor:
    return unit_rows(rows[:COMPARED_ROWS])


def first_unit_rows(rows: Tensor) -> Tensor:
    """Normalise the first rows, by which a matrix is known, (n, D)."""
    found: Tensor = _remember(_first_unit_rows, rows)
    return found


def _same(first: Tensor, second: Tensor) -> bool:
    return bool((first_unit_rows(first) - first_unit_rows(second)).abs().amax() <= rounding(first, second))


def same_rows(first: Tensor, second: Tensor) -> bool:
    """Whether two matrices have the same rows up to their lengths."""
    if first.shape != second.shape or not first.shape[1]:
        return False
    if first.is_set_to(second):
        return True
    found: bool = _remember(_same, *sorted((first, second), key=id))
    return found


def block_start(rows: Tensor, of: Tensor, expected: int = 0) -> int | None:
    """Where rows (n, D) stand in a longer matrix as a block, up to their lengths, the expected place first; or None."""
    if rows.shape == of.shape and rows.shape[0]:
        return 0 if same_rows(rows, of) else None
    if rows.shape[1] != of.shape[1] or not rows.shape[1] or not 0 < len(rows) <= len(of):
        return None
    near = (unit_rows(of) - unit_rows(rows[:1])).abs().amax(dim=1) <= rounding(rows, of)
    starts = near[: len(of) - len(rows) + 1].nonzero().flatten().tolist()
    starts = sorted(starts, key=lambda start: (start != expected, start))[:COMPARED_ROWS]
    return next((start for start in starts if same_rows(rows, of[start : start + len(rows)])), None)


def stacked(found: Sequence[Piece]) -> list[Piece]:
    """Tiles of the same candidates as one matrix; candidates that no softmax joins side by side.

    A tile without a gradient has weights of 0 and is counted as lost.
    """
    stacks: list[list[Piece]] = []
    for piece in sorted(found, key=lambda each: each.order):
        for stack in stacks:
            if same_rows(stack[0].candidate, piece.candidate) and not same_rows(stack[0].query, piece.query):
                stack.append(piece)
                break
        else:
            stacks.append([piece])
    made = [_stack(each) if len(each) > 1 else each[0] for each in stacks]
    kept: list[Piece] = []
    for piece in sorted((each for each in made if each.weights is not None), key=lambda each: each.of_classes):
        at = next((k for k, each in enumerate(kept) if _belong_side_by_side(each, piece)), None)
        if at is None:
            kept.append(piece)
        else:
            kept[at] = _side_by_side([kept[at], piece])
    return kept


def _stack(tiles: list[Piece]) -> Piece:
    arrived = [each for each in tiles if each.weights is not None]
    targets = [each.target for each in tiles if each.target is not None]
    parts = zip(*(each.parts for each in tiles), strict=False)
    return replace(
        (arrived or tiles)[0],
        scores=torch.cat([each.scores for each in tiles]),
        weights=torch.cat([each.filled for each in tiles]) if arrived else None,
        parts=tuple((torch.cat([query for query, _ in part]), part[0][1]) for part in parts),
        target=torch.cat(targets) if len(targets) == len(tiles) else None,
        lost=sum(each.scores.numel() for each in tiles if each.weights is None),
        paired=_masks(tiles, dim=0),
    )


def _belong_side_by_side(first: Piece, second: Piece) -> bool:
    return (
        first.kind == second.kind != "softmax"
        and first.of_classes == second.of_classes
        and same_rows(first.query, second.query)
    )


class Unread(Exception):
    """A call whose scores can be seen and not be counted, with the reason."""


@dataclass(frozen=True, eq=False)
class Layout:
    """The masks of a matrix."""

    positive: Tensor  # (Q, C) bool
    negative: Tensor  # (Q, C) bool
    notes: tuple[str, ...] = ()  # remarks for the user


def _equal(groups: Any, shape: torch.Size, device: torch.device) -> Tensor | None:
    """(Q, C) bool where groups agree, ids of the rows or of both sides; None where their lengths are others."""
    sides = groups if isinstance(groups, tuple) else (groups, groups)
    ids = [each.tolist() if isinstance(each, Tensor) else list(each) for each in sides]
    if [len(each) for each in ids] != list(shape):
        return None
    known: dict[Any, int] = {}
    first, second = (torch.tensor([known.setdefault(each, len(known)) for each in side], device=device) for side in ids)
    return first[:, None] == second[None]


def one_per_row(columns: Tensor, shape: torch.Size) -> Tensor:
    """(Q, C) bool with one entry per row; none for a column outside."""
    inside = (columns >= 0) & (columns < shape[1])
    found = torch.zeros(shape, dtype=torch.bool, device=columns.device)
    rows = torch.arange(shape[0], device=columns.device)
    found[rows, columns.clamp(0, shape[1] - 1)] = inside
    return found


def _of_target(target: Tensor, shape: torch.Size) -> tuple[Tensor, Tensor]:
    """Make the masks of positives and negatives of a target, or take those of the last call with the same one.

    Nobody changes a mask, so that what is known of one stays true.
    """
    few = target.device.type == "cpu" and shape.numel() <= REMEMBERED_PAIRS
    kept = _LAST_MASKS.pop(shape, None) if few else None
    if kept is None or kept[0].dtype != target.dtype or not torch.equal(kept[0], target):
        positive = one_per_row(target, shape)
        kept = target.clone(), positive, ~positive
    if few:
        _LAST_MASKS[shape] = kept
        while len(_LAST_MASKS) > REMEMBERED_SHAPES:
            _LAST_MASKS.pop(next(iter(_LAST_MASKS)), None)
    return kept[1:]


def _by_labels(labels: Sequence[Tensor], shape: torch.Size, of_classes: bool) -> Iterator[Tensor]:
    """Yield the masks that whole numbers among the arguments of a loss may mean."""
    queries, candidates = shape
    for k, each in enumerate(labels):
        if len(each) == queries and of_classes:
            yield one_per_row(each.long(), shape)
        elif len(each) == queries == candidates:
            yield each[:, None] == each[None]
        elif len(each) == queries:
            yield from (each[:, None] == other[None] for other in labels[k + 1 :] if len(other) == candidates)
        elif queries == candidates and len(each) and queries % len(each) == 0:
            views = queries // len(each)
            for spread in (each.repeat(views), each.repeat_interleave(views)):
                yield spread[:, None] == spread[None]


def _by_order(shape: torch.Size, same: bool, offsets: Sequence[int], device: torch.device) -> Iterator[Tensor]:
    """Yield masks without labels: the diagonal, from the rows of this process on; two views of each sample."""
    queries, candidates = shape
    rows = torch.arange(queries, device=device)
    if same and queries % 2 == 0:
        yield one_per_row(offsets[0] + (rows + queries // 2) % queries, shape)
        yield one_per_row(offsets[0] + (rows ^ 1), shape)
    elif not same:
        for start in dict.fromkeys(offsets):
            yield one_per_row(rows + start, shape)
        if queries and candidates % queries == 0 and candidates > queries:
            yield one_per_row(rows * (candidates // queries), shape)  # its positive, then its own negatives


def is_pulled(positive: Tensor, weights: Tensor) -> bool:
    """Whether most of the pull lies on these entries."""
    pull = (-weights).clamp(min=0)
    return bool((pull * positive).sum() > MOST_PULL * pull.sum())


def layout_of(
    weights: Tensor,
    others: Tensor | None,
    *,
    same: bool = False,
    of_classes: bool = False,
    target: Tensor | None = None,
    match: Tensor | None = None,
    paired: Tensor | None = None,
    groups: Any = None,
    labels: Sequence[Tensor] = (),
    offsets: Sequence[int] = (0,),
) -> Layout:
    """Choose the positives of a matrix.

    In order: groups that were given, matches that the target of a cross-entropy misses, that target, labels among the
    arguments of the loss, pairs whose scores it computes apart, and the order of the rows; the last three only if most
    of the pull lies there. Otherwise, the entries that are pulled.

    Args:
        weights: (Q, C); below 0 is pull.
        others: (Q, C) bool, entries of two different rows; None: all.
        same: queries and candidates are the same rows.
        of_classes: candidates are class vectors.
        target: (Q,) columns of the positives.
        match: (Q, C) bool, from the arguments of the loss; None: the target misses none.
        paired: (Q, C) bool, entries whose score the loss computes apart as well; None: there are none.
        groups: (Q,) ids, or those of both sides.
        labels: whole numbers among the arguments.
        offsets: columns at which a diagonal may begin, the likeliest first.
    """
    shape, device = weights.shape, weights.device
    positive = _equal(groups, shape, device) if groups is not None else None
    notes = (LENGTHS,) if groups is not None and positive is None else ()
    positive = match if positive is None else positive
    if positive is None and target is not None and len(target) == shape[0]:
        if others is None:
            return Layout(*_of_target(target, shape), notes)
        positive = one_per_row(target, shape)
    others = torch.ones_like(weights, dtype=torch.bool) if others is None else others
    if positive is None:
        known = [each.to(device) for each in labels]
        by_pairs, counted = [] if paired is None else [paired], torch.where(others, weights, 0)
        guesses = chain(_by_labels(known, shape, of_classes), by_pairs, _by_order(shape, same, offsets, device))
        positive = next((each for each in guesses if _fits(each & others, counted)), None)
    if positive is not None:
        return Layout(positive & others, ~positive & others, notes)
    pulled = (weights < 0) & others
    if not pulled.any():
        raise Unread(UNPULLED)
    return Layout(pulled, ~pulled & others, (*notes, PULLED))


def _fits(positive: Tensor, weights: Tensor) -> bool:
    """Whether most of the pull lies on these entries, or of the push of a loss with the other sign.

    Where nothing is pulled at all, as where every positive is near enough for its loss, nothing of them is pushed.
    """
    if bool((weights < 0).any()):
        return is_pulled(positive, weights) or (
            is_pulled(positive, -weights) and not bool(((weights < 0) & positive).any())
        )
    return not bool(weights[positive].any())


def _normalised(rows: Tensor) -> Tensor:
    return torch.nn.functional.normalize(rows.float(), dim=1)


def matches_of(query: Tensor, candidate: Tensor, target: Tensor | None, given: Sequence[Tensor]) -> Tensor | None:
    """Find the positives of candidates that a loss assembled from several arguments, as with hard negatives.

    Row i of one argument belongs to row i of every other. A target is right where its column is row i of some
    argument. Elsewhere the positive of query i is row i of the argument to which most of the other targets point, or of
    the first one.

    Args:
        query: (Q, D).
        candidate: (C, D), C above Q.
        target: (Q,) columns.
        given: matrices among the arguments of the loss, in their order.

    Returns:
        (Q, C) bool; None where no target is seen to be wrong.
    """
    shape = query.shape[0], candidate.shape[0]
    if target is None or shape[1] <= shape[0] or len(target) != shape[0]:
        return None
    sides = [each for each in given if each.shape == query.shape and each.device == query.device]
    anchors, columns = _normalised(query), _normalised(candidate)
    others = [each for each in map(_normalised, sides) if not bool(((each * anchors).sum(dim=1) > SAME_ROW).all())]
    if not others or len(others) == len(sides):
        return None
    inside = (target >= 0) & (target < shape[1])
    column = target.clamp(0, shape[1] - 1)[:, None]
    same = [each @ columns.T > SAME_ROW for each in others]
    right = torch.stack([each.gather(1, column)[:, 0] & inside for each in same])
    match = same[int(right.sum(dim=1).argmax())]
    wrong = ~right.any(dim=0) & match.any(dim=1) & inside
    if not bool(wrong.any()):
        return None
    found = torch.zeros(shape, dtype=torch.bool, device=query.device).scatter_(1, column, inside[:, None])
    return torch.where(wrong[:, None], match, found)


def sources_of(piece: Piece, positive: Tensor) -> Tensor | None:
    """Number sources as in `cocos.sources.SOURCES`, (Q, C) int8; None where all are of the batch, or unknown.

    A block of columns is known by its rows: queries against themselves, candidates against the queries, candidates
    against themselves. Among the candidates, columns that are the positive of no query are hard negatives, and own ones
    by their order. Columns that compare each query with candidates of its own are own hard negatives.
    """
    square = len(piece.parts) == 1 and positive.shape[0] == positive.shape[1]
    if not piece.own_columns and (square or piece.of_classes or not piece.candidate.shape[1]):
        return None
    found = torch.full(positive.shape, IN_BATCH, dtype=torch.int8, device=positive.device)
    for first, last in piece.own_columns:
        found[:, first:last] = OWN_HARD
    if piece.own_columns:
        return found if bool((found != IN_BATCH)[~positive].any()) else None
    start, query = 0, piece.query
    for rows, columns in piece.parts:
        stop = start + len(columns)
        asks = "query" if same_rows(rows, query) else "candidate"
        asked = "query" if same_rows(columns[: len(query)], query) else "candidate"
        name = f"{asks}-{asked}"
        further = start > 0 or name == DIRECTIONS[1]
        if further and len(piece.parts) > 1 and name != DIRECTIONS[0]:
            found[:, start:stop] = SOURCES.index(name)
        elif name == DIRECTIONS[0]:
            hard = _hard(positive[:, start:stop], piece.scores[:, start:stop])
            if hard is None:
                return None
            found[:, start:stop] = hard
        start = stop
    return found if bool((found != IN_BATCH).any()) else None


def _hard(positive: Tensor, scores: Tensor) -> Tensor | None:
    """Find the sources of the candidates of one block; None where their order does not show whose they are."""
    queries, number = positive.shape
    found = torch.full_like(positive, IN_BATCH, dtype=torch.int8)
    each, rest = number // queries - 1, number - queries
    if not rest:
        return found
    belongs = positive.any(dim=0)
    if belongs.all() or not belongs.any():
        return found
    if number % queries or int(belongs.sum()) != queries or not bool((positive.sum(dim=1) == 1).all()):
        return found if not bool(belongs.any()) else None
    rows, place = torch.arange(queries, device=positive.device), positive.int().argmax(dim=1)
    after_own_positive = place[:, None] + torch.arange(1, each + 1, device=positive.device)
    number_of = torch.arange(each, device=positive.device)
    layouts = [queries + each * rows[:, None] + number_of, queries + rows[:, None] + queries * number_of]
    if torch.equal(place, rows * (each + 1)):
        layouts = [after_own_positive]
    elif not torch.equal(place, rows):
        return None
    mine = max(layouts, key=lambda columns: float(scores.gather(1, columns).float().mean()))
    found[:, ~belongs] = OTHERS_HARD
    return found.scatter(1, mine, OWN_HARD)


def of(found: Sequence[Piece], call: Call) -> tuple[list[list[Seen]], float]:
    """List the directions of a call for each width, the largest first, and the part of its pairs without a gradient."""
    if not all(each.of_classes for each in found):
        found = [each for each in found if not each.of_classes]
    widths = sorted({each.query.shape[1] for each in found}, reverse=True)
    matrices = [stacked([each for each in found if each.query.shape[1] == width]) for width in widths]
    by_width = [_of_width(each, call) for each in matrices if each]
    total = sum(each.scores.numel() for pieces in matrices for each in pieces)
    return by_width, sum(each.lost for pieces in matrices for each in pieces) / max(total, 1)


def _of_width(matrices: list[Piece], call: Call) -> list[Seen]:
    first, others = matrices[0], matrices[1:]
    second = next((each for each in others if _is_other_way_round(first, each)), None)
    notes = (MORE,) if len(others) > (second is not None) else ()
    if second is None:
        return [_seen(first, None, call, notes)]
    first, second = _with_shared_pull(first, second)
    groups = call.groups[::-1] if isinstance(call.groups, tuple) else call.groups
    swapped = replace(call, groups=groups, labels=call.labels[::-1])
    one = _seen(first, "q2c", call, notes)
    same = first.order == second.order and first.factor == second.factor  # one product and its transpose
    return [one, _seen(second, "c2q", swapped, (), scale=(one.scale, one.stretch) if same else None)]


def _is_other_way_round(first: Piece, second: Piece) -> bool:
    """Whether the queries of a matrix are candidates of another one, and its candidates queries."""
    if not first.query.shape[1]:
        return first.scores.shape == second.scores.T.shape and torch.allclose(first.scores, second.scores.T)
    sides = (first.parts[0][1], second.query), (second.parts[0][1], first.query)
    return all(block_start(*((b, a) if a.shape[0] >= b.shape[0] else (a, b))) is not None for a, b in sides)


def _with_shared_pull(first: Piece, second: Piece) -> tuple[Piece, Piece]:
    """Share the pull on positives that a loss of both directions reads from the first matrix alone.

    A softmax and a hinge read differences of scores, so each query's weights sum to zero.
    """
    one, two = first.weights, second.weights
    if one is None or two is None or len(one) != len(two) or bool((two.sum(dim=1) <= 0).any()):
        return first, second
    missing, columns = two.sum(dim=1), one.argmin(dim=1)
    rows = torch.arange(len(one), device=one.device)
    if not (columns < two.shape[1]).all() or not (missing > 0).any():
        return first, second
    one, two = one.clone(), two.clone()
    one[rows, columns] += missing
    two[rows, columns] -= missing
    close = one.sum(dim=1).abs().amax() <= 1e-3 * missing.amax()
    return (replace(first, weights=one), replace(second, weights=two)) if close else (first, second)


def _scale(piece: Piece) -> tuple[float | None, float | None]:
    """Find the factors from a cosine to what the loss reads, and to a score; None where they are not one number."""
    if piece.factor is None or not piece.candidate.shape[1]:
        return None, None
    query, candidate = piece.parts[0]
    cosines = first_unit_rows(query) @ first_unit_rows(candidate).T
    scores = piece.scores[: len(cosines), : cosines.shape[1]].to(cosines.dtype)
    stretch = (scores * cosines).sum() / cosines.square().sum()
    error = (scores - stretch * cosines).abs().amax() / scores.abs().amax()
    if not error <= rounding(query, piece.scores):
        return None, None
    return float(stretch) * piece.factor, float(stretch)


def _self_pairs(piece: Piece, weights: Tensor, rank: int) -> tuple[Tensor | None, int | None]:
    """Mark the entries of a row with itself, (Q, C), or None; and find the queries among their only candidates.

    Equal rows of two sides are pairs, if the pull of the loss or the target of its cross-entropy is on them.
    """
    found, start, first = None, 0, None
    for query, candidate in piece.parts:
        same = query.shape[0] == weights.shape[0]
        at = block_start(query, candidate, rank * query.shape[0]) if same else None
        if at is not None:
            rows = torch.arange(len(weights), device=weights.device)
            entries = one_per_row(rows + start + at, weights.shape)
            meant = piece.target is not None and torch.equal(piece.target.long(), rows + start + at)
            one = query.data_ptr() == candidate.data_ptr()
            if not meant and (one or not is_pulled(entries, weights)):
                found = entries if found is None else found | entries
                first = at if len(piece.parts) == 1 else None
        start += candidate.shape[0]
    return found, first


def _of_this_process(piece: Piece, call: Call) -> Tensor | None:
    """Mark the candidates of this process, (C,) bool; None where all are its own, or none is known."""
    found = torch.zeros(piece.scores.shape[1], dtype=torch.bool, device=piece.scores.device)
    computed = [each for each in call.local or () if len(each) == len(piece.query)]
    local = [each for each in (*call.given, *computed, piece.query) if 1 < len(each) < len(found)]
    start = 0
    for _, candidate in piece.parts:
        for rows in local:
            at = block_start(rows, candidate, call.rank * len(rows))
            if at is not None:
                found[start + at : start + at + len(rows)] = True
        start += len(candidate)
    return found if found.any() and not found.all() else None


def _seen(
    piece: Piece,
    name: str | None,
    call: Call,
    notes: tuple[str, ...],
    scale: tuple[float | None, float | None] | None = None,
) -> Seen:
    weights, width, known = piece.filled, piece.query.shape[1], piece.candidate.shape[1] > 0
    self_pairs, at = _self_pairs(piece, weights, call.rank)
    local = _of_this_process(piece, call) if call.local is not None else None
    offset = at if at is not None else int(local.int().argmax()) if local is not None else 0
    starts = [*accumulate((len(candidate) for _, candidate in piece.parts), initial=0)][:-1]
    layout = layout_of(
        weights,
        None if self_pairs is None else ~self_pairs,
        same=at is not None,
        of_classes=piece.of_classes,
        target=piece.target,
        match=matches_of(piece.query, piece.candidate, piece.target, call.given) if known else None,
        paired=piece.paired,
        groups=call.groups,
        labels=call.labels,
        offsets=(offset, *starts),
    )
    factor, stretch = _scale(piece) if scale is None else scale
    sign = None if piece.upstream is None else piece.upstream.sign()
    sources = None if local is not None else sources_of(piece, layout.positive)
    if sources is not None:
        columns, rows = sources == SOURCES.index("candidate-query"), torch.arange(len(sources), device=sources.device)
        # A candidate against its own query is its pair.
        own_query = columns & (columns.cumsum(dim=1) - 1 == rows[:, None])
        layout = replace(layout, positive=layout.positive | own_query, negative=layout.negative & ~own_query)
    return Seen(
        name or ("s2p" if piece.of_classes else "s2s" if at is not None else "q2c"),
        piece.scores,
        weights if sign is None or _is_on_host(sign, 1.0) else weights * sign.to(weights.dtype),
        layout.positive,
        layout.negative,
        query=piece.query if width else None,
        candidate=piece.candidate if known else None,
        scale=factor,
        stretch=stretch,
        sources=sources,
        kind=piece.kind,
        local=local,
        factor=piece.upstream,
        value=call.value,
        width=width or None,
        no_gradient="" if piece.of_classes else piece.no_gradient,
        notes=notes + layout.notes,
    )
