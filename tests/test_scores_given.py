"""Scores without vectors: counted as embeddings are, refused in one sentence where vectors are needed."""

import numpy as np
import pytest
import torch

import cocos
from cocos.base.errors import InputError, Unfit

LOSSES = ("ntxent", "triplet", "smoothap", "multi_similarity", "circle", "supcon", "bpr")


def both(seed=0):
    """Embeddings with groups, in one direction, and their scores."""
    random = torch.Generator().manual_seed(seed)
    rows = [torch.randn(n, 8, generator=random, dtype=torch.float64) for n in (20, 30)]
    groups = torch.arange(20) % 5, torch.arange(30) % 5
    embeddings = cocos.Embeddings(*rows, *groups).single("q2c")
    return embeddings, cocos.Scores(cocos.similarities.cosine(*rows), None, *groups)


def ragged(seed=0):
    """Scores of lists of different lengths, and each list alone."""
    random = torch.Generator().manual_seed(seed)
    sizes = (2, 5, 3, 9)
    scores = torch.full((4, 9), torch.nan, dtype=torch.float64)
    positive, there = torch.zeros(4, 9, dtype=torch.bool), torch.zeros(4, 9, dtype=torch.bool)
    lists = []
    for row, size in enumerate(sizes):
        scores[row, :size] = torch.randn(size, generator=random, dtype=torch.float64)
        positive[row, row % size], there[row, :size] = True, True
        lists.append(cocos.Scores(scores[row : row + 1, :size], positive[row : row + 1, :size]))
    return cocos.Scores(scores, positive, negative=there & ~positive), lists


@pytest.mark.parametrize("name", LOSSES)
def test_scores_count_like_their_embeddings(name):
    embeddings, scores = both()
    batch = cocos.sampling.Batch(torch.arange(20), torch.arange(30), paired=False)
    loss = cocos.losses.load(name)
    if loss.metric == "dot":
        embeddings = cocos.Embeddings(
            *(torch.nn.functional.normalize(each) for each in (embeddings.query, embeddings.candidate)),
            *(embeddings.query_group, embeddings.candidate_group),
        ).single("q2c")
    expected = cocos.measures.count(embeddings, loss, batches=[batch], dtype="float64", n90=True)
    found = cocos.measures.count(scores, loss, n90=True)
    assert set(found.data_vars) == set(expected.data_vars)
    for key in found.data_vars:
        np.testing.assert_allclose(found[key].values, expected[key].values, rtol=1e-12, atol=1e-12, err_msg=key)
    pairs = cocos.scores.pairs(embeddings, batch, metric=loss.metric)
    torch.testing.assert_close(loss.weight(scores.pairs(torch.arange(20))), loss.weight(pairs), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_padded_lists_equal_single_lists(name):
    loss, (whole, lists) = cocos.losses.load(name), ragged()
    weights = loss.weight(whole.pairs(torch.arange(4)))
    torch.testing.assert_close(weights, cocos.weights.autograd(loss, whole.pairs(torch.arange(4))))
    for row, one in enumerate(lists):
        own = loss.weight(one.pairs(torch.arange(1)))[0]
        torch.testing.assert_close(weights[row, : len(own)], own)
        assert not weights[row, len(own) :].any()
    counted = cocos.measures.count(whole, loss)["contributing"].values.ravel()
    assert counted.tolist() == [float(cocos.measures.count(one, loss)["contributing"].item()) for one in lists]


def test_teacher_is_reference_else_grades():
    one, other = torch.tensor([[0.9, 0.2]]), torch.tensor([[2.0, 1.0]])
    for beside, taught in (({"reference": one, "grade": other}, one), ({"grade": other}, other)):
        scores = cocos.Scores(torch.zeros(1, 2), torch.tensor([[1, 0]]), **beside)
        assert scores.pairs(torch.arange(1)).teacher.equal(taught)


def test_logq_follows_the_candidate_index():
    scores, index = torch.zeros(2, 2, dtype=torch.float64), torch.tensor([[2, 0], [1, 2]])
    logq = torch.tensor([0.5, 0.1, 0.4]).log()
    given = cocos.Scores(scores, torch.tensor([[1, 0], [1, 0]]), logq=logq, candidate_index=index)
    assert torch.equal(given.pairs(torch.arange(2)).logq.float(), logq[index])


def test_queries_with_unlisted_positives_are_skipped():
    positive = torch.tensor([[1, 0], [0, 0]])
    scores = cocos.Scores(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), positive, unlisted=torch.tensor([[0], [1]]))
    data = cocos.measures.count(scores)
    assert data["query_index"].values.ravel().tolist() == [0]
    assert "1 of 2 queries have no positive in their list" in data.attrs["notes"]


def test_measures_without_vectors_take_scores():
    _, scores = both()
    solved = cocos.measures.solve(scores, "ntxent", effective=5)
    assert abs(float(solved["effective_mean"]) - 5) < 0.01
    assert cocos.measures.temperature(scores)["batch_size"].values.tolist() == [20]
    replayed = cocos.measures.replay(scores, "ntxent")
    assert not [name for name in replayed["variant"].values if "batch" in name]


@pytest.mark.parametrize(
    "name, why",
    [
        ("triplet_euclidean", "reads euclidean scores of vectors"),
        ("magface", "reads the norms of vectors"),
        ("adaface", "reads the norms of vectors"),
        ("l_softmax", "reads the norms of vectors"),
        ("align_uniform", "reads squared chord scores of vectors"),
        ("margin_mse", "scores of a reference or a teacher"),
    ],
)
def test_losses_of_vectors_refuse_scores(name, why):
    with pytest.raises(InputError, match=why):
        cocos.measures.count(both()[1], name)


@pytest.mark.parametrize("measure", ["health", "decomposition", "score_distribution"])
def test_measures_of_vectors_refuse_scores(measure):
    with pytest.raises(InputError, match="vectors of queries and candidates"):
        getattr(cocos.measures, measure)(both()[1])


@pytest.mark.parametrize(
    "arguments, why",
    [
        ({"scores": torch.tensor([[1.0, torch.nan]]), "positive": torch.tensor([[1, 0]])}, "NaN or infinity in row 0"),
        ({"scores": torch.zeros(1, 2), "positive": torch.tensor([[1, 2]])}, "positive: 2, expected True and False"),
        ({"scores": torch.zeros(1, 2), "positive": torch.tensor([[1, 0, 0]])}, "as the scores"),
        ({"scores": torch.zeros(1, 2)}, "neither positive nor groups"),
        ({"scores": torch.zeros(2), "positive": torch.zeros(2)}, "expected \\(queries, candidates\\)"),
        ({"scores": torch.zeros(1, 2), "positive": torch.tensor([[1, 0]]), "logq": torch.tensor([0.1, -1])}, "logq"),
        ({"scores": torch.zeros(2, 2), "logq": torch.tensor([-1.0])}, "one per candidate"),
    ],
)
def test_bad_scores_are_refused(arguments, why):
    with pytest.raises(InputError, match=why):
        cocos.Scores(**arguments)


def test_query_without_positive_is_refused():
    with pytest.raises(Unfit, match="query row 1: no positive"):
        cocos.Scores(torch.zeros(2, 2), torch.tensor([[1, 0], [0, 0]]))
