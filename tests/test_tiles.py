"""What is seen of one tile: compiled code and torch against float64, and what happens where nothing can be compiled."""

import os
import subprocess
import sys

import pytest
import torch

from cocos import tiles
from cocos.tiles import _build, _compiled, _plain

needs_compiler = pytest.mark.skipif(_build.loaded() is None, reason="there is no C compiler")
SHAPES = (
    (1, 16),
    (3, 32),
    (4, 16),
    (5, 48),
    (63, 64),
    (65, 16),
    (256, 32),
    (257, 112),
    (530, 48),
)  # strips have 256 rows
EXPONENTIAL = 3e-7  # relative error of 2^z, the rounding of z aside
SUMS = 2e-6  # of float32 sums of 64 of them


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def tile_of(m, n, seed=0):
    """Scores as a pass has them: part of a wider buffer, some pairs left out, and with room, a whole row and column."""
    tile = torch.full((m + 2, n + 32), torch.nan)[1 : m + 1, 16 : n + 16]
    tile.copy_(drawn(m, n, seed=seed))
    tile[torch.rand(m, n, generator=torch.Generator().manual_seed(seed)) < 0.2] = -torch.inf
    tile[:, n // 3] = -torch.inf
    if m > 2:
        tile[m // 2] = -torch.inf
    return tile


@pytest.fixture(params=["compiled C", "plain torch"])
def way(request, monkeypatch):
    """The functions, compiled and in torch."""
    if request.param == "plain torch":
        monkeypatch.setattr(_build, "loaded", lambda: None)
    elif _build.loaded() is None:
        pytest.skip("there is no C compiler")
    assert tiles.kernel_name() == request.param
    return tiles


def test_a_tile_that_the_kernel_cannot_take_is_seen_by_torch():
    fits = tile_of(5, 32)
    assert tiles._of(fits) is (_plain if _build.loaded() is None else _compiled)
    assert tiles._of(fits[:, :31]) is tiles._of(fits.double()) is tiles._of(fits.to("meta")) is _plain


@pytest.mark.parametrize("shape", SHAPES)
def test_tops(way, shape):
    tile = tile_of(*shape)
    row, column = way.tops(tile, True)
    assert torch.equal(row, tile.amax(dim=1)) and torch.equal(column, tile.amax(dim=0))
    row, column = way.tops(tile, False)
    assert torch.equal(row, tile.amax(dim=1)) and column is None


def test_distances_are_roots_and_never_above_zero(way):
    square = drawn(70, 48).square().neg_()
    square[3, 5], square[4, 6], square[5, 7] = 1e-7, 0.0, -torch.inf
    tile = torch.full((70, 64), torch.nan)[:, 8:56].copy_(square)
    way.distances(tile)
    right = -(-square).clamp(min=0).double().sqrt()
    assert (tile <= 0).all() and torch.allclose(tile.double(), right, rtol=1e-7, atol=0)


def test_the_exponential_is_right_over_its_range(way):
    """One row, so that each column's sum is a single exponential."""
    z = torch.cat([
        torch.linspace(-125.9, 125.9, 150_016),
        torch.arange(-126.0, 122.0),
        torch.arange(-124, 124) / 2 + 1e-6,
    ])
    z = z[: len(z) // 16 * 16]
    total = torch.zeros(3, len(z), dtype=torch.float64)
    way.sums(z[None], 1.0, torch.zeros(3, 1, dtype=torch.float64), total, spread=False)
    assert (total[0] / z.double().exp2() - 1).abs().max() < EXPONENTIAL
    near = z[z.abs() < 60]
    near = near[: len(near) // 16 * 16]
    mass = near.double().exp2()
    total = torch.zeros(3, len(near), dtype=torch.float64)
    way.sums(near[None], 1.0, torch.zeros(3, 1, dtype=torch.float64), total, spread=True)
    for found, right in zip(total, (mass, near * mass, mass.square()), strict=True):
        assert torch.allclose(found, right, rtol=2 * EXPONENTIAL + 1e-7, atol=0)


def summed(tile, scale, reference, floor, dim):
    """Sums in float64, (3, n)."""
    z = tile.double() * scale - (0 if reference is None else reference.double().unsqueeze(dim))
    kept = tile > (-torch.inf if floor is None else floor.unsqueeze(dim))
    mass = torch.where(kept, z.clamp(min=-126).exp2(), 0)
    return torch.stack([
        mass.sum(dim),
        torch.where(kept, z.clamp(min=-126), 0).mul(mass).sum(dim),
        mass.square().sum(dim),
    ])


@pytest.mark.parametrize("wide", [False, True], ids=["narrow", "wide"])
@pytest.mark.parametrize("floored", [False, True], ids=["all", "above a floor"])
@pytest.mark.parametrize("shape", SHAPES)
def test_sums(way, shape, wide, floored):
    tile, (m, n) = tile_of(*shape), shape
    scale, there = 60.0 if wide else 8.0, n - 5  # the columns beyond those of the view are summed nowhere
    floors = (drawn(m, seed=1) - 1, drawn(n, seed=2) - 1) if floored else None
    references = None
    if wide:
        tops = (tile.amax(dim=1), tile.amax(dim=0))
        references = tuple(torch.where(top > -torch.inf, (top * scale).ceil(), 0) for top in tops)
    for two in (True, False):
        for spread in (True, False):
            rows, columns = torch.ones(3, m + 7, dtype=torch.float64), torch.ones(3, n + 9, dtype=torch.float64)
            own, other = rows[:, 3 : m + 3], columns[:, 2 : there + 2] if two else None
            given = [each if two or each is None else (each[0], None) for each in (references, floors)]
            row_top, column_top = way.sums(tile, scale, own, other, *given, spread=spread)
            assert torch.equal(row_top, tile.amax(dim=1))
            assert column_top is None if not two else torch.equal(column_top, tile.amax(dim=0))
            parts = [own, *([other] if two else [])]
            for dim, part in zip((1, 0), parts, strict=False):
                reference, floor = (None if each is None else each[1 - dim] for each in (references, floors))
                right = 1 + summed(tile, scale, reference, floor, dim)[:, : part.shape[1]]
                room = SUMS + scale * 4 * 2**-24  # of what is rounded before the exponential
                for line in range(3 if spread else 1):
                    size = summed(tile, scale, reference, floor, dim)[line].abs()[: part.shape[1]]
                    most = (
                        size if line != 1 else size + 126 * summed(tile, scale, reference, floor, dim)[0][: len(size)]
                    )
                    assert ((part[line] - right[line]).abs() <= 2 * room * most + 1e-12).all(), (dim, line)
            beside = [rows[:, :3], rows[:, m + 3 :], columns[:, :2], columns[:, there + 2 :]]
            assert all((each == 1).all() for each in beside), "written beyond what was asked"


@pytest.mark.parametrize("shape", SHAPES)
def test_exponentials_are_sums_and_limits_in_their_places(way, shape):
    tile, (m, n) = tile_of(*shape), shape
    scale, room = 8.0, 0.01
    for two in (True, False):
        for fresh in ((True, True), (False, True), (True, False)):
            owners, right = [], []
            for dim, (place, number) in enumerate(((5, m), (3, n))):
                values = [drawn(number + 9, seed=seed).double() for seed in range(4)]
                known = values[0].exp2() if dim else None  # rows have no part that is done
                total, top = torch.ones(3, number + 9, dtype=torch.float64), torch.full((number + 9,), -0.5)
                mine = [total, top, values[1].exp2(), values[2] - 3, torch.full_like(top, 7.0), known]
                owners.append(tiles.Owners(*mine))
                where = slice(place, place + number)
                mine = [each if each is None else each.clone() for each in mine]
                if dim == 0 or two:
                    mine[0][:, where] += summed(tile, scale, None, None, 1 - dim)
                    mine[1][where] = torch.maximum(mine[1][where], tile.amax(dim=1 - dim))
                    if fresh[dim]:
                        whole = (mine[0][0] + mine[2] + (0 if known is None else known))[where]
                        score = (whole.log2() + mine[3][where]) / scale
                        mine[4][where] = (score - room - 1e-6 * score.abs()).float()
                right.append(mine)
            first, second = owners
            tops = way.exponentials(tile, first, 5, second if two else None, 3, scale, room, fresh, spread=True)
            assert torch.equal(tops[0], tile.amax(dim=1))
            assert tops[1] is None if not two else torch.equal(tops[1], tile.amax(dim=0))
            for owner, (total, top, _, _, limit, _) in zip(owners, right, strict=True):
                assert torch.allclose(owner.total, total, rtol=1e-5, atol=1e-5)
                assert torch.equal(owner.top, top)
                assert torch.allclose(owner.limit, limit, rtol=0, atol=2e-6)


def listed(found):
    """Places in one order, whatever they were found in."""
    return sorted(zip(*(each.tolist() for each in found), strict=True))


@pytest.mark.parametrize("shape", [*SHAPES, (300, 512)])
def test_above(way, shape):
    tile, (m, n) = tile_of(*shape), shape
    for shift in (-9.0, 0.0, 1.5, 9.0) if m < 300 else (-9.0, 1.5):  # -9: more than what there is room for at first
        row_limit, column_limit = drawn(m, seed=1) + shift, drawn(n, seed=2) + shift
        row_limit[0], column_limit[0] = torch.inf, -torch.inf
        row_limit[-1] = tile[-1, n // 2]  # equal is not above
        for two in (True, False):
            tops = tile.amax(dim=1), tile.amax(dim=0)
            sides = (column_limit, tops[1]) if two else (None, None)
            found = way.above(tile, row_limit, tops[0], *sides, (70, 900))
            by_row, by_column = tile > row_limit[:, None], (tile > column_limit) & two
            row, column = (by_row | by_column).nonzero(as_tuple=True)
            sign = by_row.long() + 2 * by_column.long()
            right = (row + 70, column + 900, tile[row, column], sign[row, column])
            assert listed(found) == listed(right), (shift, two)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("row_levels", "column_levels"), [(1, 0), (1, 1), (3, 2), (2, 5)])
def test_levels(way, shape, row_levels, column_levels):
    tile, (m, n) = tile_of(*shape), shape
    row, column = drawn(m, row_levels, seed=1), drawn(column_levels, n, seed=2)
    row[0, -1], row[-1, 0] = torch.inf, tile[-1, n // 2]
    if column_levels:
        column[-1, 0] = torch.inf
    for width in (0.0, 0.2, 9.0):  # 9: more than what there is room for at first, where the tile is large
        tops = tile.amax(dim=1), tile.amax(dim=0)
        sides = (column - width, column + width, tops[1]) if column_levels else (None, None, None)
        row_count, column_count, found = way.levels(tile, row - width, row + width, tops[0], *sides)
        right, places = [], []
        for side, ends in enumerate([row.T[:, :, None], column[:, None, :]]):
            over = [tile > end + width for end in ends]
            right.append(torch.stack([each.sum(dim=1 - side) for each in over]) if len(ends) else None)
            for level, (end, each) in enumerate(zip(ends, over, strict=True)):
                between = ((tile > end - width) & ~each).nonzero(as_tuple=True)
                places += [(*place, level, side) for place in zip(*(part.tolist() for part in between), strict=True)]
        assert torch.equal(row_count, right[0].T)
        assert column_count is None if not column_levels else torch.equal(column_count.long(), right[1])
        assert listed(found) == sorted(places)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("row_levels", "column_levels"), [(1, 0), (2, 1), (1, 3)])
def test_sigmoids(way, shape, row_levels, column_levels):
    tile, (m, n) = tile_of(*shape) / 4, shape
    row, column = drawn(m, row_levels, seed=1) / 4, drawn(column_levels, n, seed=2) / 4
    row[0, -1] = torch.inf
    scale = 1.4427 / 0.05
    found = way.sigmoids(tile, scale, 30 / scale, row, column if column_levels else None)
    assert (found[1] is None) == (not column_levels)
    for side, (ends, dim) in enumerate(((row.T[:, :, None], 1), (column[:, None, :], 0))[: 1 + (column_levels > 0)]):
        for level, end in enumerate(ends):
            z = (tile.double() - end.double()) * scale
            above = 1 / (1 + (-z).exp2())
            slope = above * (1 - above)
            right = above.sum(dim), slope.sum(dim), slope.amax(dim)
            for name, each, want in zip(("above", "slope", "steepest"), found[side], right, strict=True):
                mine = each[:, level] if side == 0 else each[level]
                off = (mine - want).abs() - 4e-6 * want
                assert (off <= n * 2.0**-29).all(), (name, side, level)  # what lies further than the reach is left out


@pytest.mark.parametrize("shape", SHAPES)
def test_histogram(way, shape):
    tile = (tile_of(*shape) * 16).round() / 16 + 1 / 64  # on no edge
    low, width, bins = -1.0, 0.125, 12
    count = torch.ones(len(tile), bins, dtype=torch.int32)
    way.histogram(tile, low, width, count)
    place = ((tile.double() - low) / width).floor().clamp(0, bins - 1)
    right = torch.stack([((place == k) & (tile > -torch.inf)).sum(dim=1) for k in range(bins)], dim=1) + 1
    assert torch.equal(count, right)


@pytest.mark.parametrize("width", [1, 7, 16, 33, 130])
def test_dots(width):
    left, right = drawn(40, width), drawn(50, width, seed=1)
    of, other = (torch.randint(size, (1000,), generator=torch.Generator().manual_seed(size)) for size in (40, 50))
    want = (left.double()[of] * right.double()[other]).sum(dim=1)
    strided = torch.stack([other, other], dim=1)[:, 0]
    given = [(left, right), (left.T.contiguous().T, right), (left.double(), right.double())]
    for found in (
        *(tiles.dots(*sides, of, other) for sides in given),
        tiles.dots(left, right, of.int(), strided),
        *_plain.dots(left, right, of, other, squares=False),
        tiles.squares(left, right, of, other)[0],
    ):
        assert found.dtype == torch.float64 and torch.allclose(found, want, rtol=1e-13, atol=1e-13)
    assert len(tiles.dots(left, right, of[:0], other[:0])) == 0
    norms = [side.double().square().sum(dim=1)[at] for side, at in ((left, of), (right, other))]
    for squares in (tiles.squares(left, right, of, other)[1:], _plain.dots(left, right, of, other, squares=True)[1:]):
        assert all(torch.allclose(one, two, rtol=1e-13) for one, two in zip(squares, norms, strict=True))
    half = tiles.dots(left.half(), right.half(), of, other)
    assert torch.allclose(
        half, (left.half().double()[of] * right.half().double()[other]).sum(dim=1), rtol=1e-13, atol=1e-13
    )


@needs_compiler
def test_threads_change_no_bit():
    tile, scale = tile_of(700, 64), 20.0
    tops = tile.amax(dim=1), tile.amax(dim=0)
    row, column = drawn(700, 2, seed=1), drawn(2, 64, seed=2)

    def everything():
        rows, columns = torch.zeros(3, 700, dtype=torch.float64), torch.zeros(3, 64, dtype=torch.float64)
        count = torch.zeros(700, 9, dtype=torch.int32)
        found = [top.clone() for top in tiles.sums(tile, 4.0, rows, columns, spread=True)]
        found += [rows, columns, *tiles.tops(tile, True)]
        found += tiles.above(tile, row[:, 0].contiguous(), tops[0], column[0].contiguous(), tops[1])
        counts = tiles.levels(tile, row - 0.1, row + 0.1, tops[0], column - 0.1, column + 0.1, tops[1])
        tiles.histogram(tile, -1.0, 0.25, count)
        row_sigmoids, column_sigmoids = tiles.sigmoids(tile, scale, 1.5, row, column)
        return [*found, counts[0], counts[1], *counts[2], *row_sigmoids, *column_sigmoids, count]

    before, once = torch.get_num_threads(), everything()
    try:
        for threads in (2, 3):
            torch.set_num_threads(threads)
            assert all(torch.equal(one, other) for one, other in zip(once, everything(), strict=True))
    finally:
        torch.set_num_threads(before)


PASS = """
import torch
from cocos import losses, readers, sweep, tiles
from cocos.embeddings import Embeddings
torch.set_num_threads(1)
rows = torch.randn(2, 300, 16, generator=torch.Generator().manual_seed(0))
reader = readers.of(losses.load("ntxent", {"temperature": 0.05}))
found = sweep.run(sweep.view(Embeddings(*rows)), [reader])[0]
print(tiles.kernel_name(), *(int(each["contributing"].sum()) for each in found), sep=", ")
"""


def test_without_a_compiler_a_pass_finds_the_same(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "COCOS_KERNEL"}
    environment |= {"CC": "/nonexistent", "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", PASS], capture_output=True, text=True, env=environment, check=True)
    assert not list(tmp_path.rglob("*.so"))
    rows = torch.randn(2, 300, 16, generator=torch.Generator().manual_seed(0)).double()
    shares = torch.nn.functional.normalize(rows, dim=2)
    shares = (shares[0] @ shares[1].T / 0.05).softmax(dim=1), (shares[1] @ shares[0].T / 0.05).softmax(dim=1)
    right = [int(((share > 0.01) & ~torch.eye(300, dtype=torch.bool)).sum()) for share in shares]
    assert done.stdout.strip() == f"plain torch, {right[0]}, {right[1]}"


@pytest.fixture
def build(monkeypatch, tmp_path):
    """What is loaded in a folder of its own, with what else the environment says."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("COCOS_KERNEL", raising=False)

    def make(**environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return _build.loaded.__wrapped__()

    make.folder = tmp_path / "cocos"
    return make


@needs_compiler
def test_the_library_is_built_once_in_a_folder_of_ones_own(build, tmp_path):
    assert build() is not None
    (made,) = build.folder.iterdir()  # nothing half made beside it
    assert build.folder.stat().st_mode & 0o777 == 0o700 and made.suffix == ".so"
    before = made.stat().st_mtime_ns
    assert build() is not None and made.stat().st_mtime_ns == before
    other = tmp_path / "other" / "cocos"
    other.mkdir(mode=0o700, parents=True)
    (other / made.name).write_bytes(b"no library")
    assert build(XDG_CACHE_HOME=str(other.parent)) is not None  # built again: see test_cache


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_that_others_can_write_is_refused(build, mode):
    build.folder.mkdir()
    build.folder.chmod(mode)
    assert build() is None
    assert not list(build.folder.iterdir())


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_refused(build):
    build.folder.mkdir(mode=0o700)
    os.chown(build.folder, 12345, 12345)
    assert build() is None and not list(build.folder.iterdir())


@pytest.mark.parametrize(
    "changed",
    [{"CC": "/nonexistent"}, {"CC": "/bin/false"}, {"COCOS_KERNEL": "plain"}, {"COCOS_KERNEL": "OFF"}],
    ids=str,
)
def test_nothing_is_built_where_that_is_impossible_or_not_wanted(build, changed):
    assert build(**changed) is None
    assert not list(build.folder.parent.rglob("*.so"))


def test_nothing_is_built_where_there_is_no_home(build, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 987654)  # known to no list of users
    assert build() is None
