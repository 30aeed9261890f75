"""Losses that read a teacher, and losses of other directions: numbers by hand, missing scores, other libraries."""

import json
import math

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from cocos import Embeddings, InputError, Pairs, losses, measures
from cocos.cli import app
from cocos.counting import weights

TEACHERS = ("margin_mse", "kl_distill")
ANY = float("nan")


@pytest.fixture(autouse=True)
def inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def one(student, teacher):
    """One query whose first candidate is its positive."""
    row = torch.tensor([student], dtype=torch.float64)
    return Pairs(row, torch.arange(row.shape[1])[None] == 0, teacher=torch.tensor([teacher], dtype=torch.float64))


def columns(queries=10, negatives=3, width=5, seed=0):
    """Rows of queries, of their candidates, (n, 1 + K, D), and scores of a teacher, (n, 1 + K)."""
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(queries, width, generator=generator, dtype=torch.float64)
    candidate = torch.randn(queries, 1 + negatives, width, generator=generator, dtype=torch.float64)
    return query, candidate, torch.randn(queries, 1 + negatives, generator=generator, dtype=torch.float64)


def listed(query, candidate, teacher):
    """Pairs of each query with its own candidates alone, (n, 1 + K)."""
    found = (query[:, None] * candidate).sum(dim=2)
    return Pairs(found, (torch.arange(found.shape[1]) == 0).expand(found.shape), teacher=teacher)


def test_a_margin_that_is_too_large_pulls_the_negative():
    """Student margins 2 and 2, the teacher's 1 and 3: errors 1 and -1, weights -2 e / 2."""
    loss = losses.load("margin_mse")
    assert loss.weight(one([2, 0, 0], [3, 2, 0])).tolist() == [[0, -1, 1]]
    assert loss(one([2, 0, 0], [3, 2, 0])).tolist() == [1]
    assert loss.weight(one([2, 0, 0], [2, 0, 0])).any().item() is False


@pytest.mark.parametrize("name", TEACHERS)
def test_a_candidate_without_a_score_of_the_teacher_takes_no_part(name):
    loss = losses.load(name)
    few, more = one([0.3, 0.7, -0.2], [1, 0.2, 0.5]), one([0.3, 9, 0.7, -0.2], [1, ANY, 0.2, 0.5])
    weight = loss.weight(more)[0]
    assert weight[1] == 0 and torch.equal(weight[[0, 2, 3]], loss.weight(few)[0])
    assert torch.equal(loss(more), loss(few))
    torch.testing.assert_close(weight[None], weights.autograd(loss, more))
    torch.testing.assert_close(loss.unit(more), loss.unit(few))
    for unknown in (one([0.3, 0.7], [ANY, 0.2]), one([0.3, 0.7], [1, ANY]), one([0.3, 0.7], [ANY, ANY])):
        assert loss(unknown).item() == 0 and not loss.weight(unknown).any()
        assert not weights.autograd(loss, unknown).any()


@pytest.mark.parametrize(("squared", "factor"), [(True, 2.0), (False, 0.5)])
def test_the_temperature_of_kl_distill_and_its_square(squared, factor):
    """At T = 2 the student's odds are e^(1/2) : 1 for scores 1 and 0, the teacher's 3 : 1."""
    pairs = one([1, 0], [2 * math.log(3), 0])
    student = 1 / (1 + math.exp(-0.5))
    expected = factor * torch.tensor([[student - 0.75, 0.75 - student]], dtype=torch.float64)
    loss = losses.load("kl_distill", {"temperature": 2, "squared": squared})
    torch.testing.assert_close(loss.weight(pairs), expected)
    assert loss.unit(pairs).item() == factor
    own = losses.load("kl_distill", {"temperature": 2, "squared": squared, "teacher_temperature": 1})
    torch.testing.assert_close(own.weight(one([1, 0], [math.log(3), 0])), expected)


def test_a_teacher_in_a_file_is_counted(tmp_path):
    query, candidate, teacher = columns(12, 2)
    rows = Embeddings(query, candidate[:, 0], negatives=candidate[:, 1:], teacher=teacher)
    data = measures.count(rows, "margin_mse", batch_size="all")
    expected = losses.load("margin_mse").weight(listed(query, candidate, teacher))
    side = data.isel(direction=0, batch=0)
    order = side["query_index"].values[:12].astype(int)
    np.testing.assert_allclose(side["push"].values[:12], expected.clamp(min=0).sum(dim=1)[order])
    np.savez(tmp_path / "e.npz", query=query, candidate=candidate[:, 0], negatives=candidate[:, 1:], teacher=teacher)
    done = CliRunner().invoke(app, ["count", str(tmp_path / "e.npz"), "--loss", "kl_distill", "--json", "-q"])
    assert done.exit_code == 0 and json.loads(done.stdout)["loss"]["name"] == "kl_distill"


@pytest.mark.parametrize("name", TEACHERS)
def test_without_a_teacher_one_sentence_says_what_to_give(name, tmp_path):
    with pytest.raises(InputError, match=f"{name} reads scores of a teacher or guide, and there are none: give"):
        losses.load(name)(torch.eye(2), torch.eye(2, dtype=torch.bool))
    np.savez(tmp_path / "e.npz", query=np.eye(3), candidate=np.eye(3))
    done = CliRunner().invoke(app, ["count", str(tmp_path / "e.npz"), "--loss", name])
    assert done.exit_code == 2 and f"{name} reads teacher" in done.stderr and not done.stdout


@pytest.mark.parametrize(
    "arguments", [("contributors", "decomposition"), ("weight_map",), ("landscape",), ("score_landscape",)]
)
def test_measures_of_one_direction_refuse_the_scores_of_others(arguments):
    embeddings = Embeddings(torch.eye(4), torch.eye(4))
    loss = losses.load("mnrl", {"directions": "query-candidate,query-query"})
    for name in arguments:
        with pytest.raises(InputError, match=f"mnrl: it also reads query-query scores, for which {name} has no place"):
            getattr(measures, name)(*([] if "landscape" in name else [embeddings]), loss=loss)
