"""Losses that keep the hardest negatives, of a query or of a batch, against dense float64 scores."""

import pytest
import torch
from torch.nn.functional import normalize

from cocos import engine, losses, scores, statistics, weights
from cocos.batches import Batch
from cocos.embeddings import Embeddings
from cocos.engine import readers
from cocos.engine.kernel import structs
from cocos.engine.primitives import brackets, kth

FRACTIONS = (0.5, 0.01, 0.9, 0.29)
ASKED = ((0.5, 0.01), (0.5, 1e-4), (0.01, 0.01), (0.01, 1e-4), (0.9, 0.0), (0.29, 0.5))  # fraction, eps
ROUNDING = 5e-5  # of sums: scores of float32 are off by up to 4e-7, and the scale is 20
TIE = 1e-9  # relative difference of a share and eps that float64 sums in another order may turn
WHOLE = ("contributing", "negatives", "uncertain", "relative", "relative_uncertain")


def drawn(number, width, seed=0):
    return normalize(torch.randn(number, width, generator=torch.Generator().manual_seed(seed)), dim=1)


def near(centre, seed, noise=2.0):
    return normalize(centre + noise * drawn(*centre.shape, seed), dim=1)


def pairs_of(number, width):
    query = drawn(number, width)
    return query, near(query, 1)


def batch(start, size):
    return Batch(torch.arange(start, start + size), torch.arange(start, start + size), True)


QUERY, CANDIDATE = pairs_of(400, 16)
CLASSES = torch.cat([torch.zeros(90), torch.ones(30), torch.arange(2, 82).repeat(2)]).long()  # unequal in size
TWINS = torch.arange(400) // 2
SAME = torch.full((120, 8), 0.3)
SETS = {
    "random": (Embeddings(*pairs_of(300, 32)), None),
    "groups": (Embeddings(QUERY[:80], CANDIDATE, torch.arange(80), torch.arange(400) % 80), None),
    "labelled": (Embeddings.labelled(QUERY[:280], CLASSES), None),
    "proxies": (Embeddings.labelled(QUERY, torch.arange(400) % 90, CANDIDATE[:90]), None),
    "duplicates": (Embeddings(QUERY[:40].repeat(8, 1), CANDIDATE[:40].repeat(8, 1)), None),
    "near duplicates": (Embeddings(near(QUERY[:40].repeat(8, 1), 3, 1e-6), CANDIDATE[:40].repeat(8, 1)), None),
    "collapsed": (Embeddings(SAME, SAME), None),
    "paired": (Embeddings(QUERY, CANDIDATE, TWINS, TWINS), batch(0, 300)),
    "few": (Embeddings(QUERY[:5], CANDIDATE[:300], torch.arange(5), torch.arange(300)), None),
    "one negative": (Embeddings(QUERY[:2], CANDIDATE[:2]), None),
    "no negative": (Embeddings(QUERY[:40], CANDIDATE[:9], torch.arange(40) // 30, torch.zeros(9).long()), None),
    "no positive": (Embeddings(QUERY[:60], CANDIDATE[:90], torch.arange(60), torch.arange(90) + 20), None),
    "stack": (Embeddings(QUERY, CANDIDATE), [batch(0, 100), batch(100, 64), batch(164, 2), batch(166, 200)]),
}


def snm(fraction, scale=20.0):
    return losses.load("snm", {"fraction": fraction, "scale": scale})


def visited(given, loss, eps, *, product="float32", tile=None, **wanted):
    reader = readers.of(loss, eps, **wanted)
    return engine.run(engine.view(*given, metric=loss.metric, product=product), [reader], tile=tile)[0]


def dense(given):
    """Of each direction, scores in float64 of each batch."""
    embeddings, batches = given
    batches = batches if isinstance(batches, list) else [batches]
    yield [scores.pairs(embeddings.to(dtype=torch.float64), each) for each in batches]
    if len(embeddings.directions) == 2:
        yield [scores.pairs(embeddings.flip().to(dtype=torch.float64), each and each.flip()) for each in batches]


def check(found, given, loss, eps, *, rounding=ROUNDING):
    """Counts are right, save of shares that are eps to the last digits; sums are as near as the scores."""
    for mine, every in zip(found, dense(given), strict=True):
        start = 0
        for pairs in every:
            stop = start + len(pairs.scores)
            checked({name: values[start:stop] for name, values in mine.items()}, pairs, loss, eps, rounding)
            start = stop
        assert all(len(values) == start for values in mine.values())


def checked(mine, pairs, loss, eps, rounding):
    weight = weights.of(loss, pairs)
    unit = loss.unit(pairs)
    share, right = weight.abs() / unit, statistics.per_query(weight, unit, pairs, eps)
    ties = (((share - eps).abs() <= TIE * eps) & pairs.negative & (share > 0)).sum(dim=1)
    assert (mine["uncertain"] <= ties).all()
    assert ((mine["contributing"] - right["contributing"]).abs() <= mine["uncertain"]).all()
    assert torch.equal(mine["negatives"], pairs.negative.sum(dim=1))
    if "relative" in mine:
        assert ((mine["relative"] - right["relative"]).abs() <= mine["relative_uncertain"]).all()
    moved = eps * mine["uncertain"]
    for name in mine.keys() - set(WHOLE):
        room = rounding * (1 + right[name].abs()) + (moved if "weight" in name else 0)
        if name == "weight_below":  # a difference
            room = room + rounding * right["weight_above"]
        assert ((mine[name] - right[name]).abs() <= room).all(), name


@pytest.fixture(params=["kernel", "torch"])
def route(request, monkeypatch):
    if request.param == "torch":
        monkeypatch.setattr(structs, "loaded", lambda: None)
    elif structs.loaded() is None:
        pytest.skip("there is no C compiler")


@pytest.fixture
def narrow(monkeypatch):
    """Brackets are guessed from few candidates and may hold few negatives, so they are counted and counted again."""
    monkeypatch.setattr(brackets, "SAMPLE", 60)
    monkeypatch.setattr(brackets, "BLOCK", 60 * 70)
    monkeypatch.setattr(brackets, "FEWEST", 64)
    monkeypatch.setattr(brackets, "PAIRS", 64)
    monkeypatch.setattr(kth, "LISTED", (0, 10))


@pytest.fixture
def passes(monkeypatch):
    """Passes that went into narrowing."""
    made = []
    honest = kth._Above.__init__
    monkeypatch.setattr(kth._Above, "__init__", lambda self, *given: (made.append(self), honest(self, *given))[1])
    return made


@pytest.mark.parametrize("name", SETS)
def test_mining_of_every_query_from_a_sample(route, name):
    for fraction, eps in zip(FRACTIONS, (0.01, 1e-4, 0.01, 0.01), strict=True):
        check(visited(SETS[name], snm(fraction), eps), SETS[name], snm(fraction), eps)


@pytest.mark.parametrize("name", SETS)
def test_mining_of_every_query_after_counting(route, narrow, name):
    for fraction, eps in ASKED:
        check(visited(SETS[name], snm(fraction), eps, relative=eps > 0), SETS[name], snm(fraction), eps)


CROSS = {
    "all": losses.load("ce_softmax"),
    "sharp": losses.load("ce_softmax", {"scale": 200.0}),
    "half": losses.load("ce_nm"),
    "few": losses.load("ce_nm", {"fraction": 0.003}),
    "most": losses.load("ce_nm", {"fraction": 0.9, "scale": 5.0}),
    "whole": losses.load("ce_nm", {"fraction": 1.0}),
}


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("loss", CROSS.values(), ids=CROSS)
def test_sums_over_a_batch(route, loss, name):
    for eps in (0.01, 1e-4, 0.0):
        rounding = ROUNDING * loss.scale / 20
        check(visited(SETS[name], loss, eps, relative=eps > 0), SETS[name], loss, eps, rounding=max(ROUNDING, rounding))
