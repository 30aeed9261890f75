"""Candidates of several sources through the engine, against the matrix of all columns in float64."""

import functools
import math

import numpy as np
import pytest
import torch

from cocos import Embeddings, losses, measures
from cocos.counting import statistics
from cocos.embeddings import scores
from cocos.embeddings.batches import Batch, _with_negatives
from cocos.embeddings.sources import GTE_DIRECTIONS, SOURCES
from cocos.engine.columns import columns, fits
from cocos.engine.kernel import structs
from cocos.engine.readers.columns import ColumnsReader, scales, serves

FOUR = {"directions": GTE_DIRECTIONS}
LOSSES = {
    "mnrl": ("mnrl", {}),
    "ntxent": ("ntxent", {"temperature": 0.1}),
    "supcon": ("supcon", {}),
    "dcl": ("dcl", {}),
    "four directions": ("mnrl", FOUR),
    "sharp": ("mnrl", FOUR | {"scale": 200.0}),
    "harder": ("mnrl", FOUR | {"hardness": 9.0}),
    "harder own": ("mnrl", {"hardness": 5.0, "hardness_on": "hard"}),
    "harder batch": ("mnrl", FOUR | {"hardness": 5.0, "hardness_on": "in-batch"}),
    "each direction": ("mnrl", {"directions": GTE_DIRECTIONS[::2], "partition": "per_direction"}),
    "other queries": ("mnrl", {"directions": GTE_DIRECTIONS[:2]}),
}


def loss_of(name):
    return losses.load(*LOSSES[name])


@functools.cache
def embeddings(kind="own", number=90, width=12, dtype=torch.float32):
    """Pairs with three own hard negatives a query: of rows that no pair has, or of any rows, some named twice."""
    generator = torch.Generator().manual_seed(5)

    def drawn(rows):
        return torch.randn(rows, width, generator=generator, dtype=torch.float64)

    query, more = drawn(number), 40
    candidate = torch.cat([query + 1.2 * drawn(number), 0.8 * drawn(more) + query[:more]])
    group = torch.arange(number) // (2 if kind == "captions" else 1)
    groups = torch.cat([group, 1000 + torch.arange(more)])
    negatives = torch.randint(number, number + more, (number, 3), generator=generator)
    if kind != "own":
        negatives[::3, 0] = torch.randint(0, number, (-(-number // 3),), generator=generator)
        negatives[5], negatives[7, 1], negatives[8] = negatives[5, 0], -1, -1
    if kind == "duplicates":
        candidate[number : number + 6] = candidate[:6]  # hard negatives that are the positive of a query
        negatives[:6] = number + torch.arange(6)[:, None]
        query[20:40] = query[:1]
    negatives[(negatives >= 0) & (group[:, None] == groups[negatives.clamp(min=0)])] = -1
    return Embeddings(query.to(dtype), candidate.to(dtype), group, groups, directions=("q2c",), negatives=negatives)


def batches(given, sizes=(90,)):
    """Batches of pairs with the hard negatives of their queries."""
    rows = torch.arange(len(given.query)).split(list(sizes))
    return [_with_negatives(Batch(each, each, paired=True), given.negatives, None) for each in rows]


def dense(given, some, loss, eps, same_group="ignore"):
    """All statistics from the matrix of all columns in float64."""
    every = []
    for batch in some:
        pairs = scores.pairs(
            given.to(dtype=torch.float64),
            batch,
            metric=loss.metric,
            same_group=same_group,
            directions=loss.directions,
        )
        weight, unit = loss.weight(pairs), loss.unit(pairs)
        own = statistics.per_query(weight, unit, pairs, eps, equal=1e-9)
        every.append(own | statistics.by_source(weight, unit, pairs, eps) | {"negatives": pairs.negative.sum(dim=1)})
    return {name: torch.cat([each[name] for each in every]) for name in every[0]}


def read(given, some, loss, eps, same_group="ignore", product="float32"):
    reader = ColumnsReader(loss, eps)
    directions, options = loss.directions, {"metric": loss.metric, "product": product}
    return reader.read(columns(given, some, directions=directions, same_group=same_group, once=reader.alike, **options))


def check(found, right, what, room=2e-5):
    assert not right.keys() - found.keys(), what
    for name, doubt in (("contributing", "uncertain"), ("relative", "relative_uncertain")):
        assert ((found[name] - right[name]).abs() <= found[doubt]).all(), f"{what}: {name}"
        assert (found[doubt] <= right[doubt]).all(), f"{what}: {name} is not decided"
    for name in right.keys() - {"contributing", "relative", "uncertain", "relative_uncertain"}:
        want, got = right[name], found[name]
        if not want.is_floating_point():
            off = (got - want).abs()
            unsure = found["uncertain"].reshape(-1, *[1] * (want.ndim - 1))
            assert (off <= (unsure if "contributing" in name else 0)).all(), f"{what}: {name}"
            continue
        moved = found["uncertain"] * 0.02 if name in {"weight_above", "weight_below"} else 0
        size = right["push"] if name.endswith(("push", "pull")) else want.abs() + want.abs().amax() * 0.1
        size = size + right["weight_above"] if name == "weight_below" else size  # it is what is left over
        size = size[:, None] if want.ndim > 1 and size.ndim == 1 else size
        off = (got - want).abs()
        assert (off <= room * size + 1e-6 + moved).all(), f"{what}: {name} is off by {off.max():.3g}"


@pytest.mark.parametrize("kind", ["shared", "captions", "duplicates"])
@pytest.mark.parametrize("name", LOSSES)
def test_all_columns_are_counted_as_in_one_matrix(kind, name):
    given, loss = embeddings(kind), loss_of(name)
    room = 2e-5 * (1 + max(scales(loss)) / 20)
    for sizes in ((90,), (20, 45, 25)):
        for same_group in ("ignore", "negative"):
            eps = 1e-4 if len(sizes) == 1 and same_group == "ignore" else 0.01
            some, what = batches(given, sizes), f"{kind}, {name}, {sizes}, {same_group}, {eps}"
            found = read(given, some, loss, eps, same_group)
            check(found, dense(given, some, loss, eps, same_group), what, room)
            assert (found["source_negatives"].sum(dim=1) == found["negatives"]).all(), what


@pytest.mark.parametrize("eps", [0.0, 0.3, 1.0])
def test_every_threshold(eps):
    given, loss = embeddings("shared"), loss_of("four directions")
    some = batches(given)
    found = read(given, some, loss, eps)
    check(found, dense(given, some, loss, eps), f"eps {eps}")
    assert (found["contributing"] == found["negatives"]).all() == (eps == 0)


def test_the_sources_of_one_query_by_hand():
    """Scores 1 for the positive, 0 in the batch, 1/2 and 1/2 for hard negatives: own, and of the other query."""
    half = math.sqrt(0.75)
    query = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    candidate = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.0, half], [0.5, 0.0, -half]])
    negatives = torch.tensor([[2], [3]])
    given = Embeddings(query, candidate, torch.arange(2), torch.arange(4), directions=("q2c",), negatives=negatives)
    found = read(given, batches(given, (2,)), losses.load("mnrl", {"scale": 2.0}), 0.01)
    whole = math.exp(2) + 1 + 2 * math.e
    rest = [0] * (len(SOURCES) - 3)
    expected = [2 / whole, 2 * math.e / whole, 2 * math.e / whole, *rest]
    torch.testing.assert_close(found["source_push"][0], torch.tensor(expected, dtype=torch.float64), rtol=1e-6, atol=0)
    assert found["source_contributing"][0].tolist() == [1, 1, 1, *rest]
    part = [1 / (1 + 2 * math.e), math.e / (1 + 2 * math.e), math.e / (1 + 2 * math.e)]
    assert float(found["effective"][0]) == pytest.approx(math.exp(-sum(p * math.log(p) for p in part)), rel=1e-6)


@pytest.mark.skipif(structs.loaded() is None, reason="there is no compiled kernel")
def test_a_batch_larger_than_a_strip_and_a_tile_of_the_kernel():
    given, loss = embeddings("shared", 800), loss_of("four directions")
    some = batches(given, (800,))
    check(read(given, some, loss, 0.01), dense(given, some, loss, 0.01), "large")


@pytest.mark.parametrize("name", ["mnrl", "four directions", "ntxent"])
def test_the_public_count_is_that_of_stored_scores(name):
    """`n90` sorts all scores, which are then stored."""
    given, loss = embeddings("shared"), loss_of(name)
    both = [measures.count(given, loss, batch_size=30, seed=2, n90=n90) for n90 in (False, True)]
    assert [data.attrs["dtype"] for data in both] == ["float32", "float64"]
    for key in ("contributing", "relative_per_query", "source_negatives", "source_contributing", "source_pulled"):
        np.testing.assert_array_equal(both[0][key].values, both[1][key].values, err_msg=key)
    for key in ("source_push", "push_per_query", "effective_per_query", "weight_above_per_query"):
        if key in both[0]:
            np.testing.assert_allclose(both[0][key].values, both[1][key].values, rtol=1e-3, atol=1e-4, err_msg=key)
    assert both[0]["source"].values.tolist() == both[1]["source"].values.tolist()
    assert set(both[0]["source"].values.tolist()) <= set(SOURCES)


def test_two_losses_of_different_directions_are_counted_apart():
    given = embeddings("shared")
    both = measures.count(given, [loss_of("mnrl"), loss_of("four directions")], batch_size=30)
    for name, one in zip(("mnrl", "four directions"), both.values(), strict=True):
        alone = measures.count(given, loss_of(name), batch_size=30)
        np.testing.assert_array_equal(one["contributing"].values, alone["contributing"].values)
        np.testing.assert_array_equal(one["source"].values, alone["source"].values)
        np.testing.assert_allclose(one["source_push"].values, alone["source_push"].values)


def test_what_is_stored_all_the_same():
    given = embeddings("own")
    some = batches(given)
    assert scales(losses.load("mnrl", {"filter": "self"})) is None  # suspects are found by their scores
    assert scales(losses.load("snm")) is None and scales(losses.load("triplet")) is None
    assert serves(loss_of("mnrl"), given, some, "ignore")
    assert not fits(given, [Batch(some[0].query_index, some[0].candidate_index, False, some[0].extra)], "cosine", ())
    assert not fits(given, some, "cosine_dot", GTE_DIRECTIONS) and fits(given, some, "cosine", GTE_DIRECTIONS)
    assert not fits(given, some, "cosine", (*GTE_DIRECTIONS, "query-words"))  # of which there are no views
    data = measures.count(given, losses.load("mnrl", {"filter": "self"}), batch_size=30)
    assert data.attrs["dtype"] == "float64"
