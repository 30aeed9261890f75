"""What the monitor says of the sources of the push and of the equilibrium of the scale, in losses of every layout."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy, logsigmoid, normalize

import cocos
from cocos import losses, measures, plots
from cocos.counting import equilibrium, statistics
from cocos.embeddings.sources import GTE_DIRECTIONS, SOURCES
from cocos.monitor import settled_scale
from cocos.reports import table
from cocos.results import records

Q, D, K = 24, 8, 3
KEYS = list(records.SOURCE_KEYS)


@pytest.fixture
def sides():
    """Queries, candidates and hard negatives, on the unit sphere."""
    draw = torch.Generator().manual_seed(4)
    query = normalize(torch.randn(Q, D, generator=draw, dtype=torch.float64), dim=1)

    def near(noise, *shape):
        return normalize(
            query.view(Q, *[1] * (len(shape) - 1), D) + noise * torch.randn(*shape, D, generator=draw).double(), dim=-1
        )

    return query, near(0.4, Q), near(0.5, Q, K)


class Hard(torch.nn.Module):
    """Cross-entropy of positives and hard negatives in one of the three layouts, with a learned scale."""

    def __init__(self, layout, scale=8.0):
        super().__init__()
        self.layout, self.scale = layout, torch.nn.Parameter(torch.tensor(scale, dtype=torch.float64))

    def forward(self, query, candidate, hard):
        target = torch.arange(Q)
        if self.layout == "columns":
            columns = torch.cat([candidate, *hard.unbind(dim=1)])
        elif self.layout == "behind":
            columns = torch.cat([candidate, hard.flatten(0, 1)])
        else:
            columns, target = torch.cat([candidate[:, None], hard], dim=1).flatten(0, 1), target * (1 + K)
        return cross_entropy(self.scale * (query @ columns.T), target)


class Directions(torch.nn.Module):
    """All four directions of GTE in one softmax; the pair itself stands among the candidate-query scores once more."""

    def forward(self, query, candidate, hard=None):
        own, left_out = torch.eye(Q, dtype=torch.bool), -1e9
        blocks = [
            8 * query @ candidate.T,
            (8 * query @ query.T).masked_fill(own, left_out),
            8 * (query @ candidate.T).T,
        ]
        blocks.append((candidate @ candidate.T * 8).masked_fill(own, left_out))
        return cross_entropy(torch.cat(blocks, dim=1), torch.arange(Q))


class Sigmoid(torch.nn.Module):
    def __init__(self, scale=6.0, bias=-4.0):
        super().__init__()
        values = torch.tensor([scale, bias], dtype=torch.float64)
        self.scale, self.bias = (torch.nn.Parameter(each) for each in values)

    def forward(self, query, candidate, hard=None):
        signs = 2 * torch.eye(Q, dtype=torch.float64) - 1
        return -logsigmoid((self.scale * query @ candidate.T + self.bias) * signs).sum() / Q


def tapped(module, *sides):
    """The record of one forward and backward pass."""
    given = [side.clone().requires_grad_() for side in sides]
    with cocos.Monitor(module) as monitor:
        module(*given).backward()
    return monitor.records[0]


def slow(query, candidate, hard, scale):
    """Push of each source with loops: in-batch, own hard, others' hard."""
    push = [0.0, 0.0, 0.0]
    for q in range(Q):
        listed = [(0, c, candidate[c]) for c in range(Q)] + [
            (1 if o == q else 2, -1, h) for o in range(Q) for h in hard[o]
        ]
        mass = [math.exp(scale * float(query[q] @ row)) for _, _, row in listed]
        for (source, c, _), each in zip(listed, mass, strict=True):
            if c != q:
                push[source] += each / sum(mass)
    return [each / sum(push) for each in push]


@pytest.mark.parametrize("layout", ["columns", "behind", "beside"])
def test_hard_negatives_of_any_layout_are_told_from_those_of_others(sides, layout):
    found = tapped(Hard(layout), *sides)["directions"]["q2c"]
    exact = slow(*sides, 8.0)
    assert [found[f"push_{key}"] for key in KEYS[:3]] == pytest.approx(exact, rel=1e-5)
    assert [found[f"negatives_{key}"] for key in KEYS[:3]] == [Q - 1, K, K * (Q - 1)]
    assert "push_query_query" not in found


def test_a_loss_by_its_name_is_given_its_hard_negatives(sides):
    query, candidate, hard = sides
    with cocos.Monitor(losses.load("ntxent", {"scale": 8})) as monitor:
        monitor(query, candidate, negatives=hard)
        monitor(query, candidate)
    first, second = (each["directions"] for each in monitor.records)
    assert [first["q2c"][f"push_{key}"] for key in KEYS[:3]] == pytest.approx(slow(*sides, 8.0), rel=1e-5)
    assert not any(name.startswith("push_") for name in (*first["c2q"], *second["q2c"]))  # all are of the batch
    data = monitor.dataset()
    assert data["push_own_hard"].dims == ("step", "direction")


def test_the_directions_of_a_softmax_are_its_sources(sides):
    query, candidate, _ = sides
    wide = losses.load("mnrl", {"scale": 8, "directions": GTE_DIRECTIONS})
    pairs = cocos.scores.pairs(cocos.Embeddings(query, candidate), directions=GTE_DIRECTIONS)
    exact = statistics.by_source(wide.weight(pairs), wide.unit(pairs), pairs)
    push = exact["source_push"].sum(dim=0)
    with cocos.Monitor(wide) as monitor:
        monitor(query, candidate)
    for found in (tapped(Directions(), query, candidate), monitor.records[0]):
        one = found["directions"]["q2c"]
        for place, key in enumerate(KEYS):
            assert one.get(f"push_{key}", 0) == pytest.approx(float(push[place] / push.sum()), rel=1e-5, abs=1e-9), key
            number = float(exact["source_negatives"][:, place].double().mean())
            assert one.get(f"negatives_{key}", 0) == number
        assert found["duplicates"] == 0 and "reduction" not in found  # of the candidates alone


def test_pulled_negatives_are_told_by_their_source(sides):
    class Known(torch.nn.Module):
        def forward(self, query, candidate, hard):
            scores = 8 * query @ torch.cat([candidate, *hard.unbind(dim=1)]).T
            soft = torch.zeros_like(scores)
            soft[torch.arange(Q), torch.arange(Q)] = 0.6
            soft[torch.arange(Q), Q + torch.arange(Q)] = 0.4  # the first hard negative of each is pulled
            return cross_entropy(scores, soft)

    found = tapped(Known(), *sides)["directions"]["q2c"]
    assert found["pulled_own_hard"] > 0.9 and found["pulled_in_batch"] == found["pulled_others_hard"] == 0
    assert found["pulled_own_hard"] == found["pulled_negatives"]


def test_names_of_sources_are_those_of_the_package():
    assert [key.replace("_", " ") for key in KEYS] == [name.replace("-", " ").replace("'", "") for name in SOURCES]
    assert all(f"{name}_{key}" in records.DIRECTION_METRICS for name in records.SOURCE_METRICS for key in KEYS)


def test_a_record_says_where_the_scale_of_a_softmax_settles(sides):
    query, candidate, hard = sides
    with cocos.Monitor(losses.load("ntxent", {"scale": 8})) as monitor:
        monitor(query, candidate)
    pairs = cocos.scores.pairs(cocos.Embeddings(query, candidate))
    exact = equilibrium.solve("ntxent", [pairs, pairs.flip()])
    assert monitor.records[0]["equilibrium_scale"] == pytest.approx(exact.scale, rel=1e-4)
    both = [equilibrium.derivatives(losses.load("ntxent", {"scale": 8}), each).mean() for each in (pairs, pairs.flip())]
    assert monitor.records[0]["scale_slope"] == pytest.approx(float(sum(both)) / 2, rel=1e-4)
    wide = tapped(Hard("columns"), *sides)
    columns = torch.cat([candidate, *hard.unbind(dim=1)])
    alone = cocos.Pairs(query @ columns.T, torch.eye(Q, Q * (1 + K), dtype=torch.bool))
    assert wide["equilibrium_scale"] == pytest.approx(equilibrium.solve("ntxent", alone).scale, rel=1e-4)
    assert wide["scale"] == pytest.approx(8) and "bias" not in wide


@pytest.mark.parametrize("scale", [6.0, 20.0])
def test_a_record_says_where_scale_and_bias_of_a_sigmoid_settle(sides, scale):
    query, candidate, _ = sides
    pairs = cocos.scores.pairs(cocos.Embeddings(query, candidate))
    exact = equilibrium.solve("siglip", pairs)
    with cocos.Monitor(losses.load("siglip", {"scale": scale, "bias": -4})) as monitor:
        monitor(query, candidate)
    for found in (tapped(Sigmoid(scale), query, candidate), monitor.records[0]):
        assert found["kind"] == "sigmoid" and found["scale"] == pytest.approx(scale)
        assert found["bias"] == pytest.approx(-4, abs=1e-4)
        assert found["equilibrium_scale"] == pytest.approx(exact.scale, rel=1e-3)
        assert found["equilibrium_bias"] == pytest.approx(exact.bias, rel=1e-3)


def cosine_batch(seed):
    """Queries and candidates in float64; every fourth batch is so clean that each positive ranks first."""
    draw = torch.Generator().manual_seed(seed)
    query = torch.randn([16, 32][seed % 2], 12, generator=draw, dtype=torch.float64)
    return query, query + [0.1, 1.0, 1.5, 2.0][seed % 4] * torch.randn(query.shape, generator=draw, dtype=torch.float64)


@pytest.mark.parametrize("seed", range(8))
def test_equilibria_are_those_of_the_solver_from_any_start(seed):
    query, candidate = cosine_batch(seed)
    pairs = cocos.scores.pairs(cocos.Embeddings(query, candidate))
    exact, first = equilibrium.solve("siglip", pairs), equilibrium.solve("ntxent", [pairs, pairs.flip()])
    for scale, bias in [(1, -10), (10, -10), (10, 0), (50, -10), (100, -10), (5, -6)]:
        with cocos.Monitor(losses.load("siglip", {"scale": scale, "bias": bias})) as monitor:
            monitor(query, candidate)
        found = monitor.records[0]
        if exact.scale is None or exact.state == "clipped":
            assert exact.scale is None and "equilibrium_scale" not in found
        else:
            assert found["equilibrium_scale"] == pytest.approx(exact.scale, rel=1e-4)
            assert found["equilibrium_bias"] == pytest.approx(exact.bias, rel=1e-4)
        with cocos.Monitor(losses.load("ntxent", {"scale": scale})) as monitor:
            monitor(query, candidate)
        found = monitor.records[0].get("equilibrium_scale")
        assert found == (None if first.state == "grows" else pytest.approx(first.scale, rel=1e-4))
    assert (first.state == "grows") == (seed % 4 == 0)


@pytest.mark.parametrize("bias", [-10.0, -8.0, -4.0, 0.0])
def test_the_slope_of_a_sigmoid_is_the_derivative_of_the_scale_that_is_trained(sides, bias):
    module = Sigmoid(10.0, bias)
    found = tapped(module, *sides[:2])
    assert found["bias"] == pytest.approx(bias, abs=1e-3)
    assert found["scale_slope"] == pytest.approx(float(module.scale.grad), rel=1e-3, abs=1e-5)


def test_a_candidate_that_equals_the_positive_makes_no_equilibrium_by_rounding():
    query = torch.randn(Q, 128, generator=torch.Generator().manual_seed(0))
    twice = torch.cat([query, query * torch.linspace(1, 2, Q)[:, None]])  # equal once they are normalised
    with cocos.Monitor(losses.load("ntxent", {"scale": 8})) as monitor:
        monitor(query, twice, (torch.arange(Q), torch.arange(2 * Q)))
    found = monitor.records[0]
    assert found["scale_slope"] < 0 and "equilibrium_scale" not in found


def test_a_batch_that_is_solved_has_a_slope_and_no_equilibrium():
    rows = torch.eye(8)
    with cocos.Monitor("ntxent") as monitor:
        monitor(rows, rows + 0.01)
    assert monitor.records[0]["scale_slope"] < 0 and "equilibrium_scale" not in monitor.records[0]


def test_a_loss_of_another_form_has_no_equilibrium(sides):
    class Margin(torch.nn.Module):
        def forward(self, query, candidate):
            scores = 8 * (query @ candidate.T - 0.6 * torch.eye(Q, dtype=torch.float64))
            return cross_entropy(scores, torch.arange(Q))

    found = tapped(Margin(), *sides[:2])
    assert found["kind"] == "softmax" and "equilibrium_scale" not in found and "scale_slope" not in found
    with cocos.Monitor("triplet") as monitor:
        monitor(*sides[:2])
    assert "scale_slope" not in monitor.records[0]


def test_a_large_batch_is_sampled_and_nothing_global_is_drawn(monkeypatch):
    draw = torch.Generator().manual_seed(0)
    query = normalize(torch.randn(300, 16, generator=draw), dim=1)
    candidate = normalize(query + 0.35 * torch.randn(300, 16, generator=draw), dim=1)
    monkeypatch.setattr(settled_scale, "SETTLED_SCORES", 300 * 150)
    state = torch.random.get_rng_state()
    with cocos.Monitor("ntxent") as monitor:
        monitor(query, candidate)
    assert torch.equal(state, torch.random.get_rng_state())
    whole = equilibrium.solve("ntxent", cocos.scores.pairs(cocos.Embeddings(query.double(), candidate.double())))
    assert monitor.records[0]["equilibrium_scale"] == pytest.approx(whole.scale, rel=0.4)


def test_a_run_shows_sources_and_the_equilibrium_of_a_scale_that_changes(sides, tmp_path):
    query, candidate, hard = sides
    store = tmp_path / "run.jsonl"
    with cocos.Monitor(losses.load("ntxent", {"scale": 8}), store=store) as monitor:
        for step in range(3):
            monitor(query, candidate, negatives=hard, step=step)
    data = measures.run(store)
    text = str(table("run", data))
    assert (
        "in batch % q2c" in text and "own hard % q2c" in text and "part of the push on negatives of this source" in text
    )
    assert "settles at" not in text  # a scale that stays stands in the loss
    moving = data.assign(scale=data["scale"] * (1 + 0.1 * data["step"]))
    assert "settles at" in str(table("run", moving))
    plain = tmp_path / "plain.jsonl"
    with cocos.Monitor("ntxent", store=plain) as monitor:
        monitor(query, candidate)
    assert "hard %" not in str(table("run", measures.run(plain)))
    ax = plots.run(data, show="sources")
    assert {line.get_label() for line in ax.lines} >= {"in batch", "own hard", "others hard"}
    assert plots.run(moving, show="scale").has_data()


def test_checkpoints_have_the_sources_and_the_equilibrium_of_their_batches(sides):
    query, candidate, hard = sides
    embeddings = cocos.Embeddings(query, candidate, negatives=hard)
    data = measures.run([embeddings, embeddings], losses.load("ntxent", {"scale": 8}), batch_size="all")
    one = data.sel(direction="q2c").isel(checkpoint=0)
    assert [float(one[f"push_{key}"]) for key in KEYS[:3]] == pytest.approx(slow(*sides, 8.0), rel=1e-4)
    assert float(one["equilibrium_scale"]) > 0 and float(one["scale_slope"]) != 0
