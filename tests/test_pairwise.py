"""Facts of the losses of pairs, triplets and their sums: kinks, ties, mining, couplings, and the edges of float32."""

import dataclasses

import pytest
import torch

from cocos import Embeddings, Pairs, losses
from cocos.counting import weights
from cocos.embeddings import scores, similarities
from cocos.measures.shared import synthetic_inputs

ON_DISTANCES = (
    "contrastive",
    "contrastive_linear",
    "triplet_euclidean",
    "triplet_squared",
    "lifted_structure",
    "generalized_lifted",
)


def row(values, positives=1, dtype=torch.float64):
    """One query whose first candidates are its positives."""
    positive = torch.arange(len(values)) < positives
    return Pairs(torch.tensor([values], dtype=dtype), positive[None])


def near(actual, expected, tolerance=1e-12):
    expected = torch.as_tensor(expected, dtype=actual.dtype)
    assert torch.allclose(actual, expected, rtol=tolerance, atol=tolerance), f"{actual} is not {expected}"


@pytest.mark.parametrize(
    ("name", "parameters", "values"),
    [
        ("contrastive", {"margin": 1.0}, [0.0, -1.0]),  # a negative exactly at the margin
        ("contrastive_linear", {"pos_margin": 0.0, "neg_margin": 1.0}, [0.0, -1.0]),  # and a positive at distance 0
        ("contrastive_cosine", {"pos_margin": 0.75, "neg_margin": 0.5}, [0.75, 0.5]),
        ("triplet_euclidean", {"margin": 0.25}, [-0.5, -0.75]),
        ("triplet_squared", {"margin": 0.25}, [-0.5, -0.75]),
        ("generalized_lifted", {"margin": 1.0}, [-0.5, -1.5]),
        ("lifted_structure", {"margin": 1.0}, [-0.5, -1.5]),
    ],
)
def test_a_tie_at_the_margin_does_not_contribute(name, parameters, values):
    loss, pairs = losses.load(name, parameters), row(values)
    assert (loss(pairs) == 0).all()
    assert (loss.weight(pairs) == 0).all()
    assert (weights.autograd(loss, pairs) == 0).all()
    closer = row([values[0] - 0.125, values[1] + 0.125])
    assert (loss.weight(closer)[0] * torch.tensor([-1, 1]) > 0).all()


@pytest.mark.parametrize("name", ON_DISTANCES)
def test_identical_embeddings_are_survived(name):
    loss = losses.load(name)
    labels = torch.tensor([0, 0, 1, 1, 2])
    pairs = scores.pairs(Embeddings.labelled(torch.ones(5, 3, dtype=torch.float64), labels), metric=loss.metric)
    assert (pairs.scores == 0).all()
    assert loss(pairs).isfinite().all()
    assert loss.weight(pairs).isfinite().all()
    assert torch.allclose(loss.weight(pairs), weights.autograd(loss, pairs), atol=1e-14)

    def total(points):
        return loss(pairs.with_scores(similarities.METRICS[loss.metric](points, points))).sum()

    assert torch.func.grad(total)(pairs.embeddings.query).isfinite().all()


def beside(pairs):
    """The same pairs and a last candidate that takes no part: no longer a square, so columns are read."""
    wide = [torch.nn.functional.pad(part, (0, 1)) for part in (pairs.scores, pairs.positive, pairs.negative)]
    return Pairs(*wide)


@pytest.mark.parametrize("seed", range(3))
def test_lifted_rows_and_columns_give_the_embeddings_of_one_set_the_same_gradient(seed):
    loss, pairs = losses.load("lifted_structure"), synthetic_inputs.labelled("euclidean", seed)
    rows, columns = loss.weight(pairs), loss.weight(beside(pairs))[:, :-1]
    near(loss(beside(pairs)), loss(pairs))
    assert (rows - columns).abs().max() > 1e-3
    near(rows + rows.T, columns + columns.T, 1e-11)


def test_a_lifted_pair_without_any_negative_contributes_nothing():
    pairs = Pairs(torch.tensor([[-3.0, -2.0, -1.0], [-3.0, -2.0, -1.0]]), torch.tensor([[True, True, True]] * 2))
    loss = losses.load("lifted_structure")
    assert (loss(pairs) == 0).all() and (loss.weight(pairs) == 0).all()
    assert (weights.autograd(loss, pairs) == 0).all()
    other = Pairs(pairs.scores, torch.tensor([[True, False, False], [False, False, False]]), ~pairs.positive)
    one_end = dataclasses.replace(other, negative=torch.tensor([[False] * 3, [True, False, False]]))
    near(loss(one_end), [(3 + 1 - 3) ** 2 / 2, 0])  # the first query has none, its positive is one of the second's
    near(loss.weight(one_end), [[-1, 0, 0], [1, 0, 0]])
