"""Batches: seeded, without replacement, and what each sampling promises."""

import hashlib
import itertools
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


def two_sided(images=23, captions=5, width=4):
    group = torch.arange(images).repeat_interleave(captions)
    generator = torch.Generator().manual_seed(0)
    return Embeddings(
        torch.randn(images, width, generator=generator),
        torch.randn(len(group), width, generator=generator),
        torch.arange(images) + 100,
        group + 100,
    )


def labelled(sizes):
    labels = torch.cat([torch.full((n,), k) for k, n in enumerate(sizes)])
    return Embeddings.labelled(torch.randn(len(labels), 3, generator=torch.Generator().manual_seed(0)), labels)


def test_a_pass_of_pairs_draws_every_candidate_once_with_its_query():
    embeddings = two_sided()
    drawn = plan(embeddings, batch_size=32)
    assert [len(b.query_index) for b in drawn.batches] == [32, 32, 32, 19]
    every = torch.cat([b.candidate_index for b in drawn.batches])
    assert sorted(every.tolist()) == list(range(115))
    assert every.tolist() != list(range(115))
    for batch in drawn.batches:
        assert batch.paired
        assert torch.equal(embeddings.query_group[batch.query_index], embeddings.candidate_group[batch.candidate_index])


def test_a_pass_of_groups_draws_every_query_once_with_its_candidates():
    embeddings = two_sided()
    drawn = plan(embeddings, sample="groups", batch_size=8)
    assert [len(b.query_index) for b in drawn.batches] == [8, 8, 7]
    assert sorted(torch.cat([b.query_index for b in drawn.batches]).tolist()) == list(range(23))
    for batch in drawn.batches:
        owners = embeddings.candidate_group[batch.candidate_index]
        assert torch.equal(owners, embeddings.query_group[batch.query_index].repeat_interleave(5))


def test_groups_may_draw_some_of_the_candidates():
    drawn = plan(two_sided(), sample="groups", batch_size=8, per_group=2)
    for batch in drawn.batches:
        assert len(batch.candidate_index) == 2 * len(batch.query_index)
        assert len(set(batch.candidate_index.tolist())) == len(batch.candidate_index)


def questions(number=150, passages=30, width=8, seed=0):
    """Questions that share passages, in no order."""
    generator = torch.Generator().manual_seed(seed)
    candidate = torch.randn(passages, width, generator=generator)
    group = (torch.arange(number) % passages)[torch.randperm(number, generator=generator)]
    query = candidate[group] + torch.randn(number, width, generator=generator)
    return Embeddings(query, candidate, group, torch.arange(passages))


def counted(drawn, side, number):
    """How often each row of a side is drawn in a pass."""
    every = torch.cat([getattr(batch, f"{side}_index") for batch in drawn.batches])
    return torch.bincount(every, minlength=number)


@pytest.mark.parametrize("size", [128, 40, 7, "all"])
def test_questions_that_share_a_passage_are_all_drawn(size):
    drawn = plan(questions(), batch_size=size)
    assert drawn.batch_size == (150 if size == "all" else size) and not drawn.notes
    assert (counted(drawn, "query", 150) == 1).all() and (counted(drawn, "candidate", 30) >= 1).all()
    assert all(len(batch.query_index) == drawn.batch_size for batch in drawn.batches[: 150 // drawn.batch_size])
    for batch in drawn.batches:
        assert not batch.paired and len(batch.candidate_index.unique()) == len(batch.candidate_index)
        pairs = scores.pairs(questions(), batch)
        assert (pairs.positive.sum(dim=1) == 1).all() and torch.equal(pairs.negative, ~pairs.positive)


def test_candidates_that_stand_for_nothing_do_not_make_their_side_the_larger():
    whole = questions()
    more = torch.cat([whole.candidate, torch.randn(500, 8, generator=torch.Generator().manual_seed(1))])
    drawn = plan(Embeddings(whole.query, more, whole.query_group, torch.arange(530)), batch_size=40)
    assert (counted(drawn, "query", 150) == 1).all() and (counted(drawn, "candidate", 530)[:30] >= 1).all()
    assert drawn.notes == drawn.undrawn == ("500 candidates have no query and are not drawn",)


@given(
    sizes=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=2, max_size=12),
    size=st.integers(2, 20),
    seed=st.integers(0, 99),
)
@settings(max_examples=60)
def test_a_pass_draws_the_larger_side_once_and_the_smaller_one_at_least_once(sizes, size, seed):
    owners = [torch.cat([torch.full((pair[side],), k) for k, pair in enumerate(sizes)]) for side in (0, 1)]
    generator = torch.Generator().manual_seed(seed)
    embeddings = Embeddings(*(torch.randn(len(g), 3, generator=generator) for g in owners), *owners)
    try:
        drawn = plan(embeddings, batch_size=size, seed=seed)
    except InputError as error:
        assert "no batch holds two groups" in str(error)
        return
    number = dict(zip(("query", "candidate"), map(len, owners), strict=True))
    drawn_once = {side: (counted(drawn, side, number[side]) <= 1).all() for side in number}
    larger, smaller = sorted(number, key=lambda side: (number[side], drawn_once[side]), reverse=True)
    found = counted(drawn, larger, number[larger])
    rest = sum(int(note.split(": ")[1].split()[0]) for note in drawn.undrawn)
    assert (found <= 1).all() and int((found == 0).sum()) == rest
    if not rest:
        assert (counted(drawn, smaller, number[smaller]) >= 1).all()
    for batch in drawn.batches:
        asked = [set(embeddings.query_group[batch.query_index].tolist())]
        asked.append(set(embeddings.candidate_group[batch.candidate_index].tolist()))
        assert asked[0] == asked[1]
        if not batch.paired:
            assert len(batch.query_index.unique()) == len(batch.query_index)
            assert len(batch.candidate_index.unique()) == len(batch.candidate_index)


def test_captions_have_the_batches_that_they_always_had():
    drawn = plan(two_sided(), batch_size=32, batches=9, seed=3)
    text = repr([(b.query_index.tolist(), b.candidate_index.tolist(), b.paired) for b in drawn.batches])
    assert hashlib.sha1(text.encode()).hexdigest() == "25961640a3f3eaab3dab0015370053f21f50edfe"


def every_kind_of_set():
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(133, 4, generator=generator)
    drawn = torch.randint(0, 9, (100,), generator=generator)
    own = torch.randint(0, 33, (100, 3), generator=generator) + 100
    images, owners = torch.arange(20), torch.arange(20).repeat_interleave(5)
    yield Embeddings(rows, rows + 1)
    yield Embeddings(rows[:20], rows[:100], images * 10**12, owners * 10**12)
    yield Embeddings(rows[:60], rows[:30], torch.arange(60) // 2, torch.arange(30))
    yield Embeddings.labelled(rows[:100], drawn)
    yield Embeddings.labelled(rows[:100], drawn, proxies=rows[:9])
    yield Embeddings(rows[:100], rows, torch.arange(100), torch.arange(133), negatives=own)


def test_a_seed_has_the_batches_that_it_always_had():
    """48 plans: six kinds of sets, two seeds, two sizes, one pass and more."""
    text = []
    for each, seed, size, number in itertools.product(every_kind_of_set(), (0, 3), (7, 32), (None, 9)):
        sample = "groups" if each.shared else "pairs"
        found = plan(each, sample=sample, batch_size=size, seed=seed, batches=number)
        for b in found.batches:
            text.append(f"{b.query_index.tolist()} {b.candidate_index.tolist()} {b.paired} {b.extra}")
    assert hashlib.sha1("\n".join(text).encode()).hexdigest() == "b26d1cc05f1cb8d427d0ee08890d93f8e4352b30"


def test_captions_that_ask_are_all_drawn_and_their_images_stand_once():
    drawn = plan(two_sided().flip(), batch_size=23)
    assert (counted(drawn, "query", 115) == 1).all() and len(drawn.batches) == 5
    for batch in drawn.batches:
        assert len(batch.candidate_index.unique()) == len(batch.candidate_index) <= 23


def test_a_loss_that_reads_rows_side_by_side_has_a_candidate_once_for_each_query():
    drawn = plan(questions(), batch_size=40, matched=True, hard=False)
    assert (counted(drawn, "query", 150) == 1).all()
    for batch in drawn.batches:
        assert batch.paired and len(batch.query_index) == len(batch.candidate_index)
        scores.pairs(questions(), batch)


@pytest.mark.parametrize("loss", ["ntxent", "supcon", "snm", "proxy_anchor"])
@pytest.mark.parametrize("direction", ["q2c", "c2q"])
def test_shared_candidates_count_the_same_held_and_in_one_pass(loss, direction):
    same_both_ways(questions(), loss, direction, batch_size=60)


def same_both_ways(embeddings, loss, direction, **options):
    """Counts where scores are held equal those where they are visited, and a plain loop over the dense weights."""
    held = measures.count(embeddings, loss, n90=True, **options)
    seen = measures.count(embeddings, loss, dtype="float64", **options)
    single = measures.count(embeddings, loss, **options)["contributing"]
    np.testing.assert_array_equal(single, seen["contributing"])
    for name in ("contributing", "query_index", "positives", "negatives", "push", "pull"):
        if name in held and name in seen:
            both = (each[name].sel(direction=direction) for each in (seen, held))
            np.testing.assert_allclose(*both, rtol=2e-4 if name in {"push", "pull"} else 0)
    made = losses.load(loss)
    side = embeddings.to(dtype=torch.float64)
    for k, batch in enumerate(plan(side, sample=made.sample, **options).batches):
        part, own = (side.flip(), batch.flip()) if direction == "c2q" else (side, batch)
        pairs = scores.pairs(part, own, metric=made.metric)
        share = made.weight(pairs).abs() / made.unit(pairs)
        expected = ((share > 0.01) & pairs.negative).sum(dim=1)
        found = held["contributing"].sel(direction=direction, batch=k).values[: len(expected)]
        np.testing.assert_array_equal(found, expected)
    return held


def test_a_labelled_pass_draws_every_sample_once_and_none_alone():
    embeddings = labelled([9, 4, 5, 2, 3, 7, 8, 11])
    drawn = plan(embeddings, sample="groups", batch_size=16, per_group=4)
    every = [int(i) for b in drawn.batches for i in b.query_index]
    assert sorted(every) == list(range(49))
    for batch in drawn.batches:
        assert len(batch.query_index) <= 16
        _, counts = embeddings.query_group[batch.query_index].unique(return_counts=True)
        assert counts.min() >= 2


def test_few_classes_fill_the_batch():
    drawn = plan(labelled([50, 50]), sample="groups", batch_size=20)
    assert [len(b.query_index) for b in drawn.batches] == [20] * 5


def test_proxies_are_all_in_every_batch():
    samples = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))
    embeddings = Embeddings.labelled(samples, torch.arange(10) % 3, proxies=samples[:3])
    drawn = plan(embeddings, batch_size=4)
    assert [len(b.query_index) for b in drawn.batches] == [4, 4, 2]
    assert all(b.candidate_index.tolist() == [0, 1, 2] for b in drawn.batches)


@pytest.mark.parametrize("sample", ["pairs", "groups"])
def test_a_seed_means_the_same_batches(sample):
    first, again, other = (plan(two_sided(), sample=sample, batch_size=8, seed=s).batches for s in (3, 3, 4))
    assert all(torch.equal(a.candidate_index, b.candidate_index) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0].candidate_index, other[0].candidate_index)


def test_more_batches_than_a_pass_go_on_with_the_next_shuffle():
    one, three = plan(two_sided(), batch_size=60).batches, plan(two_sided(), batch_size=60, batches=5).batches
    assert len(one) == 2
    assert [len(b.query_index) for b in three] == [60, 55, 60, 55, 60]
    assert torch.equal(one[1].candidate_index, three[1].candidate_index)
    assert not torch.equal(three[0].candidate_index, three[2].candidate_index)


@pytest.mark.parametrize(("sample", "number", "unit"), [("pairs", 115, "pairs"), ("groups", 23, "queries")])
def test_a_batch_size_above_the_data_takes_all_and_says_so(sample, number, unit):
    drawn = plan(two_sided(), sample=sample, batch_size=5000)
    assert (len(drawn.batches), drawn.batch_size) == (1, number)
    assert drawn.notes == (f"batch size 5000 is above the {number} {unit} there are: all of them make one batch",)


def test_candidates_without_a_query_are_left_out_and_counted():
    embeddings = two_sided()
    fewer = Embeddings(
        embeddings.query[:20], embeddings.candidate, embeddings.query_group[:20], embeddings.candidate_group
    )
    drawn = plan(fewer, batch_size=50)
    assert sum(len(b.candidate_index) for b in drawn.batches) == 100
    assert drawn.notes == ("15 candidates have no query and are not drawn",)


def test_a_pair_that_is_left_over_alone_is_not_drawn_and_said_so():
    embeddings = two_sided(images=13)
    drawn = plan(embeddings, batch_size=32)
    assert [len(b.query_index) for b in drawn.batches] == [32, 32]
    assert drawn.notes == ("not drawn in a pass, for want of a negative in their batch: 1 pairs",)
    assert [len(b.query_index) for b in plan(embeddings, batch_size=32, batches=5).batches] == [32] * 5


def test_what_one_large_class_has_left_alone_is_not_drawn_and_said_so():
    embeddings = labelled([40, 4, 4])
    drawn = plan(embeddings, sample="groups", batch_size=16)
    for batch in drawn.batches:
        assert len(batch.query_index) <= 16
        assert len(embeddings.query_group[batch.query_index].unique()) > 1
    rest = 48 - sum(len(batch.query_index) for batch in drawn.batches)
    assert drawn.notes == (f"not drawn in a pass, for want of a negative in their batch: {rest} samples",)


@pytest.mark.parametrize("batches", [None, 3])
def test_a_batch_size_that_holds_no_two_groups_is_refused(batches):
    lone = Embeddings(torch.rand(1, 2), torch.rand(3, 2), torch.tensor([0]), torch.tensor([0, 1, 2]))
    for embeddings, size in ((labelled([3, 3]), 4), (lone, 8)):
        with pytest.raises(InputError, match="no batch holds two groups, so no query has a negative"):
            plan(embeddings, sample="groups", batch_size=size, batches=batches)


def test_a_set_without_negatives_is_refused():
    one = torch.zeros(4, dtype=torch.int64)
    for embeddings in (
        Embeddings.labelled(torch.rand(4, 2), one),
        Embeddings(torch.rand(4, 2), torch.rand(4, 2), one, one),
    ):
        with pytest.raises(InputError, match="no query has any negative: 4 candidates of one group"):
            plan(embeddings, sample="groups")
    with pytest.raises(InputError, match="batch size: 7, expected at least 8: samples of two classes"):
        plan(labelled([9, 9]), sample="groups", batch_size=7, per_group=4)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"batch_size": 1}, "batch size: 1, expected an integer of at least 2"),
        ({"batch_size": 64.0}, "batch size: 64.0, expected an integer"),
        ({"seed": -1}, "seed: -1, expected an integer from 0"),
        ({"per_group": 2}, "per group: 2, but only batches of groups have it"),
        ({"batches": 0}, "batches: 0, expected an integer from 1"),
        ({"sample": "triplets"}, "sample: 'triplets', expected one of pairs, groups"),
        ({"sample": "groups", "per_group": 0}, "per group: 0, expected an integer of at least 1"),
    ],
)
def test_bad_options_get_a_sentence(options, sentence):
    with pytest.raises(InputError) as error:
        plan(two_sided(), **options)
    assert sentence in str(error.value)


def test_a_query_without_any_positive_is_named():
    embeddings = two_sided()
    keep = embeddings.candidate_group != 107
    alone = Embeddings(
        embeddings.query, embeddings.candidate[keep], embeddings.query_group, embeddings.candidate_group[keep]
    )
    with pytest.raises(
        InputError, match=r"query without any positive: row 7 \(group 107\) has no candidate of its group"
    ):
        plan(alone)
    with pytest.raises(InputError, match="1 of 2 classes"):
        plan(labelled([1, 3]), sample="groups")
    with pytest.raises(InputError, match="a labelled set is drawn by class"):
        plan(labelled([2, 3]), sample="pairs")


def test_a_batch_of_pairs_whose_rows_are_no_pairs_is_refused():
    embeddings = two_sided(images=4, captions=1)
    wrong = Batch(torch.tensor([0, 1, 2]), torch.tensor([0, 2, 1]), paired=True)
    uneven = Batch(torch.tensor([0, 1]), torch.tensor([0, 1, 2]), paired=True)
    for batch, sentence in (
        (wrong, r"query 1 of group 101 with candidate 2 of group 102"),
        (uneven, "paired, with 2 queries and 3 candidates"),
    ):
        for call in (
            lambda b: scores.pairs(embeddings, b),
            lambda b: engine.view(embeddings, b),
            lambda b: measures.count(embeddings, "ntxent", batches=[b]),
        ):
            with pytest.raises(InputError, match=sentence):
                call(batch)


def with_negatives(number=40, hard=3, width=8, others=25):
    """Pairs, and candidates behind them that some queries name as their hard negatives."""
    generator = torch.Generator().manual_seed(2)
    query = torch.randn(number, width, generator=generator)
    candidate = torch.cat([query, query[:others]]) + torch.randn(number + others, width, generator=generator) / 2
    named = torch.full((number, hard), -1)
    named[:others, 0] = number + torch.arange(others)
    named[:others, 1] = (torch.arange(others) + 1) % number
    group = torch.arange(number + others)
    return Embeddings(query, candidate, group[:number], group, negatives=named)


def test_hard_negatives_are_drawn_with_the_query_that_names_them():
    embeddings = with_negatives()
    drawn = plan(embeddings, batch_size=8)
    assert drawn.notes == ()
    assert (counted(drawn, "candidate", 65) >= 1).all()
    for batch in drawn.batches:
        named = {int(row) for row in embeddings.negatives[batch.query_index].flatten() if row >= 0}
        assert named <= set(batch.candidate_index.tolist())
        assert len(batch.candidate_index) == 8 + batch.extra and batch.paired
        pairs = scores.pairs(embeddings, batch)
        assert pairs.positive.sum() == 8 and pairs.negative.sum(dim=1).tolist() == [7 + batch.extra] * 8
        turned = batch.flip()
        assert torch.equal(turned.query_index, batch.candidate_index[:8]) and turned.extra == 0
        for name in ("query_index", "candidate_index"):
            assert torch.equal(getattr(turned.flip(), name), getattr(batch, name))
    without = plan(Embeddings(embeddings.query, embeddings.candidate, *groups(embeddings)), batch_size=8)
    assert without.undrawn == ("25 candidates have no query and are not drawn",)
    for batch, bare in zip(drawn.batches, without.batches, strict=True):
        assert torch.equal(batch.candidate_index[:8], bare.candidate_index)


def groups(embeddings):
    return embeddings.query_group, embeddings.candidate_group


def test_negatives_that_are_not_drawn_are_counted():
    embeddings = with_negatives()
    drawn = plan(embeddings, batch_size=8, batches=1)
    named = int((embeddings.negatives >= 0).sum())
    missing = named - int((embeddings.negatives[drawn.batches[0].query_index] >= 0).sum())
    (sentence,) = drawn.undrawn
    assert sentence.startswith(f"{missing} of {named} ")
    data = measures.count(embeddings, "ntxent", batch_size=8, batches=1)
    assert sentence in str(table("count", data)) and reports.document("count", data)["not_drawn"] == [sentence]
    assert json.loads(data.attrs["health"]) == json.loads(
        measures.count(embeddings.replace(negatives=None), "ntxent", batch_size=8, batches=1).attrs["health"]
    )
    matched = plan(embeddings, batch_size=8, matched=True, hard=False)
    assert matched.undrawn[-1].startswith("50 of 50 ")


@pytest.mark.parametrize("loss", ["ntxent", "triplet", "smoothap", "ce_softmax"])
@pytest.mark.parametrize("direction", ["q2c", "c2q"])
@pytest.mark.parametrize("flipped", [False, True])
def test_hard_negatives_count_the_same_held_and_in_one_pass(loss, direction, flipped):
    embeddings = with_negatives()
    if flipped:
        embeddings = embeddings.flip().replace(directions=("q2c", "c2q"))
        assert embeddings.negatives is None and embeddings.flip().negatives is not None
    options = {"batch_size": 10 if losses.load(loss).sample == "pairs" else 8}
    held = same_both_ways(embeddings, loss, direction, **options)
    negatives = held["negatives"].sel(direction=direction)
    if direction == ("c2q" if flipped else "q2c"):
        assert (negatives > options["batch_size"]).all()
    else:
        assert (negatives == options["batch_size"] - 1).all()


@pytest.mark.parametrize(
    ("negatives", "sentence"),
    [
        (torch.zeros(40, 2), "negatives: dtype torch.float32, expected integers of shape (40, K)"),
        (torch.zeros(40, 2, 5), "negatives: torch.float32 of shape (40, 2, 5), expected floats (40, K, 8)"),
        (torch.zeros(39, 2).long(), "negatives: shape (39, 2), expected integers of shape (40, K)"),
        (torch.zeros(40).long(), "negatives: shape (40,), expected"),
        (torch.ones(40, 2).bool(), "negatives: dtype torch.bool, expected"),
        (
            torch.full((40, 1), 65),
            "negatives: 65 in row 0, expected integers of shape (40, K): rows of candidate, 0 to 64",
        ),
        (torch.full((40, 1), -2), "negatives: -2 in row 0"),
        (torch.full((40, 2), 7), "candidate 7 of query 7 is its positive"),
        ("many", "negatives: str, expected integers of shape (40, K)"),
    ],
)
def test_negatives_that_cannot_be_used_are_named(negatives, sentence):
    given = with_negatives()
    with pytest.raises(InputError) as error:
        Embeddings(given.query, given.candidate, *groups(given), negatives=negatives)
    assert sentence in str(error.value)


def test_a_labelled_set_has_no_negatives_of_its_own():
    rows, labels = torch.rand(6, 2), torch.arange(6) % 2
    with pytest.raises(InputError, match="negatives: "):
        Embeddings(rows, rows, labels, labels, negatives=torch.full((6, 1), -1))


def test_a_file_says_whose_the_hard_negatives_are(tmp_path):
    given = with_negatives()
    arrays = {"query": given.query, "candidate": given.candidate, "negatives": given.negatives}
    arrays |= dict(zip(("query_group", "candidate_group"), groups(given), strict=True))
    np.savez(tmp_path / "rows.npz", **{name: each.numpy() for name, each in arrays.items()})
    found = checkpoints.open(tmp_path / "rows.npz").embed(device="cpu")
    assert torch.equal(found.negatives, given.negatives)
    data = [measures.count(each, "ntxent", batch_size=10) for each in (found, given)]
    np.testing.assert_array_equal(data[0]["contributing"], data[1]["contributing"])
    assert not data[0].attrs.get("undrawn")
    seen = measures.contributors(found, "ntxent", row=3, batch_size=10, top=None)
    assert seen.sizes["candidate"] > 10 and 43 in seen["candidate_index"].values


def test_the_candidates_of_a_group_are_drawn_among_all_of_it():
    group = torch.arange(60) // 10
    rows = torch.randn(66, 4, generator=torch.Generator().manual_seed(0))
    embeddings = Embeddings(rows[:6], rows[6:], torch.arange(6), group)
    drawn = {tuple(plan(embeddings, sample="groups", per_group=2, seed=seed).batches[0].candidate_index.tolist())
             for seed in range(20)}  # fmt: skip
    assert len(drawn) > 10 and {row % 10 for rows in drawn for row in rows} == set(range(10))


def count_supcon(rows, labels, temperature=0.1, eps=0.01):
    """Count the negatives of each query with a share above eps in SupCon of one batch, in a slow loop."""
    rows = torch.nn.functional.normalize(rows.double(), dim=1)
    scores = (rows @ rows.T).requires_grad_()
    queries = [k for k in range(len(labels)) if int((labels == labels[k]).sum()) > 1]
    total = 0.0
    for query in queries:
        others = torch.arange(len(labels)) != query
        positive = others & (labels == labels[query])
        total = total + (
            torch.logsumexp(scores[query, others] / temperature, 0) - scores[query, positive].mean() / temperature
        )
    (weights,) = torch.autograd.grad(total, scores)
    shares = weights * temperature
    return [int((shares[query, labels != labels[query]] > eps).sum()) for query in queries]


@pytest.mark.parametrize("noise", [False, True])
def test_samples_alone_in_their_class_are_only_negatives(tmp_path, noise):
    rows = torch.randn(30, 6, generator=torch.Generator().manual_seed(0))
    labels = torch.cat([torch.arange(24) // 4, torch.arange(100, 106)])
    np.savez(
        tmp_path / "a.npz", embeddings=rows.numpy(), labels=torch.where(labels < 100, labels, -1 if noise else labels)
    )
    checkpoint = checkpoints.open(tmp_path / "a.npz")
    assert sum("-1" in note for note in checkpoint.notes) == noise
    supcon = losses.load("supcon", {"temperature": 0.1})
    whole = measures.count(checkpoint, supcon, batch_size="all")
    order = whole["query_index"].values.ravel().astype(int).argsort()
    assert whole["contributing"].values.ravel()[order].tolist() == count_supcon(rows, labels)
    parts = measures.count(checkpoint, supcon, batch_size=8)
    assert set(parts["query_index"].values[~np.isnan(parts["query_index"].values)].astype(int)) == set(range(24))


def test_labels_of_two_classes_are_not_noise(tmp_path):
    labels = np.where(np.arange(12) < 6, -1, 1)
    np.savez(tmp_path / "a.npz", embeddings=np.eye(12), labels=labels)
    assert len(checkpoints.open(tmp_path / "a.npz").embed(device="cpu").query_group.unique()) == 2
