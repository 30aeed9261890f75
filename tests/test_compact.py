"""Lists of what lies above a limit: the same entries as from a mask."""

import pytest
import torch

from cocos.engine import compact

SHAPES = [(1, 1), (5, 6), (2, 32), (32, 2), (40, 65), (129, 300), (256, 384)]


def tile_of(shape, seed=0):
    """Random scores, with a pair that is no negative, ties with the limits, and a line that is listed whole."""
    generator = torch.Generator().manual_seed(seed)
    tile = torch.randn(shape, generator=generator)
    low = (torch.full((shape[0],), 1.8), torch.full((shape[1],), 2.0))
    if min(shape) > 4:
        tile[0, 0], tile[1, 1], tile[2, 1], low[0][2], low[1][3] = -torch.inf, 1.8, 2.0, -torch.inf, -3.0
    return tile, low


def wanted(tile, low, high=(None, None)):
    """(row, column) of every entry, with its side, by masks; None as a limit: that side has none."""
    side = torch.zeros(tile.shape, dtype=torch.int64)
    for k, (limit, end) in enumerate(zip(low, high, strict=True)):
        if limit is not None:
            at = (slice(None), None) if k == 0 else (None, slice(None))
            inside = tile > limit[at]
            side += (1 + k) * (inside if end is None else inside & (tile <= end[at]))
    return {(i, j): int(side[i, j]) for i, j in side.nonzero().tolist()}


def opened(limits):
    """Ends of what is above some limits."""
    return [None if each is None else (each, None) for each in limits]


def entries(found, tile):
    """The same of a list, which must hold each once, with its score."""
    row, column, side = found.row, found.column, found.side
    assert torch.equal(found.score, tile[row, column])
    listed = dict(zip(zip(row.tolist(), column.tolist(), strict=True), side.tolist(), strict=True))
    assert len(listed) == len(row)
    return listed


@pytest.mark.parametrize("shape", SHAPES)
def test_lists_hold_what_a_mask_finds(shape):
    tile, low = tile_of(shape)
    high = tuple(each + 0.5 for each in low)
    assert entries(compact.between(tile, *opened(low)), tile) == wanted(tile, low)
    assert entries(compact.between(tile, *zip(low, high, strict=True)), tile) == wanted(tile, low, high)
    for one in ((low[0], None), (None, low[1])):
        assert entries(compact.between(tile, *opened(one)), tile) == wanted(tile, one)
        one_ends = [None if each is None else (each, each + 0.5) for each in one]
        one_high = [None if each is None else each + 0.5 for each in one]
        assert entries(compact.between(tile, *one_ends), tile) == wanted(tile, one, one_high)
    found = compact.between(tile, *opened(low))
    moved = found.moved(1000, 2000)
    assert torch.equal(moved.row, found.row + 1000) and torch.equal(moved.column, found.column + 2000)
