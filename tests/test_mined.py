"""Losses that keep the hardest negatives, of a query or of a batch, against dense float64 scores."""

import functools
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import normalize

import reference
from cocos import engine, losses
from cocos.base.errors import InputError
from cocos.counting import statistics, weights
from cocos.embeddings import Embeddings, scores
from cocos.embeddings.batches import Batch
from cocos.engine import readers
from cocos.engine.kernel import structs
from cocos.engine.primitives import kept as hardest
from cocos.engine.primitives import kth
from cocos.engine.primitives.exponentials import Exponentials
from cocos.engine.readers import cross_example
from cocos.engine.readers.mining import Mining
from cocos.engine.readers.softmax import SoftmaxReader

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


@functools.cache
def scored(embeddings, batches):
    sides = [[alike(embeddings, each) for each in batches]]
    if len(embeddings.directions) == 2:
        sides.append([alike(embeddings.flip(), each and each.flip()) for each in batches])
    return sides


def dense(given):
    """Of each direction, scores in float64 of each batch."""
    embeddings, batches = given
    return scored(embeddings, tuple(batches) if isinstance(batches, list) else (batches,))


@functools.lru_cache(maxsize=200)
def weighed(loss, pairs):
    return weights.of(loss, pairs), loss.unit(pairs)


def alike(embeddings, batch):
    pairs = scores.pairs(embeddings.to(dtype=torch.float64), batch)
    return replace(pairs, scores=reference.alike(pairs.embeddings, "cosine"))


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
    weight, unit = weighed(loss, pairs)
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


SOME = ("random", "labelled", "duplicates", "no negative", "stack")  # of the sets, without a kernel


@pytest.fixture(params=["kernel", "torch"])
def route(request, monkeypatch):
    if request.param == "torch":
        if request.node.callspec.params.get("name", "random") not in SOME:
            pytest.skip("with the kernel")
        monkeypatch.setattr(structs, "loaded", lambda: None)
    elif structs.loaded() is None:
        pytest.skip("there is no C compiler")


@pytest.fixture
def narrow(monkeypatch):
    """Brackets are guessed from few candidates and may hold few negatives, so they are counted and counted again."""
    monkeypatch.setattr(kth, "SAMPLED_CANDIDATES", 60)
    monkeypatch.setattr(kth, "SAMPLED_AT_ONCE", 60 * 70)
    monkeypatch.setattr(kth, "SAMPLED_PAIRS_PER_BATCH", 64)
    monkeypatch.setattr(kth, "SAMPLED_PAIRS", 64)
    monkeypatch.setattr(kth, "MAX_LISTED_NEGATIVES", (0, 10))


@pytest.mark.parametrize("name", SETS)
def test_mining_of_every_query_from_a_sample(route, name):
    for fraction, eps in zip(FRACTIONS, (0.01, 1e-4, 0.01, 0.01), strict=True):
        check(visited(SETS[name], snm(fraction), eps), SETS[name], snm(fraction), eps)


@pytest.mark.parametrize("name", SETS)
def test_mining_of_every_query_after_counting(route, narrow, name):
    for fraction, eps in ASKED[:: 1 if name in SOME else 2]:
        check(visited(SETS[name], snm(fraction), eps, relative=eps > 0), SETS[name], snm(fraction), eps)


CROSS = {
    "all": losses.load("ce_softmax"),
    "sharp": losses.load("ce_softmax", {"scale": 200.0}),
    "half": losses.load("ce_nm"),
    "few": losses.load("ce_nm", {"fraction": 0.003}),
    "most": losses.load("ce_nm", {"fraction": 0.9, "scale": 5.0}),
}


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("kind", CROSS)
def test_sums_over_a_batch(route, kind, name):
    """At another scale or fraction than the defaults, of the sets that have something of each other."""
    if kind not in {"all", "half"} and name not in SOME:
        pytest.skip("with the defaults")
    loss = CROSS[kind]
    rounding = ROUNDING * max(1, loss.scale / 20)
    for eps, relative in ((0.01, False), (1e-4, True), *[(0.0, False)] * (name in SOME)):
        check(visited(SETS[name], loss, eps, relative=relative), SETS[name], loss, eps, rounding=rounding)


@pytest.mark.parametrize("scale", [1.0, 100.0, 400.0])
def test_any_scale(route, narrow, scale):
    for name in ("random", "labelled"):
        given, loss = SETS[name], snm(0.3, scale)
        check(visited(given, loss, 0.01), given, loss, 0.01, rounding=ROUNDING * scale)


def test_a_whole_fraction_is_a_softmax():
    assert type(readers.of(snm(1.0))) is SoftmaxReader and type(readers.of(snm(0.5))) is Mining


def test_too_many_equal_pairs_are_refused(monkeypatch):
    monkeypatch.setattr(kth, "MAX_LISTED_NEGATIVES", (0, 3))
    with pytest.raises(InputError, match="too many pairs have the score of the last one that it keeps"):
        visited(SETS["collapsed"], CROSS["half"], 0.01)


def test_an_uncertain_sum_of_a_large_batch_stays_uncertain(monkeypatch):
    monkeypatch.setattr(cross_example, "EXACT_SUM_PAIRS", 0)
    given, loss = SETS["random"], CROSS["all"]
    pairs = dense(given)[0][0]
    share = weights.of(loss, pairs) / loss.unit(pairs)
    eps = share[0, 1:].max().item() * (1 + 1e-7)
    found = visited(given, loss, eps)[0]
    right = ((share > eps) & pairs.negative).sum(dim=1)
    assert found["uncertain"][0] > 0 and ((found["contributing"] - right).abs() <= found["uncertain"]).all()


def test_negatives_that_are_too_many_to_note_are_counted_in_another_pass(route, narrow, monkeypatch):
    monkeypatch.setattr(Exponentials, "note", lambda self, k, *_: self.give_up(k))
    for name in ("random", "labelled"):
        for fraction, eps in ASKED[:4]:
            check(visited(SETS[name], snm(fraction), eps), SETS[name], snm(fraction), eps)
        for loss in (CROSS["half"], CROSS["all"]):
            check(visited(SETS[name], loss, 1e-3), SETS[name], loss, 1e-3)


@pytest.mark.parametrize("spills", [False, True])
@pytest.mark.parametrize("eps", [0.02, 0.02 * (1 - 1e-12)])
def test_a_share_of_eps_is_uncertain(route, monkeypatch, eps, spills):
    """The positive and 49 kept negatives score the same: each has a share of 1/50 = eps."""
    monkeypatch.setattr(SoftmaxReader, "_reweigh_uncertain", lambda *_: None)
    if spills:
        monkeypatch.setattr(Exponentials, "note", lambda self, k, *_: self.give_up(k))
    for mine in visited((Embeddings(SAME[:99], SAME[:99]), None), snm(0.5), eps):
        assert (mine["uncertain"] == 49).all()
        assert ((mine["contributing"] == 0) | (mine["contributing"] == 49)).all()


@pytest.fixture
def lost(monkeypatch):
    """Numbers of owners whose last negative was not found."""
    found, honest = [], kth.settled

    def watched(*given, **more):
        kept = honest(*given, **more)
        found.append(int(kept[0].lost.sum()))
        return kept

    monkeypatch.setattr(hardest, "settled", watched)
    return found


@pytest.mark.parametrize("ends", [(0.8, 0.81), (-0.9, -0.89), (0.2, 0.2), (-2.0, 2.0)], ids=str)
def test_a_wrong_guess_of_what_a_batch_keeps_is_found_out(route, monkeypatch, lost, ends):
    """The last pair kept is looked for between two scores: here where it is not, or among all pairs."""

    def wrong(view, direction, bracket):
        level = torch.linspace(*ends, 12).expand(len(bracket.keep), 12)
        return level.where(bracket.sought[:, None], torch.inf), torch.zeros(len(bracket.keep), dtype=torch.float64)

    monkeypatch.setattr(kth, "_levels_from_sample", wrong)
    for fraction in (0.001, 0.7):
        loss = losses.load("ce_nm", {"fraction": fraction})
        for name in ("random", "labelled", "stack"):
            check(visited(SETS[name], loss, 1e-3), SETS[name], loss, 1e-3)
    assert any(lost) or ends == (-2.0, 2.0)
