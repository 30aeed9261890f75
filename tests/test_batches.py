"""Batches: seeded, without replacement, and what each sampling promises."""

import pytest
import torch

from cocos import Embeddings, InputError
from cocos.batches import plan


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


def test_queries_that_share_a_group_take_turns():
    embeddings = two_sided().flip()
    drawn = plan(embeddings, batch_size=23)
    assert len(drawn.batches) == 1
    assert torch.equal(
        embeddings.query_group[drawn.batches[0].query_index],
        embeddings.candidate_group[drawn.batches[0].candidate_index],
    )
    more = plan(embeddings, batch_size=23, batches=40).batches
    assert len({int(q) for b in more for q in b.query_index}) > 100


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
        with pytest.raises(InputError, match="no query has any negative: all 4 candidates are of group 0"):
            plan(embeddings, sample="groups")
    with pytest.raises(InputError, match="batch size: 7, expected at least 8: samples of two classes"):
        plan(labelled([9, 9]), sample="groups", batch_size=7, per_group=4)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"batch_size": 1}, "batch size: 1, expected at least 2"),
        ({"batch_size": 64.0}, "batch size: 64.0, expected a whole number"),
        ({"seed": -1}, "seed: -1, expected at least 0"),
        ({"per_group": 2}, "per group: 2, but only batches of groups have it"),
        ({"batches": 0}, "batches: 0, expected at least 1"),
        ({"sample": "triplets"}, "sample: 'triplets', expected one of pairs, groups"),
        ({"sample": "groups", "per_group": 0}, "per group: 0, expected at least 1"),
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
    with pytest.raises(InputError, match=r"row 0 \(group 0\) has the only sample of its class"):
        plan(labelled([1, 3]), sample="groups")
    with pytest.raises(InputError, match="a labelled set is drawn by class"):
        plan(labelled([2, 3]), sample="pairs")
