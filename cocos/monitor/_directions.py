"""From the gradients of products to the directions of a loss: tiles stacked, positives found, names given."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from cocos.monitor import _layout, _matches
from cocos.monitor._flow import Flow
from cocos.monitor._products import Product
from cocos.monitor._seen import Seen

# Rows by which two sides are compared, and cosines are.
COMPARED_ROWS = 64
# Number of times the spacing of floating-point numbers by which equal rows may differ.
ROW_ROUNDING = 64


@dataclass(frozen=True, eq=False)
class Piece:
    """A matrix of scores with queries as rows, and what the backward pass gave it.

    Args:
        scores: (Q, C); larger is closer.
        weights: (Q, C) ∂ returned loss / ∂ scores; None: no gradient arrived.
        query: (Q, D).
        candidate: (C, D).
        factor: from the scores to what the loss reads; None: it is not one number.
        kind: of the loss.
        target: (Q,) columns of the positives.
        head: the candidates are class vectors.
        upstream: () gradient that arrived at the loss.
    """

    scores: Tensor
    weights: Tensor | None
    query: Tensor
    candidate: Tensor
    factor: float | None
    kind: str | None
    target: Tensor | None
    head: bool
    upstream: Tensor | None


def pieces(read: Sequence[tuple[Product, Sequence[Flow]]], upstream: Tensor | None) -> list[Piece]:
    """Every direction of every product.

    Args:
        read: products, and their gradients.
        upstream: () gradient that arrived at the loss; None: none did.
    """
    found = []
    for product, flows in read:
        for flow in flows:
            gradient, scores = flow.gradient(), product.scores * product.sign
            sides = (product.columns, product.rows) if flow.turned else (product.rows, product.columns)
            weights = None
            if gradient is not None and upstream is not None:
                weights = product.sign * gradient.to(torch.promote_types(gradient.dtype, torch.float32)) / upstream
            scores = scores.T if flow.turned else scores
            factor = flow.factor if product.sign > 0 else None
            found.append(Piece(scores, weights, *sides, factor, flow.kind, flow.target, product.head, upstream))
    return found


def same_rows(first: Tensor, second: Tensor) -> bool:
    """Whether two matrices have the same rows up to their lengths."""
    if first.shape != second.shape:
        return False
    if first.data_ptr() == second.data_ptr():
        return True
    one, two = (_unit(each[:COMPARED_ROWS]) for each in (first, second))
    return bool((one - two).abs().amax() <= ROW_ROUNDING * max(torch.finfo(each.dtype).eps for each in (first, second)))


def _unit(rows: Tensor) -> Tensor:
    rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
    return rows / rows.norm(dim=1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)


def _stacked(found: list[Piece]) -> list[Piece]:
    """Tiles of the same candidates as one matrix; one without a gradient has weights of 0."""
    stacks: list[list[Piece]] = []
    for piece in found:
        for stack in stacks:
            if same_rows(stack[0].candidate, piece.candidate) and not same_rows(stack[0].query, piece.query):
                stack.append(piece)
                break
        else:
            stacks.append([piece])
    return [_stack(each) if len(each) > 1 else each[0] for each in stacks]


def _stack(tiles: list[Piece]) -> Piece:
    weights = [torch.zeros_like(each.scores) if each.weights is None else each.weights for each in tiles]
    targets = [each.target for each in tiles if each.target is not None]
    return replace(
        tiles[0],
        scores=torch.cat([each.scores for each in tiles]),
        weights=torch.cat(weights),
        query=torch.cat([each.query for each in tiles]),
        target=torch.cat(targets) if len(targets) == len(tiles) else None,
    )


def _scale(piece: Piece) -> float | None:
    """The factor from a cosine to what the loss reads; None where it is not one number."""
    if piece.factor is None:
        return None
    cosines = _unit(piece.query[:COMPARED_ROWS]) @ _unit(piece.candidate[:COMPARED_ROWS]).T
    scores = piece.scores[:COMPARED_ROWS, :COMPARED_ROWS].to(cosines.dtype)
    stretch = (scores * cosines).sum() / cosines.square().sum()
    apart = (scores - stretch * cosines).abs().amax() / scores.abs().amax()
    fits = apart <= ROW_ROUNDING * torch.finfo(piece.scores.dtype).eps
    return float(stretch) * piece.factor if fits else None


def seen(
    found: list[Piece],
    *,
    groups: Any,
    labels: Sequence[Tensor],
    value: Tensor | None,
    rank: int,
    given: Sequence[Tensor] = (),
) -> list[list[Seen]]:
    """The directions of a call, for each width, the largest first.

    Args:
        found: every matrix.
        groups: of the rows, as the user gave them.
        labels: tensors of whole numbers among the arguments of the loss.
        value: () the loss.
        rank: of this process.
        given: matrices among the arguments of the loss.
    """
    if not all(each.head for each in found):
        found = [each for each in found if not each.head]
    by_width = []
    for width in sorted({each.query.shape[1] for each in found}, reverse=True):
        matrices = _stacked([each for each in found if each.query.shape[1] == width])
        matrices = [each for each in matrices if each.weights is not None][:2]
        first = [_seen(each, k, groups, labels, value, rank, given) for k, each in enumerate(matrices)]
        if first:
            by_width.append(first)
    return by_width


def _seen(
    piece: Piece,
    number: int,
    groups: Any,
    labels: Sequence[Tensor],
    value: Tensor | None,
    rank: int,
    given: Sequence[Tensor],
) -> Seen:
    assert piece.weights is not None
    same = same_rows(piece.query, piece.candidate)
    queries, candidates = piece.scores.shape
    if groups is not None and isinstance(groups, tuple) and number:
        groups = groups[::-1]
    layout = _layout.find(
        piece.weights,
        same=same,
        target=piece.target,
        match=_matches.positives(piece.query, piece.candidate, piece.target, given),
        groups=groups,
        labels=next((each for each in labels if len(each) == queries == candidates), None),
        offset=rank * queries if candidates > queries else 0,
    )
    return Seen(
        "s2p" if piece.head else "s2s" if same else ("q2c", "c2q")[number],
        piece.scores,
        piece.weights,
        layout.positive,
        layout.negative,
        query=piece.query,
        candidate=piece.candidate,
        scale=_scale(piece),
        kind=piece.kind,
        factor=piece.upstream,
        value=value,
        width=piece.query.shape[1],
        notes=layout.notes,
    )
