"""The functions of `native` that read a tile, in PyTorch: for float64, for GPUs, and without a compiled kernel."""

from collections.abc import Sequence

import torch
from torch import Tensor


def _lines(scores: Tensor, values: Tensor, direction: int) -> Tensor:
    """Reshape values of the lines, (..., lines), so that they broadcast with the tile."""
    shape = (len(scores), 1, -1) if direction else (len(scores), -1, 1)
    return values.reshape(*values.shape[:-1], *shape)


def mask(scores: Tensor, first: Tensor, last: Tensor, column: int) -> None:
    """As in `native`."""
    blocks, _, number = scores.shape
    columns = torch.arange(column, column + blocks * number, device=scores.device).view(blocks, 1, number)
    inside = (columns >= _lines(scores, first, 0)) & (columns < _lines(scores, last, 0))
    scores.masked_fill_(inside, -torch.inf)


def tops(scores: Tensor, top: Sequence[Tensor]) -> None:
    """As in `native`."""
    for direction, values in enumerate(top):
        torch.maximum(values, scores.amax(dim=2 - direction).flatten(), out=values)


def _powers(scores: Tensor, scale: float, reference: Tensor, direction: int) -> tuple[Tensor, Tensor]:
    least = -126.0 if scores.dtype == torch.float32 else -1022.0
    exponent = (scores * scale).sub_(_lines(scores, reference, direction)).clamp_(min=least)
    return exponent, exponent.exp2()


def sums(scores: Tensor, scale: float, reference: Sequence[Tensor], total: Sequence[Tensor], *, apart: bool) -> None:
    """As in `native`."""
    for direction, values in enumerate(total):
        if direction == 0 or apart:
            exponent, power = _powers(scores, scale, reference[direction], direction)
            terms = power, exponent.mul_(power), power.square()
        for value, term in zip(values, terms, strict=True):
            value.add_(term.sum(dim=2 - direction, dtype=torch.float64).flatten())


def shares(
    scores: Tensor,
    scale: float,
    reference: Sequence[Tensor],
    ends: Sequence[Tensor],
    number: Sequence[Tensor],
    mass: Sequence[Tensor],
    *,
    apart: bool,
) -> None:
    """As in `native`."""
    for direction, limits in enumerate(ends):
        if direction == 0 or apart:
            _, power = _powers(scores, scale, reference[direction], direction)
        for counts, end in zip(number[direction], limits, strict=True):
            counts.add_((scores > _lines(scores, end, direction)).sum(dim=2 - direction).flatten())
        above = torch.where(scores > _lines(scores, limits[0], direction), power, 0)
        mass[direction].add_(above.sum(dim=2 - direction, dtype=torch.float64).flatten())


def counted(
    scores: Tensor, low: Sequence[Tensor], high: Sequence[Tensor], number: Sequence[Tensor], room: int
) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """As in `native`."""
    side = torch.zeros(scores.shape, dtype=torch.int8, device=scores.device)
    for direction, counts in enumerate(number):
        above = scores > _lines(scores, high[direction], direction)
        counts.add_(above.sum(dim=2 - direction).flatten())
        side += ((scores > _lines(scores, low[direction], direction)) & ~above).to(torch.int8) << direction
    block, row, column = side.nonzero(as_tuple=True)
    if len(row) > room:
        return None
    at = block, row, column
    _, rows, columns = scores.shape
    return (block * rows + row).int(), (block * columns + column).int(), scores[at], side[at]
