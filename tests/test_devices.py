"""Passes on a device that runs ahead of the host: the host's counts, and one wait for each part."""

import pytest
import torch

import pretended
from cocos import Embeddings, engine, losses
from cocos.engine import compact, readers, sweep
from cocos.engine.primitives.histogram import Bins, Ladder
from cocos.engine.primitives.threshold import Threshold

TILE = (64, 96)  # several tiles in a part
OTHERS = ("labelled", "proxies")
LOSSES = {  # a softmax over all negatives, one with wide exponents, and the other families that have a reader
    **{name: {} for name in ("ntxent", "supcon", "triplet", "triplet_sh", "ce_softmax", "snm", "smoothap", "siglip")},
    "ce_nm": {"fraction": 0.3},
    "ntxent cold": {"temperature": 0.003},
}


def embeddings(kind, number=300):
    """Rows in random order of their groups; `near`: many scores differ by roundings alone; `unit`: norms of 1."""
    generator = torch.Generator().manual_seed(7)
    group = torch.arange(number)[torch.randperm(number, generator=generator)] % 60
    centre = torch.randn(60, 12, generator=generator)
    query = centre[group] + torch.randn(number, 12, generator=generator)
    if kind == "labelled":
        return Embeddings.labelled(query, group)
    if kind == "proxies":
        return Embeddings(query, centre, group, torch.arange(60), ("s2p",))
    if kind == "unit":
        unit = torch.nn.functional.normalize(query)
        return Embeddings(unit, torch.nn.functional.normalize(unit + query.flip(0)))
    if kind == "near":
        query = query[:5][group % 5] * (1 + 1e-7 * torch.randn(number, 1, generator=generator))
    return Embeddings(query, query.flip(0), group, group.flip(0))


def warm(view):
    """What a view works out once, for its first tile and its first pair, is not counted."""
    tile = next(sweep.tiles_of(view, TILE, sweep.parts_of(view)[0]))
    view.exact(*tile.between(None, (tile.scores[0], None)).places)


def levels(view):
    """Two levels of each query: one that a score of the view is on, and one that none is near."""
    made = []
    for direction in view.directions:
        exact = next(each for _, _, each in view.exact_rows(direction, torch.arange(1, device=view.device)))
        level = exact[0].masked_fill(exact[0] == -torch.inf, 0).sort().values[-5]
        made.append(torch.stack([level, level + 0.1]).expand(len(view.sides[direction]), 2))
    return made


def thresholds(view):
    return [Threshold(view, levels(view))]


def found(result):
    """Tensors of a result, in their order, on the host."""
    if isinstance(result, torch.Tensor):
        return [result.cpu()]
    if isinstance(result, dict):
        return [each for name in sorted(result) for each in found(result[name])]
    if isinstance(result, list | tuple):
        return [each for some in result for each in found(some)]
    return found(vars(result)) if hasattr(result, "__dict__") else []


def ladders(view):
    return [Ladder(view, levels(view)[0][0].repeat_interleave(2)), Bins(view, 20, -1.0, 0.1)]


PRIMITIVES = {"threshold": thresholds, "ladder": ladders}


@pytest.mark.parametrize("kind", ["pairs", "unit", "labelled", "proxies"])
@pytest.mark.parametrize("name", PRIMITIVES)
def test_a_pass_finds_what_the_host_finds_and_waits_once_a_part(name, kind):
    data = embeddings(kind)
    host = engine.view(data)
    expected = engine.run(host, PRIMITIVES[name](host))
    view = engine.view(pretended.moved(data))
    readers = PRIMITIVES[name](view)
    warm(view)
    with pretended.waits() as noted:
        results = engine.run(view, readers, tile=TILE)
    for one, other in zip(found(expected), found(results), strict=True):
        assert torch.equal(one, other) if one.dtype == torch.int64 else torch.allclose(one, other)
    most = len(sweep.parts_of(view))
    assert [each.place.split()[1] for each in noted] == ["_show_tiles"] * most, noted


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, "pairs") for name in LOSSES] + [(name, kind) for name in ("ntxent", "smoothap") for kind in OTHERS],
)
def test_the_reader_of_a_loss_never_waits_within_a_part(monkeypatch, name, kind):
    data, passes, visit = embeddings(kind, 130), [], sweep._visit
    loss = losses.load(name.split()[0], LOSSES[name])
    host = engine.view(data)
    (expected,) = engine.run(host, [readers.of(loss)])
    monkeypatch.setattr(sweep, "_visit", lambda *each: (passes.append(each), visit(*each))[1])
    view = engine.view(pretended.moved(data))
    warm(view)
    with pretended.waits() as noted:
        (results,) = engine.run(view, [readers.of(loss)], tile=TILE)
    for one, other in zip(expected, results, strict=True):
        assert (one["contributing"] > 0).any() and set(one) == set(other)
        assert torch.equal(one["contributing"], other["contributing"].cpu())
        for key in one:
            assert torch.allclose(one[key].double(), other[key].cpu().double(), rtol=1e-3, atol=1e-4), key
    inside = [each for each in noted if "_show_tiles" in each.within]
    assert {each.place.split()[1] for each in inside} <= {"_show_tiles"}
    assert len(inside) <= len(passes) * len(sweep.parts_of(view))


@pytest.mark.parametrize("room", [1, 3])
def test_a_part_whose_lists_were_short_is_seen_again(monkeypatch, room):
    """Lists of one entry are too short where several scores are on a level; patient ones take as many as there are."""
    data = embeddings("near")
    host = engine.view(data)
    (expected,) = engine.run(host, thresholds(host))
    assert max(int(ties.max()) for ties in expected.ties) > 3
    real, asked = compact.between, []

    def short(*arguments, patient, **_):
        asked.append(patient)
        return real(*arguments, patient=patient, room=room)

    monkeypatch.setattr(compact, "between", short)
    view = engine.view(pretended.moved(data))
    (result,) = engine.run(view, thresholds(view), tile=TILE)
    assert True in asked and False in asked
    for one, other in zip(found(expected), found(result), strict=True):
        assert torch.equal(one, other)
