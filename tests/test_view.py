"""A view of a stack of batches is the scores of each batch, and a pass shows each of them once."""

import pytest
import torch

import cocos
from cocos import engine
from cocos.base.errors import InputError
from cocos.embeddings import sampling, scores
from cocos.embeddings.sampling import Batch
from cocos.engine import devices, exact, sweep
from cocos.engine.parts import Tally, zeros
from cocos.engine.readers.rows import dense_rows

METRICS = ("cosine", "dot", "euclidean", "squared_chord", "squared_euclidean")


def embeddings(kind, seed=0, number=90, width=12):
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(number, width, generator=generator)
    group = torch.arange(number)[torch.randperm(number, generator=generator)] % 25
    if kind == "labelled":
        return cocos.Embeddings.labelled(query, group)
    candidate = query + torch.randn(number, width, generator=generator)
    if kind == "pairs":
        return cocos.Embeddings(query, candidate)
    if kind == "groups":
        return cocos.Embeddings(query, candidate, group, group)
    return cocos.Embeddings(query, candidate[:25], group, torch.arange(25), ("s2p",))


def stack(data, size=32):
    sample = "groups" if data.shared or len(data.directions) == 1 else "pairs"
    return sampling.plan(data, sample=sample, batch_size=size, batches=None, per_group=None, seed=1).batches


class Everything:
    """Writes every score that it is shown into a matrix, and how often each was shown."""

    def start(self, view):
        shape = len(view.sides[0]), len(view.sides[1])
        device = view.device
        return Tally(
            rows={
                "score": zeros(*shape, dtype=torch.float64, device=device),
                "seen": zeros(*shape, dtype=torch.int64, device=device),
            }
        )

    def see(self, state, tile):
        state.rows["score"][tile.rows, tile.columns] += tile.scores
        state.rows["seen"][tile.rows, tile.columns] += 1

    def done(self, state):
        return state.rows["score"], state.rows["seen"]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["pairs", "groups", "labelled", "proxies"])
def test_every_block_is_the_scores_of_its_batch(kind, metric):
    data = embeddings(kind)
    drawn = stack(data)
    view = engine.view(data, drawn, metric=metric, product="float64")
    ((score, seen),) = engine.run(view, [Everything()], tile=(8, 24))
    assert view.blocks == len(drawn) > 1
    where = [side.place.argsort() for side in view.sides]
    score, seen = (each[where[0]][:, where[1]] for each in (score, seen))
    inside = torch.zeros_like(seen)
    for k, batch in enumerate(drawn):
        rows, columns = slice(*view.rows[k : k + 2]), slice(*view.columns[k : k + 2])
        inside[rows, columns] = 1
        pairs = scores.pairs(data.to(dtype=torch.float64), batch, metric=metric)
        expected = torch.where(pairs.negative, pairs.scores, -torch.inf)
        torch.testing.assert_close(score[rows, columns], expected, atol=1e-9, rtol=1e-9)
        for direction, mask in enumerate((pairs.positive, pairs.positive.T)[: len(view.directions)]):
            stretch = (rows, columns)[direction]
            assert torch.equal(view.sides[direction].unsorted(view.counted(direction))[stretch], mask.sum(dim=1))
    assert torch.equal(seen, inside)
    negatives = [view.sides[k].unsorted(view.negatives(k)) for k in view.directions]
    assert torch.equal(negatives[0], (score > -torch.inf).logical_and(inside == 1).sum(dim=1))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["pairs", "groups", "labelled"])
def test_positives_and_exact_scores_are_those_of_the_batches(kind, metric):
    data = embeddings(kind)
    drawn = stack(data)
    view = engine.view(data, drawn, metric=metric)
    for direction in view.directions:
        query, other, score = view.scored(direction, 0, len(view.sides[direction]))
        places = (query, other) if direction == 0 else (other, query)
        found = torch.zeros(len(view.sides[0]), len(view.sides[1]), dtype=torch.float64)
        found[view.sides[0].place[places[0]], view.sides[1].place[places[1]]] = score
        expected = torch.zeros_like(found)
        for k, batch in enumerate(drawn):
            pairs = scores.pairs(data.to(dtype=torch.float64), batch, metric=metric)
            block = slice(*view.rows[k : k + 2]), slice(*view.columns[k : k + 2])
            expected[block] = torch.where(pairs.positive, pairs.scores, 0)
        torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)
        some = torch.arange(0, len(view.sides[direction]), 7)
        row = torch.full((len(some), len(view.sides[1 - direction])), torch.nan, dtype=torch.float64)
        for mine, columns, scored in view.exact_rows(direction, some):
            row[mine, columns] = scored
        pairs = dense_rows(view, direction, some[:1])
        there = torch.where(pairs.negative, pairs.scores, -torch.inf)[0]
        torch.testing.assert_close(row[0][: len(there)], there, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("compiled", [True, False])
def test_norms_and_positives_come_from_one_visit_of_the_rows(compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr(exact, "squares", lambda *_: None)
    generator = torch.Generator().manual_seed(0)
    query, candidate = torch.randn(2, 60, 33, generator=generator)
    order = torch.randperm(60, generator=generator)
    view = engine.view(cocos.Embeddings(query, candidate), [Batch(part, part, True) for part in order.split(25)])
    for side, matrix in zip(view.sides, (query, candidate), strict=True):
        torch.testing.assert_close(side.norm, matrix[side.order].double().norm(dim=1), rtol=1e-14, atol=0)
    found, _, score = view.scored(0, 0, 60)
    right = torch.cosine_similarity(query[view.sides[0].order].double(), candidate[view.sides[0].order].double())
    assert torch.equal(found, torch.arange(60))
    torch.testing.assert_close(score, right, rtol=0, atol=1e-14)


def test_hard_negatives_are_candidates_of_one_direction():
    data = embeddings("pairs")
    batch = Batch(torch.arange(5), torch.arange(8), paired=True, extra=3)
    with pytest.raises(InputError, match="its own view"):
        engine.view(data, batch)
    one = cocos.Embeddings(data.query, data.candidate, directions=("q2c",))
    view = engine.view(one, [batch, Batch(torch.arange(6, 9), torch.arange(6, 12), paired=True, extra=3)])
    assert view.negatives(0).tolist() == [7] * 5 + [5] * 3
    assert view.sides[0].partner.tolist() == [0, 1, 2, 3, 4, 8, 9, 10]


def test_rows_that_are_no_pairs_are_refused_in_a_stack_as_alone():
    data = embeddings("groups")
    with pytest.raises(InputError, match="expected one group"):
        engine.view(
            data, [Batch(torch.arange(3), torch.arange(3), True), Batch(torch.arange(3), torch.arange(1, 4), True)]
        )


@pytest.mark.parametrize(
    ("rows", "columns", "number"), [(4000, 3000, 8), (700, 5000, 10), (100, 90, 1), (20000, 9, 12)]
)
def test_the_longer_side_is_cut_into_parts(rows, columns, number):
    data = cocos.Embeddings(
        torch.ones(rows, 2),
        torch.ones(columns, 2),
        torch.zeros(rows, dtype=torch.int64),
        torch.zeros(columns, dtype=torch.int64),
    )
    parts = sweep.parts_of(engine.view(data))
    assert len(parts) == number
    covered = sum((p.rows.stop - p.rows.start) * (p.columns.stop - p.columns.start) for p in parts)
    assert covered == rows * columns


def test_pytorch_has_one_thread_of_its_own_where_workers_see_parts(monkeypatch):
    data, before, seen = embeddings("pairs"), torch.get_num_threads(), []

    def noted(*given):
        seen.append((torch.get_num_threads(), devices.workers()))
        return lengths(*given)

    lengths = exact.lengths
    monkeypatch.setattr(exact, "lengths", noted)
    monkeypatch.setattr(devices.os, "sched_getaffinity", lambda _: range(3), raising=False)
    try:
        torch.set_num_threads(2)
        view = engine.view(data, metric="euclidean")
        engine.run(view, [Everything()], progress=lambda *_: noted(data.query, torch.arange(2)))
        with devices.threads(1), devices.threads():
            noted(data.query, torch.arange(2))
        assert set(seen[:-1]) == {(1, 2)} and len(seen) > 3 and seen[-1] == (2, 2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("repeated", [False, True])
def test_norms_and_products_that_are_kept_are_those_of_the_rows(turned, repeated):
    """Batches of single pairs, of which one may stand in a batch twice: it is then its own group there."""
    generator = torch.Generator().manual_seed(3)
    query, candidate = torch.randn(2, 90, 33, generator=generator)
    place = torch.randperm(90, generator=generator)
    data = cocos.Embeddings(query, candidate[place], torch.arange(90), place)
    partner = torch.empty_like(place).index_copy_(0, place, torch.arange(90))
    rows = torch.randperm(90, generator=generator)[:80].split(20)
    rows = [torch.cat([each, each[:2]]) for each in rows] if repeated else rows
    some = [Batch(each, partner[each], paired=True) for each in rows]
    if turned:
        data, some = data.flip(), [batch.flip() for batch in some]
    view = engine.view(data, some, metric="cosine")
    for side in view.sides:
        torch.testing.assert_close(side.norm, exact.lengths(side.matrix, side.order), rtol=1e-15, atol=0)
    asking, other, score = view.scored(0, 0, len(view.sides[0]))
    assert torch.equal(data.query_group[view.sides[0].order[asking]], data.candidate_group[view.sides[1].order[other]])
    torch.testing.assert_close(score, view.exact(asking, other), rtol=0, atol=1e-15)
    sizes = torch.cat([torch.full_like(each, len(each)) for each in rows])
    own = torch.cat([(each[:, None] == each).sum(dim=1) for each in rows])
    assert torch.equal(view.sides[0].unsorted(view.negatives(0)), sizes - own)
