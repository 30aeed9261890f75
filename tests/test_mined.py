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
from cocos.engine.primitives.kept import number_kept
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


@pytest.fixture
def passes(monkeypatch):
    """Passes that went into narrowing."""
    made, honest = [], kth.Bracket.narrowed

    def counted(self, level, count):
        made.append(self)
        return honest(self, level, count)

    monkeypatch.setattr(kth.Bracket, "narrowed", counted)
    return made


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


def test_a_sample_is_enough_where_few_negatives_lie_about_the_last_one(passes):
    visited(SETS["random"], snm(0.5), 0.01)
    visited(SETS["random"], CROSS["half"], 0.01)
    assert not passes


@pytest.mark.parametrize("name", ["random", "groups", "collapsed"])
def test_one_pass_of_counts_narrows_brackets_to_what_can_be_listed(passes, monkeypatch, name):
    monkeypatch.setattr(kth, "SAMPLED_CANDIDATES", 60)
    monkeypatch.setattr(kth, "MAX_LISTED_NEGATIVES", (0, 20))
    visited(SETS[name], snm(0.5), 0.01)
    assert len(passes) == 2 * (1 + (name == "collapsed"))  # where scores are equal, one more does not help either


@pytest.mark.parametrize("tile", [(37, 48), (400, 400)])
def test_no_count_depends_on_the_tile(narrow, monkeypatch, tile):
    monkeypatch.setattr(structs, "loaded", lambda: None)
    given = SETS["groups"]
    for loss in (snm(0.2), CROSS["half"]):
        right, found = visited(given, loss, 0.01), visited(given, loss, 0.01, tile=tile)
        for mine, theirs in zip(found, right, strict=True):
            for name, values in mine.items():
                same = torch.equal if name in WHOLE else lambda a, b: torch.allclose(a, b, 1e-5, 1e-5)
                assert same(values, theirs[name]), name


@pytest.mark.parametrize("threads", [2, 3])
def test_every_bit_is_the_same_for_any_number_of_threads(narrow, threads):
    before, given = torch.get_num_threads(), SETS["groups"]
    for loss in (snm(0.2), CROSS["half"], CROSS["all"]):
        right = visited(given, loss, 0.01)
        try:
            torch.set_num_threads(threads)
            found = visited(given, loss, 0.01)
        finally:
            torch.set_num_threads(before)
        for mine, theirs in zip(found, right, strict=True):
            assert all(torch.equal(values, theirs[name]) for name, values in mine.items())


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


NEARER = Embeddings(near(QUERY[:40].repeat(8, 1), 3, 1e-7), CANDIDATE[:40].repeat(8, 1))


class Last:
    """The scores of the last negatives that are kept, of every query or of every batch."""

    def __init__(self, fraction, *, batch):
        self.fraction, self.batch = fraction, batch

    def passes(self, view):
        number = [view.negatives(k) for k in view.directions]
        if self.batch:
            number = [torch.stack([part.sum() for part in number[0].tensor_split(torch.from_numpy(view.rows[1:-1]))])]
        keeps = [number_kept(self.fraction, each) for each in number]
        of = view.block_of(0, torch.arange(len(view.sides[0]))) if self.batch else None
        found = yield from kth.bracketed(view, keeps, of)
        seen = yield kth.listing(view, found)
        kept = [kth.settled(view, k, each, seen)[0] for k, each in enumerate(found)]
        return keeps, number, kept  # noqa: B901 - the value that `run` gives


@pytest.mark.parametrize("batch", [False, True], ids=["query", "batch"])
@pytest.mark.parametrize("tight", [False, True])
@pytest.mark.parametrize("name", ["random", "labelled", "duplicates", "near duplicates", "nearer", "stack"])
def test_the_last_one_kept_is_the_one_of_float64(name, tight, batch, monkeypatch):
    """Where brackets are so tight that rounding may have moved it outside, nothing is said."""
    if tight:
        monkeypatch.setattr(kth.Bracket, "ends", lambda self, view: ((self.low + self.high) / 2 - 6e-8, self.high))
    for fraction in FRACTIONS:
        view = engine.view(*SETS.get(name, (NEARER, None)))
        keeps, number, found = engine.run(view, [Last(fraction, batch=batch)])[0]
        for k, kept in enumerate(found):
            known = ~kept.lost & (keeps[k] < number[k]) & (keeps[k] > 0)
            assert known.any() or tight
            score = torch.full([len(side) for side in view.sides[:: 1 - 2 * k]], -torch.inf, dtype=torch.float64)
            for mine, where, part in view.exact_rows(k, torch.arange(len(score))):
                score[mine, where] = part
            lines = score.tensor_split(torch.from_numpy(view.rows[1:-1])) if batch else score
            for place in known.nonzero().flatten()[::7]:
                falling = lines[place].flatten().sort(descending=True).values
                assert abs(falling[keeps[k][place] - 1] - kept.last[place]) <= 1e-12


@pytest.mark.parametrize("name", ["collapsed", "duplicates", "near duplicates", "random"])
def test_queries_with_too_many_in_their_brackets_are_held(route, monkeypatch, lost, name):
    monkeypatch.setattr(kth, "MAX_LISTED_NEGATIVES", (0, 1))
    check(visited(SETS[name], snm(0.5), 0.01), SETS[name], snm(0.5), 0.01)
    assert name == "random" or sum(lost)


def test_lists_that_become_too_long_are_forgotten(route, monkeypatch, lost):
    """The sample says that few are listed, and is wrong."""
    honest = kth.listing

    def forgetful(view, brackets):
        found = honest(view, brackets)
        found.most = 5
        return found

    monkeypatch.setattr(hardest, "listing", forgetful)
    check(visited(SETS["random"], snm(0.5), 0.01), SETS["random"], snm(0.5), 0.01)
    assert lost == [300, 300]


def test_brackets_that_miss_are_noticed(route, narrow, monkeypatch, lost):
    honest = kth.Bracket.narrowed

    def dishonest(self, level, count):
        bracket = honest(self, level, count)
        return bracket.between(bracket.low + 0.01, bracket.high + 0.01)

    monkeypatch.setattr(kth.Bracket, "narrowed", dishonest)
    check(visited(SETS["random"], snm(0.5), 0.01), SETS["random"], snm(0.5), 0.01)
    assert sum(lost)


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


@pytest.mark.parametrize("surely", [0.5, -3.0], ids=["low", "too high"])
def test_a_guess_of_the_sum_of_a_batch_is_verified(route, monkeypatch, surely):
    monkeypatch.setattr(cross_example, "GUESS_MARGIN", surely)
    for loss in (CROSS["all"], CROSS["sharp"], CROSS["half"]):
        for name in ("random", "groups", "labelled", "stack"):
            given, rounding = SETS[name], ROUNDING * max(1, loss.scale / 20)
            check(visited(given, loss, 1e-3), given, loss, 1e-3, rounding=rounding)


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


@pytest.mark.parametrize("product", ["float64", "bfloat16"])
def test_the_interval_of_every_product(product):
    given = SETS["random"]
    for loss in (snm(0.3), CROSS["half"]):
        found = visited(given, loss, 0.01, product=product)
        if product == "float64":
            check(found, given, loss, 0.01, rounding=1e-5)
            continue
        for mine, (pairs,) in zip(found, dense(given), strict=True):
            share = weights.of(loss, pairs).abs() / loss.unit(pairs)
            right = statistics.contributing(share, pairs, 0.01)
            assert ((mine["contributing"] - right).abs() <= mine["uncertain"]).all()


@pytest.mark.parametrize("name", ["snm", "ce_nm"])
def test_the_spread_is_left_out_where_it_is_not_asked_for(name):
    found = visited(SETS["random"], losses.load(name), 0.01, spread=False)
    assert not {"effective", "participation"} & found[0].keys()
    check(found, SETS["random"], losses.load(name), 0.01)
