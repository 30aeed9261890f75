"""Float64 inner products and squared distances of single pairs of rows, and norms of rows."""

import torch
from torch import Tensor

from cocos.embeddings import similarities
from cocos.engine import devices
from cocos.engine.kernel import structs

# The kernel's flag `wide` for each dtype that it reads.
KERNEL_DTYPES = {torch.float32: 0, torch.float64: 1}
# Maximum number of matrix elements converted to float64 at once on a device: 4 MiB.
FLOAT64_AT_ONCE = 2**19
# The same on the host: 512 KiB, which stay in the second-level cache of a core.
FLOAT64_ON_HOST = 2**16


def _compiled(left: Tensor, right: Tensor, of: Tensor, with_: Tensor, **wanted) -> Tensor | None:
    """Compute `pairs` in the kernel, with further fields of its struct; None if it does not read these rows."""
    known = {left.dtype, right.dtype} <= KERNEL_DTYPES.keys()
    fits = known and all(not devices.ahead(each.device) and each.is_contiguous() for each in (left, right))
    if not fits or len(of) == 0 or structs.loaded() is None:
        return None
    of, with_ = of.long().contiguous(), with_.long().contiguous()
    for places, matrix in ((of, left), (with_, right)):
        low, high = (int(end) for end in places.aminmax())
        if low < 0 or high >= len(matrix):
            raise IndexError(f"rows {low} to {high}, expected 0 to {len(matrix) - 1}")
    found = torch.empty(len(of), dtype=torch.float64)
    todo = structs.struct("pairs", left=left, right=right, of=of, with_=with_, joined=found, number=len(of))
    todo.set(d=left.shape[1], left_wide=KERNEL_DTYPES[left.dtype], right_wide=KERNEL_DTYPES[right.dtype], **wanted)
    structs.kernel().cocos_pairs(todo.address)
    return found


def pairs(
    left: Tensor,
    right: Tensor,
    of: Tensor,
    with_: Tensor,
    *,
    gaps: bool = False,
    norms: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Compute inner products, or squared distances, of pairs of rows of two matrices, (P,) float64.

    Args:
        left: (N, d).
        right: (M, d).
        of: (P,) rows of `left`.
        with_: (P,) rows of `right`.
        gaps: compute squared distances.
        norms: two (P,) tensors by which rows of extreme norm are divided first; None: no division.
    """
    found = None if norms else _compiled(left, right, of, with_, gaps=gaps)
    if found is not None:
        return found
    most = FLOAT64_AT_ONCE if devices.ahead(of.device) else FLOAT64_ON_HOST
    parts, size = [], max(1, most // left.shape[1])
    for some in torch.arange(len(of), device=of.device).split(size):
        a, b = left[of[some]].double(), right[with_[some]].double()
        if norms:
            a, b = (rows / norm[some, None] for rows, norm in zip((a, b), norms, strict=True))
        parts.append((a.sub_(b).square_() if gaps else a.mul_(b)).sum(dim=1))
    return torch.cat(parts)


def squares(left: Tensor, right: Tensor, of: Tensor, with_: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """Compute inner products and the squared norms of both rows, (P,) float64 each, in one read of float32 rows.

    None of other rows, whose squares may leave the range of float64; arguments as for `pairs`.
    """
    if not left.dtype == right.dtype == torch.float32:
        return None
    square = [torch.empty(len(of), dtype=torch.float64) for _ in range(2)]
    found = _compiled(left, right, of, with_, left_square=square[0], right_square=square[1])
    if found is None:
        own = pairs(left, left, of, of), pairs(right, right, with_, with_)
        return pairs(left, right, of, with_), *own
    return found, square[0], square[1]


def lengths(matrix: Tensor, order: Tensor, origin: Tensor | None = None) -> Tensor:
    """Norms of the rows `order`, (n,) float64, about an origin or 0, accurate over the whole range of the dtype."""
    if len(order) > len(matrix):
        return lengths(matrix, torch.arange(len(matrix), device=matrix.device), origin)[order]
    if matrix.dtype == torch.float32:  # its squares stay in the range of float64
        if origin is None:
            found = _compiled(matrix, matrix, order, order)
        else:
            found = _compiled(matrix, origin[None], order, torch.zeros_like(order), gaps=1)
        if found is not None:
            return found.sqrt_()
    size = max(1, FLOAT64_AT_ONCE // matrix.shape[1])
    rows = (matrix[part].double() for part in order.split(size))
    return torch.cat([similarities.length(part if origin is None else part - origin.double()) for part in rows])
