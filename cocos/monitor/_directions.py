"""From the matrices of a call to the directions of its loss: names, positives, scale, candidates of this process."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from cocos.monitor import _layout, _matches, _origins
from cocos.monitor._pieces import Piece, head, place, rounding, stacked
from cocos.monitor._seen import Seen

MORE = "the loss compares other rows as well: only its first matrix, and the same one turned, are read"


@dataclass(frozen=True, eq=False)
class About:
    """What is known of a call besides its scores.

    Args:
        groups: of the rows, as the user gave them.
        labels: whole numbers among the arguments of the loss.
        value: () the loss.
        rank: of this process.
        given: (n, D) matrices among the arguments of the loss.
        local: other matrices that this process computed, where there are several processes; None: there is one.
    """

    groups: Any
    labels: Sequence[Tensor]
    value: Tensor | None
    rank: int
    given: Sequence[Tensor]
    local: Sequence[Tensor] | None


def of(found: Sequence[Piece], about: About) -> tuple[list[list[Seen]], float]:
    """The directions of a call for each width, the largest first, and the part of its pairs without a gradient."""
    if not all(each.head for each in found):
        found = [each for each in found if not each.head]
    widths = sorted({each.query.shape[1] for each in found}, reverse=True)
    matrices = [stacked([each for each in found if each.query.shape[1] == width]) for width in widths]
    by_width = [_of_width(each, about) for each in matrices if each]
    total = sum(each.scores.numel() for pieces in matrices for each in pieces)
    return by_width, sum(each.lost for pieces in matrices for each in pieces) / max(total, 1)


def _of_width(matrices: list[Piece], about: About) -> list[Seen]:
    first, others = matrices[0], matrices[1:]
    second = next((each for each in others if _turns(first, each)), None)
    notes = (MORE,) if len(others) > (second is not None) else ()
    if second is None:
        return [_seen(first, None, about, notes)]
    first, second = _shared(first, second)
    turned = about.groups[::-1] if isinstance(about.groups, tuple) else about.groups
    swapped = replace(about, groups=turned, labels=about.labels[::-1])
    one = _seen(first, "q2c", about, notes)
    same = first.order == second.order and first.factor == second.factor  # one product and its transpose
    return [one, _seen(second, "c2q", swapped, (), scale=(one.scale, one.stretch) if same else None)]


def _turns(first: Piece, second: Piece) -> bool:
    """Whether the queries of a matrix are candidates of another one, and its candidates queries."""
    if not first.query.shape[1]:
        return first.scores.shape == second.scores.T.shape and torch.allclose(first.scores, second.scores.T)
    sides = (first.parts[0][1], second.query), (second.parts[0][1], first.query)
    return all(place(*((b, a) if len(a) >= len(b) else (a, b))) is not None for a, b in sides)


def _shared(first: Piece, second: Piece) -> tuple[Piece, Piece]:
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
    """The factors from a cosine to what the loss reads, and to a score; None where they are not one number."""
    if piece.factor is None or not piece.candidate.shape[1]:
        return None, None
    query, candidate = piece.parts[0]
    cosines = head(query) @ head(candidate).T
    scores = piece.scores[: len(cosines), : cosines.shape[1]].to(cosines.dtype)
    stretch = (scores * cosines).sum() / cosines.square().sum()
    apart = (scores - stretch * cosines).abs().amax() / scores.abs().amax()
    if not apart <= rounding(query, piece.scores):
        return None, None
    return float(stretch) * piece.factor, float(stretch)


def _itself(piece: Piece, weights: Tensor, rank: int) -> tuple[Tensor | None, int | None]:
    """Entries of a row with itself, (Q, C), None without any, and the place of the queries among their only candidates.

    Equal rows of two sides are pairs, if the pull of the loss or the target of its cross-entropy is on them.
    """
    found, start, first = None, 0, None
    for query, candidate in piece.parts:
        at = place(query, candidate, rank * len(query)) if len(query) == len(weights) else None
        if at is not None:
            rows = torch.arange(len(weights), device=weights.device)
            entries = _layout.placed(rows + start + at, weights.shape)
            meant = piece.target is not None and torch.equal(piece.target.long(), rows + start + at)
            one = query.data_ptr() == candidate.data_ptr()
            if not meant and (one or not _layout.held(entries, weights)):
                found = entries if found is None else found | entries
                first = at if len(piece.parts) == 1 else None
        start += len(candidate)
    return found, first


def _own(piece: Piece, about: About) -> Tensor | None:
    """Candidates of this process, (C,) bool; None where all are its own, or none is known."""
    found = torch.zeros(piece.scores.shape[1], dtype=torch.bool, device=piece.scores.device)
    computed = [each for each in about.local or () if len(each) == len(piece.query)]
    local = [each for each in (*about.given, *computed, piece.query) if 1 < len(each) < len(found)]
    start = 0
    for _, candidate in piece.parts:
        for rows in local:
            at = place(rows, candidate, about.rank * len(rows))
            if at is not None:
                found[start + at : start + at + len(rows)] = True
        start += len(candidate)
    return found if found.any() and not found.all() else None


def _seen(
    piece: Piece,
    name: str | None,
    about: About,
    notes: tuple[str, ...],
    scale: tuple[float | None, float | None] | None = None,
) -> Seen:
    weights, width, known = _precise(piece), piece.query.shape[1], piece.candidate.shape[1] > 0
    itself, at = _itself(piece, weights, about.rank)
    own = _own(piece, about) if about.local is not None else None
    offset = at if at is not None else int(own.int().argmax()) if own is not None else 0
    starts = [*accumulate((len(candidate) for _, candidate in piece.parts), initial=0)][:-1]
    layout = _layout.find(
        weights,
        None if itself is None else ~itself,
        same=at is not None,
        head=piece.head,
        target=piece.target,
        match=_matches.positives(piece.query, piece.candidate, piece.target, about.given) if known else None,
        paired=piece.paired,
        groups=about.groups,
        labels=about.labels,
        offsets=(offset, *starts),
    )
    factor, stretch = _scale(piece) if scale is None else scale
    sources = None if own is not None else _origins.of(piece, layout.positive)
    if sources is not None:
        again = _origins.again(sources)
        layout = replace(layout, positive=layout.positive | again, negative=layout.negative & ~again)
    return Seen(
        name or ("s2p" if piece.head else "s2s" if at is not None else "q2c"),
        piece.scores,
        weights if piece.upstream is None else weights * piece.upstream.sign().to(weights.dtype),
        layout.positive,
        layout.negative,
        query=piece.query if width else None,
        candidate=piece.candidate if known else None,
        scale=factor,
        stretch=stretch,
        sources=sources,
        kind=piece.kind,
        own=own,
        factor=piece.upstream,
        value=about.value,
        width=width or None,
        still="" if piece.head else piece.still,
        notes=notes + layout.notes,
    )


def _precise(piece: Piece) -> Tensor:
    return torch.zeros_like(piece.scores) if piece.weights is None else piece.weights
