"""Facts of the losses of pairs, triplets and their sums: kinks, ties, mining, couplings, and the edges of float32."""

import dataclasses
import math

import pytest
import torch

from cocos import Embeddings, Pairs, losses
from cocos.counting import weights
from cocos.embeddings import regimes, scores

ON_DISTANCES = (
    "contrastive",
    "contrastive_linear",
    "triplet_euclidean",
    "triplet_squared",
    "lifted_structure",
    "generalized_lifted",
)
ALL = (
    *ON_DISTANCES,
    "contrastive_cosine",
    "n_pair",
    "multi_similarity",
    "circle",
    "proxy_anchor",
    "cbml",
    "sgsl",
    "siglip",
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
        return loss(pairs.with_scores(scores.METRICS[loss.metric](points, points))).sum()

    assert torch.func.grad(total)(pairs.embeddings.query).isfinite().all()


def test_where_all_is_collapsed_the_weights_are_known():
    alike = row([-1.0] * 6, positives=2)  # two positives and four negatives, all at distance 1

    def weight(name, **parameters):
        return losses.load(name, parameters).weight(alike)[0]

    near(weight("triplet_euclidean"), [-4, -4, 2, 2, 2, 2])
    near(weight("triplet_squared"), [-4, -4, 2, 2, 2, 2])
    near(weight("generalized_lifted"), [-1 / 2] * 2 + [1 / 4] * 4)
    near(weight("n_pair"), [-4 / 5] * 2 + [2 / 5] * 4)
    near(weight("contrastive", margin=3.0), [-1, -1, 2, 2, 2, 2])
    near(weight("multi_similarity", alpha=1, beta=1, base=-1.0), [-1 / 3] * 2 + [1 / 5] * 4)
    hinge = 1 + math.log(4)  # d + log(4 e^{m-d}) with m = 1: no other query has these positives' negatives
    near(weight("lifted_structure"), [-hinge] * 2 + [2 * hinge / 4] * 4)


def test_duplicates_share_alike():
    pairs = row([-1.0, -1.25, -1.25, -2.0])
    for name in ALL:
        weight = losses.load(name).weight(pairs)[0]
        assert weight[1] == weight[2], name
    tied = row([0.5, 0.25, 0.25, -1.0])  # two hardest negatives: the mean of CBML moves with half of each
    loss = losses.load("cbml", {"hyper": 1.0, "margin": 1.0, "neg_b": 1e-3})
    near(loss.weight(tied), weights.autograd(loss, tied))
    near(loss.weight(tied)[0, 1], loss.weight(tied)[0, 2])


@pytest.mark.parametrize("name", ON_DISTANCES)
@pytest.mark.parametrize("values", [[-1e-20, -2e-20, -3e-20], [-1e4, -1e4 - 0.25, -1e4 + 2], [-1e4, -1e-20, -1e4]])
def test_float32_holds_from_the_nearest_to_the_farthest(name, values):
    loss = losses.load(name)
    single = row(values, dtype=torch.float32)
    exact = Pairs(single.scores.double(), single.positive)
    assert loss(single).isfinite().all()
    assert weights.autograd(loss, single).isfinite().all()
    right = loss.weight(exact)
    plain = (weights.autograd(loss, single).double() - right).abs().max().item()
    assert (loss.weight(single).double() - right).abs().max() <= plain + 1e-6 * right.abs().max()
    if name == "contrastive":
        near(loss.weight(single)[0, 0], values[0], 1e-6 * abs(values[0]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ALL)
def test_half_precision_stays_finite(name, dtype):
    loss = losses.load(name)
    pairs = row([-0.5, -0.75, -0.25, -1.0], positives=2, dtype=dtype)
    for values in (loss(pairs), loss.weight(pairs), loss.unit(pairs)):
        assert values.dtype == dtype
        assert values.isfinite().all()
    one_sided = dataclasses.replace(pairs, positive=torch.zeros_like(pairs.positive), negative=None)
    assert loss(one_sided).isfinite().all() and loss.weight(one_sided).isfinite().all()


def test_hadsell_pushes_hardest_at_distance_zero():
    loss = losses.load("contrastive", {"margin": 1.5})
    near(loss.weight(row([-0.5, 0.0, -0.5, -2.0])), [[-0.5, 1.5, 1.0, 0.0]])
    near(loss.unit(row([0.0])), 1.5)


def test_squared_triplets_have_half_the_margin_on_cosines():
    """On unit vectors d² = 2 - 2s, so [2α + d_p² - d_n²] is twice [α - s_p + s_n], with the same triplets."""
    cosines = regimes.build("random", "cosine", 2)
    squares = cosines.with_scores(2 * cosines.scores - 2)
    on_cosines, on_squares = losses.load("triplet", {"margin": 0.3}), losses.load("triplet_squared", {"margin": 0.6})
    assert torch.equal(on_squares.weight(squares), on_cosines.weight(cosines))
    near(on_squares(squares), 2 * on_cosines(cosines))


def test_n_pair_is_ntxent_at_temperature_one():
    pairs = regimes.build("random", "dot", 0)
    assert torch.equal(losses.load("n_pair").weight(pairs), losses.load("ntxent", {"temperature": 1}).weight(pairs))


def test_a_sharp_sgsl_meets_the_hardest_negative_only():
    pairs = row([0.5, 0.25, 0.0])
    part = 1 / (1 + math.exp(0.25))
    near(losses.load("sgsl", {"gamma": 1e4}).weight(pairs), [[-part, part, 0]])
    near(losses.load("sgsl", {"gamma": 1.0})(pairs), losses.load("n_pair")(pairs))


def test_lifted_pushes_as_much_as_it_pulls_over_a_batch():
    loss, far = losses.load("lifted_structure"), 0.0
    for regime in regimes.SYNTHETIC_REGIMES:
        weight = loss.weight(regimes.build(regime, "euclidean"))
        assert abs(weight.sum()) <= 1e-12 * max(1, weight.abs().sum())
        far = max(far, (weight.sum(dim=1).abs().max() / weight.abs().max().clamp(min=1)).item())
    assert far > 0.1  # and not for each query


def beside(pairs):
    """The same pairs and a last candidate that takes no part: no longer a square, so columns are read."""
    wide = [torch.nn.functional.pad(part, (0, 1)) for part in (pairs.scores, pairs.positive, pairs.negative)]
    return Pairs(*wide)


@pytest.mark.parametrize("seed", range(3))
def test_lifted_rows_and_columns_give_the_embeddings_of_one_set_the_same_gradient(seed):
    loss, pairs = losses.load("lifted_structure"), regimes.labelled("euclidean", seed)
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


def test_an_active_generalized_lifted_query_pulls_and_pushes_with_one():
    loss, pairs = losses.load("generalized_lifted"), regimes.build("random", "euclidean")
    weight, active = loss.weight(pairs), loss(pairs) > 0
    assert active.any()
    near(weight.clamp(min=0).sum(dim=1), active.double())
    farthest = pairs.scores.masked_fill(~pairs.positive, torch.inf).argmin(dim=1)
    assert (weight.argmin(dim=1) == farthest)[active].all()


def test_mined_out_pairs_weigh_nothing_and_kept_ones_hardly_anything_at_times():
    pairs = row([0.95, 0.2, 0.55, 0.4, 0.05], positives=2)
    plain, mined = losses.load("multi_similarity"), losses.load("multi_similarity", {"mining": 0.1})
    assert (plain.weight(pairs) != 0).all()
    kept = mined.weight(pairs)[0] != 0  # positives below 0.55 + 0.1, negatives above 0.2 - 0.1
    assert kept.tolist() == [False, True, True, True, False]
    assert 0 < mined.weight(pairs)[0, 3] < 1e-3  # kept, though it weighs little
    for value in (True, False):
        alone = Pairs(pairs.scores, torch.full_like(pairs.positive, value))
        assert (mined.weight(alone) == 0).all()  # nothing to be mined against
        assert (plain.weight(alone) != 0).all()
    at_the_edge = row([0.75, 0.5], positives=1)
    assert (losses.load("multi_similarity", {"mining": 0.25}).weight(at_the_edge) == 0).all()


def test_multi_similarity_pulls_and_pushes_less_than_one():
    for regime in regimes.SYNTHETIC_REGIMES:
        weight = losses.load("multi_similarity").weight(regimes.build(regime))
        assert (weight.clamp(min=0).sum(dim=1) <= 1 + 1e-12).all() and (weight.clamp(max=0).sum(dim=1) >= -1).all()


def test_the_heaviest_negative_of_circle_need_not_be_the_most_similar():
    pairs = row([0.7, 0.0, -0.3])
    weight = losses.load("circle").weight(pairs)[0]
    assert weight[2] > 10 * weight[1] > 0
    # exponents γ(s² - m²) = -12.8 and -5.6, paces 0.4 and 0.1
    near(weight[1] / weight[2], 0.4 / 0.1 * math.exp(-12.8 + 5.6), 1e-10)


def test_detached_paces_of_circle_are_not_the_derivative():
    pairs = regimes.build("random", "cosine", 2)
    held, free = (losses.load("circle", {"detach": value}) for value in (True, False))
    assert torch.equal(held(pairs), free(pairs))
    assert (held.gradient, free.gradient) == ("stop_gradient", "exact")
    slope = weights.finite_difference(held, pairs)
    assert (free.weight(pairs) - slope).abs().max() < 1e-5 * slope.abs().max()
    assert (held.weight(pairs) - slope).abs().max() > 0.25 * slope.abs().max()
    hard = row([-0.2, 0.8])  # paces 1 + m - s and s + m in place of the derivatives 2 - 2s and 2s
    near(held.weight(hard) / free.weight(hard), [[1.6 / 2.4, 1.2 / 1.6]])
    pulled = row([0.9, -0.2])
    assert held.weight(pulled)[0, 1] > 0 > free.weight(pulled)[0, 1]  # 2s in place of s + m


def test_candidates_of_proxy_anchor_meet_in_their_numbers_only():
    loss, pairs = losses.load("proxy_anchor"), regimes.build("random", "cosine", 1)
    before = loss.weight(pairs)
    moved = pairs.with_scores(torch.cat([pairs.scores[:, :1] + 0.3, pairs.scores[:, 1:]], dim=1))
    assert torch.equal(loss.weight(moved)[:, 1:], before[:, 1:])
    assert not torch.equal(loss.weight(moved)[:, 0], before[:, 0])
    fewer = Pairs(pairs.scores[:, 1:], pairs.positive[:, 1:], pairs.negative[:, 1:])  # one proxy less, and its class
    near(loss.weight(fewer)[fewer.positive], (7 / 6) * before[:, 1:][fewer.positive])
    near(loss.weight(fewer)[fewer.negative], (11 / 10) * before[:, 1:][fewer.negative])


def test_proxy_anchor_is_the_sum_over_its_candidates():
    loss, pairs = losses.load("proxy_anchor", {"alpha": 2.0, "margin": 0.5}), regimes.build("random", "cosine", 0)
    pull = (1 + torch.where(pairs.positive, (-2 * (pairs.scores - 0.5)).exp(), 0).sum(dim=0)).log()
    push = (1 + torch.where(pairs.negative, (2 * (pairs.scores + 0.5)).exp(), 0).sum(dim=0)).log()
    near(loss(pairs).sum(), pull.sum() / 21 + push.sum() / 25)
    near(loss.unit(pairs), 2 / (21 * pairs.positive + 25 * pairs.negative).double())
    assert (loss.weight(pairs).abs() < loss.unit(pairs)).all()


def test_the_mean_of_cbml_holds_the_query_itself():
    pairs = row([0.5, 0.75])
    with_spread, without = (losses.load("cbml", {"weight": value}) for value in (1.0, 0.0))
    mean = 0.9 * (1 + 0.5 + 0.75) / 3 + 0.1 * (0.5 + 0.75) / 2
    near(with_spread(pairs) - without(pairs), [(0.75 - mean) ** 2])


def test_the_spread_of_cbml_reaches_every_pair_and_pulls_low_negatives():
    loss, pairs = losses.load("cbml"), row([0.9, 0.3, 0.8, -0.7], positives=2)
    weight = loss.weight(pairs)[0]
    assert (weight != 0).all()
    assert weight[3] < 0  # a negative below the mean is pulled up to it
    separated = row([0.9, 0.8, 0.2, 0.1], positives=2)
    assert loss(separated) == 0 and (loss.weight(separated) == 0).all()  # nothing mined: no spread either


def test_lifted_rows_need_no_symmetry_and_run_under_vmap_and_jacrev():
    loss, pairs = losses.load("lifted_structure"), regimes.labelled("euclidean", 1)
    skew = torch.linspace(0, 1, pairs.scores.numel(), dtype=torch.float64).view_as(pairs.scores)
    both = torch.stack([pairs.scores, pairs.scores - skew])
    for each in (loss, loss.weight):
        values = torch.func.vmap(lambda s, each=each: each(pairs.with_scores(s)))(both)
        near(values[1], each(pairs.with_scores(both[1])))
    across = torch.func.jacrev(lambda s: loss(pairs.with_scores(s)))(both[1])
    near(across.sum(dim=0), loss.weight(pairs.with_scores(both[1])))
