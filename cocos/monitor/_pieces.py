"""The matrices of scores of a call: parts that the loss reads as one are joined, tiles of a large one stacked."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cocos.monitor._flow import Flow
from cocos.monitor._graph import Join
from cocos.monitor._products import Product

# Rows by which two sides are compared.
COMPARED_ROWS = 64
# Number of times the spacing of floating-point numbers by which equal rows may differ.
ROW_ROUNDING = 64


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

    @property
    def query(self) -> Tensor:
        return self.parts[0][0]

    @property
    def candidate(self) -> Tensor:
        return self.parts[0][1] if len(self.parts) == 1 else torch.cat([each for _, each in self.parts])


def of(read: Sequence[tuple[Product, Sequence[Flow]]], upstream: Tensor | None) -> list[Piece]:
    """Every direction of every product of one backward pass, parts of a wider matrix joined.

    Args:
        read: products, and their gradients.
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
            factor = flow.factor if product.sign > 0 else None
            about = (factor, flow.kind, flow.target, bool(product.head), upstream)
            found.append(Piece(scores, weights, (sides,), *about, flow.join, order=product.order))
    return _joined(found)


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
    )


def _in_units_of(first: Piece, piece: Piece) -> Piece:
    """The same with scores, and weights, that are multiplied by the same factor as those of another matrix."""
    if first.factor is None or piece.factor is None or not piece.factor or first.factor == piece.factor:
        return piece
    times = piece.factor / first.factor
    weights = None if piece.weights is None else piece.weights / times
    return replace(piece, scores=piece.scores * times, weights=weights, factor=first.factor)


def _filled(piece: Piece) -> Tensor:
    return torch.zeros_like(piece.scores) if piece.weights is None else piece.weights


def unit(rows: Tensor) -> Tensor:
    """Rows of length 1 in at least float32; a row of zeros stays."""
    rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
    return rows / rows.norm(dim=1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)


def rounding(*rows: Tensor) -> float:
    """Difference of numbers near 1 that rounding makes."""
    return ROW_ROUNDING * max(torch.finfo(each.dtype).eps for each in rows)


def same_rows(first: Tensor, second: Tensor) -> bool:
    """Whether two matrices have the same rows up to their lengths."""
    if first.shape != second.shape or not first.shape[1]:
        return False
    if first.data_ptr() == second.data_ptr():
        return True
    one, two = (unit(each[:COMPARED_ROWS]) for each in (first, second))
    return bool((one - two).abs().amax() <= rounding(first, second))


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
