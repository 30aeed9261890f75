"""Golden data of the warped softmax (tests/data/README.md), and what its paper says of the forces."""

from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from cocos import Embeddings, Pairs, losses
from cocos.counting import statistics, weights
from cocos.embeddings import scores, similarities

PATH = Path(__file__).parent / "data" / "warp2024.npz"
CASES = {"ir": 13, "eq4": 3, "fr": 4, "boundary": 12, "overflow": 6, "ablation": 1}
TABLE_III = {
    "f_identity": ("t", "t"),
    "f_square": ("t^2", "t^2"),
    "f_sqrt": ("sqrt", "sqrt"),
    "f_pow1.5": ("t^1.5", "t^1.5"),
    "f_half_0.97": ("0.97", "t"),
    "f_half_0.5": ("0.5", "t"),
    "f_half_1.1": ("1.1", "t"),
    "f_half_2": ("2", "t"),
}


@cache
def golden():
    with np.load(PATH, allow_pickle=False) as archive:
        return {name: torch.from_numpy(archive[name]) for name in archive.files}


def cases(*families):
    return sorted({tuple(name.split("/")[:2]) for name in golden() if name.split("/")[0] in families})


def case(family, name):
    start = f"{family}/{name}/"
    return {key.removeprefix(start): value for key, value in golden().items() if key.startswith(start)}


WITH_DISTANCES = cases("ir", "eq4", "fr", "boundary")
OF_IMAGES = [(family, name) for family, name in WITH_DISTANCES if "in/temp_as_used_by_ref" in case(family, name)]
OF_FACES = [pair for pair in WITH_DISTANCES if pair not in OF_IMAGES]
TOO_FAR = [name for _, name in cases("overflow") if name.startswith("eq4_gap")]


def test_no_case_is_left_out():
    assert Counter(family for family, _ in cases(*CASES)) == CASES
    assert len(OF_IMAGES) == 13 + 3 + 8
    assert len(OF_FACES) == 4 + 4
    assert {name for _, name in cases("overflow")} == {*TOO_FAR, "embedding_on_proxy", "face_ce_clamp"}
    functions = {key.split("/")[1] for key in case("ablation", "table3_functions") if key.startswith("cor/")}
    assert functions == set(TABLE_III)


def loss_of(data, temperature="in/temp"):
    """The loss of a case. Its temperature multiplies distances: our scale; its margin multiplies Δ: our delta."""
    scale = float(data[temperature])
    if not data.get("in/warp", True):
        return losses.load("euclidean_softmax", {"scale": scale})
    given = {name: float(data[f"in/{name}"]) for name in ("alpha", "k1", "k2")}
    return losses.load("warped_softmax", {**given, "delta": float(data.get("in/margin", 1)), "scale": scale})


def pairs_of(data):
    return scores.pairs(
        Embeddings.labelled(data["in/embeddings"], data["in/labels"], data["in/proxies"]), metric="euclidean"
    )


def gradients(loss, data, dtype=torch.float64):
    """∂ mean loss / ∂ embeddings and proxies, through the metric."""
    pairs = pairs_of(data)

    def mean(embedding, proxy):
        return loss(pairs.with_scores(similarities.euclidean(embedding, proxy))).mean()

    return torch.func.grad(mean, argnums=(0, 1))(data["in/embeddings"].to(dtype), data["in/proxies"].to(dtype))


def same(actual, expected, *, rtol=1e-10, atol=1e-12):
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


def taken_at_the_tie(data, slope):
    """What the steeper slope at a distance of exactly α adds to the gradients of distances, embeddings and proxies.

    Ours is k2, as in the paper and the image-retrieval code; the face-recognition code, which has no multiplier of Δ,
    takes k1 there.
    """
    own, count = data["in/labels"], len(data["in/labels"])
    change = torch.zeros_like(data["cor/distances"])
    change[torch.arange(count), own] = (
        float(data["in/temp"]) * data["cor/one_minus_prob_own"] * (slope - data["cor/f1_slope"]) / count
    )
    distance = data["cor/distances"].gather(1, own[:, None])
    towards = (data["in/embeddings"] - data["in/proxies"][own]) / distance * change.sum(dim=1, keepdim=True)
    return change, towards, torch.zeros_like(data["in/proxies"]).index_add(0, own, -towards)


@pytest.mark.parametrize(("family", "name"), WITH_DISTANCES)
def test_values_gradients_and_counts_are_those_of_plain_loops(family, name):
    data = case(family, name)
    loss, pairs = loss_of(data), pairs_of(data)
    weight, unit, factor = loss.weight(pairs), loss.unit(pairs), float(data.get("in/loss_norm", 1))
    own, count = data["in/labels"][:, None], len(data["in/labels"])
    same(-pairs.scores, data["cor/distances"])
    same(factor * loss(pairs), data["cor/loss_per_sample"])

    slope = (unit / loss.scale).expand_as(weight).gather(1, own)[:, 0]
    tie = (data["cor/distances"].gather(1, own)[:, 0] == data.get("in/alpha", -1)) & (slope != data["cor/f1_slope"])
    assert tie.tolist() == [name.startswith("fr") and i == 0 for i in range(count)]
    same(slope, torch.where(tie, data.get("in/k2", 1), data["cor/f1_slope"]))
    on_distances, on_embeddings, on_proxies = taken_at_the_tie(data, slope)
    same(-factor * weight / count, data["cor/grad_distances"] + on_distances)
    found = [factor * gradient for gradient in gradients(loss, data)]
    same(found[0], data["cor/grad_embeddings"] + on_embeddings)
    same(found[1], data["cor/grad_proxies"] + on_proxies)

    share = weight.abs() / unit
    same(torch.where(pairs.negative, share, 0), torch.where(pairs.negative, data["cor/prob"], 0))
    same(torch.where(pairs.positive, share, 0).sum(dim=1), data["cor/one_minus_prob_own"])
    for eps in (0.01, 0.05):
        counted = statistics.contributing(share, pairs, eps)
        assert counted.tolist() == data[f"cor/count_neg_eps{eps}"].tolist()
    same(weight.sum(dim=1), loss.scale * data["cor/one_minus_prob_own"] * (1 - slope))  # the realigned force


@pytest.mark.parametrize(("family", "name"), OF_IMAGES)
def test_values_and_gradients_are_those_of_the_image_retrieval_code(family, name):
    """Its log-softmax carries an error of 1e-16, which is the whole of its smallest losses: hence the tolerance."""
    data = case(family, name)
    loss, pairs = loss_of(data, "in/temp_as_used_by_ref"), pairs_of(data)
    factor, count = float(data["in/loss_norm"]), len(data["in/labels"])
    same(factor * loss(pairs), data["ref/loss_per_sample"], rtol=1e-9)
    same(-factor * loss.weight(pairs) / count, data["ref/grad_distances"], rtol=1e-9)
    found = [factor * gradient for gradient in gradients(loss, data)]
    same(found[0], data["ref/grad_embeddings"], rtol=1e-9)
    same(found[1], data["ref/grad_proxies"], rtol=1e-9)


@pytest.mark.parametrize(("family", "name"), OF_FACES)
def test_values_and_gradients_are_those_of_the_face_recognition_code(family, name):
    """At a distance of exactly α it takes k1 and we take k2: there the loss is the same, and the gradient is not."""
    data = case(family, name)
    loss, pairs = loss_of(data), pairs_of(data)
    same(loss(pairs), data["ref/loss_per_sample"])
    slope = (loss.unit(pairs) / loss.scale).gather(1, data["in/labels"][:, None])[:, 0]
    _, on_embeddings, on_proxies = taken_at_the_tie(data, slope)
    assert on_embeddings.any() == name.startswith("fr")
    found = gradients(loss, data)
    same(found[0], data["ref/grad_embeddings"] + on_embeddings)
    same(found[1], data["ref/grad_proxies"] + on_proxies)


@pytest.mark.parametrize("name", TOO_FAR)
@pytest.mark.parametrize("side", ["ref", "ref32"])
def test_nothing_overflows(name, side):
    """The published code without warp exponentiates unshifted distances: inf from a gap of 89 (float32) or 710 on."""
    data = case("overflow", name)
    dtype, rtol = (torch.float64, 1e-10) if side == "ref" else (torch.float32, 2e-5)
    loss, pairs = loss_of(data), pairs_of(data)
    value = loss(pairs.with_scores(pairs.scores.to(dtype))).mean()
    found = gradients(loss, data, dtype)
    for key, actual in (("loss", value), ("grad_embeddings", found[0]), ("grad_proxies", found[1])):
        same(actual, data[f"cor/{key}"], rtol=rtol, atol=rtol)
        if data[f"{side}/{key}"].isfinite().all():
            same(actual, data[f"{side}/{key}"], rtol=rtol, atol=rtol)
    gap = float(name.removeprefix("eq4_gap"))
    assert data[f"{side}/loss"].isfinite() == (gap < (89 if side == "ref32" else 710))


@pytest.mark.parametrize("name", TABLE_III)
def test_table_iii_functions(name):
    data = case("ablation", "table3_functions")
    f1, f2 = TABLE_III[name]
    loss = losses.load("euclidean_softmax", {"f1": f1, "f2": f2, "scale": float(data["in/temp"])})
    same(loss(pairs_of(data)), data[f"cor/{name}/loss_per_sample"])
    found = gradients(loss, data)
    same(found[0], data[f"cor/{name}/grad_embeddings"])
    same(found[1], data[f"cor/{name}/grad_proxies"])


def two_classes(own, other=4.0):
    return Pairs(torch.tensor([[-own, -other]], dtype=torch.float64), torch.tensor([[True, False]]))


def test_a_distance_of_exactly_alpha_has_the_outer_slope():
    loss = losses.load("warped_softmax", {"alpha": 3.0, "k1": 0.5, "k2": 1.5})
    slopes = [loss.unit(two_classes(own))[0, 0].item() for own in (3.0 - 1e-12, 3.0, 3.0 + 1e-12)]
    assert slopes == [0.5, 1.5, 1.5]
    assert weights.gap(loss, two_classes(3.0)) < 1e-15


def test_under_the_root_the_pull_has_no_bound_at_the_own_proxy_and_is_finite_on_it():
    loss = losses.load("euclidean_softmax", {"f1": "sqrt", "f2": "sqrt"})
    pulls = [-loss.weight(two_classes(own))[0, 0].item() for own in (1e-2, 1e-4, 1e-6)]
    assert pulls[2] / pulls[1] == pytest.approx(10, rel=0.02)
    pairs = two_classes(0.0, 0.0)
    assert loss(pairs).item() == pytest.approx(np.log(2))
    assert not loss.weight(pairs).any() and not weights.autograd(loss, pairs).any()
    assert loss.unit(pairs).tolist() == [[1.0, 1.0]]
