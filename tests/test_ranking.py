"""Facts of the losses that put a number on a ranking; what they share with all losses is tried in test_losses."""

import math

import pytest
import torch

from cocos import Pairs, losses
from cocos.counting import weights
from cocos.embeddings import regimes
from oracles import ranking

SMOOTH = ("fastap", "listwise_ap", "recall_at_k", "sup_ap")
NAMES = (*SMOOTH, "blackbox_ap", "contextual")


def one_query(positives, negatives):
    """Pairs of one query, positives first."""
    scores = torch.tensor([[*positives, *negatives]], dtype=torch.float64)
    return Pairs(scores, torch.arange(scores.shape[1])[None] < len(positives))


def value(name, positives, negatives, **parameters):
    return losses.load(name, parameters)(one_query(positives, negatives)).item()


@pytest.mark.parametrize("name", ("fastap", "listwise_ap"))
def test_a_histogram_counted_by_hand(name):
    """One positive halfway between the first two bins, one negative in the first: ½·(½/1½) + ½·(1/2) = 5/12."""
    if name == "fastap":
        assert math.isclose(value(name, [-0.2], [0.0]), 1 - 5 / 12)
    else:
        assert math.isclose(value(name, [0.75], [1.0], bins=5), 1 - 5 / 12)


@pytest.mark.parametrize("bins", (4, 10, 19))
def test_fastap_is_listwise_ap_with_one_more_centre(bins):
    """On unit vectors d² = 2 - 2s, so that a weight on s is twice the weight on -d²."""
    one, other = losses.load("fastap", {"bins": bins}), losses.load("listwise_ap", {"bins": bins + 1})
    squares, cosines = (regimes.labelled(loss.metric, seed=1) for loss in (one, other))
    assert torch.allclose(one(squares), other(cosines), rtol=0, atol=1e-12)
    assert torch.allclose(2 * one.weight(squares), other.weight(cosines), rtol=0, atol=1e-9)
    assert one.equals()[0] == ("listwise_ap", {"bins": bins + 1, "low": -1.0, "high": 1.0}, "unit vectors")
    assert other.equals()[0] == ("fastap", {"bins": bins}, "unit vectors")
    assert losses.load("listwise_ap", {"low": 0.0}).equals() == ()


def test_beyond_the_last_bin_and_on_a_centre_nothing_is_pulled():
    fastap = losses.load("fastap", {"bins": 4})  # centres at 0, 1, 2, 3 and 4
    pairs = one_query([-1.0, -1.5, -9.0], [0.0, -1.25, -4.0, -7.0])
    assert (fastap.weight(pairs) != 0).tolist() == [[False, True, False, False, True, False, False]]
    assert fastap(pairs).item() == fastap(one_query([-1.0, -1.5, -4.0], [0.0, -1.25, -4.0, -4.0])).item()
    listwise = losses.load("listwise_ap", {"bins": 5})  # centres at 1, ½, 0, -½ and -1
    pairs = one_query([0.5, 0.25, 1.5], [1.0, 0.375, -1.0, -3.0])
    assert (listwise.weight(pairs) != 0).tolist() == [[False, True, False, False, True, False, False]]
    assert torch.equal(weights.autograd(listwise, pairs) != 0, listwise.weight(pairs) != 0)


@pytest.mark.parametrize(("name", "gap"), [("fastap", 0.8), ("listwise_ap", 2 / 19 * 2), ("sup_ap", 0.5)])
def test_a_gap_below_the_positives_costs_nothing(name, gap):
    best = 0.0 if name == "fastap" else 1.0
    assert value(name, [best], [best - gap, best - gap - 0.3]) <= 1e-15
    assert value(name, [best], [best - gap / 100]) > 0.1


def test_perfect_retrieval_is_not_free_under_recall_at_k():
    """Three positives at ranks 1, 2, 3: 0.102. With the query itself in the ranking they are at 2, 3, 4: 0.285."""
    perfect, below = [0.9, 0.6, 0.3], [-0.5, -0.8]
    assert round(value("recall_at_k", perfect, below), 3) == 0.102
    assert round(value("recall_at_k", perfect, [1.2, *below]), 3) == 0.285


def test_recall_that_has_reached_k_has_no_gradient():
    """Under a wide cut five positives behind all negatives still sum up to more than one."""
    pairs = one_query([0.1, 0.2, 0.3, 0.4, 0.5], [0.6, 0.7])
    wide = losses.load("recall_at_k", {"temperature": 0.1, "temperature_k": 10, "ks": "1"})
    assert wide(pairs).item() == 0 and (wide.weight(pairs) == 0).all()
    assert (weights.autograd(wide, pairs) == 0).all()
    both = losses.load("recall_at_k", {"temperature": 0.1, "temperature_k": 10, "ks": "1,8"})
    assert both.weight(pairs).abs().max() > 1e-3


def above(gap, **parameters):
    """H(gap): with one positive and one negative the loss is 1 - 1/(1 + H)."""
    loss = value("sup_ap", [0.0], [gap], **parameters)
    return loss / (1 - loss)


def test_the_surrogate_of_sup_ap_jumps_at_zero_and_at_delta():
    """Default values: H(δ) = ½ + σ(5) = 1.493, and beyond it starts at 1.44, a drop of 0.053."""
    assert round(above(0.05), 3) == 1.493
    assert round(above(0.05) - above(0.05 + 1e-9), 3) == 0.053
    assert math.isclose(above(0.15), 100 * 0.1 + 1.44)
    assert math.isclose(above(0.0), 0.5) and math.isclose(above(1e-12), 1.0)
    assert abs(above(0.05, offset=None) - above(0.05 + 1e-9, offset=None)) < 1e-6


def test_sup_ap_does_not_train_the_order_of_the_positives():
    """Without an intruder the loss is 0 in any order; with one, only the distances to it have weight."""
    loss = losses.load("sup_ap")
    pairs = one_query([0.9, 0.895, 0.3], [-0.9])
    assert loss(pairs).item() == 0 and (loss.weight(pairs).abs() < 1e-40).all()
    weight = loss.weight(one_query([0.9, 0.895, 0.2], [0.21]))
    assert (weight[0, :2].abs() < 1e-20).all() and weight[0, 2] < -1


def test_of_tied_positives_each_stands_above_the_other_in_sup_ap():
    """Both have rank 2 among the positives and a tied negative counts ½: 2/2.5."""
    assert math.isclose(value("sup_ap", [0.5, 0.5], [0.5]), 1 - 2 / 2.5)


@pytest.mark.parametrize("seed", range(8))
def test_sup_ap_bounds_the_true_average_precision(seed):
    pairs = regimes.build("random", "cosine", seed)
    for offset in (1.44, None):
        assert (losses.load("sup_ap", {"offset": offset})(pairs) >= losses.load("blackbox_ap")(pairs) - 1e-12).all()


@pytest.mark.parametrize("name", SMOOTH)
def test_candidates_far_below_change_nothing(name):
    loss = losses.load(name)
    generator = torch.Generator().manual_seed(3)
    scores = torch.rand(5, 12, generator=generator, dtype=torch.float64)
    scores = -0.5 * scores if name == "fastap" else scores
    positive = torch.arange(12) < torch.arange(1, 6)[:, None]
    far = scores.new_full((5, 9), -3.0 if name == "fastap" else -0.9)
    pairs = Pairs(scores, positive)
    more = Pairs(torch.cat([scores, far], dim=1), torch.cat([positive, far > 0], dim=1))
    assert torch.allclose(loss(more), loss(pairs), rtol=0, atol=1e-12)
    assert torch.allclose(loss.weight(more)[:, :12], loss.weight(pairs), rtol=0, atol=1e-12)
    assert (loss.weight(more)[:, 12:].abs() < 1e-12).all() and loss.weight(pairs).abs().max() > 0.1


@pytest.mark.parametrize("lam", (0.1, 0.5, 4.0))
@pytest.mark.parametrize("seed", range(4))
def test_the_weights_of_blackbox_ap_are_made_up_by_its_backward_pass(lam, seed):
    loss, pairs = losses.load("blackbox_ap", {"lam": lam}), regimes.build("random", "cosine", seed)
    weight = loss.weight(pairs)
    assert loss.gradient == "pseudo" and weight.abs().max() > 0
    assert (weights.finite_difference(loss, pairs) == 0).all()
    assert torch.allclose(weights.autograd(loss, pairs), weight, rtol=0, atol=1e-12)
    slow = torch.tensor(ranking._blackbox_weight(pairs, lam), dtype=torch.float64)
    assert torch.allclose(weight, slow, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_blackbox_ap_lets_positives_pass_negatives(seed):
    loss, pairs = losses.load("blackbox_ap", {"lam": 0.1}), regimes.build("random", "cosine", seed)
    weight = loss.weight(pairs)
    places = weight * loss.lam * pairs.scores.shape[1]
    assert torch.allclose(places, places.round(), rtol=0, atol=1e-9)
    assert (weight[pairs.negative] >= 0).all()
    assert (torch.where(pairs.positive, weight, 0).sum(dim=1) <= 0).all()
    assert (weight.abs() <= loss.unit(pairs)).all()
    perfect = one_query([0.9, 0.5], [0.4, 0.1])
    assert loss(perfect).item() == 0 and (loss.weight(perfect) == 0).all()


def test_blackbox_ap_under_a_mean_moves_the_scores_less():
    """A gradient divided by Q queries moves them Q times less, as λ/Q would."""
    loss, pairs = losses.load("blackbox_ap"), regimes.build("random", "cosine", 2)
    queries = len(pairs.scores)
    mean = torch.func.grad(lambda scores: loss(pairs.with_scores(scores)).mean())(pairs.scores)
    less = losses.load("blackbox_ap", {"lam": loss.lam / queries}).weight(pairs) / queries
    assert torch.allclose(mean, less, rtol=0, atol=1e-12)
    assert (mean - loss.weight(pairs) / queries).abs().max() > 1e-3


def test_blackbox_ap_takes_its_margin_before_it_ranks():
    pairs = regimes.build("random", "cosine", 0)
    moved = pairs.with_scores(torch.where(pairs.positive, pairs.scores - 0.1, pairs.scores + 0.1))
    plain, wide = losses.load("blackbox_ap"), losses.load("blackbox_ap", {"margin": 0.2})
    assert torch.equal(wide(pairs), plain(moved)) and not torch.equal(wide(pairs), plain(pairs))
    assert torch.equal(wide.weight(pairs), plain.weight(moved))
    assert value("blackbox_ap", [0.5], [0.5]) == 0 and value("blackbox_ap", [0.5], [0.5], margin=0.1) == 0.5


@pytest.mark.parametrize("seed", range(4))
def test_contextual_has_a_made_up_gradient_and_claims_no_closed_form(seed):
    loss, pairs = losses.load("contextual"), regimes.labelled(seed=seed)
    weight = weights.autograd(loss, pairs)
    assert loss.gradient == "pseudo" and not hasattr(loss, "weight")
    assert weight.abs().max() > 0.1 and (weight.abs() <= loss.unit(pairs) * pairs.scores.shape[0]).all()
    assert (weights.finite_difference(loss, pairs) == 0).all()
    steep = losses.load("contextual", {"alpha": 25})
    assert torch.equal(steep(pairs), loss(pairs))
    assert torch.allclose(weights.autograd(steep, pairs), 2.5 * weight, rtol=0, atol=1e-12)


def test_contextual_is_zero_for_classes_of_k_far_apart():
    label = torch.arange(3).repeat_interleave(4)
    same, itself = label[:, None] == label, torch.eye(12, dtype=torch.bool)
    loss = losses.load("contextual")
    assert (loss(Pairs(same.double(), same & ~itself, ~same)) == 0).all()
    assert (loss(Pairs(same.double(), ~same, same & ~itself)) > 0.5).all()


def test_contextual_counts_a_rectangle_by_hand():
    """k = 2: query and positive are each other's neighbours, 1; the negative has the query for one, w = ½·¼."""
    assert math.isclose(value("contextual", [0.9], [0.1], k=2), 0.125**2 / 2)


@pytest.mark.parametrize("k", (2, 3, 5, 50))
def test_contextual_follows_its_samples(k):
    loss, pairs = losses.load("contextual", {"k": k, "eps": 0.2}), regimes.labelled(seed=2)
    order = torch.randperm(11, generator=torch.Generator().manual_seed(1))
    masks = (mask[order][:, order] for mask in (pairs.positive, pairs.negative))
    assert torch.allclose(loss(Pairs(pairs.scores[order][:, order], *masks)), loss(pairs)[order], atol=1e-12)
    assert loss(pairs).tolist() == pytest.approx(ranking.contextual(pairs, k, 0.2, 10.0), abs=1e-12)


@pytest.mark.parametrize("rows", (9, 11))
def test_a_pair_in_neither_mask_takes_no_part_in_contextual(rows):
    loss, pairs = losses.load("contextual"), regimes.labelled(seed=2)
    part = torch.ones_like(pairs.positive)
    part[0, 4:7] = part[3, :5] = part[8, 10] = False
    masked = Pairs(pairs.scores[:rows], (pairs.positive & part)[:rows], (pairs.negative & part)[:rows])
    moved = masked.with_scores(torch.where(part[:rows], masked.scores, 0.99))
    assert torch.equal(loss(moved), loss(masked))
    assert torch.equal(weights.autograd(loss, moved), weights.autograd(loss, masked))
    assert (weights.autograd(loss, masked)[~part[:rows]] == 0).all()


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16, torch.float32))
@pytest.mark.parametrize("name", NAMES)
def test_the_dtype_is_kept(name, dtype):
    loss = losses.load(name)
    pairs = regimes.labelled(loss.metric, seed=1)
    pairs = pairs.with_scores(pairs.scores.to(dtype))
    assert loss(pairs).dtype == loss.unit(pairs).dtype == weights.autograd(loss, pairs).dtype == dtype
    if name != "contextual":
        assert loss.weight(pairs).dtype == dtype and loss.weight(pairs).isfinite().all()


def test_no_list_of_ks_is_refused():
    with pytest.raises(ValueError, match=r"ks must be whole numbers of at least 1, got \(\)"):
        losses.recall_at_k.RecallAtK(ks=())
