"""Facts of the losses that put a number on a ranking; what they share with all losses is tried in test_losses."""

import pytest
import torch

from cocos import Pairs, losses
from cocos.counting import weights
from cocos.measures.shared import synthetic_inputs
from oracles import ranking


def one_query(positives, negatives):
    """Pairs of one query, positives first."""
    scores = torch.tensor([[*positives, *negatives]], dtype=torch.float64)
    return Pairs(scores, torch.arange(scores.shape[1])[None] < len(positives))


def value(name, positives, negatives, **parameters):
    return losses.load(name, parameters)(one_query(positives, negatives)).item()


@pytest.mark.parametrize("lam", (0.1, 0.5, 4.0))
@pytest.mark.parametrize("seed", range(4))
def test_the_weights_of_blackbox_ap_are_made_up_by_its_backward_pass(lam, seed):
    loss, pairs = losses.load("blackbox_ap", {"lam": lam}), synthetic_inputs.build("random", "cosine", seed)
    weight = loss.weight(pairs)
    assert loss.gradient == "pseudo" and weight.abs().max() > 0
    assert (weights.finite_difference(loss, pairs) == 0).all()
    assert torch.allclose(weights.autograd(loss, pairs), weight, rtol=0, atol=1e-12)
    slow = torch.tensor(ranking._blackbox_weight(pairs, lam), dtype=torch.float64)
    assert torch.allclose(weight, slow, rtol=0, atol=1e-12)


def test_blackbox_ap_takes_its_margin_before_it_ranks():
    pairs = synthetic_inputs.build("random", "cosine", 0)
    moved = pairs.with_scores(torch.where(pairs.positive, pairs.scores - 0.1, pairs.scores + 0.1))
    plain, wide = losses.load("blackbox_ap"), losses.load("blackbox_ap", {"margin": 0.2})
    assert torch.equal(wide(pairs), plain(moved)) and not torch.equal(wide(pairs), plain(pairs))
    assert torch.equal(wide.weight(pairs), plain.weight(moved))
    assert value("blackbox_ap", [0.5], [0.5]) == 0 and value("blackbox_ap", [0.5], [0.5], margin=0.1) == 0.5


@pytest.mark.parametrize("seed", range(4))
def test_contextual_has_a_made_up_gradient_and_claims_no_closed_form(seed):
    loss, pairs = losses.load("contextual"), synthetic_inputs.labelled(seed=seed)
    weight = weights.autograd(loss, pairs)
    assert loss.gradient == "pseudo" and not loss.closed_form
    assert weight.abs().max() > 0.1 and (weight.abs() <= loss.unit(pairs) * pairs.scores.shape[0]).all()
    assert (weights.finite_difference(loss, pairs) == 0).all()
    steep = losses.load("contextual", {"alpha": 25})
    assert torch.equal(steep(pairs), loss(pairs))
    assert torch.allclose(weights.autograd(steep, pairs), 2.5 * weight, rtol=0, atol=1e-12)


@pytest.mark.parametrize("k", (2, 3, 5, 50))
def test_contextual_follows_its_samples(k):
    loss, pairs = losses.load("contextual", {"k": k, "eps": 0.2}), synthetic_inputs.labelled(seed=2)
    order = torch.randperm(11, generator=torch.Generator().manual_seed(1))
    masks = (mask[order][:, order] for mask in (pairs.positive, pairs.negative))
    assert torch.allclose(loss(Pairs(pairs.scores[order][:, order], *masks)), loss(pairs)[order], atol=1e-12)
    assert loss(pairs).tolist() == pytest.approx(ranking.contextual(pairs, k, 0.2, 10.0), abs=1e-12)


@pytest.mark.parametrize("rows", (9, 11))
def test_a_pair_in_neither_mask_takes_no_part_in_contextual(rows):
    loss, pairs = losses.load("contextual"), synthetic_inputs.labelled(seed=2)
    part = torch.ones_like(pairs.positive)
    part[0, 4:7] = part[3, :5] = part[8, 10] = False
    masked = Pairs(pairs.scores[:rows], (pairs.positive & part)[:rows], (pairs.negative & part)[:rows])
    moved = masked.with_scores(torch.where(part[:rows], masked.scores, 0.99))
    assert torch.equal(loss(moved), loss(masked))
    assert torch.equal(weights.autograd(loss, moved), weights.autograd(loss, masked))
    assert (weights.autograd(loss, masked)[~part[:rows]] == 0).all()
