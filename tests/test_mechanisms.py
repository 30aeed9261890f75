"""How a loss of others is understood, at rest and in training: each way is right where the others are not.

The table of docs/architecture.md, "Losses that are not ours", names these examples.
"""

import pytest
import torch
from torch.nn import functional

from cocos import Embeddings, losses, scores
from cocos.losses.external import witness
from cocos.losses.external.guard import UNWEIGHED
from cocos.monitor import tap

ROWS = torch.randn(2, 24, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
QUERY, CANDIDATE = ROWS[0] * 3, ROWS[0] * 3 + ROWS[1] * 2


def ranked(matrix):
    return functional.cross_entropy(matrix, torch.arange(len(matrix)), reduction="sum")


def product(query, candidate):
    return ranked(10 * functional.normalize(query) @ functional.normalize(candidate).T)


def quotient(query, candidate):
    return ranked(10 * (query @ candidate.T) / (query.norm(dim=1)[:, None] * candidate.norm(dim=1)[None]))


def quotient_in_place(query, candidate):
    matrix = query @ candidate.T
    matrix /= query.norm(dim=1)[:, None]
    matrix /= candidate.norm(dim=1)
    return ranked(10 * matrix)


def squares_in_place(query, candidate):
    matrix = query.square().sum(dim=1)[:, None] + candidate.square().sum(dim=1)
    return ranked(-matrix.addmm_(query, candidate.T, alpha=-2) / 10)


def flattened(query, candidate):
    left, right = query.repeat_interleave(len(candidate), dim=0), candidate.repeat(len(query), 1)
    return ranked(10 * functional.cosine_similarity(left, right).reshape(len(query), -1))


def without_a_metric(query, candidate):
    return ranked(-torch.cdist(query, candidate, p=1))


def two_views(query, candidate):
    """Each row against both views, as SimCLR has it: scores of four directions."""
    query, candidate = functional.normalize(query), functional.normalize(candidate)
    others = torch.eye(len(query)) == 0
    inside = torch.where(others, 5 * query @ query.T, -torch.inf)
    return ranked(torch.cat([5 * query @ candidate.T, inside], dim=1))


def at_rest(loss):
    """Weights by the trial, and of the added dimensions where they have any."""
    pairs = scores.pairs(Embeddings(QUERY, CANDIDATE), metric="cosine", same_group="negative")
    bound = losses.of(loss).bind(pairs)
    if not bound.traits.own_scores:
        pairs = scores.pairs(Embeddings(QUERY, CANDIDATE), metric=bound.metric, same_group="negative")
    return bound.weight(pairs), None if witness.unfit(bound, pairs) else witness.weights(bound, pairs)


def tapped(loss):
    """Weights that the tap reads in a backward pass, or the reason why it reads none."""

    class Module(torch.nn.Module):
        def forward(self, query, candidate):
            return loss(query, candidate)

    found, reasons, module = [], [], Module()
    handle = tap.Tap(module, lambda: True, lambda _, seen: found.append(seen), failed=reasons.append)
    module(QUERY.clone().requires_grad_(), CANDIDATE.clone().requires_grad_()).backward()
    handle.remove()
    return found[0].by_width[0][0].weights if found else reasons[0]


def off(found, expected):
    """Difference in parts of the largest weight, where a factor above 0 of the whole matrix does not count."""
    factor = ((found * expected).sum() / found.square().sum()).abs()
    return float((factor * found - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("loss", [product, without_a_metric])
def test_a_product_of_rows_has_the_same_weights_in_training_and_at_rest(loss):
    assert off(tapped(loss), at_rest(loss)[0]) < 1e-12


@pytest.mark.parametrize("loss", [quotient, quotient_in_place])
def test_the_tap_reads_the_product_in_a_quotient_of_matrices(loss):
    """Its weights are those of the inner products, and no multiple of those of the cosines."""
    weights, second = at_rest(loss)
    assert off(weights, at_rest(product)[0]) < 1e-12 and off(second, weights) < 1e-7
    lengths = QUERY.norm(dim=1)[:, None] * CANDIDATE.norm(dim=1)
    assert off(tapped(loss), weights) > 0.3 and off(tapped(loss) * lengths, weights) < 1e-12


@pytest.mark.parametrize("loss", [squares_in_place, flattened])
def test_the_tap_does_not_see_scores_that_no_product_of_two_sets_of_rows_returns(loss):
    weights, second = at_rest(loss)
    assert tapped(loss) == tap.UNSEEN and off(second, weights) < 1e-6


def test_added_dimensions_know_no_scores_that_are_no_metric():
    assert at_rest(without_a_metric)[1] is None


def test_a_trial_weighs_one_direction_of_several_and_says_so():
    """The adapter of a library knows the values of all blocks: see the two views of lightly in test_libraries."""
    pairs = scores.pairs(Embeddings(QUERY, CANDIDATE), metric="cosine", same_group="negative")
    bound = losses.of(two_views).bind(pairs)
    assert UNWEIGHED["rows"] in bound.traits.notes and bound.weight(pairs).shape == (24, 24)
    assert tapped(two_views).shape == (24, 48)


def test_values_at_other_scores_are_those_of_the_trial_alone():
    """A difference quotient of the loss needs them; a backward pass has the derivative at one place."""
    pairs = scores.pairs(Embeddings(QUERY, CANDIDATE), metric="cosine", same_group="negative")
    other = pairs.with_scores(pairs.scores.flip(0))
    found = losses.of(quotient).bind(pairs)(other)
    assert float(found.sum()) == pytest.approx(float(ranked(10 * other.scores)))
