"""The compiled functions that fill and read float32 tiles on a CPU; `plain` has the same ones in PyTorch.

The build hook of the package puts the library in the folder `kernel`. A tile is (blocks, m, n) scores, of which the
last axis is contiguous. Its rows are queries; its columns are queries as well if a list of arrays has a second element.
"""

import ctypes
import functools
import os
from collections.abc import Sequence

import torch
from torch import Tensor

from cocos.engine.kernel import build

# Values of COCOS_KERNEL that switch the kernel off.
OFF = ("plain", "0", "off")
POINTER, INTEGER, FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
# Types of a matrix, of the rows that are taken from it, and of their factors.
SIDE = (torch.float32, torch.int64, torch.float32)
TILE = (POINTER, INTEGER, INTEGER, INTEGER, INTEGER)
# Types of reference, ends and their step, numbers and their step, and mass.
SHARES = (POINTER, POINTER, INTEGER, POINTER, INTEGER, POINTER)
# Types of the arguments of each function.
SIGNATURES = {
    "cocos_pack": (POINTER, POINTER, POINTER, INTEGER, INTEGER, INTEGER, POINTER),
    "cocos_product": (POINTER, POINTER, INTEGER, INTEGER, INTEGER, POINTER, INTEGER),
    "cocos_stack": (*[POINTER] * 6, INTEGER, INTEGER, INTEGER, INTEGER, POINTER, POINTER, INTEGER),
    "cocos_mask": (*TILE, POINTER, POINTER, INTEGER),
    "cocos_tops": (*TILE, POINTER, POINTER),
    "cocos_sums": (*TILE, FLOAT, POINTER, POINTER, INTEGER, POINTER, POINTER, INTEGER, INTEGER),
    "cocos_shares": (*TILE, FLOAT, *SHARES, *SHARES, INTEGER),
    "cocos_counted": (*TILE, *[POINTER] * 10, INTEGER),
    "cocos_dots": (*[POINTER] * 4, INTEGER, INTEGER, POINTER),
}


@functools.cache
def _open_library() -> tuple[ctypes.CDLL | None, str]:
    if os.environ.get("COCOS_KERNEL", "").lower() in OFF:
        return None, f"COCOS_KERNEL={os.environ['COCOS_KERNEL']} switches it off"
    levels = build.processor_levels()
    paths = [build.KERNEL_FOLDER / level.file for level in levels if (build.KERNEL_FOLDER / level.file).is_file()]
    if not paths:
        return None, "it is not built" if levels else "there is none for this processor"
    try:
        return declared(ctypes.CDLL(str(paths[0]))), ""
    except (OSError, AttributeError) as error:
        return None, str(error)


def declared(library: ctypes.CDLL) -> ctypes.CDLL:
    """Declare the types of the functions of a library."""
    for name, types in SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes, function.restype = types, INTEGER if name == "cocos_counted" else None
    return library


def library() -> ctypes.CDLL | None:
    """Return the compiled kernel; None if COCOS_KERNEL=plain, if it is not built, or on other processors."""
    return _open_library()[0]


def reason() -> str:
    """Explain why the compiled kernel is missing; empty if it is loaded."""
    return _open_library()[1]


def constant(name: str) -> int:
    """Read an integer that the library exports as cocos_NAME."""
    return INTEGER.in_dll(library(), f"cocos_{name}").value


def _pointer(values: Tensor, dtype: torch.dtype = torch.float32) -> int:
    if values.dtype != dtype or values.stride(-1) != 1 or values.device.type != "cpu":
        raise ValueError(f"kernel: {values.dtype} on {values.device}, expected contiguous {dtype} on the CPU")
    return values.data_ptr()


def _pointers(arrays: Sequence[Tensor], dtype: torch.dtype = torch.float32) -> list[int | None]:
    """Addresses of the arrays of the rows and of the columns."""
    return [_pointer(array, dtype) for array in arrays] + [None] * (2 - len(arrays))


def _tile(scores: Tensor) -> tuple[int, int, int, int, int]:
    blocks, rows, columns = scores.shape
    return _pointer(scores), blocks, rows, columns, scores.stride(1)


def mask(scores: Tensor, first: Tensor, last: Tensor, column: int) -> None:
    """Set the scores from column `first` to before `last` of each row to -inf; the tile begins at `column`."""
    library().cocos_mask(*_tile(scores), _pointer(first, torch.int64), _pointer(last, torch.int64), column)


def tops(scores: Tensor, top: Sequence[Tensor]) -> None:
    """Raise the largest score of each line."""
    library().cocos_tops(*_tile(scores), *_pointers(top))


def sums(scores: Tensor, scale: float, reference: Sequence[Tensor], total: Sequence[Tensor], *, apart: bool) -> None:
    """Add Σ p, Σ e p and Σ p² to (3, lines) `total`, with p = 2^e and e = scale · score - reference.

    Args:
        scores: the tile.
        scale: factor of a score.
        reference: (lines,) of rows, and of columns.
        total: of rows, and of columns, float64.
        apart: whether a reference differs from 0.
    """
    (row_reference, column_reference), (rows, columns) = _pointers(reference), _pointers(total, torch.float64)
    steps = [values.stride(0) for values in total]
    lines = (row_reference, rows, steps[0], column_reference, columns, steps[-1])
    library().cocos_sums(*_tile(scores), scale, *lines, apart)


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
    """Add the numbers of scores above (4, lines) `ends`, and Σ p of those above the first end.

    `number` is (4, lines) int32 and `mass` (lines,) float64; other arguments as for `sums`.
    """
    lines = []
    for k, limits in enumerate(ends):
        lines += [_pointer(reference[k]), _pointer(limits), limits.stride(0)]
        lines += [_pointer(number[k], torch.int32), number[k].stride(0), _pointer(mass[k], torch.float64)]
    lines += [None, None, 0, None, 0, None] * (2 - len(ends))
    library().cocos_shares(*_tile(scores), scale, *lines, apart)


def counted(
    scores: Tensor, low: Sequence[Tensor], high: Sequence[Tensor], number: Sequence[Tensor], room: int
) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """Add the numbers of scores above `high` of their line, and list those above `low` but not above `high`.

    Args:
        scores: the tile.
        low: (lines,) of rows, and of columns.
        high: likewise.
        number: likewise, int64.
        room: largest length of the list.

    Returns:
        Row and column in the tile, score, and side of each: 1 if listed by its row, 2 by its column, 3 by both. None if
        there are more than `room`.
    """
    row, column = torch.empty(2, room, dtype=torch.int32)
    score, side = torch.empty(room, dtype=torch.float32), torch.empty(room, dtype=torch.int8)
    below = [number[0], *(torch.zeros_like(values, dtype=torch.int32) for values in number[1:])]
    lows, highs = _pointers(low), _pointers(high)
    lines = (lows[0], highs[0], _pointer(number[0], torch.int64), lows[1], highs[1])
    columns = _pointer(below[1], torch.int32) if len(below) > 1 else None
    lists = (_pointer(row, torch.int32), _pointer(column, torch.int32), _pointer(score), _pointer(side, torch.int8))
    number_listed = library().cocos_counted(*_tile(scores), *lines, columns, *lists, room)
    if len(number) > 1:
        number[1] += below[1]
    return (
        None if number_listed > room else tuple(values[:number_listed].clone() for values in (row, column, score, side))
    )


def dots(left: Tensor, right: Tensor, rows: Tensor, others: Tensor) -> Tensor:
    """Compute float64 inner products of pairs of float32 rows of two matrices, (P,)."""
    for places, matrix in ((rows, left), (others, right)):
        if len(places) and not 0 <= int(places.min()) <= int(places.max()) < len(matrix):
            raise IndexError(f"rows {int(places.min())} to {int(places.max())}, expected 0 to {len(matrix) - 1}")
    dot = torch.empty(len(rows), dtype=torch.float64)
    pairs = (_pointer(left), _pointer(rows, torch.int64), _pointer(right), _pointer(others, torch.int64))
    library().cocos_dots(*pairs, len(rows), left.shape[1], dot.data_ptr())
    return dot


def pack(matrix: Tensor, order: Tensor, scale: Tensor, packed: Tensor, *, right: bool) -> None:
    """Pack the scaled rows `order` of a matrix for `product`."""
    pointers = _pointer(matrix), _pointer(order, torch.int64), _pointer(scale)
    library().cocos_pack(*pointers, len(order), matrix.shape[1], right, _pointer(packed))


def product(left: Tensor, right: Tensor, begin: int, scores: Tensor) -> None:
    """Fill a tile of one block with the products of packed rows of the left side, and of the right one from `begin` on.

    The memory behind the tile has room for whole vectors and panels.

    Raises:
        ValueError: no panel begins there.
    """
    if begin % constant("panel"):
        raise ValueError(f"kernel: begin is {begin}, expected a multiple of {constant('panel')}")
    _, _, rows, columns, stride = _tile(scores)
    operands = _pointer(left), _pointer(right[begin:])
    library().cocos_product(*operands, rows, columns, left.shape[1], _pointer(scores), stride)


def stack(left: tuple[Tensor, Tensor, Tensor], right: tuple[Tensor, Tensor, Tensor], scores: Tensor) -> None:
    """Fill a tile with the products of both sides, (matrix, order, scale), block by block."""
    _, blocks, rows, columns, stride = _tile(scores)
    width = left[0].shape[1]
    scratch = torch.empty(rows + columns + 4 * constant("panel"), width, dtype=torch.float32)
    sides = [_pointer(values, dtype) for side in (left, right) for values, dtype in zip(side, SIDE, strict=True)]
    library().cocos_stack(*sides, blocks, rows, columns, width, _pointer(scratch), _pointer(scores), stride)
