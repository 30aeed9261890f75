"""Negatives counted between the steps of a ladder, in bins, and around a query, against dense scores in float64."""

import itertools

import pytest
import torch
from torch.nn.functional import normalize

from cocos import engine
from cocos.embeddings import Embeddings, scores
from cocos.engine import fused, sweep
from cocos.engine.primitives import histogram
from cocos.engine.primitives.histogram import Ladder
from cocos.engine.readers.histogram import Histogram
from cocos.engine.readers.neighbours import Neighbours
from cocos.engine.readers.precision_recall import PrecisionRecall
from cocos.engine.readers.ranks import Ranks
from cocos.measures.shared import retrieval


def drawn(number, width, seed=0):
    return torch.randn(number, width, generator=torch.Generator().manual_seed(seed))


def about(centres, noise, each, seed):
    """Rows about centres, as many about each; a noise of 2 gives cosines of about 0.45."""
    rows = centres.repeat_interleave(each, dim=0)
    return rows + noise * rows.norm(dim=1, keepdim=True) * normalize(drawn(*rows.shape, seed), dim=1)


def captions(noise, queries=150, width=40, each=5):
    """Queries with five candidates each; their scores overlap more, the larger the noise."""
    query = drawn(queries, width)
    group = torch.arange(queries)
    return Embeddings(query, about(query, noise, each, 1), group, group.repeat_interleave(each))


def collapsed(number=90):
    """Rows that are all the same but for the last bits of float32, so that no float32 score decides anything."""
    rows = torch.full((number, 24), 0.3) * (1 + 2.0**-22 * torch.randint(0, 3, (number, 24)))
    return Embeddings(rows, rows.flip(0), torch.arange(number) // 2, torch.arange(number) // 3)


GIVEN = {
    "apart": captions(0.3),
    "overlapping": captions(3.0),
    "unrelated": captions(1e4),
    "wide": captions(4.0, queries=30, each=40),
    "tall": captions(2.0, queries=700, each=1, width=17),
    "twins": Embeddings(*(drawn(20, 16, s).repeat(8, 1) for s in (1, 2)), *[torch.arange(160) // 4] * 2),
    "collapsed": collapsed(),
    "labelled": Embeddings.labelled(about(drawn(12, 20), 2.0, 15, 3), torch.arange(180) // 15),
    "many positives": Embeddings.labelled(drawn(140, 20), torch.arange(140) % 3),
    "proxies": Embeddings.labelled(drawn(200, 12), torch.arange(200) % 9, drawn(9, 12, 1), torch.arange(9)),
    "float16": Embeddings(*(drawn(120, 33, s).half() for s in (1, 2)), torch.arange(120) // 2, torch.arange(120)),
    "float64": Embeddings(*(drawn(120, 33, s).double() for s in (1, 2)), torch.arange(120) // 2, torch.arange(120)),
    "beyond float32": Embeddings(*(drawn(90, 33, s).double() * 1e300 for s in (1, 2))),
    "one pair": Embeddings(drawn(1, 5), drawn(1, 5, 1)),
    "no negative": Embeddings(drawn(9, 5), drawn(4, 5, 1), torch.zeros(9).long(), torch.zeros(4).long()),
}
METRICS = ("cosine", "dot", "euclidean", "squared_euclidean")


def dense(embeddings, metric):
    """Scores of the first direction in float64, and of which pairs they are."""
    return scores.pairs(embeddings.to(dtype=torch.float64), metric=metric)


def slow(negative, steps, tie):
    """Negatives at or above each step, from all of them sorted."""
    return len(negative) - torch.searchsorted(negative.sort().values, steps - tie)


def views(metric):
    for kind, given in GIVEN.items():
        if metric == "cosine" or kind != "beyond float32":
            yield kind, given, engine.view(given, metric=metric)


@pytest.mark.parametrize("metric", METRICS)
def test_a_curve_is_that_of_all_pairs(metric):
    compared = 0
    for kind, given, view in views(metric):
        pairs = dense(given, metric)
        (curve,) = engine.run(view, [PrecisionRecall()], tile=(96, 112))
        right = pairs.scores[pairs.positive].sort(descending=True).values
        assert torch.allclose(curve.score, right, rtol=1e-12, atol=1e-13), kind
        assert torch.equal(curve.negatives, slow(pairs.scores[pairs.negative], curve.score, view.tie)), kind
        compared += len(right)
    assert compared > 14_000


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["overlapping", "twins", "collapsed", "float64"])
def test_steps_at_the_scores_of_negatives_are_decided_in_float64(kind, metric):
    """A step on a score, within the tie of it, just beyond, a float32 step away, and as far as a score may be off."""
    view, pairs = engine.view(GIVEN[kind], metric=metric), dense(GIVEN[kind], metric)
    negative = pairs.scores[pairs.negative]
    some = negative[torch.randperm(len(negative), generator=torch.Generator().manual_seed(4))[:300]]
    off = torch.as_tensor(view.bound(some), dtype=torch.float64)
    moves = [0 * some, *(sign * size for sign in (-1, 1) for size in (0.5 * view.tie, 3 * view.tie, 6e-8 * some, off))]
    steps = torch.cat([some + move for move in moves]).sort().values
    (found,) = engine.run(view, [Ladder(view, steps)])
    least, most = (slow(negative, steps, view.tie + sign * 0.2 * view.tie) for sign in (-1, 1))
    assert (least <= found).all() and (found <= most).all()
    assert (least == most).double().mean() > 0.9 or kind in {"twins", "collapsed"}


def test_float32_alone_would_be_wrong(monkeypatch):
    """The scores that are decided in float64 are those that need it: without them counts of this input are wrong."""
    monkeypatch.setattr(fused, "serves", lambda view, reader: False)
    monkeypatch.setattr(histogram, "LADDER_DENSITY", 0)  # no tile is multiplied in float64
    view, pairs = engine.view(GIVEN["unrelated"]), dense(GIVEN["unrelated"], "cosine")
    steps, asked, exact = pairs.scores[pairs.positive].sort().values, [], engine.View.exact
    right = slow(pairs.scores[pairs.negative], steps, view.tie)

    def noted(self, row, column):
        asked.append(len(row))
        return exact(self, row, column)

    monkeypatch.setattr(engine.View, "exact", noted)
    assert torch.equal(engine.run(view, [Ladder(view, steps)])[0], right)
    assert 0 < sum(asked) < 0.2 * pairs.negative.sum()
    monkeypatch.setattr(engine.View, "bound", lambda self, score: torch.zeros_like(score))
    assert not torch.equal(engine.run(view, [Ladder(view, steps)])[0], right)


def test_a_ladder_of_any_grid_counts_the_same(monkeypatch):
    view, pairs = engine.view(GIVEN["overlapping"]), dense(GIVEN["overlapping"], "cosine")
    steps = pairs.scores[pairs.positive].sort().values
    right = slow(pairs.scores[pairs.negative], steps, view.tie)
    for bins in (1, 2, 37, 2**17):
        monkeypatch.setattr(histogram, "GRID_BINS", (bins, bins))
        assert torch.equal(engine.run(view, [Ladder(view, steps)])[0], right), bins
    for some in (steps[:1], steps[-1:], steps[300:302], steps.repeat_interleave(2), torch.tensor([-3.0, 3.0]).double()):
        expected = slow(pairs.scores[pairs.negative], some, view.tie)
        assert torch.equal(engine.run(view, [Ladder(view, some)])[0], expected)


def test_counts_do_not_depend_on_threads_or_tiles(monkeypatch):
    asked = [PrecisionRecall(), Histogram(9), Neighbours(4, torch.tensor([0.1, 0.3]))]
    view = engine.view(captions(2.0, queries=300, each=8))
    found = []
    for threads, tile in ((1, None), (3, None), (2, (70, 90))):
        monkeypatch.setattr(sweep, "workers", lambda number=threads: number)
        found.append(engine.run(view, asked, tile=tile))
    for curve, bins, _ in found[1:]:
        assert torch.equal(curve.negatives, found[0][0].negatives)
        assert all(map(torch.equal, bins, found[0][1]))
    for name in vars(found[0][2]):
        one, three, small = (getattr(each[2], name) for each in found)
        assert torch.equal(one, three), name
        torch.testing.assert_close(small, one, rtol=1e-6, atol=1e-6) if name != "candidate" else None


def test_the_area_is_that_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    for kind in ("apart", "overlapping", "unrelated", "wide", "labelled", "many positives", "float16"):
        pairs = dense(GIVEN[kind], "cosine")
        taking_part = pairs.positive | pairs.negative
        # scores that differ in the last bits of float64 are tied here: the same for both
        score = (pairs.scores[taking_part] * 2**36).round()
        right = metrics.average_precision_score(pairs.positive[taking_part].numpy(), score.numpy())
        (curve,) = engine.run(engine.view(GIVEN[kind]), [PrecisionRecall()])
        area = retrieval.average_precision(curve.score, curve.negatives) / 100
        assert area == pytest.approx(right, abs=1e-9), kind


def test_no_positive_needs_no_pass():
    lonely = Embeddings(drawn(6, 5), drawn(6, 5, 1), torch.arange(6), torch.arange(6, 12))
    (curve,) = engine.run(engine.view(lonely), [PrecisionRecall()])
    assert len(curve.score) == len(curve.negatives) == 0
    (curve,) = engine.run(engine.view(lonely), [PrecisionRecall(torch.tensor([2.0, -2.0, 0.0]))])
    assert curve.score.tolist() == [2.0, 0.0, -2.0] and curve.negatives[[0, 2]].tolist() == [0, 36]


@pytest.mark.parametrize(
    ("metric", "low", "high"), [("cosine", -1.0, 1.0), ("cosine", -0.2, 0.3), ("euclidean", -9.0, 0.0)]
)
def test_every_negative_is_in_one_bin_of_its_query_and_of_its_candidate(metric, low, high):
    for kind, given, view in views(metric):
        found = engine.run(view, [Histogram(24, low, high)], tile=(96, 112))[0]
        sides = [given, *([given.flip()] if len(found) == 2 else [])]
        for count, side in zip(found, sides, strict=True):
            pairs = dense(side, metric)
            place = (pairs.scores - low) / (high - low) * 24
            near = (((place - place.round()).abs() < 1e-4) & pairs.negative).sum(dim=1)
            right = torch.zeros_like(count).scatter_add_(1, place.floor().clamp(0, 23).long(), pairs.negative.long())
            assert torch.equal(count.sum(dim=1), pairs.negative.sum(dim=1)), kind
            assert ((count - right).abs().sum(dim=1) <= 2 * near).all(), kind


@pytest.mark.parametrize("kind", ["overlapping", "wide", "twins", "labelled", "no negative", "one pair"])
def test_neighbours_are_those_of_sorted_scores(kind):
    """Also where the candidates are cut into parts, each of which has seen other columns of every query."""
    view, pairs = engine.view(GIVEN[kind], product="float64"), dense(GIVEN[kind], "cosine")
    level = torch.tensor([0.1, -0.4, 0.6], dtype=torch.float64)
    (found,) = engine.run(view, [Neighbours(4, level)], tile=(7, 64))
    for query, row in enumerate(pairs.scores):
        there = (pairs.positive[query] | pairs.negative[query]).nonzero().flatten()
        score = row[there]
        order = (-score).argsort(stable=True)
        assert found.number[query] == len(there)
        assert found.deviation[query].item() == pytest.approx(float(score.std(correction=0)), abs=1e-12)
        assert found.low[query].item() == pytest.approx(float(score.min()), abs=1e-13)
        for k, place in itertools.islice(enumerate(found.candidate[query].tolist()), len(there)):
            assert found.score[query, k].item() == pytest.approx(score[order[k]].item(), abs=1e-12)
            assert row[place].item() == pytest.approx(score[order[k]].item(), abs=1e-12)
            assert bool(found.positive[query, k]) == bool(pairs.positive[query, place])
        assert found.candidate[query, len(there) :].tolist() == [-1] * max(0, 4 - len(there))
        for mask, number in ((pairs.negative, found.negatives), (pairs.positive, found.positives)):
            assert number[query].tolist() == [int((row[mask[query]] >= one - view.tie).sum()) for one in level]


def test_a_negative_that_ties_with_a_positive_is_nearer():
    same = torch.tensor([[1.0, 0.0]])
    rows = Embeddings(same, same.repeat(3, 1), torch.zeros(1).long(), torch.tensor([0, 1, 0]), ("q2c",))
    (found,) = engine.run(engine.view(rows, product="float64"), [Neighbours(3)])
    assert found.positive.tolist() == [[False, True, True]] and found.candidate.tolist() == [[1, 0, 2]]


def test_ranks_among_many_positives_are_those_of_sorted_scores():
    """More queries than are scored in float64 at once, and more positives than a pass counts above."""
    given = Embeddings(drawn(1100, 12), drawn(70, 12, 1), torch.arange(1100) % 3, torch.arange(70) % 3)
    pairs = [scores.pairs(each.to(dtype=torch.float64)) for each in (given, given.flip())]
    view = engine.view(given)
    for ranked, each in zip(engine.run(view, [Ranks()])[0], pairs, strict=True):
        negative = each.scores.masked_fill(~each.negative, -torch.inf).sort(dim=1).values[ranked.query]
        level = each.scores[ranked.query, ranked.candidate][:, None]
        right = negative.shape[1] - torch.searchsorted(negative, level + view.tie, right=True).flatten()
        assert torch.equal(ranked.above, right) and not ranked.ties.any()
        assert len(ranked.query) == int(each.positive.sum()) and bool(
            each.positive[ranked.query, ranked.candidate].all()
        )
