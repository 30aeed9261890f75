"""Softmaxes of classifiers and proxies: what their papers say of angles, norms, smoothing, several proxies a class."""

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F

import cases
from cocos import Embeddings, Pairs, losses
from cocos.counting import weights
from cocos.embeddings import scores, similarities
from cocos.measures.shared import synthetic_inputs

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
    given = synthetic_inputs.embeddings("random", seed)
    given = given.replace(query=prepared(given.query), candidate=prepared(given.candidate))
    pairs, score = scores.pairs(given, metric=loss.metric), similarities.METRICS[loss.metric]

    def total(query, candidate):
        query, candidate = prepared(query), prepared(candidate)
        return loss(pairs.with_scores(score(query, candidate), query.norm(dim=1))).sum()

    return torch.cat(torch.func.grad(total, argnums=(0, 1))(given.query, given.candidate))


# --- the angle of the positive times m


# --- the angle of the positive plus m


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


# --- the length of the query


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
    assert (cases.autograd_radial(loss, pairs) == 0).all()  # the lengths get no gradient


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
    round_ = given.replace(candidate_variance=None)
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


# --- parameters


def test_nothing_to_tell_apart_and_all_of_one_kind():
    for loss in map(losses.load, losses.names()):
        if loss.family not in ("margin", "proxy") or loss.couples == "candidate":
            continue
        pairs = synthetic_inputs.build("random", loss.metric, 3)
        none = torch.zeros_like(pairs.positive)
        empty = dataclasses.replace(pairs, positive=none, negative=none)
        assert (loss(empty) == 0).all() and (loss.weight(empty) == 0).all()
        only_negatives = dataclasses.replace(pairs, positive=none, negative=~none)
        assert (loss(only_negatives) == 0).all() and (loss.weight(only_negatives) == 0).all()
        assert weights.autograd(loss, only_negatives).isfinite().all()
