"""Float64 inner products and squared distances of single pairs of rows, and norms of rows."""

import torch
from torch import Tensor

from cocos.embeddings import similarities
from cocos.engine import devices, native

# Maximum number of matrix elements converted to float64 at once on a GPU: 64 MiB.
FLOAT64_ON_GPU = 2**23
# The same on the host: 512 KiB, which stay in the second-level cache of a core.
FLOAT64_ON_HOST = 2**16


def pairs(left: Tensor, right: Tensor, rows: Tensor, others: Tensor, *, gaps: bool = False, norms=None) -> Tensor:
    """Compute inner products, or squared distances, of pairs of rows of two matrices, (P,) float64.

    Args:
        left: (N, d).
        right: (M, d).
        rows: (P,) rows of `left`.
        others: (P,) rows of `right`.
        gaps: compute squared distances.
        norms: two (P,) tensors by which rows of extreme norm are divided first; None: no division.
    """
    plain = left.dtype == right.dtype == torch.float32 and left.is_contiguous() and right.is_contiguous()
    if plain and not gaps and norms is None and not devices.ahead(left.device) and native.library() is not None:
        return native.dots(left, right, rows.contiguous(), others.contiguous())
    products = [torch.empty(0, dtype=torch.float64, device=left.device)]
    for part in torch.arange(len(rows), device=rows.device).split(_rows_at_once(left)):
        a, b = left.index_select(0, rows[part]).double(), right.index_select(0, others[part]).double()
        if norms is not None:
            a, b = (values / norm[part, None] for values, norm in zip((a, b), norms, strict=True))
        products.append((a.sub_(b).square_() if gaps else a.mul_(b)).sum(dim=1))
    return torch.cat(products)


def lengths(matrix: Tensor, order: Tensor, origin: Tensor | None = None) -> Tensor:
    """Norms of the rows `order`, (n,) float64, about an origin or 0, accurate over the whole range of the dtype."""
    if matrix.dtype == torch.float32 and origin is None:  # its squares stay in the range of float64
        return pairs(matrix, matrix, order, order).sqrt_()
    rows = (matrix[part].double() for part in order.split(_rows_at_once(matrix)))
    return torch.cat([similarities.length(part if origin is None else part - origin.double()) for part in rows])


def _rows_at_once(matrix: Tensor) -> int:
    return max(1, (FLOAT64_ON_GPU if devices.ahead(matrix.device) else FLOAT64_ON_HOST) // matrix.shape[1])
