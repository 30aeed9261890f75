"""Sums of exponentials, their moments and what has a share above eps, against dense float64."""

import math

import pytest
import torch

from cocos import engine, losses
from cocos.embeddings import Embeddings
from cocos.embeddings.sampling import Batch
from cocos.engine import fused, parts
from cocos.engine.parts import Part
from cocos.engine.primitives import exponentials, logsumexp
from cocos.engine.primitives.logsumexp import LogSumExp, Question, counts
from cocos.engine.readers import softmax
from cocos.engine.readers.rows import dense_rows

METRICS = ("cosine", "dot", "euclidean", "squared_euclidean")
EPS = 0.01
KERNEL = fused.kernel_name() == "compiled C"


@pytest.fixture(params=["compiled C", "plain torch"])
def code(request, monkeypatch):
    """Which code sees the scores."""
    if request.param == "plain torch":
        monkeypatch.setattr(fused, "serves", lambda view, reader: False)
    elif not KERNEL:
        pytest.skip("no compiled kernel")
    return request.param


def made(kind, n=300, m=None, width=24, seed=0):
    """Embeddings whose scores are of one kind."""
    noise = torch.Generator().manual_seed(seed)
    m = m or n
    query, candidate = (torch.randn(k, width, generator=noise) for k in (n, m))
    if kind == "clusters":
        centre = torch.randn(7, width, generator=noise)
        query, candidate = (0.05 * rows + centre[torch.arange(len(rows)) % 7] for rows in (query, candidate))
    if kind == "collapsed":
        query, candidate = (torch.ones(1, width) + 1e-4 * rows for rows in (query, candidate))
    if kind == "duplicates":
        query, candidate = (rows[torch.arange(len(rows)) % 11] for rows in (query, candidate))
    if kind == "ascending":  # each candidate scores higher than those before it, with every query
        candidate = torch.linspace(0.1, 1, m)[:, None] * query.mean(dim=0) + 1e-3 * candidate
        query = query.mean(dim=0) + 1e-3 * query
    group = torch.arange(max(n, m))
    return Embeddings(query, candidate, group[:n], group[:m] % n)


def dense(view, direction):
    """Scores in float64, (queries, others), -inf where a pair is no negative."""
    found = torch.full((len(view.sides[0]), len(view.sides[1])), -torch.inf, dtype=torch.float64)
    for mine, columns, score in view.exact_rows(0, torch.arange(len(view.sides[0]))):
        found[mine, columns] = score
    return found if direction == 0 else found.T


def asked(view, eps):
    """Base and offset of shares of the sum of the negatives alone."""
    base = [torch.full((len(view.sides[k]),), -torch.inf, dtype=torch.float64) for k in view.directions]
    return {"base": base, "offset": [torch.full_like(each, math.log2(eps)) for each in base]}


def check(view, scale, eps=EPS, *, tile=None, floor=None, moments=True, whole=False):
    """Compare a pass, and a second one where it is needed, with dense float64; gives the sums and the counts."""
    pass_ = LogSumExp(view, scale, moments=moments, floor=floor, whole=whole, **asked(view, eps))

    class Counts:
        def passes(self, view):
            sums = yield pass_
            there = [top > -torch.inf for top in sums.top]
            questions = [Question(there[k].double(), sums.log2[k], sums.error[k], eps) for k in view.directions]
            return sums, (yield from counts(sums, [questions]))[0]  # noqa: B901

    (found,) = engine.run(view, [Counts()], tile=tile)
    sums, counted = found
    for k in view.directions:
        score = dense(view, k)
        if floor:
            score = score.masked_fill(score <= floor[k][:, None].double(), -torch.inf)
        there, z = (score > -torch.inf).any(dim=1), score * scale
        log = z.logsumexp(dim=1)
        assert torch.equal(there, sums.top[k] > -torch.inf)
        assert ((sums.log2[k] * math.log(2) - log).abs()[there] <= sums.error[k][there]).all(), "error bound"
        assert (sums.log2[k][~there] == -torch.inf).all()
        off = torch.as_tensor(view.bound(sums.top[k].double()), dtype=torch.float64).expand(len(there))
        assert ((sums.top[k].double() - score.amax(dim=1)).abs()[there] <= off[there]).all()
        share = torch.where(there[:, None], (z - log[:, None]).exp(), 0)
        wide = 1e-6 + 4 * float(sums.error[k].max())
        if moments:
            torch.testing.assert_close(
                sums.effective(k)[there], torch.special.entr(share).sum(1).exp()[there], rtol=20 * wide, atol=0
            )  # noqa: E501
            torch.testing.assert_close(
                sums.participation(k)[there], (1 / share.square().sum(1))[there], rtol=3 * wide, atol=0
            )  # noqa: E501
        above = share > eps
        open_ = ((share / eps).log().abs() <= 1e-11).sum(dim=1)
        wrong = (counted[k].number - above.sum(dim=1)).abs() > counted[k].uncertain
        assert not wrong.any(), f"{int(wrong.sum())} counts of direction {k}"
        assert (counted[k].uncertain >= open_).all(), "a share that equals eps is uncertain"
        mass = torch.where(above, share, 0).sum(dim=1)
        rough = counted[k].uncertain * eps * 1.1 + wide * mass + 1e-12
        assert ((counted[k].mass - mass).abs() <= rough).all(), "mass"
    return sums, counted


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("scale", [0.5, 10.0, 200.0])
def test_sums_moments_tops_and_counts_are_those_of_dense_float64(metric, scale, code):
    check(engine.view(made("random"), metric=metric), scale)


@pytest.mark.parametrize("kind", ["clusters", "collapsed", "duplicates", "ascending"])
def test_no_counted_negative_is_lost_in_any_regime(kind, code):
    for metric, scale, eps in (("cosine", 20.0, 0.1), ("dot", 3.0, 1 / 149), ("cosine", 5.0, 1e-4)):
        check(engine.view(made(kind, 150), metric=metric), scale, eps)


@pytest.mark.parametrize("shape", [(1, 2), (2, 1), (3, 500), (500, 3), (257, 385), (300, 300)])
@pytest.mark.parametrize("tile", [(61, 47), (256, 384)])
def test_no_shape_of_matrix_or_tile_loses_a_negative(shape, tile, code):
    check(engine.view(made("random", *shape)), 10.0, tile=tile)


def stack(n=260, sizes=(64, 64, 64, 64), seed=1, paired=True):
    """Batches of random rows."""
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return [Batch(rows, rows, paired=paired) for rows in order[: sum(sizes)].split(list(sizes))]


def test_neighbouring_batches_of_one_size_are_one_tile():
    view = engine.view(made("random"), stack(sizes=(20, 20, 20, 30, 30, 7)))
    part = parts.Part(slice(0, 127), slice(0, 127))
    shapes = [tuple(tile.scores.shape) for tile in parts.tiles_of(view, (64, 64), part, stacked=True)]
    assert shapes == [(3, 20, 20), (2, 30, 30), (7, 7)]
    alone = [tile.scores.clone() for tile in parts.tiles_of(view, (64, 64), part)]
    together = [one for tile in parts.tiles_of(view, (64, 64), part, stacked=True) for one in tile.lines(0).clone()]
    for one, other in zip(alone, together, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("scale", [3.0, 300.0])
def test_negatives_at_or_below_a_floor_are_left_out(scale, code):
    view = engine.view(made("random"))
    floor = [dense(view, k).float().sort(dim=1).values[:, -20] - 1e-4 for k in view.directions]
    floor[0][5] = 2.0  # nothing is above it
    sums, _ = check(view, scale, floor=floor, moments=False)
    expected = (dense(view, 0) > floor[0][:, None]).sum(dim=1)
    assert torch.equal(sums.number(0), expected) and expected[5] == 0


def test_a_product_in_float64_is_as_exact_as_float64():
    sums, counted = check(engine.view(made("clusters"), product="float64"), 50.0)
    assert float(sums.error[0].max()) <= 1e-9 and int(counted[0].uncertain.sum()) == 0


@pytest.mark.parametrize("eps", [1e-4, EPS])
def test_too_many_to_note_are_counted_in_a_second_pass(eps, code, monkeypatch):
    view = engine.view(made("random"))
    first, expected = check(view, 5.0, eps)
    monkeypatch.setattr(exponentials, "MAX_NOTED", 0)
    monkeypatch.setattr(
        logsumexp, "MAX_NOTED_PER_PART", -fused.LIST_ROOM // 2 + 300 * 384
    )  # of the kernel: a tile and no more
    sums, counted = check(view, 5.0, eps)
    for k in view.directions:
        assert torch.equal(counted[k].number, expected[k].number)
    if eps < EPS:
        assert first.noted[0] is not None and sums.noted[0] is None


def test_a_list_is_cut_down_when_it_is_full(code, monkeypatch):
    """In ascending order nearly all negatives are noted when they are seen, and few remain."""
    monkeypatch.setattr(parts, "MAX_PARTS", 1)
    view = engine.view(made("ascending", 256, 2000))
    _, expected = check(view, 60.0, 0.02)
    monkeypatch.setattr(logsumexp, "MAX_NOTED_PER_PART", -fused.LIST_ROOM // 2 + 256 * 384 + 40_000)
    sums, counted = check(view, 60.0, 0.02)
    assert sums.noted[0] is not None
    for k in view.directions:
        assert torch.equal(counted[k].number, expected[k].number)


def test_merged_lists_are_cut_down_by_the_merged_sums():
    """A negative that may count in its part no longer may once other parts are added."""
    one = torch.ones(1, dtype=torch.float64)
    known = torch.stack([-torch.inf * one, one.log2() - 1])
    states = []
    for total, score in ((1.0, 0.0), (100.0, 3.0)):
        sums = torch.zeros(4, 1, dtype=torch.float64)
        sums[0] = total
        place = torch.zeros(5, dtype=torch.int32)
        piece = (place, place, torch.full((5,), score))
        lowest = torch.full((1,), -torch.inf)
        states.append(
            exponentials.Exponentials(
                [sums], [lowest.clone()], [torch.zeros(1)], [lowest], [[piece]], False, [known], 1.0, (0.0, 0.0)
            )
        )
    whole, more = states
    whole.merge(more, Part(slice(0, 1), slice(0, 1)))
    assert len(whole.noted[0]) == 2
    whole.note(0, [], most=-1)  # the limit is log2(101) - 1 by now
    assert whole.noted[0] is None or sum(len(piece[0]) for piece in whole.noted[0]) == 0


def test_equal_shares_are_uncertain_where_they_equal_eps(code):
    embeddings = Embeddings(torch.ones(101, 8), torch.ones(101, 8), torch.arange(101), torch.arange(101))
    view = engine.view(embeddings)
    _, counted = check(view, 10.0, 0.01)  # 100 negatives have a share of 1/100 each
    assert (counted[0].uncertain == 100).all()


def test_a_count_that_float32_leaves_open_is_made_in_float64():
    embeddings, loss = made("clusters", 200), losses.load("ntxent", {"temperature": 0.05})
    view = engine.view(embeddings)
    pairs = dense_rows(view, 0, torch.arange(200))
    own = (loss.weight(pairs) / loss.unit(pairs)).masked_fill(~pairs.negative, 0)[0].sort(descending=True).values[3]
    eps = float(own) * (1 - 1e-8)  # nearer to a share than float32 can tell
    (found,) = engine.run(view, [softmax.reads(loss, eps, spread=False, relative=False)])
    assert int(found[0]["contributing"][0]) == 4 and int(found[0]["uncertain"][0]) == 0


def test_references_that_rise_from_tile_to_tile_keep_all_moments(code):
    check(engine.view(made("random", 900)), 60.0, tile=(256, 384))


def test_sums_in_doubt_are_refined_by_their_noted_terms():
    """The bound of the refined sum is smaller, and holds."""
    generator = torch.Generator().manual_seed(6)
    centre = torch.nn.functional.normalize(torch.randn(12, 64, generator=generator)).repeat_interleave(25, dim=0)
    rows, others = (centre + 0.05 * torch.randn(300, 64, generator=generator) for _ in range(2))
    view, nats = engine.view(Embeddings(rows, others)), 20.0
    none = [torch.full((300,), -torch.inf, dtype=torch.float64)] * 2
    offset = [torch.full((300,), -4.3, dtype=torch.float64)] * 2
    (sums,) = engine.run(view, [LogSumExp(view, nats, base=none, offset=offset)])
    scores = torch.nn.functional.normalize(rows.double()) @ torch.nn.functional.normalize(others.double()).T
    scores.fill_diagonal_(-torch.inf)
    for k, score in enumerate((scores, scores.T)):
        true = view.sides[k].place, (nats * score).logsumexp(dim=1)
        before, places = (sums.log2[k].clone(), sums.error[k].clone()), torch.arange(0, 300, 2)
        sums.refine(k, places)
        odd = torch.arange(1, 300, 2)
        assert torch.equal(sums.log2[k][odd], before[0][odd]) and torch.equal(sums.error[k][odd], before[1][odd])
        assert (sums.error[k][places] < before[1][places]).all() and sums.error[k][places].mean() < 0.85 * before[
            1
        ].mean()
        share = torch.zeros(300, dtype=torch.float64)  # of the noted terms, whose scores are exact by now
        for row, column, _ in sums.noted[k]:
            query, other = (row.long(), column.long())[:: 1 - 2 * k]
            own = score[view.sides[k].place[query], view.sides[1 - k].place[other]]
            share.index_add_(0, query, (nats * own - true[1][true[0]][query]).exp())
        assert 0.2 < share.mean() < 0.95
        assert (sums.error[k] > (1 - share) * nats * sums.of.off)[places].all()
        off = (sums.log2[k] * math.log(2) - true[1][true[0]]).abs()
        assert (off <= sums.error[k]).all()
