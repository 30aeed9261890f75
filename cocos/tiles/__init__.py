"""What is done with one tile of scores while it is in the cache: compiled code where there is some, torch elsewhere.

A tile is (m, n), its scores in float32 or float64; a pair that takes no part is -inf. Both ways say the same: the
compiled one is for float32 on a CPU, is built on first use by the C compiler of the machine, and `COCOS_KERNEL=plain`
turns it off.
"""

import types

from torch import Tensor, float32
from torch import device as Device

from cocos.tiles import _build, _compiled, _plain
from cocos.tiles import _fused as fused
from cocos.tiles._compiled import batch, each, ranked
from cocos.tiles._plain import Owners

__all__ = [
    "PAD",
    "Owners",
    "above",
    "ahead",
    "batch",
    "distances",
    "dots",
    "each",
    "exponentials",
    "fused",
    "fuses",
    "gaps",
    "histogram",
    "kernel_name",
    "levels",
    "ranked",
    "sigmoids",
    "small",
    "squares",
    "sums",
    "tops",
]

PAD = 16  # the columns of a tile are a multiple of it
WIDEST = 2**20  # columns of a tile that the kernel takes: it lists some of them on the stack of a thread


def _of(tile: Tensor) -> types.ModuleType:
    (_, columns), (step, one) = tile.shape, tile.stride()
    fits = columns % PAD == 0 and columns <= WIDEST and one == 1 and step >= columns
    return _compiled if fits and _ready(tile) else _plain


def _ready(values: Tensor) -> bool:
    return values.device.type == "cpu" and values.dtype == float32 and _build.loaded() is not None


def small(rows: Tensor) -> bool:
    """Whether `batch` takes the scores of these rows, each with each."""
    return _ready(rows) and rows.shape[0] % PAD == 0


def fuses(device: Device) -> bool:
    """Whether `fused` multiplies float32 rows on this device."""
    return device.type == "cpu" and _build.loaded() is not None


def ahead(device: Device) -> bool:
    """Whether the host goes on while the device works, so that asking it for a number would make it wait."""
    return device.type != "cpu"


def kernel_name() -> str:
    """`compiled C` or `plain torch`: what float32 tiles on a CPU are seen by."""
    return "plain torch" if _build.loaded() is None else "compiled C"


def distances(tile: Tensor) -> None:
    """Turn minus squared distances, of which rounding may leave some above 0, into minus distances, in place."""
    _of(tile).distances(tile)


def tops(tile: Tensor, columns: bool) -> tuple[Tensor, Tensor | None]:
    """Largest score of each row, (m,), and, if asked for, of each column, (n,)."""
    return _of(tile).tops(tile, columns)


def sums(
    tile: Tensor,
    scale: float,
    rows: Tensor,
    columns: Tensor | None,
    references: tuple[Tensor, Tensor | None] | None = None,
    floors: tuple[Tensor, Tensor | None] | None = None,
    *,
    spread: bool,
) -> tuple[Tensor, Tensor | None]:
    """Add the sums of 2^z, z 2^z and 4^z of each row and column, with z = scale · score - reference, in place.

    Args:
        tile: (m, n) scores.
        scale: of the exponent, in base 2.
        rows: (3, m) float64, added to.
        columns: (3, c) float64, added to, c <= n; or None.
        references: whole exponents of the rows, (m,), and of the columns, (n,) or None: at least z - 1 of every score
            of theirs. None: 0 throughout, and then every |z| is at most 126.
        floors: scores that are not above it are left out, of the rows, (m,), and of the columns, (n,) or None.
        spread: False leaves the second and the third sum out: what they get is 0 or anything.

    Returns:
        The largest scores of the tile, until the next one: of the rows, (m,), and of the columns, (n,) or None.
    """
    return _of(tile).sums(tile, scale, rows, columns, references, floors, spread=spread)


def exponentials(
    tile: Tensor,
    rows: Owners,
    a: int,
    columns: Owners | None,
    c: int,
    scale: float,
    room: float,
    fresh: tuple[bool, bool],
    floors: tuple[Tensor, Tensor | None] | None = None,
    *,
    spread: bool,
) -> tuple[Tensor, Tensor | None]:
    """`sums` without references, whose results go where the rows and columns are known, with new limits if asked for.

    Args:
        tile: (m, n) scores, no exponent of which is above 126 in size.
        rows: of all rows.
        a: the first row of the tile.
        columns: of all columns, at least n from the first one of the tile on; None: they are not summed.
        c: the first column of the tile.
        scale: of the exponent, in base 2.
        room: by which the limits are lower, in units of score.
        fresh: whether the rows, and the columns, of the tile get new limits.
        floors: as for `sums`.
        spread: as for `sums`.

    Returns:
        The largest scores of the tile, until the next one: of the rows, (m,), and of the columns, (n,) or None.
    """
    return _of(tile).exponentials(tile, rows, a, columns, c, scale, room, fresh, floors, spread=spread)


def dots(left: Tensor, right: Tensor, of: Tensor, with_: Tensor) -> Tensor:
    """Inner products in float64 of some rows of one matrix and some of another, (P,).

    Args:
        left: (N, d).
        right: (M, d).
        of: (P,) rows of the left one.
        with_: (P,) rows of the right one.
    """
    return _dots(left, right, of, with_, squares=False)[0]


def squares(left: Tensor, right: Tensor, of: Tensor, with_: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`dots`, and the squared norms of the rows of the left matrix and of the right one, (P,) each."""
    return _dots(left, right, of, with_, squares=True)


def gaps(left: Tensor, right: Tensor, of: Tensor, with_: Tensor) -> Tensor:
    """Squared distances in float64 of some rows of one matrix and some of another, (P,); arguments as for `dots`."""
    return _whole(left, right).gaps(left, right, of.long().contiguous(), with_.long().contiguous())


def _dots(left: Tensor, right: Tensor, of: Tensor, with_: Tensor, *, squares: bool) -> tuple[Tensor, ...]:
    places = of.long().contiguous(), with_.long().contiguous()
    return _whole(left, right).dots(left, right, *places, squares=squares)


def _whole(left: Tensor, right: Tensor) -> types.ModuleType:
    fits = _ready(left) and _ready(right) and left.is_contiguous() and right.is_contiguous()
    return _compiled if fits else _plain


def above(
    tile: Tensor,
    row_limit: Tensor,
    row_top: Tensor,
    column_limit: Tensor | None,
    column_top: Tensor | None,
    start: tuple[int, int] = (0, 0),
    *,
    fixed: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scores above a limit of their row or of their column.

    Args:
        tile: (m, n) scores.
        row_limit: (m,).
        row_top: (m,) largest score of each row.
        column_limit: (n,), or None.
        column_top: (n,), or None.
        start: what the rows and columns of the result are counted from.
        fixed: on a GPU the lists may have a fixed length, so that nothing waits for their number; the sign of what
            stands for nothing is 0, and where the last one stands for something there may be more.

    Returns:
        Rows, columns, scores and signs, (found,) each: sign 1 above the limit of the row, 2 of the column, 3 of both.
    """
    limits = (row_limit, row_top, column_limit, column_top)
    return _of(tile).above(tile, *limits, start, fixed=fixed and ahead(tile.device))


def levels(
    tile: Tensor,
    row_low: Tensor,
    row_high: Tensor,
    row_top: Tensor | None,
    column_low: Tensor | None,
    column_high: Tensor | None,
    column_top: Tensor | None,
    *,
    fixed: bool = False,
) -> tuple[Tensor, Tensor | None, tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Number of scores above the upper end of each level, and those that lie between its ends.

    Args:
        tile: (m, n) scores.
        row_low: (m, K) lower ends of the levels of each row; +inf where a row has fewer.
        row_high: (m, K) upper ends.
        row_top: (m,) largest score of each row; None: not known, and the levels of each ascend.
        column_low: (L, n) lower ends of the levels of each column, or None.
        column_high: (L, n).
        column_top: (n,); None with `row_top`.
        fixed: as for `above`; a row of -1 stands for nothing, and each level of each side has a list of its own.

    Returns:
        (m, K) whole numbers, (L, n) whole numbers or None, and rows, columns, levels and sides (0 of a row, 1 of a
        column) of the scores above a lower end and not above the upper one, (found,) each.
    """
    ends = (row_low, row_high, row_top, column_low, column_high, column_top)
    return _of(tile).levels(tile, *ends, fixed=fixed and ahead(tile.device))


def sigmoids(
    tile: Tensor, scale: float, reach: float, row_level: Tensor, column_level: Tensor | None
) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor] | None]:
    """Sigmoids of all scores about each level, s = 1 / (1 + 2^(scale (level - score))).

    Args:
        tile: (m, n) scores.
        scale: in base 2.
        reach: a score that is further below every level of its owner may be left out.
        row_level: (m, K) levels of each row; +inf where a row has fewer.
        column_level: (L, n) levels of each column, or None.

    Returns:
        For the rows (m, K) Σ s and Σ s (1 - s) in float64, and the largest s (1 - s); for the columns (L, n) or None.
    """
    return _of(tile).sigmoids(tile, scale, reach, row_level, column_level)


def histogram(tile: Tensor, low: float, width: float, count: Tensor) -> None:
    """Add the scores of each row to its bins, in place; those outside go into the first and the last one.

    Args:
        tile: (m, n) scores.
        low: where the first bin begins.
        width: of a bin.
        count: (m, bins) int32.
    """
    _of(tile).histogram(tile, low, width, count)
