"""The functions of `native` that read a tile, in PyTorch: for float64, for GPUs, and without a compiled kernel."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from cocos.engine import devices

# Scores of a piece of a tile on the host: 512 KiB in float32, which stay with two copies in the second-level cache.
PIECE_SCORES = 2**17
# Factors of a float32 product whose sum is added to the score at once, see `bounds.product`.
DEEP = 128

# Exponents of two of scaled scores, relative to the references of their lines, and the powers.
Powers = Callable[[Tensor, float, Tensor], tuple[Tensor, Tensor]]


def pieces(scores: Tensor) -> Iterator[tuple[Tensor, slice, slice]]:
    """Cut a tile on the host into whole blocks, or some rows of one block; yield scores, rows and columns."""
    blocks, rows, columns = scores.shape
    most = scores.numel() if devices.ahead(scores.device) else PIECE_SCORES
    high, deep = min(rows, max(1, most // columns)), max(1, most // (rows * columns))
    for k in range(0, blocks, deep):
        end = min(k + deep, blocks)
        for i in range(0, rows, high):
            stop = min(i + high, rows)
            yield scores[k:end, i:stop], slice(k * rows + i, (end - 1) * rows + stop), slice(k * columns, end * columns)


def _lines(piece: Tensor, values: Tensor, direction: int) -> Tensor:
    """Reshape values of the rows, or columns, of a piece, so that they broadcast with it."""
    return values.view((len(piece), 1, -1) if direction else (len(piece), -1, 1))


def _sum(terms: Tensor, direction: int) -> Tensor:
    """Sum the rows, or columns, in float64."""
    return terms.sum(dim=2 - direction, dtype=torch.float64).flatten()


def product(left: Tensor, right: Tensor, scores: Tensor) -> None:
    """Fill a tile with the products of the rows of both sides, (blocks * m, d) and (blocks * n, d)."""
    number = -(-left.shape[1] // DEEP) if scores.dtype == torch.float32 else 1
    for piece, rows, columns in pieces(scores):
        queries, candidates = (side.view(len(piece), -1, side.shape[1]) for side in (left[rows], right[columns]))
        for k, factors in enumerate(zip(queries.chunk(number, dim=2), candidates.mT.chunk(number, dim=1), strict=True)):
            if k == 0:
                torch.bmm(*factors, out=piece)
            else:
                piece.add_(torch.bmm(*factors))


def mask(scores: Tensor, first: Tensor, last: Tensor, column: int) -> None:
    """As in `native`."""
    for piece, rows, columns in pieces(scores):
        number = torch.arange(column + columns.start, column + columns.stop, device=scores.device)
        number, low, high = (_lines(piece, values, k) for values, k in ((number, 1), (first[rows], 0), (last[rows], 0)))
        piece.masked_fill_((number >= low) & (number < high), -torch.inf)


def tops(scores: Tensor, top: Sequence[Tensor]) -> None:
    """As in `native`."""
    for direction, values in enumerate(top):
        torch.maximum(values, scores.amax(dim=2 - direction).flatten(), out=values)


def powers(scores: Tensor, scale: float, reference: Tensor) -> tuple[Tensor, Tensor]:
    """Exponents and powers of two of exponentials, see `native.sums`."""
    least = -126.0 if scores.dtype == torch.float32 else -1022.0
    exponent = (scores * scale).sub_(reference).clamp_(min=least)
    return exponent, exponent.exp2()


def sums(
    scores: Tensor,
    scale: float,
    reference: Sequence[Tensor],
    total: Sequence[Tensor],
    *,
    apart: bool,
    powers: Powers = powers,
) -> None:
    """As in `native`, of any powers."""
    for piece, *places in pieces(scores):
        for direction, (values, where) in enumerate(zip(total, places, strict=False)):
            if direction == 0 or apart:
                exponent, power = powers(piece, scale, _lines(piece, reference[direction][where], direction))
                terms = power, exponent.mul_(power), power.square()
            for value, term in zip(values, terms, strict=True):
                value[where] += _sum(term, direction)


def shares(
    scores: Tensor,
    scale: float,
    reference: Sequence[Tensor],
    ends: Sequence[Tensor],
    number: Sequence[Tensor],
    mass: Sequence[Tensor],
    *,
    apart: bool,
    powers: Powers = powers,
) -> None:
    """As in `native`, of any powers."""
    for piece, *places in pieces(scores):
        above = torch.empty_like(piece)  # ones are compared and summed faster than booleans
        for direction, (limits, where) in enumerate(zip(ends, places, strict=False)):
            if direction == 0 or apart:
                _, power = powers(piece, scale, _lines(piece, reference[direction][where], direction))
            for k, (counts, end) in enumerate(zip(number[direction], limits, strict=True)):
                _add_above(piece, end[where], direction, above, counts[where])
                if k == 0:
                    mass[direction][where] += _sum(above * power, direction)


def _add_above(piece: Tensor, end: Tensor, direction: int, above: Tensor, counts: Tensor) -> None:
    """Set `above` to 1 for scores above the end of their row or column, else 0, and add the numbers of ones."""
    torch.gt(piece, _lines(piece, end, direction), out=above)
    counts += above.sum(dim=2 - direction).flatten().to(counts.dtype)


def counted(
    scores: Tensor, low: Sequence[Tensor], high: Sequence[Tensor], number: Sequence[Tensor], room: int
) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """As in `native`."""
    _, height, width = scores.shape
    lists, size = [], 0
    for piece, *places in pieces(scores):
        above, side = torch.empty_like(piece), torch.zeros_like(piece)
        for direction, (counts, where) in enumerate(zip(number, places, strict=False)):
            side.add_(torch.gt(piece, _lines(piece, low[direction][where], direction), out=above), alpha=1 + direction)
            _add_above(piece, high[direction][where], direction, above, counts[where])
            side.sub_(above, alpha=1 + direction)
        at = block, row, column = side.nonzero(as_tuple=True)
        size += len(row)
        if size <= room:
            rows, columns = places[0].start + block * height + row, places[1].start + block * width + column
            lists.append((rows.int(), columns.int(), piece[at], side[at].to(torch.int8)))
    return tuple(torch.cat(values) for values in zip(*lists, strict=True)) if size <= room else None
