"""Nothing that Python lets through makes the kernel read or write beyond what it was given."""

import pytest
import torch

from cocos import tiles
from cocos.errors import InputError
from cocos.readers import Histogram
from cocos.tiles import _build, _compiled, fused

pytestmark = pytest.mark.skipif(_build.loaded() is None, reason="there is no C compiler")
INFINITE = float("inf")


@pytest.mark.parametrize("width", [1e-45, 1e-39, 1e-30, 1e30, 1e300])
@pytest.mark.parametrize("low", [-1.0, 0.0, 3e38, -3e38, INFINITE, float("nan")])
def test_a_score_outside_of_all_bins_is_in_the_first_or_the_last(low, width):
    tile = torch.tensor([-INFINITE, -3e38, -1.0, -0.0, 0.0, 1e-40, 1.0, 3e38]).repeat(2)[None]
    wide = torch.zeros(3, 5, dtype=torch.int32)
    tiles.histogram(tile, low, width, wide[1:2])
    assert int(wide[1].sum()) == 14 and not wide[[0, 2]].any()


@pytest.mark.parametrize(
    ("bins", "low", "high"),
    [(64, 0.0, 1e-37), (0, 0, 1), (2**31, 0, 1), (4, -INFINITE, 0), (4, 0, INFINITE), (4, 1, 1), (4, float("nan"), 1)],
)
def test_a_histogram_refuses_bins_that_are_none(bins, low, high):
    with pytest.raises(InputError, match="^histogram: "):
        Histogram(bins, low, high)


def test_a_tile_in_another_layout_is_seen_by_torch():
    for tile in (torch.randn(32, 16).T, torch.randn(1, 16).expand(5, 16), torch.randn(16, 64)[:, ::2]):
        assert torch.equal(tiles.tops(tile, True)[1], tile.amax(dim=0)) and tiles._of(tile) is not _compiled


def test_the_kernel_refuses_what_does_not_fit_its_tile():
    tile, rows, columns = torch.randn(5, 32), torch.zeros(5), torch.zeros(32)
    many = torch.zeros(5, 128)
    for function, given, error in (
        (tiles.above, (tile, rows[:4], rows, None, None), "limits of the rows"),
        (tiles.above, (tile, rows, rows.double(), None, None), "tops of the rows"),
        (tiles.above, (tile, rows, rows, columns[:16], columns), "limits of the columns"),
        (tiles.above, (tile, rows, rows, columns, None), "no tops of the columns"),
        (tiles.levels, (tile, many, many, None, None, None, None), "128 levels of a row, expected at most 127"),
        (tiles.levels, (tile, many[:, :2], many[:4, :2], None, None, None, None), "levels of the rows"),
        (tiles.sigmoids, (tile, 1.0, 1.0, many[:4, :2].contiguous(), None), "levels of the rows"),
        (tiles.histogram, (tile, 0.0, 1.0, torch.zeros(4, 9, dtype=torch.int32)), "count"),
        (tiles.histogram, (tile, 0.0, 1.0, torch.zeros(5, 9, dtype=torch.int64)), "count"),
    ):
        with pytest.raises(ValueError, match=f"kernel: {error}"):
            function(*given)
    short = torch.zeros(3, 4, dtype=torch.float64)
    with pytest.raises(ValueError, match="kernel: rows"):
        tiles.sums(tile, 1.0, short, None, spread=False)


@pytest.mark.parametrize("place", [-1, 7, 2**40])
def test_places_that_are_no_rows_are_refused(place):
    left, of = torch.randn(7, 3), torch.tensor([0, place])
    for function in (tiles.dots, tiles.squares, tiles.gaps):
        with pytest.raises(IndexError, match="of 7 rows"):
            function(left, left, of, torch.zeros(2, dtype=torch.int64))
    with pytest.raises(IndexError, match="order has places"):
        fused.pack(left, torch.empty(256, 3), order=of)
    with pytest.raises(ValueError, match="do not fit"):
        fused.pack(torch.randn(300, 3), torch.empty(256, 3))


def test_positives_that_are_no_candidates_are_refused():
    scores, out, work = torch.randn(4, 8), torch.zeros(9, 4, dtype=torch.float64), torch.zeros(400, dtype=torch.float64)
    left, right, first = torch.randn(4, 3), torch.randn(8, 3), torch.tensor([0, 2**40, -5, 7])
    tiles.ranked(scores, left, right, first, 2, 1.0, 0.01, 1e-6, out, work)  # as if they began at 0, 6, 0, 6
    assert out.isfinite().all()
    for many in (0, 9):
        with pytest.raises(ValueError, match="positives of 8 candidates"):
            tiles.ranked(scores, left, right, first, many, 1.0, 0.01, 1e-6, out, work)
