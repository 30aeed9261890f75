"""SmoothAP through the engine against dense float64: the loss's own weights, Eq. 7, and how the push is spread."""

import functools

import pytest
import torch
from torch.nn.functional import normalize

from cocos import Embeddings, engine, losses
from cocos.counting import statistics
from cocos.embeddings import scores
from cocos.embeddings.batches import Batch
from cocos.engine import fused, readers, sweep
from cocos.engine.kernel import structs
from cocos.engine.readers import smooth_ap
from cocos.losses.smoothap import SmoothAP

TIE = 1e-9  # relative difference of a share and eps below which float64 sums, in any order, need not agree
ROUNDING = 4e-7  # of a float32 score of unit vectors, as measured
LEFT_OUT = 1e-6  # share of all the candidates that a reader leaves out as too far
SUMS = ("weight_above", "weight_below", "weight_positive", "push", "pull")
SPREAD = ("effective", "participation", "hardest_share")


@pytest.fixture(params=["compiled", "plain"])
def kernel(request, monkeypatch):
    if request.param == "compiled" and structs.loaded() is None:
        pytest.skip("there is no compiled kernel")
    if request.param == "plain":
        monkeypatch.setattr(fused, "serves", lambda view, reader: False)
    return request.param


def drawn(number, width, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return normalize(torch.randn(number, width, generator=generator, dtype=torch.float64), dim=1)


def captions(size, many, noise, *, width=24, seed=0):
    """Unit queries, and `many` candidates about each."""
    query = drawn(size, width, seed)
    candidate = query.repeat_interleave(many, dim=0) + noise * drawn(size * many, width, seed + 1)
    group = torch.arange(size)
    return Embeddings(query.float(), normalize(candidate, dim=1).float(), group, group.repeat_interleave(many))


@functools.cache
def inputs():
    """Kinds of input, by name."""
    same, labels = torch.full((40, 8), 0.3), torch.arange(90) % 9
    uneven = torch.cat([torch.zeros(30), torch.ones(8), torch.arange(2, 24)]).long()
    near = captions(12, 2, 1.0)
    return {
        "captions": captions(40, 5, 1.0),
        "far": captions(40, 3, 0.2),
        "hard": captions(150, 3, 4.0),
        "labelled": Embeddings.labelled(normalize(drawn(9, 16)[labels] + drawn(90, 16, 5), dim=1).float(), labels),
        "uneven": Embeddings.labelled(drawn(60, 12, 6).float(), uneven),
        "equal": Embeddings(same, same),
        "duplicates": Embeddings(near.query.repeat(5, 1), near.candidate[::2].repeat(5, 1)),
    }


def truth(loss, embeddings, eps, batch=None):
    """Dense float64: of each direction the pairs and all statistics."""
    sides = [(embeddings, batch)]
    if len(embeddings.directions) == 2:
        sides.append((embeddings.flip(), batch and batch.flip()))
    for side, some in sides:
        pairs = scores.pairs(side.to(dtype=torch.float64), some)
        weight, unit = loss.weight(pairs), loss.unit(pairs)
        right = statistics.per_query(weight, unit, pairs, eps, equal=TIE)
        yield pairs, right | {"eq7": loss.eq7(pairs, eps)}


def terms_at(pairs, temperature, eps):
    """Queries with a term of Eq. 7 that is eps, as near as float64 tells, (Q,) bool."""
    ends = [SmoothAP(temperature).eq7(pairs, eps * (1 + sign * TIE)) for sign in (-1, 1)]
    return ends[0] != ends[1]


def check(found, loss, eps, embeddings, what, batch=None):
    """All numbers of all directions; the number of negatives that count."""
    counted = 0
    for k, (mine, (pairs, right)) in enumerate(zip(found, truth(loss, embeddings, eps, batch), strict=True)):
        where, counted = f"{what}, eps {eps}, {loss}, direction {k}", counted + int(right["contributing"].sum())
        for name, doubt in (("contributing", "uncertain"), ("relative", "relative_uncertain")):
            if name in mine:
                assert ((mine[name] - right[name]).abs() <= mine[doubt]).all(), f"{where}: {name}"
                assert (mine[doubt] <= right[doubt]).all(), f"{where}: {name} is not decided"
        off = mine["eq7"] != right["eq7"]
        assert not (off & ~terms_at(pairs, loss.temperature, eps)).any(), f"{where}: eq7"
        assert torch.equal(mine["negatives"], pairs.negative.sum(dim=1))
        room = 1e-5 + 8 * ROUNDING / loss.temperature
        unit = 1 / loss.temperature
        for name in SUMS:
            scale = unit if name in {"push", "pull"} else 1.0
            whole = right["weight_above"] + right["weight_below"] if name.startswith("weight") else right[name]
            moved = right["uncertain"] * eps * (1 + TIE) if name in {"weight_above", "weight_below"} else 0
            off = (mine[name] - right[name]).abs()
            assert (off <= room * whole + scale * LEFT_OUT + moved).all(), f"{where}: {name} is off by {off.max():.3g}"
        active = right["effective"] > 0
        for name in (name for name in SPREAD if name in mine):
            least = 1.0 if name == "effective" else 0.0
            off = (mine[name] - right[name]).abs() / right[name].clamp(min=least or 1e-9)
            assert not off[active].isnan().any() and (off[active] <= 10 * room).all(), f"{where}: {name}"
            assert not mine[name][~active].any(), f"{where}: {name} without a push"
    return counted


def read(embeddings, loss, eps, batches=None, *, whole=True, product="float32", tile=None):
    view = engine.view(embeddings, batches, product=product)
    return engine.run(view, [readers.of(loss, eps, spread=whole, relative=whole)], tile=tile)[0]


def smooth(temperature=0.01):
    return losses.load("smoothap", {"temperature": temperature})


@pytest.mark.parametrize("whole", [True, False], ids=["spread", "counts"])
@pytest.mark.parametrize("kind", ["captions", "far", "uneven", "equal"])
def test_every_number_is_that_of_dense_float64(kernel, kind, whole):
    """At other temperatures and thresholds than those at which tests/test_engine.py sees every kind of input."""
    for temperature, eps in ((0.002, 0.01), (0.05, 1e-3), (1.0, 1e-4)):
        loss = smooth(temperature)
        found = read(inputs()[kind], loss, eps, whole=whole, tile=(32, 48) if kernel == "plain" else None)
        check(found, loss, eps, inputs()[kind], kind)


@pytest.mark.parametrize("temperature", [1e-6, 1e-4, 100.0])
def test_temperatures_that_are_tiny_or_huge(kernel, temperature):
    for kind in ("captions", "labelled", "equal", "duplicates"):
        for eps in (0.01, 1e-6):
            found = read(inputs()[kind], smooth(temperature), eps, whole=temperature > 1e-5)
            for mine, (_, right) in zip(found, truth(smooth(temperature), inputs()[kind], eps), strict=True):
                assert ((mine["contributing"] - right["contributing"]).abs() <= mine["uncertain"]).all()


@pytest.mark.parametrize("eps", [1e-7, 1e-12, 1e-17, 1e-19, 1e-40, 0.0])
def test_an_eps_that_is_tiny(kernel, eps):
    """σ (1 - σ) rounds to 0 where σ rounds to 1, and leaves the range of float32."""
    loss, embeddings = smooth(0.004), inputs()["labelled"]
    for mine, (_, right) in zip(read(embeddings, loss, eps), truth(loss, embeddings, eps), strict=True):
        assert ((mine["contributing"] - right["contributing"]).abs() <= mine["uncertain"]).all()
        assert torch.equal(mine["eq7"], right["eq7"]) and mine["contributing"].sum() > 0


def test_shares_next_to_eps(kernel):
    """Float32 scores change a share by 1e-4 of itself; eps is 5e-6 of a share away from it."""
    embeddings, tried = captions(12, 3, 2.0), 0
    pairs = scores.pairs(embeddings.to(dtype=torch.float64))
    loss = smooth()
    share = loss.weight(pairs).abs() / loss.unit(pairs)
    for value in share[pairs.negative].sort(descending=True).values[:30:3].tolist():
        for eps in (value * (1 - 5e-6), value * (1 + 5e-6), value):
            for whole in (True, False):
                tried += check(read(embeddings, loss, eps, whole=whole), loss, eps, embeddings, "next to eps") > 0
    assert tried >= 58


def test_equal_scores_count_all_or_none(kernel):
    """Eight equal scores, one of them positive: every slope is 1/4, every rank 9/2, so every share is 1/(4·4.5²)."""
    same = normalize(torch.ones(8, 16), dim=1)
    share = 0.25 / 4.5**2
    for eps, certain, unsure in ((share * 0.99, 7, 0), (share * 1.01, 0, 0), (share, 0, 7)):
        for side in read(Embeddings(same, same), smooth(0.05), eps):
            if unsure:
                assert (side["contributing"] + side["uncertain"] >= unsure).all()
            else:
                assert (side["contributing"] == certain).all() and not side["uncertain"].any()


def stacked(sizes, many=5, noise=3.0):
    """Captions in batches of some sizes, drawn without replacement."""
    embeddings = captions(sum(sizes), many, noise, width=32)
    order, batches, start = torch.randperm(sum(sizes), generator=torch.Generator().manual_seed(2)), [], 0
    for size in sizes:
        some = order[start : start + size]
        start += size
        batches.append(Batch(some, (some[:, None] * many + torch.arange(many)).flatten(), paired=False))
    return embeddings, batches


@pytest.mark.parametrize("whole", [True, False], ids=["spread", "counts"])
def test_a_second_pass_is_made_where_a_negative_may_count(kernel, whole, monkeypatch):
    passes, visit = [], sweep._visit
    monkeypatch.setattr(sweep, "_visit", lambda *given: passes.append(1) or visit(*given))
    for kind, number in (("far", 1), ("captions", 2)):
        passes.clear()
        found = read(inputs()[kind], smooth(), 0.01, whole=whole)
        assert len(passes) == number, kind
        assert (check(found, smooth(), 0.01, inputs()[kind], kind) > 0) == (number > 1)


def test_what_is_not_looked_at_again_is_uncertain(kernel, monkeypatch):
    embeddings = captions(60, 3, 3.0)
    monkeypatch.setattr(smooth_ap, "REWEIGHED", (2**40, 0))
    found, unsure = read(embeddings, smooth(0.002), 0.01), 0
    for mine, (_, right) in zip(found, truth(smooth(0.002), embeddings, 0.01), strict=True):
        for name, doubt in (("contributing", "uncertain"), ("relative", "relative_uncertain")):
            assert ((mine[name] - right[name]).abs() <= mine[doubt]).all()
            unsure += int(mine[doubt].sum())
    assert unsure > 0


def test_many_positives_are_held(kernel, monkeypatch):
    """With more than `MOST` positives the rows of scores are weighed whole."""
    monkeypatch.setattr(smooth_ap, "MAX_POSITIVES", 4)
    assert check(read(inputs()["captions"], smooth(), 0.01), smooth(), 0.01, inputs()["captions"], "held") > 0
