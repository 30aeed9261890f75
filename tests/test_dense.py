"""Small batches: the engine that takes one call a batch, against dense float64; and what it refuses."""

import math

import pytest
import torch

from cocos import Embeddings, InputError, dense, losses, scores, statistics
from cocos.tiles import _build

KERNELS = ("compiled", "plain")


@pytest.fixture(params=KERNELS)
def kernel(request, monkeypatch):
    if request.param == "plain":
        monkeypatch.setattr(_build, "loaded", lambda: None)
    elif _build.loaded() is None:
        pytest.skip("there is no C compiler")
    return request.param


def rows(size, width, seed=0, noise=1.0, dtype=torch.float32):
    """Unit queries, and candidates near them."""
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(size, width, generator=generator, dtype=torch.float64)
    candidate = query + noise * torch.randn(size, width, generator=generator, dtype=torch.float64)
    return tuple(torch.nn.functional.normalize(each, dim=1).to(dtype) for each in (query, candidate))


def reference(loss, query, candidate, eps):
    """Statistics of both directions, from all scores in float64."""
    embeddings = Embeddings(query.double(), candidate.double())
    for side in (embeddings, embeddings.flip()):
        pairs = scores.pairs(side)
        yield statistics.per_query(loss.weight(pairs), loss.unit(pairs), pairs, eps)


@pytest.mark.parametrize("size", [2, 16, 48, 50, 128])
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("ntxent", {"temperature": 0.1}),
        ("ntxent", {"temperature": 0.03}),
        ("sampled_softmax", {"scale": 20.0}),
        ("normalized_softmax", {"temperature": 0.05}),
        ("supcon", {"temperature": 0.07}),
        ("triplet", {"margin": 0.2}),
        ("triplet", {"margin": 0.0}),
    ],
)
def test_every_number_is_the_reference(kernel, name, parameters, size):
    loss = losses.load(name, parameters)
    for noise, eps in ((0.3, 0.01), (1.0, 0.01), (3.0, 0.05)):
        query, candidate = rows(size, 24, noise=noise)
        found = dense.Dense(loss, eps)(query, candidate)
        for k, right in enumerate(reference(loss, query, candidate, eps)):
            certain, unsure = found["contributing"][k], found["uncertain"][k]
            assert ((certain <= right["contributing"]) & (right["contributing"] <= certain + unsure)).all()
            sure = unsure == 0
            for key in set(found) - {"contributing", "uncertain"}:
                assert torch.allclose(found[key][k][sure].double(), right[key][sure], rtol=2e-4, atol=2e-5), key


def test_float64_and_stacks(kernel):
    loss = losses.load("ntxent", {"temperature": 0.05})
    query, candidate = (torch.stack(each) for each in zip(*(rows(32, 16, seed) for seed in range(3)), strict=True))
    found, count = dense.Dense(loss)(query, candidate), dense.Dense(loss)
    assert found["contributing"].shape == (3, 2, 32)
    for k in range(3):
        assert torch.equal(found.values[k], count(query[k], candidate[k]).values)
    query, candidate = rows(32, 16, dtype=torch.float64)
    wide = dense.Dense(loss)(query, candidate)
    for k, right in enumerate(reference(loss, query, candidate, 0.01)):
        assert torch.equal(wide["contributing"][k].long(), right["contributing"])
        assert torch.allclose(wide["effective"][k], right["effective"], rtol=1e-9)


def test_what_float32_cannot_tell_is_uncertain(kernel):
    same = torch.nn.functional.normalize(torch.ones(32, 8), dim=1)
    found = dense.Dense(losses.load("triplet", {"margin": 0.0}))(same, same)
    assert (found["contributing"] == 0).all() and (found["uncertain"] == 31).all()
    found = dense.Dense(losses.load("ntxent", {"temperature": 0.1}), eps=1 / 32)(same, same)
    assert (found["contributing"] + found["uncertain"] == 31).all()


def test_a_batch_is_not_changed_and_two_calls_are_independent(kernel):
    count, (query, candidate) = dense.Dense(losses.load("ntxent", {"temperature": 0.1})), rows(16, 8)
    before, first = query.clone(), count(query, candidate)
    kept = first.values.clone()
    count(*rows(16, 8, seed=1))
    assert torch.equal(query, before) and torch.equal(first.values, kept)
    assert set(first) == set(dense.NAMES) and len(first) == len(dense.NAMES)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: dense.Dense(losses.load("smoothap")), "small batches are counted for triplet, ntxent"),
        (lambda: dense.Dense(losses.load("ntxent", {"temperature": 0.01})), "leave the range of float32"),
        (lambda: dense.Dense(losses.load("ntxent"), eps=0), "eps: 0, expected a share above 0"),
        (lambda: dense.Dense(losses.load("triplet"), eps=1), "and below 1"),
        (lambda: dense.Dense(losses.load("triplet"))(torch.ones(4, 2), torch.ones(5, 2)), "expected one shape"),
        (lambda: dense.Dense(losses.load("triplet"))(torch.ones(4, 2), torch.ones(4, 2)), "expected unit vectors"),
        (lambda: dense.Dense(losses.load("triplet"))(torch.ones(1, 2), torch.ones(1, 2)), "at least two pairs"),
    ],
)
def test_what_it_cannot_count_gets_a_sentence(make, sentence):
    with pytest.raises(InputError, match=sentence):
        make()


SCALED = [name for name in losses.names() if getattr(losses.load(name), "softmax_scale", None) is not None]


@pytest.mark.parametrize("name", SCALED)
def test_negatives_enter_through_one_sum_alone(name):
    """What `softmax_scale` says: two negatives act as one with the logarithm of their sum, for all others."""
    loss, generator = losses.load(name), torch.Generator().manual_seed(3)
    scored = torch.rand(6, 5, generator=generator, dtype=torch.float64) * 0.4 + 0.1
    scored = -4 * scored if "euclidean" in loss.metric else scored
    positive = torch.zeros(6, 5, dtype=torch.bool)
    positive[:, 0] = positive[::2, 1] = True
    norm = torch.full((6,), 20.0, dtype=torch.float64)
    scale = loss.softmax_scale
    merged = (scale * scored[:, 3:]).logsumexp(dim=1, keepdim=True) / scale
    apart = loss.weight(scores.Pairs(scored, positive, query_norm=norm))
    joined = loss.weight(scores.Pairs(torch.cat([scored[:, :3], merged], dim=1), positive[:, :4], query_norm=norm))
    assert torch.allclose(apart[:, :3], joined[:, :3], rtol=1e-10)
    assert torch.allclose(apart[:, 3:].sum(dim=1), joined[:, 3], rtol=1e-10)
    part = (scale * scored[:, 3:]).softmax(dim=1)
    assert torch.allclose(apart[:, 3:], joined[:, 3:] * part, rtol=1e-10)
    assert math.isfinite(scale) and len(SCALED) >= 13
