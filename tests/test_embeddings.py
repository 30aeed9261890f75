"""Embeddings, scores and pairs: what goes in is checked, and what comes out is the definition."""

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import cocos
from cocos import Embeddings, InputError, Pairs
from cocos.embeddings import matrices, scores, similarities
from cocos.embeddings.sampling import Batch


def sides(queries=4, captions=2, width=3, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    query = torch.randn(queries, width, generator=generator, dtype=dtype)
    candidate = torch.randn(queries * captions, width, generator=generator, dtype=dtype)
    return query, candidate, torch.arange(queries), torch.arange(queries).repeat_interleave(captions)


@given(st.integers(1, 6), st.integers(1, 4), st.booleans())
@settings(max_examples=20)
def test_flip_twice_is_the_identity(queries, captions, proxies):
    embeddings = Embeddings(*sides(queries, captions), directions=("s2p",) if proxies else ("q2c", "c2q"))
    twice = embeddings.flip().flip()
    assert twice.directions == embeddings.directions
    for name in ("query", "candidate", "query_group", "candidate_group"):
        assert torch.equal(getattr(twice, name), getattr(embeddings, name))
    assert torch.equal(embeddings.flip().query, embeddings.candidate)
    assert embeddings.flip().directions == (("p2s",) if proxies else ("c2q", "q2c"))


def test_rows_without_groups_match_by_number():
    query, _, _, _ = sides()
    assert Embeddings(query, query).candidate_group.tolist() == [0, 1, 2, 3]


def test_sample_is_not_its_own_candidate():
    query, _, _, _ = sides()
    pairs = scores.pairs(Embeddings.labelled(query, [0, 0, 1, 1]))
    assert pairs.positive.tolist() == [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]
    assert not (pairs.positive | pairs.negative).diagonal().any()


def test_proxies_are_positives_of_their_class():
    query, _, _, _ = sides()
    pairs = scores.pairs(Embeddings.labelled(query, [5, 7, 7, 5], proxies=query[:3], proxy_labels=[7, 5, 5]))
    assert pairs.positive.tolist() == [[0, 1, 1], [1, 0, 0], [1, 0, 0], [0, 1, 1]]
    assert torch.equal(pairs.negative, ~pairs.positive)


@pytest.mark.parametrize(("rule", "negatives"), [("ignore", 2), ("negative", 3)])
def test_captions_of_one_image_follow_rule(rule, negatives):
    embeddings = Embeddings(*sides())
    batch = Batch(torch.tensor([0, 0, 2, 1]), torch.tensor([0, 1, 4, 2]), paired=True)
    pairs = scores.pairs(embeddings, batch, same_group=rule)
    assert torch.equal(pairs.positive, torch.eye(4, dtype=torch.bool))
    assert pairs.negative.sum(dim=1).tolist() == [negatives, negatives, 3, 3]


@pytest.mark.parametrize("metric", similarities.METRICS)
def test_scores_are_their_definition(metric):
    query, candidate, _, _ = sides()
    found = similarities.METRICS[metric](query, candidate)
    for i, q in enumerate(query.tolist()):
        for j, c in enumerate(candidate.tolist()):
            inner = math.fsum(a * b for a, b in zip(q, c, strict=True))
            distance = math.dist(q, c)
            z, w = ([complex(*each) for each in zip(x[:2], [*x[2:], 0.0], strict=True)] for x in (q, c))
            turned = sum(a * b.conjugate() for a, b in zip(z, w, strict=True))
            slow = {
                "angle": abs(turned.real + turned.imag) / (math.hypot(*q) * math.hypot(*c)),
                "dot": inner,
                "cosine": inner / (math.hypot(*q) * math.hypot(*c)),
                "cosine_dot": inner / math.hypot(*q),
                "projection": inner / math.hypot(*c),
                "chord": -math.sqrt(max(0.0, 2 - 2 * inner / (math.hypot(*q) * math.hypot(*c)))),
                "euclidean": -distance,
                "squared_euclidean": -(distance**2),
                "squared_chord": 2 * inner / (math.hypot(*q) * math.hypot(*c)) - 2,
                "mahalanobis": -(distance**2),
            }[metric]
            assert found[i, j].item() == pytest.approx(slow, rel=1e-12)


def test_mahalanobis_divides_by_the_variance():
    query, candidate, _, _ = sides()
    variance = torch.rand(candidate.shape, generator=torch.Generator().manual_seed(1), dtype=query.dtype) + 0.1

    slow = torch.stack([-((row - candidate).square() / variance).sum(dim=1) for row in query])
    torch.testing.assert_close(similarities.mahalanobis(query, candidate, variance), slow)
    labels = torch.arange(len(candidate))
    whole = Embeddings.labelled(query, labels[: len(query)], candidate, labels, variance)
    torch.testing.assert_close(scores.pairs(whole, metric="mahalanobis").scores, slow)
    assert whole.to(dtype=torch.float32).candidate_variance.dtype == torch.float32


@pytest.mark.parametrize(
    ("variance", "sentence"),
    [
        (torch.ones(2, 2), "candidate_variance: shape (2, 2) and smallest value 1, expected values above 0 in the"),
        (torch.zeros(3, 2), "smallest value 0, expected values above 0"),
    ],
)
def test_unusable_variance_is_refused(variance, sentence):
    with pytest.raises(InputError, match=re.escape(sentence)):
        Embeddings.labelled(torch.ones(4, 2), torch.arange(4) % 3, torch.ones(3, 2), proxy_variance=variance)
    with pytest.raises(InputError, match="a variance belongs to a proxy"):
        Embeddings.labelled(torch.ones(4, 2), torch.arange(4) % 3, proxy_variance=torch.ones(4, 2))


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_cosine_survives_extreme_norms_in_float32(size):
    query, candidate, _, _ = sides(dtype=torch.float32)
    torch.testing.assert_close(similarities.cosine(query * size, candidate), similarities.cosine(query, candidate))


def test_block_has_its_queries():
    embeddings = Embeddings(*sides())
    batch = Batch(torch.tensor([3, 1, 0]), torch.tensor([6, 2, 0]), paired=True)
    whole, block = scores.pairs(embeddings, batch), scores.pairs(embeddings, batch, block=slice(1, 3))
    for name in ("scores", "positive", "negative", "query_norm"):
        assert torch.equal(getattr(block, name), getattr(whole, name)[1:3])


BAD, YES = float("nan"), torch.ones(1, 2, dtype=torch.bool)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((torch.ones(2, 3), torch.ones(2, 4)), "query has width 3 and candidate has width 4"),
        ((torch.ones(2, 3), torch.ones(3, 3)), "2 query rows, 3 candidate rows and no groups"),
        ((torch.ones(3), torch.ones(2, 4)), "query: shape (3,), expected two dimensions"),
        ((torch.ones(0, 3), torch.ones(2, 3)), "query: shape (0, 3), expected two dimensions"),
        ((torch.ones(2, 3).long(), torch.ones(2, 3)), "query: dtype torch.int64, expected a floating-point dtype"),
        ((torch.tensor([[1.0], [BAD]]), torch.ones(2, 1)), "query: NaN or infinity in row 1 (of 2)"),
        ((torch.ones(9, 1), torch.full((9, 1), math.inf)), "infinity in rows 0, 1, 2, 3, 4 and 4 more (of 9)"),
        ((torch.ones(2, 3), torch.ones(2, 3).double()), "give both the same dtype and device"),
        ((torch.ones(2, 3), torch.ones(2, 3), [0, 1], None), "candidate_group is missing"),
        ((torch.ones(2, 3), torch.ones(2, 3), [0, 1], [0]), "candidate_group: shape (1,), expected (2,)"),
        ((torch.ones(2, 3), torch.ones(2, 3), [0.0, 1.0], [0, 1]), "query_group: dtype torch.float32, expected integ"),
        ((torch.ones(2, 3), torch.ones(2, 3), None, None, ("a", "a")), "expected one name or two different ones"),
    ],
)
def test_unusable_embeddings_are_refused(arguments, sentence):
    with pytest.raises(InputError) as error:
        Embeddings(*arguments)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((torch.ones(2), torch.ones(2).bool()), "expected a floating-point tensor (queries, candidates)"),
        ((torch.ones(1, 2), torch.ones(1, 2)), "positive: torch.float32 of shape (1, 2), expected a bool tensor"),
        ((torch.ones(1, 2), YES, torch.ones(1, 3).bool()), "negative: torch.bool of shape (1, 3)"),
        ((torch.ones(1, 2), YES, YES), "pair (0, 0) is both positive and"),
        ((torch.tensor([[BAD, 1]]), YES), "scores: NaN or infinity in row 0"),
        ((torch.ones(1, 2), YES, None, torch.ones(3)), "candidate_group: shape (3,), expected (2,)"),
    ],
)
def test_unusable_pairs_are_refused(arguments, sentence):
    with pytest.raises(InputError) as error:
        Pairs(*arguments)
    assert sentence in str(error.value)


def test_zero_vectors_are_refused_under_cosine():
    embeddings = Embeddings(torch.tensor([[0.0], [1.0]]), torch.ones(2, 1))
    with pytest.raises(InputError, match="query: zero vector in row 0"):
        similarities.check(embeddings, "cosine")
    similarities.check(embeddings, "dot")


def test_unknown_metric_or_rule_is_refused():
    embeddings = Embeddings(*sides())
    with pytest.raises(InputError, match="did you mean 'cosine'"):
        scores.pairs(embeddings, metric="cosin")
    with pytest.raises(InputError, match="'drop', expected one of ignore, negative"):
        scores.pairs(embeddings, same_group="drop")


def test_memory_map_is_not_copied(tmp_path):
    values = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    np.save(tmp_path / "rows.npy", values)
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
    for embeddings in (Embeddings(rows[:20], rows[20:]), Embeddings.labelled(rows, np.arange(40) // 4)):
        assert embeddings.query.data_ptr() == rows.ctypes.data


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_extreme_rows_are_finite_and_nonzero(dtype, bad, monkeypatch):
    """Rows whose squares leave the range of the dtype, above or below, are neither."""
    monkeypatch.setattr(matrices, "ENTRIES_AT_ONCE", 64)
    rows = torch.ones(30, 8, dtype=dtype)
    most, least = torch.finfo(dtype).max, torch.finfo(dtype).tiny
    rows[3], rows[7] = most, least
    found = Embeddings(rows, rows.clone(), torch.arange(30), torch.arange(30) + 30)
    similarities.check(found, "cosine")
    rows[11, 5] = bad
    with pytest.raises(InputError, match=r"candidate: NaN or infinity in row 11 \(of 30\)"):
        Embeddings(rows[:1].expand(30, 8), rows)
    rows[11, 5], rows[23] = 1, 0
    with pytest.raises(InputError, match="candidate: zero vector in row 23"):
        similarities.check(Embeddings(rows[:1].expand(30, 8), rows), "cosine")


def test_derived_values_are_computed_once():
    generator = torch.Generator().manual_seed(0)
    found = Embeddings(torch.randn(6, 4, generator=generator), torch.randn(6, 4, generator=generator))
    assert found.norms[0] is found.norms[0] and found.flip().norms[0] is found.norms[1]
    assert found.to(dtype=torch.float32) is found and found.to("cpu") is found
    double = found.to(dtype=torch.float64)
    assert double.norms[0].dtype == torch.float64
    torch.testing.assert_close(double.norms[1], found.candidate.double().norm(dim=1))
    with pytest.raises(InputError, match="query: NaN or infinity in row 2"):
        Embeddings(torch.eye(4).double() * torch.tensor([1, 1, 1e300, 1])[:, None], torch.eye(4).double()).to(
            dtype=torch.float32
        )


@pytest.mark.parametrize("ids", [lambda x: x, lambda x: x * 10**15 - 4, lambda x: 7 * x, lambda x: x - 9])
def test_groups_are_numbered_by_id(ids):
    query, candidate = torch.tensor([3, 1, 1, 8]), torch.tensor([1, 8, 5, 3, 3])
    found = Embeddings(torch.ones(4, 2), torch.ones(5, 2), ids(query), ids(candidate)).groups
    assert (found.query.tolist(), found.candidate.tolist()) == ([1, 0, 0, 3], [0, 3, 2, 1, 1])
    assert (found.queries.tolist(), found.candidates.tolist()) == ([2, 1, 0, 1], [1, 2, 1, 1])
    assert not found.single and Embeddings(torch.ones(4, 2), torch.eye(4)[:, :2]).groups.single


@pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean", "squared_euclidean"])
@pytest.mark.parametrize(("paired", "same_group"), [(True, "ignore"), (True, "negative"), (False, "ignore")])
def test_flipped_pairs_equal_other_direction(metric, paired, same_group):
    query, candidate, _, groups = sides(8, 1)
    set_ = Embeddings(query, candidate, groups // 2, groups // 2)
    batch = Batch(torch.arange(8), torch.arange(8), paired=paired)
    found = scores.pairs(set_, batch, metric=metric, same_group=same_group).flip()
    right = scores.pairs(set_.flip(), batch.flip(), metric=metric, same_group=same_group)
    for name in ("scores", "positive", "negative", "candidate_group", "query_norm", "candidate_norm"):
        torch.testing.assert_close(getattr(found, name), getattr(right, name))
    assert torch.equal(found.embeddings.query, right.embeddings.query)


def test_flip_keeps_hard_negatives():
    rows = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    negatives = torch.tensor([[1], [2], [0]])
    given = Embeddings(rows[:3], rows[3:], torch.arange(3), torch.arange(3), negatives=negatives)
    flipped = given.flip()
    assert flipped.negatives is None and torch.equal(flipped.candidate_negatives, negatives)
    assert torch.equal(flipped.flip().negatives, negatives) and flipped.flip().candidate_negatives is None


ROWS = torch.randn(12, 4, generator=torch.Generator().manual_seed(3))
SAVED = {
    "pairs": Embeddings(ROWS, ROWS + 1, names=([f"a{i}" for i in range(12)], None), directions=("i2t", "t2i")),
    "groups": Embeddings(ROWS[:4], ROWS[4:], torch.arange(4), torch.arange(8) % 4, grades=None, logq=-torch.ones(8)),
    "hard negatives": Embeddings(
        ROWS[:3], ROWS, torch.arange(3), torch.arange(12), negatives=torch.tensor([[4], [5], [-1]])
    ),
    "labelled": Embeddings.labelled(ROWS, torch.arange(12) % 3),
    "proxies": Embeddings.labelled(ROWS, torch.arange(12) % 3, ROWS[:3] + 1, names=(None, ["x", "y", "z"])),
    "bfloat16": Embeddings(ROWS.bfloat16(), (ROWS + 1).bfloat16()),
    "teacher": Embeddings(ROWS[:4], ROWS[4:], torch.arange(4), torch.arange(8) % 4, teacher=ROWS[:4] @ ROWS[4:].T),
}


@pytest.mark.parametrize("name", SAVED)
def test_saved_embeddings_open_unchanged(tmp_path, name):
    embeddings = SAVED[name]
    opened = cocos.open(embeddings.save(tmp_path / "x.npz")).embed(device="cpu")
    assert (opened.directions, opened.names, opened.shared) == (
        embeddings.directions,
        embeddings.names,
        embeddings.shared,
    )
    for field in ("query", "candidate", "query_group", "candidate_group", "negatives", "grades", "logq"):
        first, second = getattr(opened, field), getattr(embeddings, field)
        assert (first is None) == (second is None) and (second is None or torch.equal(first, second.to(first.dtype)))
    if embeddings.teacher is not None:
        assert torch.equal(opened.teacher.matrix, embeddings.teacher.matrix)


@pytest.mark.parametrize(("change", "path", "part"), [
    ({"queue": ROWS}, "x.npz", "queue"),
    ({"marks": {"alike": (torch.arange(12), torch.arange(12))}}, "x.npz", "marks"),
    ({}, "x.pt", "suffix '.pt'"),
    ({}, "missing/x.npz", "cannot be written"),
])  # fmt: skip
def test_save_refuses_what_no_file_holds(tmp_path, change, path, part):
    with pytest.raises(InputError, match=part):
        Embeddings(ROWS, ROWS + 1, **change).save(tmp_path / path)
    assert not list(tmp_path.iterdir())
