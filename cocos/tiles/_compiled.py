"""The kernel's functions as torch functions: float32 tiles on the CPU, the rows shared out among torch's threads."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from cocos.tiles._build import loaded
from cocos.tiles._plain import Owners

__all__ = [
    "above",
    "batch",
    "ranked",
    "distances",
    "dots",
    "each",
    "exponentials",
    "histogram",
    "levels",
    "sigmoids",
    "sums",
    "tops",
]

STRIP = 256  # as in the kernel
ROOM = 2**16  # places that a search has room for at first
MOST = 127  # levels of a row or of a column

_scratch = threading.local()
_pools: dict[int, ThreadPoolExecutor] = {}


def check(name: str, values: Tensor | None, dtype: torch.dtype, *shape: int) -> None:
    """Refuse a tensor that the kernel would read or write beyond its end, or in another layout.

    Args:
        name: of the tensor.
        values: contiguous; None where there is none.
        dtype: that the kernel reads.
        shape: that it needs; of one dimension at least so many.

    Raises:
        ValueError: naming the tensor.
    """
    if values is None:
        return
    right = tuple(values.shape) == shape or (values.ndim == len(shape) == 1 and len(values) >= shape[0])
    if not right or values.dtype != dtype or not values.is_contiguous() or values.device.type != "cpu":
        raise ValueError(
            f"kernel: {name} is {values.dtype} {tuple(values.shape)} with strides {values.stride()}, "
            f"expected contiguous {dtype} {shape}"
        )


def _lines(name: str, values: Tensor, number: int) -> None:
    """Refuse anything but three lines of float64, each of at least `number` numbers.

    Raises:
        ValueError: naming it.
    """
    if values.dtype != torch.float64 or len(values) != 3 or values.shape[1] < number or values.stride(1) != 1:
        raise ValueError(f"kernel: {name} is {values.dtype} {tuple(values.shape)}, expected float64 (3, {number})")


def _both(name: str, ends: tuple[Tensor, Tensor | None] | None, tile: Tensor, *, columns: bool) -> None:
    """Refuse a number for each row, and for each column, of a tile that is not there.

    Raises:
        ValueError: naming it.
    """
    if ends is not None:
        check(f"{name} of the rows", ends[0], torch.float32, len(tile))
        check(f"{name} of the columns", ends[1], torch.float32, tile.shape[1])
        if columns and ends[1] is None:
            raise ValueError(f"kernel: no {name} of the columns, which are summed")


def within(name: str, places: Tensor, rows: int) -> None:
    """Refuse places that are no rows of a matrix.

    Raises:
        IndexError: naming them.
    """
    if len(places) and not 0 <= int(places.amin()) <= int(places.amax()) < rows:
        raise IndexError(f"kernel: {name} has places from {int(places.amin())} to {int(places.amax())} of {rows} rows")


def few(name: str, number: int) -> None:
    """Refuse more levels than their numbers, int8, can tell apart.

    Raises:
        ValueError: naming them.
    """
    if number > MOST:
        raise ValueError(f"kernel: {number} {name}, expected at most {MOST}")


def _at(values: Tensor | None, offset: int = 0) -> int | None:
    """Address of an entry, counted from the first one."""
    return None if values is None else values.data_ptr() + offset * values.element_size()


def _strips(rows: int) -> int:
    return -(-rows // STRIP)


def each(do: Callable, turns: Sequence) -> None:
    """Call do(turn) for all turns, on as many threads as torch has."""
    threads = torch.get_num_threads()
    if threads == 1 or len(turns) == 1:
        for turn in turns:
            do(turn)
        return
    if threads not in _pools:
        _pools[threads] = ThreadPoolExecutor(threads)
    list(_pools[threads].map(do, turns))


def _each(rows: int, do: Callable[[int, int], None]) -> None:
    """Call do(first row, last row) for all rows: at once, or a strip each on as many threads as torch has."""
    if torch.get_num_threads() == 1:
        do(0, rows)
    else:
        each(lambda a: do(a, min(a + STRIP, rows)), range(0, rows, STRIP))


def distances(tile: Tensor) -> None:
    """See `cocos.tiles.distances`."""
    (m, n), ld = tile.shape, tile.stride(0)
    _each(m, lambda a, b: loaded().cocos_distances(_at(tile, a * ld), b - a, n, ld))


def _pairs(left: Tensor, right: Tensor, of: Tensor, with_: Tensor) -> None:
    """Refuse pairs of rows that two matrices do not have."""
    check("right", right, torch.float32, len(right), left.shape[1])
    check("of", of, torch.int64, len(of))
    check("with", with_, torch.int64, len(of))
    within("of", of, len(left))
    within("with", with_[: len(of)], len(right))


def dots(left: Tensor, right: Tensor, of: Tensor, with_: Tensor, *, squares: bool) -> tuple[Tensor, ...]:
    """See `cocos.tiles.dots` and `cocos.tiles.squares`."""
    _pairs(left, right, of, with_)
    found, width = torch.empty(3 if squares else 1, len(of), dtype=torch.float64), left.shape[1]

    def some(a: int, b: int) -> None:
        places = [_at(each, a) for each in found]
        loaded().cocos_dots(
            _at(left),
            _at(right),
            _at(of, a),
            _at(with_, a),
            b - a,
            width,
            *(places if squares else (*places, None, None)),
        )

    _each(len(of), some)
    return tuple(found)


def gaps(left: Tensor, right: Tensor, of: Tensor, with_: Tensor) -> Tensor:
    """See `cocos.tiles.gaps`."""
    _pairs(left, right, of, with_)
    found, width = torch.empty(len(of), dtype=torch.float64), left.shape[1]

    def some(a: int, b: int) -> None:
        loaded().cocos_gaps(_at(left), _at(right), _at(of, a), _at(with_, a), b - a, width, _at(found, a))

    _each(len(of), some)
    return found


def tops(tile: Tensor, columns: bool) -> tuple[Tensor, Tensor | None]:
    """See `cocos.tiles.tops`."""
    (m, n), ld = tile.shape, tile.stride(0)
    row, column = torch.empty(m), torch.empty(_strips(m), n) if columns else None

    def some(a: int, b: int) -> None:
        for start in range(a, b, STRIP):
            own = _at(column, start // STRIP * n)
            loaded().cocos_tops(_at(tile, start * ld), min(STRIP, b - start), n, ld, _at(row, start), own)

    _each(m, some)
    return row, column.amax(dim=0) if columns else None


def _space(m: int, n: int, strips: int) -> tuple[Tensor, ...]:
    """Room for what is said of a tile, the same for all tiles of a shape: fresh memory would cost page faults."""
    held = _scratch.__dict__.setdefault("space", {})
    if (m, n, strips) not in held:
        held.clear()
        column = torch.empty(strips, 3, n, dtype=torch.float64)
        held[m, n, strips] = (torch.empty(m), column, torch.empty(strips, n), torch.empty(strips, 3 * n))
    return held[m, n, strips]


def _sums(
    tile: Tensor,
    scale: float,
    rows: int,
    step: int,
    references: tuple[Tensor, Tensor | None] | None,
    floors: tuple[Tensor, Tensor | None] | None,
    *,
    spread: bool,
    columns: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Add to the sums of the rows, at an address; give their tops, and what each strip says of the columns."""
    kernel, (m, n), ld, at = loaded(), tile.shape, tile.stride(0), tile.data_ptr()
    _both("references", references, tile, columns=columns)
    _both("floors", floors, tile, columns=columns)
    row_top, column, column_top, work = _space(m, n, _strips(m) if columns else 0)
    row_reference, column_reference = references or (None, None)
    row_floor, column_floor = floors or (None, None)

    def some(a: int, b: int) -> None:
        k = a // STRIP
        kernel.cocos_sums(
            at + 4 * a * ld,
            b - a,
            n,
            ld,
            scale,
            _at(row_reference, a),
            _at(column_reference),
            _at(row_floor, a),
            _at(column_floor),
            references is not None,
            spread,
            floors is not None,
            columns,
            rows + 8 * a,
            step,
            _at(row_top, a),
            _at(column, k * 3 * n),
            _at(column_top, k * n),
            _at(work, k * 3 * n),
        )

    _each(m, some)
    return row_top, column, column_top


def sums(
    tile: Tensor,
    scale: float,
    rows: Tensor,
    columns: Tensor | None,
    references: tuple[Tensor, Tensor | None] | None,
    floors: tuple[Tensor, Tensor | None] | None,
    *,
    spread: bool,
) -> tuple[Tensor, Tensor | None]:
    """See `cocos.tiles.sums`."""
    two = columns is not None
    _lines("rows", rows, len(tile))
    row_top, column, column_top = _sums(
        tile, scale, _at(rows), rows.stride(0), references, floors, spread=spread, columns=two
    )
    if not two:
        return row_top, None
    for part in column:
        columns += part[:, : columns.shape[1]]
    return row_top, column_top.amax(dim=0)


def _owners(name: str, owners: Owners, number: int) -> None:
    """Refuse fewer rows or columns than a tile reaches."""
    _lines(name, owners.total, number)
    for each in ("top", "limit"):
        check(f"{each} of the {name}", getattr(owners, each), torch.float32, number)
    for each in ("known", "others", "offset"):
        check(f"{each} of the {name}", getattr(owners, each), torch.float64, number)


def exponentials(
    tile: Tensor,
    rows: Owners,
    a: int,
    columns: Owners | None,
    c: int,
    scale: float,
    room: float,
    fresh: tuple[bool, bool],
    floors: tuple[Tensor, Tensor | None] | None,
    *,
    spread: bool,
) -> tuple[Tensor, Tensor | None]:
    """See `cocos.tiles.exponentials`."""
    (m, n), step, two = tile.shape, rows.total.stride(0), columns is not None
    _owners("rows", rows, a + m)
    if two:
        _owners("columns", columns, c + n)
    row_top, column, column_top = _sums(tile, scale, _at(rows.total, a), step, None, floors, spread=spread, columns=two)
    own = (
        _at(rows.total, a),
        _at(row_top),
        _at(rows.top, a),
        _at(rows.others, a),
        _at(rows.offset, a),
        _at(rows.limit, a),
    )
    other = (None,) * 2 + (None, 0) + (None,) * 5
    if two:
        other = (_at(column), _at(column_top), _at(columns.total, c), columns.total.stride(0), _at(columns.top, c))
        other += (_at(columns.known, c), _at(columns.others, c), _at(columns.offset, c), _at(columns.limit, c))
    lines, renewed = 3 if spread else 1, fresh[0] + 2 * fresh[1]
    loaded().cocos_settle(m, n, n, len(column), lines, scale, room, renewed, *own, *other)
    return row_top, column_top[0] if two else None


def _places(search: Callable[..., int], rows: int, dtypes: tuple[torch.dtype, ...]) -> tuple[Tensor, ...]:
    """What a search writes, a tensor for each dtype, in the order of the rows; not to be written to.

    What is found stays where the search wrote it, in stretches of the same memory, until that is full.

    Args:
        search: called with (first row, last row, tensors to write into, their room); gives the number of places found,
            which may be above the room: then it is called again with enough.
        rows: of the tile.
        dtypes: of the tensors.
    """
    found: dict[int, list[Tensor]] = {}

    def some(a: int, b: int) -> None:
        held = _scratch.__dict__.setdefault("places", {})
        arrays, used = held.get(dtypes, ([], ROOM))
        if used > ROOM // 2:
            arrays, used = [torch.empty(ROOM, dtype=dtype) for dtype in dtypes], 0
        room = ROOM - used
        left = [array[used:] for array in arrays] if used else arrays
        while (number := search(a, b, left, room)) > room:
            left, room = [torch.empty(number, dtype=dtype) for dtype in dtypes], number
        if number <= ROOM - used:
            held[dtypes] = (arrays, used + number)
        if number:
            found[a] = tuple(array[:number] for array in left)

    _each(rows, some)
    if not found:
        return tuple(torch.empty(0, dtype=dtype) for dtype in dtypes)
    if len(found) == 1:
        return next(iter(found.values()))
    return tuple(torch.cat(each) for each in zip(*(found[a] for a in sorted(found)), strict=True))


def above(
    tile: Tensor,
    row_limit: Tensor,
    row_top: Tensor,
    column_limit: Tensor | None,
    column_top: Tensor | None,
    start: tuple[int, int],
    *,
    fixed: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See `cocos.tiles.above`."""
    (_, n), ld = tile.shape, tile.stride(0)
    _both("limits", (row_limit, column_limit), tile, columns=False)
    _both("tops", (row_top, column_top), tile, columns=column_limit is not None)

    def search(a: int, b: int, arrays: list[Tensor], room: int) -> int:
        limits = (_at(row_limit, a), _at(row_top, a), _at(column_limit), _at(column_top), start[0] + a, start[1])
        return loaded().cocos_above(_at(tile, a * ld), b - a, n, ld, *limits, *(_at(each) for each in arrays), room)

    return _places(search, len(tile), (torch.int32, torch.int32, torch.float32, torch.int8))


def levels(
    tile: Tensor,
    row_low: Tensor,
    row_high: Tensor,
    row_top: Tensor | None,
    column_low: Tensor | None,
    column_high: Tensor | None,
    column_top: Tensor | None,
    *,
    fixed: bool,
) -> tuple[Tensor, Tensor | None, tuple[Tensor, Tensor, Tensor, Tensor]]:
    """See `cocos.tiles.levels`."""
    (m, n), ld = tile.shape, tile.stride(0)
    row_levels, column_levels = row_low.shape[1], 0 if column_low is None else len(column_low)
    few("levels of a row", row_levels)
    few("levels of a column", column_levels)
    for ends in (row_low, row_high):
        check("levels of the rows", ends, torch.float32, m, row_levels)
    for ends in (column_low, column_high):
        check("levels of the columns", ends, torch.float32, column_levels, n)
    check("tops of the rows", row_top, torch.float32, m)
    check("tops of the columns", column_top, torch.float32, n)
    row_count = torch.empty(m, row_levels, dtype=torch.int64)
    column_count = torch.zeros(_strips(m), column_levels, n, dtype=torch.int32)

    def search(a: int, b: int, arrays: list[Tensor], room: int) -> int:
        return loaded().cocos_levels(
            _at(tile, a * ld),
            b - a,
            n,
            ld,
            row_levels,
            _at(row_low, a * row_levels),
            _at(row_high, a * row_levels),
            _at(row_top, a),
            _at(row_count, a * row_levels),
            column_levels,
            _at(column_low),
            _at(column_high),
            _at(column_top),
            _at(column_count, a // STRIP * column_levels * n),
            *(_at(each) for each in arrays),
            a,
            room,
        )

    found = _places(search, m, (torch.int32, torch.int32, torch.int8, torch.int8))
    return row_count, column_count.sum(dim=0) if column_levels else None, found


def sigmoids(
    tile: Tensor, scale: float, reach: float, row_level: Tensor, column_level: Tensor | None
) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor] | None]:
    """See `cocos.tiles.sigmoids`."""
    (m, n), ld = tile.shape, tile.stride(0)
    row_levels, column_levels = row_level.shape[1], 0 if column_level is None else len(column_level)
    check("levels of the rows", row_level, torch.float32, m, row_levels)
    check("levels of the columns", column_level, torch.float32, column_levels, n)
    dtypes = (torch.float64, torch.float64, torch.float32)
    row = [torch.empty(m, row_levels, dtype=dtype) for dtype in dtypes]
    column = [torch.empty(_strips(m), column_levels, n, dtype=dtype) for dtype in dtypes]
    work = torch.empty(_strips(m), 2 * column_levels * n + n)

    def some(a: int, b: int) -> None:
        for start in range(a, b, STRIP):
            k = start // STRIP
            loaded().cocos_sigmoids(
                _at(tile, start * ld),
                min(STRIP, b - start),
                n,
                ld,
                scale,
                reach,
                row_levels,
                _at(row_level, start * row_levels),
                *(_at(part, start * row_levels) for part in row),
                column_levels,
                _at(column_level),
                n,
                *(_at(part, k * column_levels * n) for part in column),
                _at(work, k * work.shape[1]),
            )

    _each(m, some)
    if not column_levels:
        return tuple(row), None
    totals = [part[0].clone() for part in column[:2]]
    for total, part in zip(totals, column, strict=False):
        for strip in part[1:]:
            total.add_(strip)
    return tuple(row), (*totals, column[2].amax(dim=0))


def batch(
    scores: Tensor,
    hinge: bool,
    scale: float,
    eps: float,
    margin: float,
    room: float,
    loose: float,
    out: Tensor,
    sums: Tensor,
    work: Tensor,
) -> None:
    """One small batch, held whole: see the kernel."""
    n = len(scores)
    check("scores", scores, torch.float32, n, n)
    check("out", out.view(-1), torch.float32, (2 if hinge else 10) * 2 * n)
    check("sums", sums.view(-1), torch.float64, 0 if hinge else 6 * n)
    check("work", work.view(-1), torch.float32, 16 * n)
    loaded().cocos_batch(
        scores.data_ptr(),
        n,
        n,
        hinge,
        scale,
        eps,
        margin,
        room,
        loose,
        out.data_ptr(),
        sums.data_ptr(),
        work.data_ptr(),
    )


def ranked(
    scores: Tensor,
    left: Tensor,
    right: Tensor,
    first: Tensor,
    many: int,
    scale: float,
    eps: float,
    room: float,
    out: Tensor,
    work: Tensor,
) -> None:
    """SmoothAP of one small batch, held whole: see the kernel.

    Raises:
        ValueError: tensors that do not fit each other.
    """
    m, n = scores.shape
    if not 1 <= many <= n:
        raise ValueError(f"kernel: {many} positives of {n} candidates, expected at least one and at most all")
    check("scores", scores, torch.float32, m, n)
    check("left", left, torch.float32, m, left.shape[1])
    check("right", right, torch.float32, n, left.shape[1])
    check("first", first, torch.int64, m)
    check("out", out.view(-1), torch.float64, 9 * m)
    check("work", work.view(-1), torch.float64, (many + 3) * (n + 16) + 4 * many)
    loaded().cocos_ranked(
        scores.data_ptr(),
        *scores.shape,
        left.data_ptr(),
        right.data_ptr(),
        left.shape[1],
        first.data_ptr(),
        many,
        scale,
        eps,
        room,
        out.data_ptr(),
        work.data_ptr(),
    )


def histogram(tile: Tensor, low: float, width: float, count: Tensor) -> None:
    """See `cocos.tiles.histogram`."""
    (m, n), ld, bins = tile.shape, tile.stride(0), count.shape[1]
    check("count", count, torch.int32, m, bins)

    def some(a: int, b: int) -> None:
        loaded().cocos_histogram(_at(tile, a * ld), b - a, n, ld, low, 1 / width, bins, _at(count, a * bins))

    _each(m, some)
