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
    """(row, column, side) of every entry, by a mask."""
    found = set()
    for side, (limit, end) in enumerate(zip(low, high, strict=True)):
        at = (slice(None), None) if side == 0 else (None, slice(None))
        inside = tile > limit[at]
        inside = inside if end is None else inside & (tile <= end[at])
        found |= {(i, j, side) for i, j in inside.nonzero().tolist()}
    return found


def entries(found, tile):
    """The same of a list, which must hold each once, with its score."""
    row, column, side = (each.cpu()[found.there.cpu()] for each in (found.row, found.column, found.side))
    assert torch.equal(found.score.cpu()[found.there.cpu()], tile[row, column])
    listed = list(zip(row.tolist(), column.tolist(), side.tolist(), strict=True))
    assert len(listed) == len(set(listed))
    return set(listed)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("device", ["cpu", DEVICE], ids=str)
def test_lists_hold_what_a_mask_finds(shape, device):
    tile, low = tile_of(shape)
    high = tuple(each + 0.5 for each in low)
    there, limits, ends = tile.to(device), [each.to(device) for each in low], [each.to(device) for each in high]
    assert entries(compact.above(there, *limits, room=2**13), tile) == wanted(tile, low)
    between = compact.between(there, *zip(limits, ends, strict=True), room=2**13)
    assert entries(between, tile) == wanted(tile, low, high)
    assert entries(compact.above(there, limits[0]), tile) == {each for each in wanted(tile, low) if each[2] == 0}
    assert entries(compact.above(there, None, limits[1]), tile) == {each for each in wanted(tile, low) if each[2] == 1}
    assert not bool(between.short)
    mask = tile < 0
    marked = compact.marked(there, mask.to(device), room=tile.numel())
    assert entries(marked, tile) == {(i, j, 0) for i, j in mask.nonzero().tolist()}


def test_what_is_no_entry_says_so():
    tile, low = tile_of((40, 65))
    found = compact.above(tile.to(DEVICE), low[0].to(DEVICE), room=512)
    row, column, score, side = (each.cpu() for each in (found.row, found.column, found.score, found.side))
    none = row < 0
    assert len(row) == 512 and 0 < none.sum() < 512
    assert (column[none] == -1).all() and (score[none] == -torch.inf).all() and (side[none] == 0).all()
    assert torch.equal(found.places[0].cpu(), row.clamp(min=0)) and (found.places[1].cpu()[none] == 0).all()
    moved = found.moved(1000, 2000)
    assert torch.equal(moved.row.cpu(), torch.where(none, -1, row + 1000))
    assert torch.equal(moved.column.cpu(), torch.where(none, -1, column + 2000))


@pytest.mark.parametrize("name", ["above", "between"])
def test_a_list_says_that_it_is_short_and_a_patient_one_is_not(name):
    tile, low = tile_of((129, 300))
    number = sum(side == 0 for *_, side in wanted(tile, low))
    there, limit = tile.to(DEVICE), low[0].to(DEVICE)
    ends = (limit, torch.full_like(limit, torch.inf)) if name == "between" else limit
    listed = getattr(compact, name)
    for room, short in ((number, False), (number - 1, True), (1, True)):
        found = listed(there, ends, room=room)
        assert bool(found.short) == short and len(found.row) == room
        assert entries(found, tile) <= wanted(tile, low)
    found = listed(there, ends, room=1, patient=True)
    assert not bool(found.short) and len(found.row) == number


def test_no_list_waits_for_the_device():
    tile, low = tile_of((256, 384))
    there, limits = tile.to(DEVICE), [each.to(DEVICE) for each in low]
    with waits() as noted:
        compact.above(there, *limits)
        compact.between(there, (limits[0], limits[0] + 1), (limits[1], limits[1] + 1))
    assert noted == []
    with waits() as noted:
        compact.above(there, *limits, patient=True)
    assert {each.operation for each in noted} == {"nonzero"} and not any(each.upload for each in noted)
    assert all(each.place.startswith("engine/compact.py") for each in noted)
