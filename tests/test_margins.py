"""Softmaxes of classifiers and proxies: what their papers say of angles, norms, smoothing, several proxies a class."""

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F

import oracles
from cocos import Embeddings, InputError, Pairs, losses
from cocos.counting import weights
from cocos.embeddings import regimes, scores

NAMES = (
    "normalized_softmax",
    "linear_softmax",
    "l2_softmax",
    "cosface",
    "arcface",
    "magface",
    "l_softmax",
    "a_softmax",
    "center_contrastive",
    "hist",
    "softtriple",
    "proxy_gml",
    "adaface",
    "curricularface",
    "subcenter_arcface",
)
FAR = 40.0  # a negative so far above that the softmax leaves all to it, and the loss is a straight line of the target


def close(actual, expected, tolerance):
    worst = (actual - expected).abs().max().item()
    assert worst <= tolerance * max(1.0, expected.abs().max().item()), f"off by {worst:.3e}"


def one_positive(cosines, others, **more):
    """A query for each cosine, whose only positive has it, against negatives of these scores."""
    cosines = torch.as_tensor(cosines, dtype=torch.float64)
    columns = [cosines, *(torch.full_like(cosines, other) for other in others)]
    positive = torch.zeros(len(cosines), len(columns), dtype=torch.bool)
    positive[:, 0] = True
    return Pairs(torch.stack(columns, dim=1), positive, **more)


def target_and_slope(loss, cosines):
    """The cosine that the loss makes of a positive's, and its derivative, read off its value and its weight."""
    scale = getattr(loss, "scale", 1.0)
    pairs = one_positive(cosines, [FAR])
    return FAR - loss(pairs) / scale, -loss.weight(pairs)[:, 0] / scale


def raw(pairs_of, seed=0, queries=6, classes=5):
    """Raw queries and proxies, and their pairs, in float64."""
    generator = torch.Generator().manual_seed(seed)
    query, proxy = (torch.randn(n, 7, generator=generator, dtype=torch.float64) for n in (queries, classes))
    labels = torch.arange(queries) % classes
    given = Embeddings(query, proxy, labels, torch.arange(classes), directions=("s2p",))
    return query, proxy, labels, scores.pairs(given, metric=pairs_of)


def gradient(loss, seed, unit):
    """∂ Σ loss / ∂ raw queries and candidates of the random regime; `unit` makes all of them unit vectors first."""
    prepared = F.normalize if unit else torch.clone
    given = regimes.embeddings("random", seed)
    given = dataclasses.replace(given, query=prepared(given.query), candidate=prepared(given.candidate))
    pairs, score = scores.pairs(given, metric=loss.metric), scores.METRICS[loss.metric]

    def total(query, candidate):
        query, candidate = prepared(query), prepared(candidate)
        return loss(pairs.with_scores(score(query, candidate), query.norm(dim=1))).sum()

    return torch.cat(torch.func.grad(total, argnums=(0, 1))(given.query, given.candidate))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("normalized_softmax", {}),
        ("l2_softmax", {}),
        ("cosface", {"margin": 0.0}),
        ("arcface", {"margin": 0.0}),
        ("magface", {"l_m": 0.0, "u_m": 0.0, "lambda_g": 0.0}),
        ("linear_softmax", {"smoothing": 0.0}),
        ("adaface", {"margin": 0.0}),
        ("adaface", {"h": 0.0}),
        ("l_softmax", {}),
        ("l_softmax", {"margin": 1}),
        ("a_softmax", {"margin": 3, "annealing": 2.0}),
        ("a_softmax", {"margin": 1}),
    ],
)
def test_losses_are_the_others_that_they_name(name, parameters):
    """By the gradient of raw queries and candidates, through scores and query norms."""
    loss = losses.load(name, parameters)
    assert loss.equals()
    for other, its, where in loss.equals():
        for seed in (0, 1, 2, 3):
            ours, theirs = (gradient(each, seed, "unit" in where) for each in (loss, losses.load(other, its)))
            close(ours / ours.abs().max(), theirs / ours.abs().max(), 1e-12)


def test_a_margin_is_not_the_loss_without_it():
    for name in ("cosface", "arcface", "magface", "linear_softmax", "center_contrastive"):
        assert not getattr(losses.load(name), "equals", tuple)()


# --- the angle of the positive times m


@pytest.mark.parametrize("name", ("l_softmax", "a_softmax"))
@pytest.mark.parametrize("margin", range(1, 8))
def test_the_multiplied_angle_needs_no_arc_cosine(name, margin):
    """L-Softmax eq. 6, and its derivative, away from θ = 0 and θ = π where an arc cosine loses its digits."""
    theta = torch.linspace(0.02, math.pi - 0.02, 1001, dtype=torch.float64)
    value, slope = target_and_slope(losses.load(name, {"margin": margin}), theta.cos())
    turns = (margin * theta / math.pi).floor()
    close(value, (-1) ** turns * (margin * theta).cos() - 2 * turns, 1e-12)
    close(slope, (-1) ** turns * margin * (margin * theta).sin() / theta.sin(), 1e-11)
    assert (value.diff() < 0).all()


@pytest.mark.parametrize("margin", (2, 3, 4, 5))
def test_the_multiplied_angle_has_no_kink_and_falls_from_1_to_1_minus_2m(margin):
    loss = losses.load("a_softmax", {"margin": margin})
    for k in range(1, margin):
        knot, step = k * math.pi / margin, 1e-7
        value, slope = target_and_slope(loss, [math.cos(knot - step), math.cos(knot + step)])
        assert abs(value[0] - value[1]) < 1e-12  # both of second order in the step
        assert abs(slope[0] - slope[1]) < 20 * margin**2 * step / math.sin(knot) ** 3
    value, slope = target_and_slope(loss, [1.0, -1.0])
    assert value.tolist() == [1.0, 1.0 - 2 * margin]
    assert slope.tolist() == [margin**2, margin**2]


@pytest.mark.parametrize("name", ("l_softmax", "a_softmax"))
def test_a_positive_at_90_degrees_is_not_pulled_however_wrong_it_is(name):
    """With m = 4 also at 45 and 135 degrees; with m = 3 at 60 and 120 but not at 90."""
    pairs = one_positive([math.cos(k * math.pi / 4) for k in (1, 2, 3)], [0.9, 0.5])
    four, three = (losses.load(name, {"margin": m}).weight(pairs) for m in (4, 3))
    assert four[1, 0] == 0 or four[1, 0].abs() < 1e-15
    assert four[:, 0].abs().max() < 1e-14
    assert (four[:, 1:].sum(dim=1) > 0.7).all()  # and the negatives that stand above it are pushed
    assert three[1, 0] < -1
    annealed = losses.load(name, {"annealing": 5.0}).weight(pairs)
    assert (annealed[:, 0] < -0.6).all()


def test_scores_beyond_one_go_on_along_the_tangent():
    loss = losses.load("a_softmax")
    step = 1e-3
    value, slope = target_and_slope(loss, [1 + step, -1 - step])
    close(value, torch.tensor([1 + 16 * step, -7 - 16 * step], dtype=torch.float64), 1e-12)
    assert slope.tolist() == [16.0, 16.0]


@pytest.mark.parametrize("name", ("l_softmax", "a_softmax"))
def test_annealing_mixes_the_plain_cosine_in(name):
    theta = torch.linspace(0, math.pi, 101, dtype=torch.float64)
    multiplied, bent = target_and_slope(losses.load(name), theta.cos())
    value, slope = target_and_slope(losses.load(name, {"annealing": 5.0}), theta.cos())
    close(value, (5 * theta.cos() + multiplied) / 6, 1e-13)  # SphereFace's last λ
    close(slope, (5 + bent) / 6, 1e-12)
    *_, pairs = raw("cosine")
    frozen, plain = (losses.load(name, p).weight(pairs) for p in ({"annealing": 1e13}, {"margin": 1}))
    close(frozen, plain, 1e-10)


@pytest.mark.parametrize("norm", (1e-3, 1.0, 60.0))
def test_norms_are_the_temperature_of_large_margins(norm):
    query, proxy, labels, pairs = raw("cosine")
    pairs = dataclasses.replace(pairs, query_norm=norm * pairs.query_norm)
    for name, lengths in (("l_softmax", pairs.candidate_norm), ("a_softmax", torch.ones_like(pairs.candidate_norm))):
        loss = losses.load(name, {"margin": 1})
        logits = pairs.query_norm[:, None] * lengths * pairs.scores
        error = logits.softmax(dim=1) - F.one_hot(labels, 5)
        close(loss.weight(pairs), pairs.query_norm[:, None] * lengths * error, 1e-12)
        close(loss.radial(pairs), (error * lengths * pairs.scores).sum(dim=1), 1e-12)
        assert (loss.weight(pairs).abs() <= loss.unit(pairs)).all()
        bent = losses.load(name, {"margin": 4})
        slow = oracles.LOSSES[name](pairs, 4, 0.0)
        close(bent(pairs), torch.tensor(slow, dtype=torch.float64), 1e-12)
        close(bent.weight(pairs), weights.autograd(bent, pairs), 1e-12)
        assert (bent.weight(pairs).abs() <= 16 * bent.unit(pairs)).all()


def test_radial_and_tangential_part_are_the_gradient_of_the_raw_query():
    """L-Softmax with m = 1 is the softmax of raw inner products."""
    query, proxy, labels, pairs = raw("cosine", seed=4)
    loss = losses.load("l_softmax", {"margin": 1})
    direction, own = F.normalize(query), F.normalize(proxy)
    whole = loss.weight(pairs) @ own
    tangent = (whole - (whole * direction).sum(dim=1, keepdim=True) * direction) / pairs.query_norm[:, None]
    moved = query.clone().requires_grad_()
    (expected,) = torch.autograd.grad(F.cross_entropy(moved @ proxy.T, labels, reduction="sum"), moved)
    close(tangent + loss.radial(pairs)[:, None] * direction, expected, 1e-12)


# --- the angle of the positive plus m


@pytest.mark.parametrize("margin", (0.3, 0.5, 1.2))
def test_arcface_turns_and_jumps_where_the_angle_passes_pi(margin):
    loss = losses.load("arcface", {"margin": margin})
    edge, step = math.pi - margin, 1e-9
    theta = torch.linspace(0.01, edge - 0.001, 501, dtype=torch.float64)
    value, slope = target_and_slope(loss, theta.cos())
    close(value, (theta + margin).cos(), 1e-13)
    close(slope, (theta + margin).sin() / theta.sin(), 1e-11)
    value, slope = target_and_slope(loss, [math.cos(edge - step), math.cos(edge + step)])
    assert value[0].item() == pytest.approx(-1, abs=1e-12)
    assert value[1].item() == pytest.approx(-math.cos(margin) - margin * math.sin(margin), abs=1e-8)
    assert slope[0].item() == pytest.approx(0, abs=1e-6) and slope[1].item() == 1


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
@pytest.mark.parametrize("name", ("arcface", "magface"))
def test_the_force_of_an_angular_margin_is_bounded_where_its_weight_is_not(name, dtype):
    """As θ goes to 0: |w| sin θ goes to s sin(m) (1 - p), and at θ = 0 all is finite."""
    loss = losses.load(name)
    margin = 0.5 if name == "arcface" else 0.45  # a query of length 1 has MagFace's smallest margin
    previous = 0.0
    for theta in (1e-1, 1e-2, 1e-3):
        pairs = one_positive([math.cos(theta)], [0.9]).with_scores(torch.tensor([[math.cos(theta), 0.9]], dtype=dtype))
        weight = loss.weight(pairs)[0].double()
        cosine = pairs.scores[0, 0].double()
        force = -weight[0] * ((1 - cosine) * (1 + cosine)).sqrt()
        limit = 64 * math.sin(margin) * weight[1] / 64  # the only negative has λ(1 - p)
        assert abs(force / limit - 1) < 1.1 * theta / math.tan(margin) + 1e-4
        assert weight[0] < 1.5 * previous
        previous = weight[0].item()
    assert previous < -300 * weight[1]
    at = pairs.with_scores(torch.tensor([[1.0, 0.9]], dtype=dtype))
    assert loss(at).isfinite().all() and loss.weight(at).isfinite().all()
    assert torch.equal(weights.autograd(loss, at), loss.weight(at))
    assert loss.weight(at)[0, 0] < 0


def test_a_cosine_margin_only_moves_the_softmax():
    pairs = one_positive([0.8, 0.2], [0.1, 0.3])
    loss = losses.load("cosface")
    moved = one_positive([0.45, -0.15], [0.1, 0.3])
    assert torch.allclose(loss.weight(pairs), losses.load("cosface", {"margin": 0.0}).weight(moved), atol=1e-12)
    p = 1 / (1 + math.exp(64 * (0.1 + 0.15)) + math.exp(64 * (0.3 + 0.15)))
    assert loss.weight(pairs)[1, 0].item() == pytest.approx(-64 * (1 - p), rel=1e-12)


# --- the length of the query


def test_magface_has_a_larger_margin_for_a_longer_query():
    """Margins of 0.45 to 0.8 for lengths of 10 to 110, and no margin at 90 degrees or more."""
    theta = math.acos(0.6)
    loss = losses.load("magface")
    for length, margin in ((1.0, 0.45), (10.0, 0.45), (60.0, 0.625), (110.0, 0.8), (500.0, 0.8)):
        pairs = one_positive([0.6, -0.2, 0.0], [FAR], query_norm=torch.full((3,), length, dtype=torch.float64))
        held = min(max(length, 10.0), 110.0)
        value = FAR - (loss(pairs) - 20 * (held / 110**2 + 1 / held)) / 64
        close(value, torch.tensor([math.cos(theta + margin), -0.2, 0.0], dtype=torch.float64), 1e-12)
        slope = -loss.weight(pairs)[:, 0] / 64
        assert slope[0].item() == pytest.approx(math.sin(theta + margin) / math.sin(theta), rel=1e-12)
        assert slope[1:].tolist() == [1.0, 1.0]


def test_magface_draws_lengths_out_until_the_margin_weighs_more():
    """Without a margin to feel the length is drawn to u_a; a hard positive draws it back; outside nothing does."""
    loss = losses.load("magface")
    lengths = torch.tensor([5.0, 20.0, 60.0, 109.0, 300.0], dtype=torch.float64)
    easy = one_positive([0.999] * 5, [-0.9], query_norm=lengths)
    hard = one_positive([0.5] * 5, [0.9], query_norm=lengths)
    for pairs in (easy, hard):
        close(loss.radial(pairs), weights.autograd_radial(loss, pairs), 1e-12)
        assert (loss.radial(pairs)[[0, 4]] == 0).all()
    close(loss.radial(easy)[1:4], 20 * (1 / 110**2 - 1 / lengths[1:4] ** 2), 1e-9)
    margin = 0.45 + 0.35 * (lengths[1:4] - 10) / 100
    pull = 64 * 0.0035 * (math.acos(0.5) + margin).sin() + 20 * (1 / 110**2 - 1 / lengths[1:4] ** 2)
    close(loss.radial(hard)[1:4], pull, 1e-9)
    assert (loss.radial(easy)[1:4] < 0).all() and (loss.radial(hard)[1:4] > 0).all()


def test_the_gradient_of_the_raw_query_of_magface():
    """Through the embeddings, with an arc cosine, norms between l_a and u_a."""
    query, proxy, labels, pairs = raw("cosine", seed=2)
    query, pairs = 20 * query, dataclasses.replace(pairs, query_norm=20 * pairs.query_norm)
    loss = losses.load("magface", {"scale": 8.0})
    assert ((pairs.query_norm > 10) & (pairs.query_norm < 110)).all()
    moved = query.clone().requires_grad_()
    length, cosine = moved.norm(dim=1), F.normalize(moved) @ F.normalize(proxy).T
    own = cosine.gather(1, labels[:, None])
    margin = (0.45 + 0.35 * (length - 10) / 100)[:, None]
    turned = torch.where(own > 0, (own.acos() + margin).cos(), own)
    logits = 8 * torch.where(F.one_hot(labels, 5).bool(), turned, cosine)
    total = F.cross_entropy(logits, labels, reduction="sum") + 20 * (length / 110**2 + 1 / length).sum()
    (expected,) = torch.autograd.grad(total, moved)
    direction = F.normalize(query)
    whole = loss.weight(pairs) @ F.normalize(proxy)
    tangent = (whole - (whole * direction).sum(dim=1, keepdim=True) * direction) / pairs.query_norm[:, None]
    assert loss(pairs).sum().item() == pytest.approx(total.item(), rel=1e-12)
    close(tangent + loss.radial(pairs)[:, None] * direction, expected, 1e-12)


def of_lengths(cosine, lengths):
    """Queries of these lengths with a positive at the same cosine, far below their negative."""
    norms = torch.as_tensor(lengths, dtype=torch.float64)
    return one_positive(cosine.expand(len(norms)), [FAR], query_norm=norms)


def test_adaface_turns_short_queries_away_and_long_ones_near():
    """Deviation 5 and h = 1/3: three deviations make z = 1. Margins of cosines: ArcFace's, CosFace's, and 2m less m."""
    theta = torch.tensor(1.1, dtype=torch.float64)
    loss = losses.load("adaface", {"mean": 20, "deviation": 5 - 1e-3, "h": 1 / 3})
    pairs = of_lengths(theta.cos(), [-1e3, 5.0, 12.5, 20.0, 27.5, 35.0, 1e3])
    z = torch.tensor([-1, -1, -0.5, 0, 0.5, 1, 1], dtype=torch.float64)
    close(FAR - loss(pairs) / 64, (theta - 0.4 * z).cos() - (0.4 + 0.4 * z), 1e-12)
    close(-loss.weight(pairs)[:, 0] / 64, (theta - 0.4 * z).sin() / theta.sin(), 1e-12)


def test_adaface_rests_where_the_turned_angle_is_clipped():
    """A long query within 0.4 rad of its proxy, and a short one within 0.4 rad of its opposite: all push, no pull."""
    loss = losses.load("adaface", {"mean": 20, "deviation": 5})
    for theta, length, value in ((0.3, 1e3, 1 - 0.8), (math.pi - 0.3, 0.0, -1.0)):
        pairs = of_lengths(torch.tensor(theta, dtype=torch.float64).cos(), [length])
        weight = loss.weight(pairs)[0]
        assert weight[0].item() == 0 and weight[1].item() == pytest.approx(64, rel=1e-9)
        assert FAR - loss(pairs).item() / 64 == pytest.approx(value, abs=1e-9)
    inside = of_lengths(torch.tensor(0.5, dtype=torch.float64).cos(), [1e3])
    assert loss.weight(inside)[0, 0] < -10


def test_adaface_takes_mean_and_deviation_from_its_first_batch():
    *_, pairs = raw("cosine", seed=9)
    loss = losses.load("adaface")
    bound = loss.bind(pairs)
    assert bound.mean == pytest.approx(pairs.query_norm.mean().item(), rel=1e-12)
    assert bound.deviation == pytest.approx(pairs.query_norm.std().item(), rel=1e-12)  # of a sample, as published
    close(bound.weight(pairs), loss.weight(pairs), 1e-12)
    assert (loss.softmax_scale, bound.softmax_scale) == (None, 64)
    few = pairs.first(2)  # alone they have other moments; bound, they weigh what they did
    close(bound.weight(few), loss.weight(pairs)[:2], 1e-12)
    assert not torch.allclose(loss.weight(few), loss.weight(pairs)[:2])
    given = losses.load("adaface", {"mean": 7.0}).bind(pairs)
    assert (given.mean, given.deviation) == (7.0, bound.deviation)
    assert (weights.autograd_radial(loss, pairs) == 0).all()  # the lengths get no gradient


def test_curricularface_weighs_hard_negatives_by_how_far_training_is():
    """A positive at 60 degrees with a margin of 30 has a bar of 0: cosines above are hard."""
    pairs = one_positive([0.5], [0.3, -0.3])
    for t in (0.0, 0.5, 1.0):
        loss = losses.load("curricularface", {"margin": math.pi / 6, "t": t, "scale": 8})
        logits = torch.tensor([0.0, 8 * 0.3 * (t + 0.3), -8 * 0.3], dtype=torch.float64)
        share = logits.softmax(dim=0)
        expected = 8 * torch.stack([(share[0] - 1) / math.sin(math.pi / 3), (t + 0.6) * share[1], share[2]])
        close(loss.weight(pairs)[0], expected, 1e-12)
        close(loss(pairs), -share[0].log()[None], 1e-12)


def test_curricularface_pulls_a_hard_negative_below_half_of_minus_t():
    """Of an opposite positive even a negative at -0.6 is hard; t + 2s is below 0 there until t passes 1.2."""
    pairs = one_positive([-0.9], [-0.6, 0.4])
    weight = losses.load("curricularface", {"scale": 4, "t": 0.2}).weight(pairs)[0]
    assert weight[0] < 0 and weight[1] < 0 < weight[2]


def test_curricularface_keeps_a_running_mean_of_the_positives():
    pairs, loss = one_positive([0.5, 0.7], [0.0]), losses.load("curricularface")
    assert loss.updated(pairs).t == pytest.approx(0.006, rel=1e-12)
    assert loss.updated(pairs, momentum=0.5).updated(pairs, momentum=0.5).t == pytest.approx(0.45, rel=1e-12)
    assert loss.updated(dataclasses.replace(pairs, positive=torch.zeros_like(pairs.positive))) == loss


# --- classifiers


@pytest.mark.parametrize("smoothing", (0.0, 0.1, 0.5))
def test_linear_softmax_is_a_classifier_with_a_bias_and_smoothed_labels(smoothing):
    """PyTorch spreads its smoothing over all K classes, Boudiaf et al. over the K - 1 others: ε·K/(K-1)."""
    query, proxy, labels, _ = raw("dot", seed=1)
    bias = torch.linspace(-1, 1, 5, dtype=torch.float64)[:, None]
    with_bias = Embeddings(
        torch.cat([query, torch.ones(6, 1, dtype=torch.float64)], dim=1),
        torch.cat([proxy, bias], dim=1),
        labels,
        torch.arange(5),
        directions=("s2p",),
    )
    pairs, loss = scores.pairs(with_bias, metric="dot"), losses.load("linear_softmax", {"smoothing": smoothing})
    logits = F.linear(query, proxy, bias[:, 0]).requires_grad_()
    expected = F.cross_entropy(logits, labels, reduction="none", label_smoothing=smoothing * 5 / 4)
    close(loss(pairs), expected, 1e-13)
    (gradient,) = torch.autograd.grad(expected.sum(), logits)
    close(loss.weight(pairs), gradient, 1e-13)


def test_a_smoothed_negative_far_away_is_pulled_and_a_sure_positive_pushed():
    loss = losses.load("linear_softmax")
    weight = loss.weight(one_positive([12.0], [0.0, -1.0]))[0]
    assert weight[0].item() == pytest.approx(0.1, abs=1e-4)
    assert weight[1:].tolist() == pytest.approx([-0.05, -0.05], abs=1e-4)
    assert (loss.weight(one_positive([0.0], [0.0, -1.0]))[0, 1:] > 0).all()
    plain = losses.load("linear_softmax", {"smoothing": 0.0}).weight(one_positive([12.0], [0.0, -1.0]))[0]
    assert plain[0] < 0 and (plain[1:] > 0).all()


def test_l2_softmax_is_a_classifier_on_queries_of_length_28():
    query, proxy, labels, pairs = raw("cosine_dot", seed=5)
    logits = (28 * F.normalize(query) @ proxy.T).requires_grad_()
    expected = F.cross_entropy(logits, labels, reduction="none")
    loss = losses.load("l2_softmax")
    close(loss(pairs), expected, 1e-13)
    (gradient,) = torch.autograd.grad(expected.sum(), logits)
    close(loss.weight(pairs), 28 * gradient, 1e-13)


def test_center_contrastive_is_cosface_and_a_constant_pull():
    *_, pairs = raw("cosine", seed=6)
    loss, plain = losses.load("center_contrastive", {"weight": 2}), losses.load("cosface", {"margin": 0.2})
    close(loss.weight(pairs), plain.weight(pairs) - 4 * pairs.positive, 1e-13)
    distance = (2 - 2 * pairs.scores)[pairs.positive]
    close(loss(pairs), plain(pairs) + 2 * distance - 4, 1e-13)
    alone = Pairs(torch.tensor([[0.5]]), torch.tensor([[True]]))
    assert loss(alone).tolist() == [-2.0] and loss.weight(alone).tolist() == [[-4.0]]
    assert torch.equal(losses.load("center_contrastive", {"weight": 0}).weight(pairs), plain.weight(pairs))


def test_hist_reads_the_variances_of_its_candidates():
    query, proxy, labels, _ = raw("dot", seed=7)
    variance = torch.linspace(1, 6, 35, dtype=torch.float64).reshape(5, 7)
    given = Embeddings(query, proxy, labels, torch.arange(5), directions=("s2p",), candidate_variance=variance)
    loss = losses.load("hist", {"scale": 2.0})
    pairs = scores.pairs(given, metric=loss.metric)
    distance = ((query[:, None] - proxy[None]) ** 2 / variance[None]).sum(dim=2)
    close(loss(pairs), F.cross_entropy(-2 * distance, labels, reduction="none"), 1e-12)
    error = (-2 * distance).softmax(dim=1) - F.one_hot(labels, 5)
    close(loss.weight(pairs), 2 * error, 1e-12)
    round_ = dataclasses.replace(given, candidate_variance=None)
    same = losses.load("proxynca_pp", {"scale": 2.0})
    assert torch.equal(
        loss.weight(scores.pairs(round_, metric=loss.metric)), same.weight(scores.pairs(round_, metric=same.metric))
    )


# --- several proxies a class


def several(classes=4, proxies=3, queries=5, seed=0):
    """Cosines of queries with several proxies a class, of arbitrary ids."""
    generator = torch.Generator().manual_seed(seed)
    values = 2 * torch.rand(queries, classes * proxies, generator=generator, dtype=torch.float64) - 1
    group = torch.tensor([-7, 10**12, 3, 0])[:classes].repeat(proxies)
    labels = group[torch.arange(queries) % classes]
    return Pairs(values, labels[:, None] == group[None], candidate_group=group), group, labels


def by_class(values, group):
    return torch.stack([values[:, group == g].sum(dim=1) for g in group[:4]], dim=1)


@pytest.mark.parametrize("gamma", (0.01, 0.1, 1.0))
def test_softtriple_shares_out_what_the_softmax_leaves_to_a_class(gamma):
    pairs, group, labels = several()
    loss = losses.load("softtriple", {"gamma": gamma, "margin": 0.1})
    share = torch.zeros_like(pairs.scores)
    for g in group[:4]:
        share[:, group == g] = (pairs.scores[:, group == g] / gamma).softmax(dim=1)
    own = labels[:, None] == group[None, :4]
    logits = 20 * (by_class(share * pairs.scores, group) - 0.1 * own.double())
    close(loss(pairs), F.cross_entropy(logits, own.int().argmax(dim=1), reduction="none"), 1e-12)
    close(by_class(loss.weight(pairs), group), 20 * (logits.softmax(dim=1) - own.double()), 1e-11)


def test_all_but_the_nearest_proxy_of_a_class_rest():
    """ArcFace of the nearest ones, whose gradient they alone get; of equals the first."""
    pairs, group, labels = several()
    loss, plain = losses.load("subcenter_arcface", {"scale": 8}), losses.load("arcface", {"scale": 8})
    nearest = torch.stack([pairs.scores[:, group == g].amax(dim=1) for g in group[:4]], dim=1)
    of_classes = Pairs(nearest, labels[:, None] == group[None, :4])
    close(loss(pairs), plain(of_classes), 1e-13)
    weight = loss.weight(pairs)
    close(by_class(weight, group), plain.weight(of_classes), 1e-13)
    own = (group[:, None] == group[None, :4]).int().argmax(dim=1)
    assert torch.equal(weight != 0, pairs.scores == nearest[:, own])
    level = pairs.with_scores(torch.full_like(pairs.scores, 0.25))
    assert (loss.weight(level) != 0).int().tolist() == [[1] * 4 + [0] * 8] * 5
    close(loss.weight(level), weights.autograd(loss, level), 1e-13)


def test_several_subcenters_are_the_library_s():
    pytest.importorskip("pytorch_metric_learning")
    generator = torch.Generator().manual_seed(3)
    query, proxy = (torch.randn(n, 6, generator=generator, dtype=torch.float64) for n in (9, 12))
    labels, group = torch.arange(9) % 4, torch.arange(4).repeat_interleave(3)
    pairs = scores.pairs(Embeddings(query, proxy, labels, group, directions=("s2p",)))
    ours = losses.load("subcenter_arcface", {"scale": 16.0, "margin": 0.3})
    name, arguments, _ = ours.peer()
    theirs = losses.load(f"pml:{name}", arguments).bind(pairs)
    close(ours(pairs), theirs(pairs), 1e-12)
    close(ours.weight(pairs), theirs.weight(pairs), 1e-11)


def test_far_proxies_of_softtriple_have_the_opposite_sign():
    """A proxy that stands more than γ below its class's similarity."""
    scores_ = torch.tensor([[0.5, 0.35, 0.6, 0.42]], dtype=torch.float64)
    positive = torch.tensor([[True, True, False, False]])
    pairs = Pairs(scores_, positive, candidate_group=torch.tensor([1, 1, 2, 2]))
    near, far, hard, away = losses.load("softtriple").weight(pairs)[0]
    assert near < 0 < far and away < 0 < hard
    close_by = pairs.with_scores(torch.tensor([[0.5, 0.45, 0.6, 0.55]], dtype=torch.float64))
    near, far, hard, away = losses.load("softtriple").weight(close_by)[0]
    assert near < 0 and far < 0 and away > 0 and hard > 0


def test_softtriple_with_one_proxy_a_class_is_cosface():
    *_, pairs = raw("cosine", seed=8)
    loss, plain = losses.load("softtriple"), losses.load("cosface", {"scale": 20.0, "margin": 0.01})
    for groups in (None, torch.tensor([4, -1, 10, 2, 0])):
        grouped = dataclasses.replace(pairs, candidate_group=groups)
        close(loss.weight(grouped), plain.weight(pairs), 1e-13)
        close(loss(grouped), plain(pairs), 1e-13)


@pytest.mark.parametrize("name", ("softtriple", "proxy_gml", "subcenter_arcface"))
def test_classes_are_what_the_masks_leave_of_the_groups(name):
    """A class in neither mask takes no part; nor does a proxy of the own group; without groups all are alone."""
    pairs, group, _ = several(queries=4)
    loss = losses.load(name, {"ratio": 1.0} if name == "proxy_gml" else {})
    gone = (group == 3).expand_as(pairs.positive) & ~pairs.positive
    gone = gone | (torch.arange(12) == 8)
    left = dataclasses.replace(pairs, positive=pairs.positive & ~gone, negative=pairs.negative & ~gone)
    weight = loss.weight(left)
    for q in range(4):
        keep = ~gone[q]
        row = Pairs(pairs.scores[q : q + 1, keep], pairs.positive[q : q + 1, keep], candidate_group=group[keep])
        close(weight[q : q + 1, keep], loss.weight(row), 1e-13)
        close(loss(left)[q : q + 1], loss(row), 1e-13)
    assert (weight[gone] == 0).all()
    alone, apart = (dataclasses.replace(pairs, candidate_group=g) for g in (None, torch.arange(12)))
    assert torch.equal(loss.weight(alone), loss.weight(apart))
    assert not torch.allclose(loss.weight(alone), loss.weight(pairs))


@pytest.mark.parametrize("name", ("softtriple", "proxy_gml", "subcenter_arcface"))
def test_jacobians_of_several_batches_at_once(name):
    pairs, *_ = several()
    loss = losses.load(name)
    both = torch.stack([pairs.scores, pairs.scores.flip(0)])
    found = torch.func.vmap(torch.func.jacrev(lambda s: loss(pairs.with_scores(s))))(both)
    for n in (0, 1):
        close(found[n].sum(dim=0), loss.weight(pairs.with_scores(both[n])), 1e-12)


def test_the_subgraph_of_proxy_gml_is_what_has_a_weight():
    """Its own proxies and the nearest of the others, ⌈r C N⌉ in all; each class weighs the same on each of them."""
    pairs, group, labels = several(queries=4)
    for ratio, number in ((0.3, 4), (0.5, 6), (0.99, 12), (1.0, 12)):
        weight = losses.load("proxy_gml", {"ratio": ratio}).weight(pairs)
        assert ((weight != 0).sum(dim=1) == number).all()
        assert (weight[pairs.positive] < 0).all()
        for q in range(4):
            kept = (weight[q] > 0) & pairs.negative[q]
            dropped = (weight[q] == 0) & pairs.negative[q]
            assert pairs.scores[q][kept].min() > pairs.scores[q][dropped].max() if dropped.any() else kept.sum() == 9
            for g in group[:4]:
                assert len({w for w in weight[q][(group == g) & (weight[q] != 0)].tolist()}) <= 1
    own = labels[:, None] == group[None, :4]
    error = by_class(pairs.scores, group).softmax(dim=1) - own.double()
    close(by_class(weight, group), 3 * error, 1e-13)


def test_proxy_gml_keeps_whole_numbers_and_the_first_of_equals():
    scores_, positive = torch.zeros(1, 100, dtype=torch.float64), torch.zeros(1, 100, dtype=torch.bool)
    positive[0, 50] = True
    weight = losses.load("proxy_gml", {"ratio": 0.07}).weight(Pairs(scores_, positive))
    assert weight[0].nonzero().flatten().tolist() == [0, 1, 2, 3, 4, 5, 50]
    few = losses.load("proxy_gml", {"ratio": 0.01})  # nothing but the positive: nothing to tell apart
    assert few(Pairs(scores_, positive)).item() == 0 and (few.weight(Pairs(scores_, positive)) == 0).all()


# --- parameters


def test_a_multiplied_angle_takes_whole_numbers_only():
    with pytest.raises(InputError, match="'2.5' is not a int"):
        losses.load("l_softmax", {"margin": "2.5"})
    with pytest.raises(ValueError, match="a whole number of at least 1, got 2.5"):
        type(losses.load("a_softmax"))(margin=2.5)


def test_peers_speak_their_own_language():
    """pytorch-metric-learning takes ArcFace's margin in degrees and knows no annealing."""
    assert losses.load("arcface").peer()[1]["margin"] == pytest.approx(28.6479, abs=1e-4)
    assert losses.load("l_softmax", {"annealing": 5}).peer() is None
    assert losses.load("a_softmax", {"annealing": 5}).peer() is None
    assert losses.load("a_softmax").peer() == ("SphereFaceLoss", {"margin": 4, "scale": 1}, "proxies")


def test_nothing_to_tell_apart_and_all_of_one_kind():
    for name in NAMES:
        loss = losses.load(name)
        pairs = regimes.build("random", loss.metric, 3)
        none = torch.zeros_like(pairs.positive)
        empty = dataclasses.replace(pairs, positive=none, negative=none)
        assert (loss(empty) == 0).all() and (loss.weight(empty) == 0).all()
        only_negatives = dataclasses.replace(pairs, positive=none, negative=~none)
        assert (loss(only_negatives) == 0).all() and (loss.weight(only_negatives) == 0).all()
        assert weights.autograd(loss, only_negatives).isfinite().all()
