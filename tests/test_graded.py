"""Losses of graded pairs: every comparison of a better pair with a worse one, on cosines and on angles."""

import json
import math

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from cocos import Embeddings, Pairs, losses, measures
from cocos.cli import app
from cocos.counting import weights
from cocos.embeddings import scores

PARITY = ("cosent", "angle")


@pytest.fixture(autouse=True)
def inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def graded(seed=0, rows=9, width=6):
    """Raw rows of both sides, grades with ties among them, and their pairs."""
    generator = torch.Generator().manual_seed(seed)
    query, candidate = (torch.randn(rows, width, generator=generator, dtype=torch.float64) for _ in range(2))
    grades = torch.randint(0, 5, (rows,), generator=generator) / 4
    return query, candidate, grades


def of(name, query, candidate, grades):
    loss = losses.load(name)
    return loss, scores.pairs(Embeddings(query, candidate, grades=grades), metric=loss.metric, graded=True)


def similarity(name, query, candidate):
    """Scores of row i with row i, (n,), as the papers write them."""
    if name == "cosent":
        return torch.cosine_similarity(query, candidate)
    (a, b), (c, d) = query.chunk(2, dim=1), candidate.chunk(2, dim=1)
    z, w = torch.complex(a, b), torch.complex(c, d)
    ratio = z / w * (w.abs().square() / (z.norm(dim=1) * w.norm(dim=1))[:, None])
    return (ratio.real + ratio.imag).sum(dim=1).abs()


def published(name, query, candidate, grades, scale=20.0):
    """log(1 + Σ over grade_a < grade_b of exp(λ (s_a - s_b))), all differences at once, as in the published code."""
    score = scale * similarity(name, query, candidate)
    apart = score[:, None] - score[None, :]
    taken = apart[grades[:, None] < grades[None, :]]
    return torch.cat([torch.zeros(1, dtype=score.dtype), taken]).logsumexp(dim=0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", PARITY)
def test_value_and_gradient_are_the_published_ones(name, seed):
    """The gradient of the rows is that of their own scores times the column sums of the weights."""
    query, candidate, grades = graded(seed)
    loss, pairs = of(name, query, candidate, grades)
    expected = published(name, query, candidate, grades)
    assert loss(pairs).sum().item() == pytest.approx(expected.item(), rel=1e-12)
    found = torch.func.grad(lambda q: (similarity(name, q, candidate) * loss.weight(pairs).sum(dim=0)).sum())(query)
    wanted = torch.func.grad(lambda q: published(name, q, candidate, grades))(query)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(loss.weight(pairs), weights.autograd(loss, pairs), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", PARITY)
def test_pairs_of_one_grade_are_not_compared(name):
    query, candidate, _ = graded()
    loss, pairs = of(name, query, candidate, torch.tensor([0.0] * 4 + [1.0] * 5))
    assert pairs.negative.sum(dim=1).tolist() == [0] * 4 + [4] * 5
    weight = loss.weight(pairs)
    assert (weight[:4] == 0).all() and (loss(pairs)[:4] == 0).all()
    assert (weight.sum(dim=0)[:4] > 0).all() and (weight.sum(dim=0)[4:] < 0).all()


def test_a_pair_between_two_grades_is_pulled_and_pushed():
    """Three pairs at one score: of three comparisons the best is better in two, the middle one in one."""
    grades = torch.tensor([2.0, 1.0, 0.0])
    pairs = Pairs(
        torch.zeros(3, 3, dtype=torch.float64), torch.eye(3, dtype=torch.bool), grades[None] < grades[:, None]
    )
    loss = losses.load("cosent", {"scale": 8})
    expected = 2 * torch.tensor([[-2.0, 1, 1], [0, -1, 1], [0, 0, 0]], dtype=torch.float64)
    torch.testing.assert_close(loss.weight(pairs), expected)  # λ/4 for each comparison
    assert loss(pairs).tolist() == pytest.approx([math.log(4) * 2 / 3, math.log(4) / 3, 0])


@pytest.fixture
def file(tmp_path):
    query, candidate, _ = graded(rows=40, width=8)
    np.savez(tmp_path / "sts.npz", query=query, candidate=candidate, grades=np.arange(40) % 6 / 5)
    return tmp_path / "sts.npz"


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.mark.parametrize("name", PARITY)
def test_a_file_of_graded_pairs_is_counted(file, name):
    done = call("count", file, "--loss", name, "--batch-size", 20, "--json", "-q")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert list(document["directions"]) == ["q2c"]
    assert document["health"]["directions"] == {"q2c": None}  # a weight is of a graded pair: it has no pull or push
    with np.load(file) as held:
        rows = [held[key] for key in ("query", "candidate", "grades")]
    loss, pairs = of(name, *map(torch.from_numpy, rows))
    share = loss.weight(pairs) / loss.unit(pairs)
    data = measures.count(Embeddings(*rows[:2], grades=rows[2]), name, batch_size="all", eps=1e-4)
    expected = ((share > 1e-4) & pairs.negative).sum(dim=1)
    assert sorted(data["contributing"].values.ravel().tolist()) == sorted(expected.tolist())


def test_without_grades_each_query_compares_its_own_candidates():
    query, candidate, _ = graded()
    loss = losses.load("cosent")
    pairs = scores.pairs(Embeddings(query, candidate), graded=True)
    score = 20 * torch.cosine_similarity(query[:, None], candidate[None], dim=2)
    apart = (score - score.diagonal()[:, None])[~torch.eye(9, dtype=torch.bool)]
    assert loss(pairs).sum().item() == pytest.approx(torch.cat([torch.zeros(1), apart]).logsumexp(0).item(), rel=1e-12)
