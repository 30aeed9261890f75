"""The matrices of scores of a call: parts that the loss reads as one are joined, tiles of a large one stacked."""

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from cocos.monitor._flow import Flow
from cocos.monitor._graph import Join
from cocos.monitor._products import PairScores, Product

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
_KNOWN: ContextVar[dict[Any, Any] | None] = ContextVar("_KNOWN", default=None)


@dataclass(frozen=True, eq=False)
class Piece:
    """A matrix of scores with queries as rows, and what the backward pass gave it.

    Args:
        scores: (Q, C); larger is closer.
        weights: (Q, C) ∂ returned loss / ∂ scores; None: no gradient arrived.
        parts: (Q, D) and (c, D) of each block of columns.
        factor: from the scores to what the loss reads; None: it is not one number.
        kind: of the loss.
        target: (Q,) columns of the positives.
        head: the candidates are class vectors.
        upstream: () gradient that arrived at the loss.
        join: the wider matrix of which it is a part.
        lost: number of entries without a gradient.
        order: of its computation.
        paired: (Q, C) bool, entries whose score the loss computes apart as well; None: there are none.
        own: first and last + 1 of the columns that are each query's own.
        still: the side that needs no gradient while the other one does: `queries`, `candidates`, or neither.
    """

    scores: Tensor
    weights: Tensor | None
    parts: tuple[tuple[Tensor, Tensor], ...]
    factor: float | None
    kind: str | None
    target: Tensor | None
    head: bool
    upstream: Tensor | None
    join: Join | None = None
    lost: int = 0
    order: int = 0
    paired: Tensor | None = None
    own: tuple[tuple[int, int], ...] = ()
    still: str = ""

    @property
    def query(self) -> Tensor:
        return self.parts[0][0]

    @property
    def candidate(self) -> Tensor:
        return self.parts[0][1] if len(self.parts) == 1 else torch.cat([each for _, each in self.parts])


def of(
    read: Sequence[tuple[Product, Sequence[Flow]]],
    pairs: Sequence[tuple[PairScores, Sequence[Tensor]]],
    upstream: Tensor | None,
) -> list[Piece]:
    """Every direction of every product of one backward pass, parts of a wider matrix joined.

    Args:
        read: products, and their gradients.
        pairs: scores of pairs that are computed apart, and their gradients.
        upstream: () gradient that arrived at the loss; None: none did.
    """
    found = []
    for product, flows in read:
        for flow in flows:
            gradient, scores = flow.gradient(), product.scores if product.sign > 0 else -product.scores
            sides = (product.columns, product.rows) if flow.turned else (product.rows, product.columns)
            weights = None
            if gradient is not None and upstream is not None:
                precise = gradient.to(torch.promote_types(gradient.dtype, torch.float32))
                weights = precise * (product.sign / upstream)
            scores = scores.T if flow.turned else scores
            if scores.numel() <= COPIED_SCORES:  # in the order of their queries all that follows is faster
                scores, weights = scores.contiguous(), None if weights is None else weights.contiguous()
            factor = flow.factor if product.sign > 0 else None
            about = (factor, flow.kind, flow.target, bool(product.head), upstream)
            names = ("columns", "rows") if flow.turned else ("rows", "columns")
            still = dict(zip(names, ("queries", "candidates"), strict=True)).get(product.still, "")
            own, number = product.own, product.order
            found.append(Piece(scores, weights, (sides,), *about, flow.join, order=number, own=own, still=still))
    found = _summed(found)
    for each, arrived in pairs:
        if arrived and upstream is not None:
            found = _with_pairs(found, each, torch.stack([*arrived]).sum(dim=0), upstream)
    return _joined(found)


def _summed(found: list[Piece]) -> list[Piece]:
    """The matrices, one of each set of products of the same rows: the derivative of their scores is the sum of all."""
    kept: list[Piece] = []
    for piece in found:
        same = (k for k, each in enumerate(kept) if each.order != piece.order and each.join is piece.join is None)
        at = next((k for k in same if kept[k].scores.shape == piece.scores.shape and _same_sides(kept[k], piece)), None)
        times = None if at is None else _times(kept[at].scores, piece.scores)
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


def _same_sides(first: Piece, second: Piece) -> bool:
    return all(same_rows(*each) for each in zip(first.parts[0], second.parts[0], strict=True))


def _times(scores: Tensor, others: Tensor) -> float | None:
    """The factor from scores to others of the same rows, which may have an offset; None where there is none."""
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
    """The matrices, with the gradient of scores of pairs that were computed apart added to the same entries of them.

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
        times = _times(piece.scores[row, column][there], values[there])
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
    """The matrices; one of the same queries in which nothing is pulled gets the pairs as its first column."""
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
    """Place of each row in a matrix, (n,), its own place first, up to lengths; -1: it is not there."""
    places = torch.arange(len(rows), device=rows.device)
    one, two = unit(rows), unit(of)
    enough = rounding(rows, of)
    if len(rows) == len(of) and bool((one - two).abs().amax() <= enough):
        return places
    cosines = one @ two.T
    best = cosines.max(dim=1)
    found = torch.where(best.values >= 1 - enough, best.indices, -1)
    if len(rows) <= len(of):
        found = torch.where(cosines[places, places] >= 1 - enough, places, found)
    return found


def _joined(found: list[Piece]) -> list[Piece]:
    """The matrices, those of one join side by side."""
    joins: dict[object, list[Piece]] = {}
    for k, piece in enumerate(found):
        joins.setdefault(piece.join.token if piece.join is not None else k, []).append(piece)
    return [_side_by_side(each) if len(each) > 1 else each[0] for each in joins.values()]


def _side_by_side(parts: list[Piece]) -> Piece:
    parts = sorted(parts, key=lambda each: each.join.index if each.join is not None else 0)
    if len({len(each.scores) for each in parts}) > 1:
        return parts[0]
    parts = [_in_units_of(parts[0], each) for each in parts]
    weights = [_filled(each) for each in parts]
    factors = {each.factor for each in parts}
    return replace(
        parts[0],
        scores=torch.cat([each.scores for each in parts], dim=1),
        weights=torch.cat(weights, dim=1) if any(each.weights is not None for each in parts) else None,
        parts=tuple(side for each in parts for side in each.parts),
        factor=factors.pop() if len(factors) == 1 else None,
        target=parts[0].join.target if parts[0].join is not None else parts[0].target,
        join=None,
        lost=sum(each.lost for each in parts),
        paired=_masks(parts, dim=1),
        still=parts[0].still if len({each.still for each in parts}) == 1 else "",
    )


def _in_units_of(first: Piece, piece: Piece) -> Piece:
    """The same with scores, and weights, that are multiplied by the same factor as those of another matrix."""
    if first.factor is None or piece.factor is None or not piece.factor or first.factor == piece.factor:
        return piece
    times = piece.factor / first.factor
    weights = None if piece.weights is None else piece.weights / times
    return replace(piece, scores=piece.scores * times, weights=weights, factor=first.factor)


def _masks(pieces: list[Piece], dim: int) -> Tensor | None:
    """The masks of pairs that are computed apart as one; None where there are none."""
    if all(each.paired is None for each in pieces):
        return None
    none = (torch.zeros_like(each.scores, dtype=torch.bool) for each in pieces)
    masks = [each.paired if each.paired is not None else zeros for each, zeros in zip(pieces, none, strict=True)]
    return torch.cat(masks, dim=dim)


def _filled(piece: Piece) -> Tensor:
    return torch.zeros_like(piece.scores) if piece.weights is None else piece.weights


def unit(rows: Tensor) -> Tensor:
    """Rows of length 1 in at least float32; a row of zeros stays."""
    rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
    return rows / torch.linalg.vector_norm(rows, dim=1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)


def rounding(*rows: Tensor) -> float:
    """Difference of numbers near 1 that rounding makes."""
    return ROW_ROUNDING * max(torch.finfo(each.dtype).eps for each in rows)


@contextmanager
def remembered() -> Generator[None]:
    """Compare the rows of the same two matrices only once while a call is read."""
    token = _KNOWN.set({})
    try:
        yield
    finally:
        _KNOWN.reset(token)


def _once(made: Callable[..., Any], *of: Tensor) -> Any:
    known = _KNOWN.get()
    if known is None:
        return made(*of)
    key = made, *map(id, of)
    if key not in known:
        known[key] = of, made(*of)  # the tensors are kept, so that no other one gets their id
    return known[key][1]


def _head(rows: Tensor) -> Tensor:
    return unit(rows[:COMPARED_ROWS])


def head(rows: Tensor) -> Tensor:
    """The first rows, by which a matrix is known, with length 1, (n, D)."""
    found: Tensor = _once(_head, rows)
    return found


def _same(first: Tensor, second: Tensor) -> bool:
    return bool((head(first) - head(second)).abs().amax() <= rounding(first, second))


def same_rows(first: Tensor, second: Tensor) -> bool:
    """Whether two matrices have the same rows up to their lengths."""
    if first.shape != second.shape or not first.shape[1]:
        return False
    if first.data_ptr() == second.data_ptr():
        return True
    found: bool = _once(_same, *sorted((first, second), key=id))
    return found


def place(rows: Tensor, of: Tensor, expected: int = 0) -> int | None:
    """Where rows stand in a longer matrix as a block, up to their lengths; None: nowhere.

    Args:
        rows: (n, D).
        of: (C, D), C >= n.
        expected: the place that is taken if there are several.
    """
    if rows.shape[1] != of.shape[1] or not rows.shape[1] or not 0 < len(rows) <= len(of):
        return None
    if len(rows) == len(of):
        return 0 if same_rows(rows, of) else None
    near = (unit(of) - unit(rows[:1])).abs().amax(dim=1) <= rounding(rows, of)
    starts = near[: len(of) - len(rows) + 1].nonzero().flatten().tolist()
    starts = sorted(starts, key=lambda start: (start != expected, start))[:COMPARED_ROWS]
    return next((start for start in starts if same_rows(rows, of[start : start + len(rows)])), None)


def stacked(found: Sequence[Piece]) -> list[Piece]:
    """Tiles of the same candidates as one matrix; a tile without a gradient has weights of 0 and is counted as lost."""
    stacks: list[list[Piece]] = []
    for piece in sorted(found, key=lambda each: each.order):
        for stack in stacks:
            if same_rows(stack[0].candidate, piece.candidate) and not same_rows(stack[0].query, piece.query):
                stack.append(piece)
                break
        else:
            stacks.append([piece])
    made = [_stack(each) if len(each) > 1 else each[0] for each in stacks]
    return _beside(sorted((each for each in made if each.weights is not None), key=lambda each: each.head))


def _stack(tiles: list[Piece]) -> Piece:
    arrived = [each for each in tiles if each.weights is not None]
    targets = [each.target for each in tiles if each.target is not None]
    parts = zip(*(each.parts for each in tiles), strict=False)
    return replace(
        (arrived or tiles)[0],
        scores=torch.cat([each.scores for each in tiles]),
        weights=torch.cat([_filled(each) for each in tiles]) if arrived else None,
        parts=tuple((torch.cat([query for query, _ in part]), part[0][1]) for part in parts),
        target=torch.cat(targets) if len(targets) == len(tiles) else None,
        lost=sum(each.scores.numel() for each in tiles if each.weights is None),
        paired=_masks(tiles, dim=0),
    )


def _beside(found: list[Piece]) -> list[Piece]:
    """Matrices of the same queries and other candidates, which no softmax joins, side by side."""
    kept: list[Piece] = []
    for piece in found:
        first = next((k for k, each in enumerate(kept) if _apart(each, piece)), None)
        if first is None:
            kept.append(piece)
        else:
            kept[first] = _side_by_side([kept[first], piece])
    return kept


def _apart(first: Piece, second: Piece) -> bool:
    return first.kind == second.kind != "softmax" and first.head == second.head and same_rows(first.query, second.query)
