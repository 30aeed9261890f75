"""Lists of what lies above a limit: the same entries from a host, from a device that runs ahead, and from a mask."""

import pytest
import torch

from cocos.engine import compact
from pretended import DEVICE, waits

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


def opened(limits, device=None):
    """Ends of what is above some limits."""
    return [None if each is None else (each.to(device), None) for each in limits]


def entries(found, tile):
    """The same of a list, which must hold each once, with its score."""
    row, column, side = (each.cpu()[found.there.cpu()] for each in (found.row, found.column, found.side))
    assert torch.equal(found.score.cpu()[found.there.cpu()], tile[row, column])
    listed = dict(zip(zip(row.tolist(), column.tolist(), strict=True), side.tolist(), strict=True))
    assert len(listed) == len(row)
    return listed


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("device", ["cpu", DEVICE], ids=str)
def test_lists_hold_what_a_mask_finds(shape, device):
    tile, low = tile_of(shape)
    high = tuple(each + 0.5 for each in low)
    there, limits, ends = tile.to(device), [each.to(device) for each in low], [each.to(device) for each in high]
    assert entries(compact.between(there, *opened(limits), room=2**13), tile) == wanted(tile, low)
    between = compact.between(there, *zip(limits, ends, strict=True), room=2**13)
    assert entries(between, tile) == wanted(tile, low, high) and not bool(between.short)
    for one in ((low[0], None), (None, low[1])):
        one_there = [None if each is None else each.to(device) for each in one]
        assert entries(compact.between(there, *opened(one_there), room=2**13), tile) == wanted(tile, one)
        one_ends = [None if each is None else (each, each + 0.5) for each in one_there]
        one_high = [None if each is None else each + 0.5 for each in one]
        assert entries(compact.between(there, *one_ends, room=2**13), tile) == wanted(tile, one, one_high)


@pytest.mark.parametrize("sides", [1, 2])
def test_an_entry_that_is_none_can_be_looked_up_and_says_so(sides):
    tile, low = tile_of((40, 64))
    limits = low if sides == 2 else (low[0], None)
    found = compact.between(tile.to(DEVICE), *opened(limits, DEVICE), room=512)
    there = found.there.cpu()
    assert len(there) == 512 and 0 < there.sum() < 512
    assert (found.score.cpu()[~there] == -torch.inf).all() and (found.side.cpu()[~there] == 0).all()
    for places, size in zip(found.places, tile.shape, strict=True):
        assert places.cpu().amin() >= 0 and places.cpu().amax() < size
    moved = found.moved(1000, 2000)
    assert torch.equal(moved.row, found.row + 1000) and torch.equal(moved.column, found.column + 2000)


@pytest.mark.parametrize("upper", [None, torch.inf], ids=["above", "between"])
def test_a_list_says_that_it_is_short_and_a_patient_one_is_not(upper):
    tile, low = tile_of((129, 288))
    every = wanted(tile, (low[0], None))
    number = len(every)
    there, limit = tile.to(DEVICE), low[0].to(DEVICE)
    ends = (limit, upper and torch.full_like(limit, upper))
    for room, short in ((number, False), (number - 1, True), (1, True)):
        found = compact.between(there, ends, room=room)
        assert bool(found.short) == short and len(found.row) == room
        assert len(entries(found, tile)) == room and entries(found, tile).items() <= every.items()
    found = compact.between(there, ends, room=1, patient=True)
    assert not bool(found.short) and entries(found, tile) == every and len(found.row) == number


def test_no_list_waits_for_the_device():
    tile, low = tile_of((256, 384))
    there, limits = tile.to(DEVICE), [each.to(DEVICE) for each in low]
    with waits() as noted:
        compact.between(there, *opened(limits))
        compact.between(there, None, (limits[1], None))
        compact.between(there, (limits[0], limits[0] + 1), (limits[1], limits[1] + 1))
    assert noted == []
    with waits() as noted:
        compact.between(there, *opened(limits), patient=True)
    assert {each.operation for each in noted} == {"nonzero"} and not any(each.upload for each in noted)
    assert all(each.place.startswith("engine/compact.py") for each in noted)
