"""Small batches: the engine that takes one call a batch, against dense float64; and what it refuses."""

import math

import pytest
import torch

from cocos import Embeddings, InputError, dense, losses, readers, scores, statistics, sweep
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


def captions(size, many, width, noise, seed=0, dtype=torch.float32):
    """Unit queries, and `many` candidates near each."""
    query, candidate = rows(size * many, width, seed, noise, dtype)
    query = query[::many].repeat_interleave(many, dim=0)
    candidate = torch.nn.functional.normalize(query + noise * (candidate - query) / (1 + noise), dim=1)
    return query[::many].contiguous(), candidate


def ranked_reference(loss, query, candidate, eps):
    many = len(candidate) // len(query)
    group = torch.arange(len(query))
    embeddings = Embeddings(query.double(), candidate.double(), group, group.repeat_interleave(many))
    for side in (embeddings, embeddings.flip()):
        pairs = scores.pairs(side)
        found = statistics.per_query(loss.weight(pairs), loss.unit(pairs), pairs, eps)
        yield found | {"eq7": statistics.eq7(pairs, loss.temperature, eps)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("size", "many"), [(2, 1), (3, 7), (17, 1), (24, 5), (40, 2)])
@pytest.mark.parametrize("temperature", [0.002, 0.01, 0.1, 1.0])
def test_every_number_of_smoothap_is_the_reference(kernel, temperature, size, many, dtype):
    loss, counted = losses.load("smoothap", {"temperature": temperature}), 0
    for noise, eps in ((0.3, 0.01), (1.0, 1e-4), (3.0, 0.01), (10.0, 1e-3)):
        query, candidate = captions(size, many, 24, noise, dtype=dtype)
        found = dense.Dense(loss, eps)(query, candidate)
        for mine, right in zip(found, ranked_reference(loss, query, candidate, eps), strict=True):
            assert (mine["uncertain"] == 0).all()
            assert torch.equal(mine["contributing"], right["contributing"].double())
            assert torch.allclose(mine["eq7"], right["eq7"].double(), rtol=1e-12)
            for key in set(mine) & set(right) - {"contributing", "uncertain", "eq7"}:
                room = 1e-9 if dtype == torch.float64 else 3e-3 if temperature < 0.01 else 1e-3
                least = (1e-6 if dtype == torch.float32 else 1e-12) / temperature
                assert torch.allclose(mine[key], right[key].double(), rtol=room, atol=least), key
            counted += int(mine["contributing"].sum())
    assert counted > 0


def test_smoothap_is_right_near_the_edge_too(kernel):
    """Float32 scores of these rows change a share by 1e-4 of itself; eps is 5e-6 of a share away from it."""
    loss = losses.load("smoothap", {"temperature": 0.01})
    query, candidate = captions(12, 3, 24, 2.0)
    group = torch.arange(12)
    pairs = scores.pairs(Embeddings(query.double(), candidate.double(), group, group.repeat_interleave(3)))
    share = loss.weight(pairs).abs() / loss.unit(pairs)
    tried = 0
    for value in share[pairs.negative].sort(descending=True).values[:60:3].tolist():
        for eps in (value * (1 - 5e-6), value * (1 + 5e-6)):
            right, mine = statistics.contributing(share, pairs, eps), dense.Dense(loss, eps)(query, candidate)[0]
            assert torch.equal(mine["contributing"].long(), right) and (mine["uncertain"] == 0).all()
            tried += 1
    assert tried == 40


def test_smoothap_where_all_scores_are_equal_or_on_the_edge(kernel):
    """Eight equal scores, one of them positive: every slope is 1/4, every rank 9/2, so every share is 1/(4·4.5²)·1."""
    same = torch.nn.functional.normalize(torch.ones(8, 16), dim=1)
    share = 0.25 / 4.5**2
    for eps, certain, unsure in ((share * 0.99, 7, 0), (share * 1.01, 0, 0), (share, 0, 7)):
        for side in dense.Dense(losses.load("smoothap", {"temperature": 0.05}), eps)(same, same):
            if unsure:
                assert (side["contributing"] + side["uncertain"] >= unsure).all()
            else:
                assert (side["contributing"] == certain).all() and (side["uncertain"] == 0).all()


def test_stacks_of_smoothap(kernel):
    count = dense.Dense(losses.load("smoothap"))
    batches = [captions(6, 3, 16, 1.0, seed) for seed in range(3)]
    found = count(*(torch.stack(each) for each in zip(*batches, strict=True)))
    assert found[0]["eq7"].shape == (3, 6) and found[1]["eq7"].shape == (3, 18)
    for k, batch in enumerate(batches):
        for side, one in zip(found, count(*batch), strict=True):
            assert set(side) == set(dense.RANKED) and all(torch.equal(side[name][k], one[name]) for name in side)


def test_small_batches_of_smoothap_equal_the_pass(kernel):
    loss = losses.load("smoothap", {"temperature": 0.02})
    query, candidate = captions(64, 5, 32, 2.0)
    group = torch.arange(64)
    embeddings = Embeddings(query, candidate, group, group.repeat_interleave(5))
    (passed,) = sweep.run(sweep.view(embeddings), [readers.of(loss)])
    for mine, other in zip(dense.Dense(loss)(query, candidate), passed, strict=True):
        assert torch.equal(mine["contributing"].long(), other["contributing"]) and mine["contributing"].sum() > 0
        assert torch.equal(mine["eq7"], other["eq7"]) and torch.equal(mine["negatives"].long(), other["negatives"])


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: dense.Dense(losses.load("circle")), "small batches are counted for triplet, smoothap, ntxent"),
        (lambda: dense.Dense(losses.load("smoothap"))(torch.ones(4, 2), torch.ones(6, 2)), "expected .B, d. and .B·n"),
        (lambda: dense.Dense(losses.load("smoothap"))(torch.ones(4, 2), torch.ones(8, 2)), "expected unit vectors"),
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
