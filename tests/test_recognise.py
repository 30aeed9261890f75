"""Recognition of built-in losses: re-implementations are named, near misses are not."""

import pytest
import torch
from torch.nn import functional

from cocos import Pairs
from cocos.losses.recognise import Probe, recognise

N = 24


def masked(scores, mask):
    return scores.masked_fill(~mask, -torch.inf)


def cross_entropy(logits, **options):
    return functional.cross_entropy(logits, torch.arange(len(logits)), **options)


def info_nce(scores, positive, negative):
    return -scores.div(0.07).log_softmax(dim=1).diagonal().mean()


def clip(scores, positive, negative, scale=14.0):
    return (cross_entropy(scale * scores) + cross_entropy(scale * scores.T)) / 2


def coca(scores, positive, negative):
    return 2.0 * clip(scores, positive, negative, scale=60.0)


def slip(scores, positive, negative):
    logits = [scores * 3, scores.T * 3]
    return sum(-direction.log_softmax(dim=1).diagonal().sum() for direction in logits)


def siglip(scores, positive, negative):
    labels = 2 * positive.double() - 1
    return -functional.logsigmoid(labels * (10 * scores - 4.5)).sum() / len(scores)


def supcon(scores, positive, negative):
    logits = scores / 0.2
    log_share = logits - masked(logits, positive | negative).logsumexp(dim=1, keepdim=True)
    return -(log_share * positive).sum(dim=1).div(positive.sum(dim=1)).mean()


def cosface(scores, positive, negative, margin=0.25):
    return cross_entropy(30 * (scores - margin * positive))


def decoupled(scores, positive, negative):
    return (masked(scores / 0.1, negative).logsumexp(dim=1) - scores.diagonal() / 0.1).mean()


def triplets(scores, positive, negative, both=False):
    cost = (0.2 + scores - scores.diagonal()[:, None]).clamp(min=0)[negative].sum()
    return cost + (0.2 + scores - scores.diagonal()).clamp(min=0)[negative].sum() if both else cost


def triplets_both(scores, positive, negative):
    return triplets(scores, positive, negative, both=True)


def hardest(scores, positive, negative):
    return (0.2 + masked(scores, negative).amax(dim=1) - scores.diagonal()).clamp(min=0).sum()


def hardest_both(scores, positive, negative):
    return hardest(scores, positive, negative) + hardest(scores.T, positive, negative)


def batch_hard(scores, positive, negative):
    closest = scores.masked_fill(~positive, torch.inf).amin(dim=1)
    return functional.relu(masked(scores, negative).amax(dim=1) - closest + 0.3).mean()


RECOGNISED = {
    "info_nce": (info_nce, "one", "ntxent", {"temperature": 0.07}, False),
    "clip": (clip, "one", "ntxent", {"temperature": 1 / 14}, True),
    "coca": (coca, "one", "ntxent", {"temperature": 1 / 60}, True),
    "slip": (slip, "one", "ntxent", {"temperature": 1 / 3}, True),
    "siglip": (siglip, "one", "siglip", {"scale": 10.0, "bias": -4.5}, False),
    "supcon": (supcon, "several", "supcon", {"temperature": 0.2}, False),
    "cosface": (cosface, "one", "cosface", {"scale": 30.0, "margin": 0.25}, False),
    "decoupled": (decoupled, "one", "dcl", {"temperature": 0.1}, False),
    "triplets": (triplets, "one", "triplet", {"margin": 0.2}, False),
    "triplets_both": (triplets_both, "one", "triplet", {"margin": 0.2}, True),
    "hardest": (hardest, "one", "triplet_sh", {"margin": 0.2}, False),
    "hardest_both": (hardest_both, "one", "triplet_sh", {"margin": 0.2}, True),
    "batch_hard": (batch_hard, "several", "hardest_positive(triplet_sh)", {"triplet_sh.margin": 0.3}, False),
}


def smooth_ap(scores, positive, negative):
    steps = ((scores[:, None, :] - scores[:, :, None]) / 0.01).sigmoid()
    steps = steps * ~torch.eye(scores.shape[1], dtype=torch.bool)
    above = 1 + (steps * (positive | negative)[:, None]).sum(dim=2)
    within = 1 + (steps * positive[:, None]).sum(dim=2)
    return -((within / above) * positive).sum(dim=1).div(positive.sum(dim=1)).sum()


def mined(scores, positive, negative):
    lowest = masked(scores, negative).topk(8, dim=1).values
    return functional.softplus(torch.cat([lowest - scores.diagonal()[:, None]], 1).div(0.1).logsumexp(dim=1)).sum()


def focal(scores, positive, negative, gamma=2.0):
    log_share = (scores / 0.1).log_softmax(dim=1).diagonal()
    return -((1 - log_share.exp()) ** gamma * log_share).sum()


def per_query(scores, positive, negative, spread=0.01):
    factor = 1 + spread * torch.linspace(0, 1, len(scores), dtype=scores.dtype)
    return (cross_entropy(10 * scores, reduction="none") * factor).sum()


def margin_of_scale(scores, positive, negative):
    return cross_entropy(10 * scores * torch.linspace(0.99, 1.01, N, dtype=scores.dtype)[:, None])


def weighted_directions(scores, positive, negative, share=0.501):
    return share * cross_entropy(10 * scores) + (1 - share) * cross_entropy(10 * scores.T)


def two_scales(scores, positive, negative):
    return cross_entropy(10 * scores) + cross_entropy(10.1 * scores.T)


def poly(scores, positive, negative):
    return cross_entropy(10 * scores) + 0.01 * (1 - (10 * scores).softmax(dim=1).diagonal()).mean()


def circle(scores, positive, negative):
    push = (masked(80 * (scores + 0.4).clamp(min=0).detach() * (scores - 0.4), negative)).logsumexp(dim=1)
    pull = -80 * ((1.4 - scores).clamp(min=0).detach() * (scores - 0.6)).diagonal()
    return functional.softplus(push + pull).sum()


def hard_weighted(scores, positive, negative, beta=0.1):
    logits = 10 * scores
    harder = masked(logits + beta * logits.detach(), negative).logsumexp(dim=1)
    return (torch.logaddexp(harder, logits.diagonal()) - logits.diagonal()).sum()


def bound_sigmoid(scores, positive, negative):
    return siglip(scores, positive, negative) + 0.001 * (scores * negative).sum()


NEAR_MISSES = {
    "smooth_ap": (smooth_ap, "several"),
    "smooth_ap_one": (smooth_ap, "one"),
    "top_k": (mined, "one"),
    "label_smoothing": (lambda s, p, n: cross_entropy(10 * s, label_smoothing=0.001), "one"),
    "focal": (focal, "one"),
    "focal_small": (lambda s, p, n: focal(s, p, n, gamma=0.001), "one"),
    "factor_per_query": (per_query, "one"),
    "small_factor_per_query": (lambda s, p, n: per_query(s, p, n, spread=1e-4), "one"),
    "scale_per_query": (margin_of_scale, "one"),
    "weighted_directions": (weighted_directions, "one"),
    "two_scales": (two_scales, "one"),
    "poly": (poly, "one"),
    "circle": (circle, "one"),
    "hard_weighted": (hard_weighted, "one"),
    "sigmoid_with_mean": (bound_sigmoid, "one"),
    "squared_hinge": (lambda s, p, n: (0.2 + s - s.diagonal()[:, None]).clamp(min=0)[n].square().sum(), "one"),
    "soft_margin": (lambda s, p, n: functional.softplus(10 * (s - s.diagonal()[:, None]))[n].sum(), "one"),
    "margin_in_one_direction": (lambda s, p, n: cosface(s, p, n, 0.01) + cross_entropy(30 * s.T), "one"),
    "all_pairs_active": (lambda s, p, n: (s * n).sum() - 23 * s.diagonal().sum() + s.square().sum() * 1e-3, "one"),
    "all_scores_squared": (lambda s, p, n: ((s * n).square()).sum() + ((1 - s) * p).square().sum(), "several"),
}


def probe(function, kind, seed):
    generator = torch.Generator().manual_seed(seed)
    scores = 2 * torch.rand(N, N, generator=generator, dtype=torch.float64) - 1
    groups = torch.arange(N) if kind == "one" else torch.arange(N) % 6
    same, itself = groups[:, None] == groups, torch.eye(N, dtype=torch.bool)
    positive = same if kind == "one" else same & ~itself
    pairs = Pairs(scores, positive, ~same)
    leaf = scores.clone().requires_grad_()
    value = function(leaf, pairs.positive, pairs.negative)
    (weights,) = torch.autograd.grad(value, leaf)
    return Probe(pairs, torch.where(pairs.positive | pairs.negative, weights, 0), float(value.detach()))


@pytest.mark.parametrize("name", RECOGNISED)
def test_reimplementation_gets_its_name(name):
    function, kind, expected, parameters, both = RECOGNISED[name]
    probes = [probe(function, kind, seed) for seed in range(3)]
    recognised = recognise(probes[:2], probes[2], "cosine")
    assert (recognised.loss.name, recognised.both_directions) == (expected, both)
    for key, value in parameters.items():
        assert recognised.loss.parameters[key] == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_miss_is_refused(name):
    function, kind = NEAR_MISSES[name]
    probes = [probe(function, kind, seed) for seed in range(3)]
    assert recognise(probes[:2], probes[2], "cosine") is None


def test_margin_is_not_ntxent():
    probes = [probe(lambda s, p, n: cosface(s, p, n, 0.01), "one", seed) for seed in range(3)]
    assert recognise(probes[:2], probes[2], "cosine").loss.margin == pytest.approx(0.01, rel=1e-6)


def test_batch_must_confirm():
    probes = [probe(clip, "one", seed) for seed in range(2)]
    assert recognise(probes, probe(coca, "one", 2), "cosine") is None


def test_inactive_batch_confirms():
    probes = [probe(triplets, "one", seed) for seed in range(2)]
    eye = torch.eye(N, dtype=torch.float64)
    separated = Probe(Pairs(eye, eye > 0), torch.zeros_like(eye), 0.0)
    assert recognise(probes, separated, "cosine").loss.margin == 0.2
