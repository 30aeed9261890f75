"""What a GPU is asked for: lists of fixed length, and no wait in between, give what a CPU finds."""

import pytest
import torch

from cocos import Embeddings, losses, readers, sweep, tiles
from cocos.tiles import _build, _plain

ASKED = {  # parameters and eps
    **{name: ({}, 0.01) for name in ("ntxent", "supcon", "ce_softmax", "snm", "triplet", "triplet_sh", "smoothap")},
    "ce_nm": ({"fraction": 0.3}, 1e-4),
}


def sides(size=220, noise=1.0):
    generator = torch.Generator().manual_seed(7)
    query = torch.randn(size // 2, 12, generator=generator)
    group = torch.arange(size) % len(query)
    candidate = query[group] + noise * torch.randn(size, 12, generator=generator)
    return Embeddings(query, candidate, torch.arange(len(query)), group)


def found(name):
    parameters, eps = ASKED[name]
    asked = [readers.of(losses.load(name, parameters), eps), readers.Ranks()]
    return sweep.run(sweep.view(sides()), asked, tile=(32, 48))


@pytest.mark.parametrize("room", [2**16, 40, 2])
@pytest.mark.parametrize("name", ASKED)
def test_lists_of_fixed_length_lose_nothing(monkeypatch, name, room):
    """With 40 places a tile the lists are too short: what they hold is then looked for by other means."""
    monkeypatch.setattr(_build, "loaded", lambda: None)
    expected, ranks = found(name)
    monkeypatch.setattr(tiles, "ahead", lambda device: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    monkeypatch.setattr(_plain, "ROOM", room)
    got, again = found(name)
    for one, other in zip(expected, got, strict=True):
        assert (one["uncertain"] == 0).all() and (one["contributing"] > 0).any()
        for key in set(one) & set(other):
            assert torch.allclose(one[key].double(), other[key].double(), rtol=1e-4, atol=1e-5), key
        assert torch.equal(one["contributing"], other["contributing"])
    for one, other in zip(ranks, again, strict=True):
        assert torch.equal(one.above, other.above) and torch.equal(one.ties, other.ties)


@pytest.mark.parametrize("room", [2**16, 3, 1])
def test_precision_is_that_of_lists_that_are_waited_for(monkeypatch, room):
    """Of 15 tiles some hold no pair that matters, some a few, and some more than one in 256."""
    monkeypatch.setattr(_build, "loaded", lambda: None)
    view, scored = sweep.view(sides(noise=0.35)), sweep.View.exact_tile

    def curve():
        held.clear()
        return sweep.run(view, [readers.PrecisionRecall()], tile=(40, 48))[0]

    held = []
    monkeypatch.setattr(sweep.View, "exact_tile", lambda self, *where: (held.append(where), scored(self, *where))[1])
    expected, before = curve(), len(held)
    assert 0 < before < 15 and expected.negatives.any()
    monkeypatch.setattr(tiles, "ahead", lambda device: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    monkeypatch.setattr(_plain, "ROOM", room)
    assert torch.equal(curve().negatives, expected.negatives)
    assert len(held) > before if room == 1 else len(held) >= before


def test_nothing_of_a_tile_is_asked_for_in_between(monkeypatch):
    """No tensor becomes a number, or a list as long as it happens to be, while tiles are visited."""
    monkeypatch.setattr(_build, "loaded", lambda: None)
    monkeypatch.setattr(tiles, "ahead", lambda device: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    view = sweep.view(sides())
    wanted = [readers.of(losses.load(name, p)) for name, p in (("ntxent", {}), ("ntxent", {"temperature": 0.01}))]
    wanted += [readers.of(losses.load(name, ASKED[name][0])) for name in ("triplet", "ce_nm", "snm", "smoothap")]
    wanted += [readers.PrecisionRecall(), readers.Histogram(), readers.Ranks()]
    for reader in wanted:
        reader.begin(view)
    parts = sweep.parts_of(view, (64, 128))
    every = [(tile.clone(), *where) for part in parts for tile, *where in sweep.tiles_of(view, (64, 128), part)]
    assert 2 <= len(every) < 16

    def waits(self, *_, **__):
        raise AssertionError("the host waits for the device")

    for name in ("item", "tolist", "nonzero", "__bool__", "__int__", "__float__", "__index__", "cpu", "numpy"):
        monkeypatch.setattr(torch.Tensor, name, waits)
    for tile, rows, columns in every:
        for reader in wanted:
            reader.tile(tile, rows, columns)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("spread", [False, True])
def test_what_a_compiler_makes_of_the_sums_is_the_same(spread, wide):
    """The graph that torch.compile fuses on a GPU, captured whole, and run function by function."""
    generator = torch.Generator().manual_seed(1)
    tile = torch.randn(40, 64, generator=generator) / 4
    tile[3, 5] = -torch.inf
    references = (tile.amax(dim=1).mul(20).ceil(), tile.amax(dim=0).mul(20).ceil()) if wide else None
    floors = (torch.full((40,), -0.2), torch.full((64,), -0.1)) if spread else None
    compiled = torch.compile(_plain.both, backend="aot_eager", fullgraph=True)
    arguments = (tile, 20.0, references, floors, spread, True)
    for one, other in zip(_plain.both(*arguments), compiled(*arguments), strict=True):
        assert torch.allclose(one, other, rtol=1e-6)
