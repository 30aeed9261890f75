"""What the monitor says of the sources of the push, in losses of every layout."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

import cocos
from cocos import losses, measures, plots
from cocos.counting import statistics
from cocos.embeddings.sources import DIRECTIONS, SOURCES
from cocos.monitor import records
from cocos.reports import table

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
    wide = losses.load("mnrl", {"scale": 8, "directions": DIRECTIONS})
    pairs = cocos.scores.pairs(cocos.Embeddings(query, candidate), directions=DIRECTIONS)
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
        assert found["duplicates"] == 0  # of the candidates alone


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


def test_a_run_shows_sources_and_a_scale_that_changes(sides, tmp_path):
    query, candidate, hard = sides
    store = tmp_path / "run.jsonl"
    with cocos.Monitor(losses.load("ntxent", {"scale": 8}), store=store) as monitor:
        for step in range(3):
            monitor(query, candidate, negatives=hard, step=step)
    data = measures.run(store)
    assert {"push_in_batch", "push_own_hard"} <= set(data.data_vars)
    moving = data.assign(scale=data["scale"] * (1 + 0.1 * data["step"]))
    plain = tmp_path / "plain.jsonl"
    with cocos.Monitor("ntxent", store=plain) as monitor:
        monitor(query, candidate)
    assert "hard %" not in str(table("run", measures.run(plain)))
    ax = plots.run(data, show="sources")
    assert {line.get_label() for line in ax.lines} >= {"in batch", "own hard", "others hard"}
    assert plots.run(moving, show="scale").has_data()


def test_checkpoints_have_the_sources_of_their_batches(sides):
    query, candidate, hard = sides
    embeddings = cocos.Embeddings(query, candidate, negatives=hard)
    data = measures.run([embeddings, embeddings], losses.load("ntxent", {"scale": 8}), batch_size="all")
    one = data.sel(direction="q2c").isel(checkpoint=0)
    assert [float(one[f"push_{key}"]) for key in KEYS[:3]] == pytest.approx(slow(*sides, 8.0), rel=1e-4)
