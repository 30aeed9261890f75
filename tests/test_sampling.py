"""Sampling of batches: seeded, without replacement, and the promises of each kind of sampling."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cocos import Embeddings, InputError, checkpoints, engine, losses, measures, reports
from cocos.embeddings import scores
from cocos.embeddings.sampling import Batch, plan
from cocos.reports import table


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def captions(images=23, number=5, width=4):
    """Images with some captions each."""
    group = torch.arange(images).repeat_interleave(number)
    return Embeddings(normal(images, width), normal(len(group), width, seed=1), torch.arange(images) + 100, group + 100)


def questions(number=150, passages=30, width=8):
    """Questions that share passages, in random order."""
    group = (torch.arange(number) % passages)[torch.randperm(number, generator=torch.Generator().manual_seed(0))]
    candidate = normal(passages, width)
    return Embeddings(candidate[group] + normal(number, width, seed=1), candidate, group, torch.arange(passages))


def labelled(sizes):
    labels = torch.cat([torch.full((n,), k) for k, n in enumerate(sizes)])
    return Embeddings.labelled(normal(len(labels), 3), labels)


def hard_negatives(number=40, width=8, others=25):
    """Pairs, and further candidates that some queries list as their hard negatives."""
    query = normal(number, width, seed=2)
    candidate = torch.cat([query, query[:others]]) + normal(number + others, width, seed=3) / 2
    negatives = torch.full((number, 3), -1)
    negatives[:others, 0] = number + torch.arange(others)
    negatives[:others, 1] = (torch.arange(others) + 1) % number
    group = torch.arange(number + others)
    return Embeddings(query, candidate, group[:number], group, negatives=negatives)


def count_rows(plan, side, number):
    """Count how often each row of a side is drawn in a pass."""
    return torch.bincount(torch.cat([getattr(batch, f"{side}_index") for batch in plan.batches]), minlength=number)


SIZES = {  # set, options, queries of each batch
    "pairs": (captions(), {"batch_size": 32}, [32, 32, 32, 19]),
    "pairs in two passes": (captions(), {"batch_size": 60, "batches": 5}, [60, 55, 60, 55, 60]),
    "groups": (captions(), {"sample": "groups", "batch_size": 8}, [8, 8, 7]),
    "some of each group": (captions(), {"sample": "groups", "batch_size": 8, "per_group": 2}, [8, 8, 7]),
    "two classes": (labelled([50, 50]), {"sample": "groups", "batch_size": 20}, [20] * 5),
    "proxies": (
        Embeddings.labelled(normal(10, 3), torch.arange(10) % 3, proxies=normal(3, 3, seed=1)),
        {"batch_size": 4},
        [4, 4, 2],
    ),
    "questions": (questions(), {"batch_size": 40}, [40, 40, 40, 30]),
    "a pair alone": (captions(images=13), {"batch_size": 32}, [32, 32]),
}


@pytest.mark.parametrize("name", SIZES)
def test_pass_has_full_batches_of_distinct_rows(name):
    embeddings, options, sizes = SIZES[name]
    drawn = plan(embeddings, **options)
    assert [len(batch.query_index) for batch in drawn.batches] == sizes
    for batch in drawn.batches:
        query, candidate = embeddings.query_group[batch.query_index], embeddings.candidate_group[batch.candidate_index]
        if name.startswith("pairs"):
            assert batch.paired and torch.equal(query, candidate)
        elif "group" in name:
            assert torch.equal(candidate, query.repeat_interleave(options.get("per_group", 5)))
            assert len(batch.candidate_index.unique()) == len(batch.candidate_index)
        elif name == "proxies":
            assert batch.candidate_index.tolist() == [0, 1, 2]
        elif name == "questions":
            pairs = scores.pairs(embeddings, batch)
            assert (pairs.positive.sum(dim=1) == 1).all() and torch.equal(pairs.negative, ~pairs.positive)
    seeds = [plan(embeddings, **options, seed=seed).batches[0].query_index for seed in (3, 3, 4)]
    assert torch.equal(seeds[0], seeds[1]) and not torch.equal(seeds[0], seeds[2])


@given(
    sizes=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=2, max_size=12),
    size=st.integers(2, 20),
    seed=st.integers(0, 99),
)
@settings(max_examples=60)
def test_pairs_draw_the_larger_side_once(sizes, size, seed):
    """And the smaller side at least once."""
    groups = [torch.cat([torch.full((pair[side],), k) for k, pair in enumerate(sizes)]) for side in (0, 1)]
    embeddings = Embeddings(*(normal(len(group), 3, seed=side) for side, group in enumerate(groups)), *groups)
    try:
        drawn = plan(embeddings, batch_size=size, seed=seed)
    except InputError as error:
        assert "no batch holds two groups" in str(error)
        return
    number = dict(zip(("query", "candidate"), map(len, groups), strict=True))
    drawn_once = {side: (count_rows(drawn, side, number[side]) <= 1).all() for side in number}
    larger, smaller = sorted(number, key=lambda side: (number[side], drawn_once[side]), reverse=True)
    times = count_rows(drawn, larger, number[larger])
    rest = sum(int(note.split(": ")[1].split()[0]) for note in drawn.undrawn)
    assert (times <= 1).all() and int((times == 0).sum()) == rest
    assert rest or (count_rows(drawn, smaller, number[smaller]) >= 1).all()
    for batch in drawn.batches:
        query, candidate = embeddings.query_group[batch.query_index], embeddings.candidate_group[batch.candidate_index]
        assert set(query.tolist()) == set(candidate.tolist())
        for index in () if batch.paired else (batch.query_index, batch.candidate_index):
            assert len(index.unique()) == len(index)


def test_classes_are_drawn_once_and_not_alone():
    embeddings = labelled([9, 4, 5, 2, 3, 7, 8, 11])
    drawn = plan(embeddings, sample="groups", batch_size=16, per_group=4)
    assert (count_rows(drawn, "query", 49) == 1).all()
    for batch in drawn.batches:
        assert len(batch.query_index) <= 16
        assert embeddings.query_group[batch.query_index].unique(return_counts=True)[1].min() >= 2


def test_candidates_of_a_group_are_all_eligible():
    embeddings = Embeddings(normal(6, 4), normal(60, 4, seed=1), torch.arange(6), torch.arange(60) // 10)
    options = {"sample": "groups", "per_group": 2}
    drawn = {tuple(plan(embeddings, **options, seed=k).batches[0].candidate_index.tolist()) for k in range(20)}
    assert len(drawn) > 10 and {row % 10 for rows in drawn for row in rows} == set(range(10))


def test_matched_pairs_repeat_a_candidate_per_query():
    drawn = plan(questions(), batch_size=40, matched=True)
    assert (count_rows(drawn, "query", 150) == 1).all()
    for batch in drawn.batches:
        assert batch.paired and len(batch.query_index) == len(batch.candidate_index)


WHOLE = questions()
MORE = torch.cat([WHOLE.candidate, normal(500, 8, seed=1)])
NOTES = {  # set, options, sentence
    "pairs above the set": (captions(), {"batch_size": 5000}, "above the 115 pairs there are"),
    "groups above the set": (captions(), {"sample": "groups", "batch_size": 5000}, "above the 23 queries there are"),
    "a pair alone": (captions(images=13), {"batch_size": 32}, "for want of a negative in their batch: 1 pairs"),
    "a large class": (labelled([40, 4, 4]), {"sample": "groups", "batch_size": 16}, "for want of a negative"),
    "orphans": (
        Embeddings(WHOLE.query, MORE, WHOLE.query_group, torch.arange(530)),
        {"batch_size": 40},
        "500 candidates have no query and are not drawn",
    ),
}


@pytest.mark.parametrize("name", NOTES)
def test_undrawn_rows_are_noted(name):
    embeddings, options, sentence = NOTES[name]
    drawn = plan(embeddings, **options)
    assert len(drawn.notes) == 1 and sentence in drawn.notes[0]
    assert drawn.undrawn == (() if "above" in sentence else drawn.notes)
    if name == "orphans":  # the side with more rows is not the larger one: they have no partner
        assert (count_rows(drawn, "query", 150) == 1).all()
    for batch in drawn.batches:
        assert len(embeddings.candidate_group[batch.candidate_index].unique()) > 1


ONE = torch.zeros(4, dtype=torch.int64)
LONELY = captions().candidate_group != 107
REFUSED = {  # set, options, sentence
    "size of one": (captions(), {"batch_size": 1}, "batch size: 1, expected an integer of at least 2"),
    "size as float": (captions(), {"batch_size": 64.0}, "batch size: 64.0, expected an integer"),
    "negative seed": (captions(), {"seed": -1}, "seed: -1, expected an integer from 0"),
    "no batches": (captions(), {"batches": 0}, "batches: 0, expected an integer from 1"),
    "unknown kind": (captions(), {"sample": "triplets"}, "sample: 'triplets', expected one of pairs, groups"),
    "unknown copies": (captions(), {"copies": "twice"}, "copies: 'twice', expected one of once, keep"),
    "none per group": (captions(), {"sample": "groups", "per_group": 0}, "per group: 0, expected an integer of at"),
    "pairs per group": (captions(), {"per_group": 2}, "per group: 2, but only batches of groups have it"),
    "pairs of a labelled set": (labelled([2, 3]), {"sample": "pairs"}, "a labelled set is drawn by class"),
    "one class of two": (labelled([1, 3]), {"sample": "groups"}, "1 of 2 classes"),
    "size below two classes": (
        *(labelled([9, 9]), {"sample": "groups", "batch_size": 7, "per_group": 4}),
        "batch size: 7, expected at least 8: samples of two classes",
    ),
    "one class": (Embeddings.labelled(normal(4, 2), ONE), {"sample": "groups"}, "4 candidates of one group"),
    "one group": (Embeddings(normal(4, 2), normal(4, 2, seed=1), ONE, ONE), {}, "4 candidates of one group"),
    "two classes apart": (labelled([3, 3]), {"sample": "groups", "batch_size": 4}, "no batch holds two groups"),
    "a lone query": (
        *(Embeddings(normal(1, 2), normal(3, 2), ONE[:1], torch.arange(3)), {"sample": "groups", "batch_size": 8}),
        "no batch holds two groups",
    ),
    "no positive": (
        Embeddings(
            *(captions().query, captions().candidate[LONELY], captions().query_group),
            captions().candidate_group[LONELY],
        ),
        {},
        "query row 7: no positive (no candidate of group 107)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unusable_options_and_sets_are_refused(name):
    embeddings, options, sentence = REFUSED[name]
    with pytest.raises(InputError) as error:
        plan(embeddings, **options)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("candidates", "sentence"),
    [([0, 2, 1], "query 1 of group 101 with candidate 2 of group 102"), ([0, 1], "paired, with 3 queries and 2 cand")],
)
def test_batch_of_unmatched_pairs_is_refused(candidates, sentence):
    embeddings, batch = captions(images=4, number=1), Batch(torch.arange(3), torch.tensor(candidates), paired=True)
    for call in (
        lambda: scores.pairs(embeddings, batch),
        lambda: engine.view(embeddings, batch),
        lambda: measures.count(embeddings, "ntxent", batches=[batch]),
    ):
        with pytest.raises(InputError, match=sentence):
            call()


def test_hard_negatives_are_drawn_with_their_query():
    embeddings = hard_negatives()
    drawn = plan(embeddings, batch_size=8)
    assert drawn.notes == () and (count_rows(drawn, "candidate", 65) >= 1).all()
    without = plan(embeddings.replace(negatives=None), batch_size=8)
    assert without.undrawn == ("25 candidates have no query and are not drawn",)
    for batch, bare in zip(drawn.batches, without.batches, strict=True):
        assert torch.equal(batch.candidate_index[:8], bare.candidate_index)
        listed = {int(row) for row in embeddings.negatives[batch.query_index].flatten() if row >= 0}
        assert listed <= set(batch.candidate_index.tolist())
        assert len(batch.candidate_index) == 8 + batch.extra and batch.paired
        pairs = scores.pairs(embeddings, batch)
        assert pairs.positive.sum() == 8 and pairs.negative.sum(dim=1).tolist() == [7 + batch.extra] * 8
        turned = batch.flip()
        assert torch.equal(turned.query_index, batch.candidate_index[:8]) and turned.extra == 0
        for name in ("query_index", "candidate_index"):
            assert torch.equal(getattr(turned.flip(), name), getattr(batch, name))


def test_undrawn_hard_negatives_are_counted():
    embeddings = hard_negatives()
    drawn = plan(embeddings, batch_size=8, batches=1)
    total = int((embeddings.negatives >= 0).sum())
    missing = total - int((embeddings.negatives[drawn.batches[0].query_index] >= 0).sum())
    (sentence,) = drawn.undrawn
    assert sentence.startswith(f"{missing} of {total} ")
    data = measures.count(embeddings, "ntxent", batch_size=8, batches=1)
    assert sentence in str(table("count", data)) and reports.document("count", data)["not_drawn"] == [sentence]
    without = measures.count(embeddings.replace(negatives=None), "ntxent", batch_size=8, batches=1)
    assert json.loads(data.attrs["health"]) == json.loads(without.attrs["health"])
    assert plan(embeddings, batch_size=8, matched=True, hard=False).undrawn[-1].startswith("50 of 50 ")


def count_both_ways(embeddings, loss, direction, **options):
    """Count from stored scores, from tiles, and in a loop over the dense weights; return the first."""
    stored = measures.count(embeddings, loss, n90=True, **options)
    tiled = measures.count(embeddings, loss, dtype="float64", **options)
    np.testing.assert_array_equal(measures.count(embeddings, loss, **options)["contributing"], tiled["contributing"])
    for name in (
        {"contributing", "query_index", "positives", "negatives", "push", "pull"} & stored.keys() & tiled.keys()
    ):
        both = (data[name].sel(direction=direction) for data in (tiled, stored))
        np.testing.assert_allclose(*both, rtol=2e-4 if name in {"push", "pull"} else 0)
    loss, embeddings = losses.load(loss), embeddings.to(dtype=torch.float64)
    for k, batch in enumerate(plan(embeddings, sample=loss.sample, **options).batches):
        side, way = (embeddings.flip(), batch.flip()) if direction == "c2q" else (embeddings, batch)
        pairs = scores.pairs(side, way, metric=loss.metric)
        share = loss.weight(pairs).abs() / loss.unit(pairs)
        expected = ((share > 0.01) & pairs.negative).sum(dim=1)
        counts = stored["contributing"].sel(direction=direction, batch=k).values[: len(expected)]
        np.testing.assert_array_equal(counts, expected)
    return stored


@pytest.mark.parametrize("direction", ["q2c", "c2q"])
@pytest.mark.parametrize("loss", ["ntxent", "triplet", "smoothap", "ce_softmax", "supcon", "snm", "proxy_anchor"])
def test_counts_equal_a_loop_over_batches(loss, direction):
    count_both_ways(questions(), loss, direction, batch_size=60)
    size = 10 if losses.load(loss).sample == "pairs" else 8
    for flipped in (False, True):
        embeddings = hard_negatives()
        embeddings = embeddings.flip().replace(directions=("q2c", "c2q")) if flipped else embeddings
        data = count_both_ways(embeddings, loss, direction, batch_size=size)
        has_hard_negatives = direction == ("c2q" if flipped else "q2c")
        if loss not in {"supcon", "proxy_anchor"}:
            negatives = data["negatives"].sel(direction=direction)
            assert ((negatives > size) if has_hard_negatives else (negatives == size - 1)).all()


@pytest.mark.parametrize(
    ("negatives", "sentence"),
    [
        (torch.zeros(40, 2), "negatives: dtype torch.float32, expected integers of shape (40, K)"),
        (torch.zeros(40, 2, 5), "negatives: torch.float32 of shape (40, 2, 5), expected floats (40, K, 8)"),
        (torch.zeros(39, 2).long(), "negatives: shape (39, 2), expected integers of shape (40, K)"),
        (torch.ones(40, 2).bool(), "negatives: dtype torch.bool, expected"),
        (torch.full((40, 1), 65), "negatives: 65 in row 0, expected integers of shape (40, K): rows of candidate"),
        (torch.full((40, 2), 7), "candidate 7 of query 7 is its positive"),
        ("many", "negatives: str, expected integers of shape (40, K)"),
    ],
)
def test_unusable_negatives_are_refused(negatives, sentence):
    embeddings = hard_negatives().replace(negatives=None)
    with pytest.raises(InputError) as error:
        embeddings.replace(negatives=negatives)
    assert sentence in str(error.value)
    sides = (embeddings.query, embeddings.query, ONE.repeat(10), ONE.repeat(10), ("s2s",))
    with pytest.raises(InputError, match="negatives: a labelled set has none"):
        Embeddings(*sides, shared=True, negatives=negatives)


def test_hard_negatives_of_a_file_are_counted(tmp_path):
    embeddings = hard_negatives()
    names = ("query", "candidate", "query_group", "candidate_group", "negatives")
    np.savez(tmp_path / "rows.npz", **{name: getattr(embeddings, name).numpy() for name in names})
    read = checkpoints.open(tmp_path / "rows.npz").embed(device="cpu")
    assert torch.equal(read.negatives, embeddings.negatives)
    data = [measures.count(source, "ntxent", batch_size=10) for source in (read, embeddings)]
    np.testing.assert_array_equal(data[0]["contributing"], data[1]["contributing"])
    listed = measures.contributors(read, "ntxent", row=3, batch_size=10, top=None)
    assert listed.sizes["candidate"] > 10 and 43 in listed["candidate_index"].values


def count_supcon(rows, labels, temperature=0.1, eps=0.01):
    """Count the negatives of each query with a share above eps in SupCon of one batch, in a slow loop."""
    rows = torch.nn.functional.normalize(rows.double(), dim=1)
    scores = (rows @ rows.T).requires_grad_()
    queries = [k for k in range(len(labels)) if int((labels == labels[k]).sum()) > 1]
    total = 0.0
    for query in queries:
        others = torch.arange(len(labels)) != query
        logits = scores[query] / temperature
        total = total + logits[others].logsumexp(0) - logits[others & (labels == labels[query])].mean()
    (weights,) = torch.autograd.grad(total, scores)
    return [int((weights[query, labels != labels[query]] * temperature > eps).sum()) for query in queries]


@pytest.mark.parametrize("noise", [False, True])
def test_samples_alone_in_their_class_are_negatives(tmp_path, noise):
    rows, labels = normal(30, 6), torch.cat([torch.arange(24) // 4, torch.arange(100, 106)])
    ids = torch.where(labels < 100, labels, -1 if noise else labels)
    np.savez(tmp_path / "a.npz", embeddings=rows.numpy(), labels=ids.numpy())
    checkpoint = checkpoints.open(tmp_path / "a.npz")
    assert sum("-1" in note for note in checkpoint.notes) == noise
    supcon = losses.load("supcon", {"temperature": 0.1})
    whole = measures.count(checkpoint, supcon, batch_size="all")
    order = whole["query_index"].values.ravel().astype(int).argsort()
    assert whole["contributing"].values.ravel()[order].tolist() == count_supcon(rows, labels)
    queries = measures.count(checkpoint, supcon, batch_size=8)["query_index"].values
    assert set(queries[~np.isnan(queries)].astype(int)) == set(range(24))


def test_labels_of_two_classes_are_not_noise(tmp_path):
    np.savez(tmp_path / "a.npz", embeddings=np.eye(12), labels=np.where(np.arange(12) < 6, -1, 1))
    assert len(checkpoints.open(tmp_path / "a.npz").embed(device="cpu").query_group.unique()) == 2
