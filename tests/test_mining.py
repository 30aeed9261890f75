"""Stochastic negative mining in one pass against dense float64 scores, however the last kept negative is found."""

import pytest
import torch
from torch.nn.functional import normalize

from cocos import losses, readers, scores, statistics, sweep, weights
from cocos.batches import Batch
from cocos.embeddings import Embeddings
from cocos.readers import _brackets, mining
from cocos.readers._exponentials import Survivors
from cocos.readers.mining import Mining
from cocos.readers.softmax import Softmax
from cocos.tiles import _build

FRACTIONS = (0.5, 0.01, 0.9, 0.29)
ASKED = ((0.5, 0.01), (0.5, 1e-4), (0.01, 0.01), (0.01, 1e-4), (0.9, 0.0), (0.29, 0.5))  # fraction, eps
ROUNDING = 5e-5  # of sums: scores of float32 are off by up to 4e-7, and the scale is 20
TIE = 1e-9  # relative difference of a share and eps that float64 sums in another order may turn
WHOLE = ("contributing", "negatives", "uncertain")


def drawn(number, width, seed=0):
    return normalize(torch.randn(number, width, generator=torch.Generator().manual_seed(seed)), dim=1)


def near(centre, seed, noise=2.0):
    return normalize(centre + noise * drawn(*centre.shape, seed), dim=1)


def pairs_of(number, width):
    query = drawn(number, width)
    return query, near(query, 1)


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
    "paired": (Embeddings(QUERY, CANDIDATE, TWINS, TWINS), Batch(torch.arange(0, 300), torch.arange(0, 300), True)),
    "few": (Embeddings(QUERY[:5], CANDIDATE[:300], torch.arange(5), torch.arange(300)), None),
    "one negative": (Embeddings(QUERY[:2], CANDIDATE[:2]), None),
    "no negative": (Embeddings(QUERY[:40], CANDIDATE[:9], torch.arange(40) // 30, torch.zeros(9).long()), None),
    "no positive": (Embeddings(QUERY[:60], CANDIDATE[:90], torch.arange(60), torch.arange(90) + 20), None),
}


def snm(fraction, scale=20.0):
    return losses.load("snm", {"fraction": fraction, "scale": scale})


def visited(given, loss, eps, *, tile=(150, 140), product="float32"):
    """What the pass says, and the reader as the pass leaves it."""
    reader, view = readers.of(loss, eps), sweep.view(*given, product=product)
    reader.begin(view)
    sweep.visit(view, [reader], tile=tile)
    return reader.finish(), reader


def dense(given):
    """Scores in float64, as the queries of each direction see them."""
    embeddings, batch = given
    yield scores.pairs(embeddings.to(dtype=torch.float64), batch)
    if len(embeddings.directions) == 2:
        yield scores.pairs(embeddings.flip().to(dtype=torch.float64), batch and batch.flip())


def check(found, given, loss, eps, *, rounding=ROUNDING):
    """Counts are right, save of shares that are eps to the last digits; sums are as near as the scores."""
    for mine, pairs in zip(found, dense(given), strict=True):
        weight = weights.of(loss, pairs)
        unit = loss.unit(pairs)
        share, right = weight.abs() / unit, statistics.per_query(weight, unit, pairs, eps)
        ties = (((share - eps).abs() <= TIE * eps) & pairs.negative & (share > 0)).sum(dim=1)
        assert (mine["uncertain"] <= ties).all()
        assert ((mine["contributing"] - right["contributing"]).abs() <= mine["uncertain"]).all()
        assert torch.equal(mine["negatives"], pairs.negative.sum(dim=1))
        moved = eps * mine["uncertain"]
        for name in mine.keys() - set(WHOLE):
            room = rounding * (1 + right[name].abs()) + (moved if "weight" in name else 0)
            assert ((mine[name] - right[name]).abs() <= room).all(), name


@pytest.fixture
def narrow(monkeypatch):
    """Brackets are guessed from few candidates and may hold few negatives, so they are counted and counted again."""
    monkeypatch.setattr(_brackets, "SAMPLE", (60, 60))
    monkeypatch.setattr(_brackets, "BLOCK", 60 * 70)
    monkeypatch.setattr(mining, "NOTED", (0, 10))


@pytest.mark.parametrize("name", SETS)
def test_all_negatives_are_noted_where_they_are_few(name):
    for fraction, eps in zip(FRACTIONS, (0.01, 1e-4, 0.01, 0.01), strict=True):
        found, reader = visited(SETS[name], snm(fraction), eps)
        assert isinstance(reader, Mining) and reader.passes == 0
        check(found, SETS[name], snm(fraction), eps)


@pytest.mark.parametrize("name", SETS)
def test_brackets_are_counted_where_they_are_many(narrow, name):
    for fraction, eps in ASKED:
        found, reader = visited(SETS[name], snm(fraction), eps)
        check(found, SETS[name], snm(fraction), eps)
        if name in {"random", "groups"}:
            assert reader.passes >= 1 and not any(lost.any() for lost in reader.state.lost)


@pytest.mark.parametrize("name", ["random", "labelled", "duplicates", "near duplicates", "paired"])
def test_the_last_one_kept_is_the_one_of_float64(narrow, name):
    """The order of scores that float32 cannot tell apart is that of float64."""
    for fraction in FRACTIONS:
        _, reader = visited(SETS[name], snm(fraction), 0.01)
        for direction, pairs in enumerate(dense(SETS[name])):
            side, known = reader.view.sides[direction], ~reader.state.lost[direction]
            number = pairs.negative.sum(dim=1)
            keep = (fraction * number.double() + 1e-9).floor().clamp(min=1).long()
            falling = pairs.scores.masked_fill(~pairs.negative, -torch.inf).sort(dim=1, descending=True).values
            last = falling.gather(1, keep[:, None] - 1)[side.place, 0]
            known &= (keep < number)[side.place]
            assert known.any() and torch.allclose(reader.state.last[direction][known], last[known], 0, 1e-12)


@pytest.mark.parametrize("scale", [1.0, 100.0, 400.0])
def test_any_scale(narrow, scale):
    for name in ("random", "labelled"):
        check(
            visited(SETS[name], snm(0.3, scale), 0.01)[0], SETS[name], snm(0.3, scale), 0.01, rounding=ROUNDING * scale
        )


def test_a_whole_fraction_is_a_softmax():
    for name, given in SETS.items():
        found, reader = visited(given, snm(1.0), 0.01)
        assert type(reader) is Softmax, name
        check(found, given, snm(1.0), 0.01)


@pytest.mark.parametrize("tile", [(37, 48), (9, 16), (400, 400)])
def test_no_count_depends_on_the_tile(narrow, monkeypatch, tile):
    given = SETS["groups"]
    right, _ = visited(given, snm(0.2), 0.01)
    monkeypatch.setattr(sweep, "tile_of", lambda view: tile)
    found, _ = visited(given, snm(0.2), 0.01, tile=tile)
    for mine, theirs in zip(found, right, strict=True):
        for name, values in mine.items():
            assert (
                torch.equal(values, theirs[name]) if name in WHOLE else torch.allclose(values, theirs[name], 1e-5, 1e-5)
            )


@pytest.mark.parametrize("name", ["random", "labelled", "duplicates", "paired", "no negative"])
def test_the_plain_kernel(narrow, monkeypatch, name):
    monkeypatch.setattr(_build, "loaded", lambda: None)
    check(visited(SETS[name], snm(0.3), 0.01)[0], SETS[name], snm(0.3), 0.01)


@pytest.mark.parametrize("name", ["collapsed", "duplicates", "near duplicates", "random"])
def test_queries_with_too_many_in_their_brackets_are_held(monkeypatch, name):
    monkeypatch.setattr(mining, "NOTED", (0, 1))
    found, reader = visited(SETS[name], snm(0.5), 0.01)
    assert name == "random" or any(lost.any() for lost in reader.state.lost)
    check(found, SETS[name], snm(0.5), 0.01)


@pytest.mark.parametrize("name", ["random", "groups", "duplicates", "paired"])
def test_queries_that_are_settled_a_few_at_a_time_find_the_same(narrow, monkeypatch, name):
    whole, _ = visited(SETS[name], snm(0.3), 1e-3)
    calls, honest = [], mining._Kept._settle
    monkeypatch.setattr(mining, "SETTLED", 40)
    monkeypatch.setattr(mining._Kept, "_settle", lambda self, *which: (calls.append(which), honest(self, *which)))
    found, _ = visited(SETS[name], snm(0.3), 1e-3)
    assert len(calls) > 4
    for mine, theirs in zip(found, whole, strict=True):
        for each, values in mine.items():
            assert torch.equal(values, theirs[each]), each


def test_queries_are_dropped_when_more_is_noted_than_was_counted(narrow, monkeypatch):
    monkeypatch.setattr(mining, "WIDER", 10**5)
    monkeypatch.setattr(mining, "SPARE", 0)
    found, reader = visited(SETS["random"], snm(0.5), 0.01)
    assert all(lost.any() for lost in reader.state.lost)
    assert reader.state._size <= 2 * mining._room(reader.view)
    check(found, SETS["random"], snm(0.5), 0.01)


def test_brackets_that_miss_are_noticed(narrow, monkeypatch):
    """Counts that are wrong stand for products that round otherwise in the next pass."""
    honest = _brackets.Counts.tile

    def dishonest(self, tile, rows, columns):
        honest(self, tile.add(0.01), rows, columns)

    monkeypatch.setattr(_brackets.Counts, "tile", dishonest)
    found, reader = visited(SETS["random"], snm(0.5), 0.01)
    assert any(lost.any() for lost in reader.state.lost)
    check(found, SETS["random"], snm(0.5), 0.01)


def spill(self, query, other, score, limit):
    """In place of `Survivors.add`."""
    self.spilled, self.chunks, self.size = True, [], 0


def test_survivors_that_are_too_many_are_counted_in_another_pass(narrow, monkeypatch):
    monkeypatch.setattr(Survivors, "add", spill)
    for name in ("random", "labelled"):
        for fraction, eps in ASKED[:4]:
            check(visited(SETS[name], snm(fraction), eps)[0], SETS[name], snm(fraction), eps)


@pytest.mark.parametrize("spills", [False, True])
@pytest.mark.parametrize("eps", [0.02, 0.02 * (1 - 1e-12)])
def test_a_share_of_eps_is_uncertain(monkeypatch, eps, spills):
    """The positive and 49 kept negatives score the same: each has a share of 1/50 = eps."""
    if spills:
        monkeypatch.setattr(Survivors, "add", spill)
    given = (Embeddings(SAME[:99], SAME[:99]), None)
    found, _ = visited(given, snm(0.5), eps)
    for mine in found:
        assert (mine["uncertain"] == 49).all()
        assert ((mine["contributing"] == 0) | (mine["contributing"] == 49)).all()


@pytest.mark.parametrize("product", ["float64", "bfloat16"])
def test_the_interval_of_every_product(narrow, product):
    given, loss = SETS["random"], snm(0.3)
    found, _ = visited(given, loss, 0.01, product=product)
    if product == "float64":
        check(found, given, loss, 0.01, rounding=1e-5)
        return
    for mine, pairs in zip(found, dense(given), strict=True):
        share = weights.of(loss, pairs).abs() / loss.unit(pairs)
        right = statistics.contributing(share, pairs, 0.01)
        assert ((mine["contributing"] - right).abs() <= mine["uncertain"]).all()


def test_the_spread_is_left_out_where_it_is_not_asked_for(narrow):
    reader = readers.of(snm(0.5), 0.01, spread=False)
    found = sweep.run(sweep.view(*SETS["random"]), [reader])[0]
    assert not {"effective", "participation"} & found[0].keys()
    check(found, SETS["random"], snm(0.5), 0.01)


def test_a_bracket_holds_the_last_one_kept():
    score = drawn(50, 200, 5)
    number = torch.full((50,), 200)
    number[:3] = torch.tensor([0, 1, 2])
    score[torch.arange(200) >= number[:, None]] = -torch.inf
    falling = score.sort(dim=1, descending=True).values
    for fraction in FRACTIONS:
        bracket = _brackets.Bracket.of(number, fraction, torch.float32)
        view = sweep.view(*SETS["random"])
        inside = bracket.inside
        for _ in range(3):
            level = bracket.levels(view)
            bracket = bracket.narrowed(level, (score[:, :, None] > level[:, None, :]).sum(dim=1))
            assert (bracket.inside <= inside).all()
            inside = bracket.inside
        for query in range(1, 50):
            keep = max(1, int(fraction * int(number[query]) + 1e-9))
            last = falling[query, keep - 1]
            assert bracket.keep[query] == keep
            if keep < number[query]:
                assert bracket.low[query] < last <= bracket.high[query]
                assert bracket.over[query] == (score[query] > bracket.high[query]).sum()
                assert bracket.reach[query] == (score[query] > bracket.low[query]).sum()
        assert inside.sum() < 50 * 12


@pytest.mark.parametrize("name", ["random", "groups", "labelled", "many of a class"])
def test_the_guess_from_a_sample(narrow, name):
    """Positives are no part of it, and the levels at the ends are 3.8 deviations from the most likely score."""
    classes = Embeddings.labelled(near(drawn(3, 16, 9).repeat(100, 1), 4, 0.5), torch.arange(300) % 3)
    given = SETS.get(name, (classes, None))
    for fraction in (0.5, 0.2):
        view = sweep.view(*given)
        for direction, pairs in zip(view.directions, dense(given), strict=True):
            number, side = view.negatives(direction), view.sides[direction]
            bracket = _brackets.Bracket.of(number, fraction, torch.float32)
            level = _brackets.guessed(view, direction, bracket)
            falling = pairs.scores.masked_fill(~pairs.negative, -torch.inf).sort(dim=1, descending=True).values
            last = side.unsorted(level).double(), falling.gather(1, bracket.keep[side.place.argsort(), None] - 1)
            missed = (last[0][:, :1] < last[1]) | (last[0][:, -1:] >= last[1])
            assert missed.double().mean() < 0.02
            assert (level[:, :-1] >= level[:, 1:]).all()


def test_equal_scores_are_bracketed_once(narrow):
    _, reader = visited(SETS["collapsed"], snm(0.5), 0.01)
    assert reader.passes == 1


def test_one_narrowing_pass_brackets_thousands_of_candidates(monkeypatch):
    monkeypatch.setattr(mining, "NOTED", (0, 64))
    given = (Embeddings(*pairs_of(3000, 8)), None)
    for fraction in (0.5, 0.003):
        _, reader = visited(given, snm(fraction), 0.01, tile=None)
        assert reader.passes == 1
        assert sum(int(lost.sum()) for lost in reader.state.lost) <= 3
        assert reader.state._size <= 64 * 6000
