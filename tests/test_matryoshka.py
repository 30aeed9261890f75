"""Matryoshka losses: one loss of the first dimensions, for several numbers of them."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from cocos import Embeddings, InputError, losses, measures
from cocos.commands import app
from cocos.embeddings import scores

DIMS = (2, 4, 8)


def rows(seed=0, number=24):
    generator = torch.Generator().manual_seed(seed)
    query, noise = (torch.randn(number, 8, generator=generator, dtype=torch.float64) for _ in range(2))
    return query, query + noise


def first(dim):
    """The set, cut to its first dimensions."""
    return Embeddings(*(side[:, :dim].clone() for side in rows()))


@pytest.fixture
def file(tmp_path):
    query, candidate = rows()
    np.savez(tmp_path / "e.npz", query=query.numpy(), candidate=candidate.numpy())
    return tmp_path / "e.npz"


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.mark.parametrize("name", ["ntxent", "triplet", "ce_softmax", "squared"])
@pytest.mark.parametrize("factors", [None, (1.0, 0.5, 2.0)])
def test_value_and_gradient_are_the_sum_over_the_dimensions(name, factors):
    """By autograd through the rows, with each cut written out."""
    loss = losses.load({"squared": "triplet_squared"}.get(name, name))
    query, candidate = (side.requires_grad_() for side in rows())

    def slow():
        parts = []
        for c, dim in zip(factors or (1, 1, 1), DIMS, strict=True):
            score = scores.METRICS[loss.metric](query[:, :dim], candidate[:, :dim])
            parts.append(c * loss(score, torch.eye(len(query), dtype=torch.bool)).mean())
        return sum(parts)

    found = losses.sides(losses.matryoshka(loss, DIMS, factors))(query, candidate)
    torch.testing.assert_close(found, slow(), rtol=1e-12, atol=1e-12)
    for ours, theirs in zip(*(torch.autograd.grad(v, (query, candidate)) for v in (found, slow())), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-14)


def test_each_number_of_dimensions_is_counted_as_a_set_of_that_width_is():
    data = measures.count(Embeddings(*rows()), losses.matryoshka("ntxent", DIMS, (1.0, 0.5, 2.0)), batch_size=12)
    assert data["loss"].values.tolist() == [
        *(f"ntxent, {dim} dimensions" for dim in DIMS),
        "ntxent, at any",
        "ntxent, at all",
    ]
    for dim in DIMS:
        plain = measures.count(first(dim), "ntxent", batch_size=12)
        one = data.sel(loss=f"ntxent, {dim} dimensions")
        for key in ("contributing", "effective_per_query", "weight_above_per_query"):
            np.testing.assert_allclose(one[key], plain[key], rtol=1e-5, atol=1e-6)


def test_negatives_at_any_and_at_all_dimensions_are_those_of_a_loop():
    data = measures.count(Embeddings(*rows()), losses.matryoshka("ntxent", DIMS), batch_size="all", eps=0.02)
    loss, contributing = losses.load("ntxent"), []
    for dim in DIMS:
        pairs = scores.pairs(first(dim))
        contributing.append((loss.weight(pairs).abs() / loss.unit(pairs) > 0.02) & pairs.negative)
    for word, expected in (
        ("any", torch.stack(contributing).any(dim=0)),
        ("all", torch.stack(contributing).all(dim=0)),
    ):
        one = data.sel(loss=f"ntxent, at {word}", direction="q2c")
        order = one["query_index"].values.ravel().astype(int)
        assert one["contributing"].values.ravel().tolist() == expected.sum(dim=1)[order].tolist()
    assert contributing[0].sum() != contributing[2].sum()


def test_graded_pairs_have_scores_of_the_first_dimensions():
    grades = torch.arange(24) % 5 / 4
    query, candidate = rows()
    pairs = scores.pairs(Embeddings(query, candidate, grades=grades), graded=True)
    loss, cut = losses.load("truncated(cosent)", {"dims": 4}), losses.load("cosent")
    narrow = scores.pairs(Embeddings(query[:, :4], candidate[:, :4], grades=grades), graded=True)
    torch.testing.assert_close(loss.weight(pairs), cut.weight(narrow))


def test_the_command_shows_all_dimensions_and_documents_them(file):
    done = call(
        "count", file, "--loss", "matryoshka(ntxent)", "-p", "dims=2,4,8", "-p", "temperature=0.2", "--json", "-q"
    )
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["losses"]
    assert [each["label"] for each in found][-2:] == ["ntxent, at any", "ntxent, at all"]
    assert found[0]["loss"]["name"] == "truncated(ntxent)"
    assert found[0]["loss"]["parameters"] == {"dims": [2], "weights": [1.0], "ntxent.temperature": 0.2}
    counts = [each["directions"]["q2c"]["contributing_all"]["mean"] for each in found]
    assert counts[-1] <= min(counts[:3]) and counts[-2] >= max(counts[:3])
    text = call("count", file, "--loss", "matryoshka(ntxent)", "-p", "dims=2,4,8", "-q").stdout
    assert "ntxent, 4 dimensions" in text and "ntxent, at all" in text


def test_one_of_the_dimensions_is_a_loss_for_every_command(file):
    one = call("count", file, "--loss", "truncated(ntxent)", "-p", "dims=4", "--json", "-q")
    assert json.loads(one.stdout)["directions"]["q2c"]["contributing_all"]["mean"] > 0
    assert call("verify", "--loss", "truncated(ntxent)", "-p", "dims=4", "-q").exit_code == 0


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({}, "matryoshka(ntxent): give dims, the numbers of dimensions, like -p dims=64,128,256"),
        ({"dims": "64,32"}, "dims must be whole numbers above 0, each above the one before, got 64, 32"),
        ({"dims": "0,4"}, "dims must be whole numbers above 0, each above the one before, got 0, 4"),
        ({"dims": "a"}, "dims must be whole numbers separated by commas, got 'a'"),
        ({"dims": "2,4", "weights": "1"}, "weights must be 2 numbers above 0, one for each of dims, got 1.0"),
        ({"dims": "2,4", "weights": "1,-1"}, "weights must be 2 numbers above 0, one for each of dims, got 1.0, -1.0"),
        ({"dims": "2", "temprature": 1}, "did you mean 'temperature'"),
    ],
)
def test_bad_numbers_get_a_sentence(parameters, sentence):
    with pytest.raises(InputError) as error:
        losses.load("matryoshka(ntxent)", parameters)
    assert sentence in str(error.value)


def test_what_has_no_one_weight_is_refused_with_what_to_write(file):
    own = ["--loss", "matryoshka(ntxent)", "-p", "dims=2,4"]
    for command in (["verify", *own], ["verify", file, *own], ["query", file, "--row", 0, *own]):
        done = call(*command)
        assert done.exit_code == 2, done.output
        assert 'no negative has one weight; cocos count shows them side by side, and --loss "truncated' in done.stderr
    done = call("count", file, "--loss", "matryoshka(ntxent)", "-p", "dims=2,400")
    assert done.exit_code == 2 and "dims up to 400, and the embeddings have 8 dimensions" in done.stderr
    with pytest.raises(InputError, match="mnrl reads scores of further directions"):
        losses.matryoshka(losses.load("mnrl", {"directions": "query-candidate,query-query"}), (2, 4))
    with pytest.raises(InputError, match="counted as several losses side by side; count it by itself"):
        measures.count(Embeddings(*rows()), ["triplet", losses.matryoshka("ntxent", (2, 4))])
    with pytest.raises(InputError, match="the pairs have no embeddings"):
        losses.matryoshka("ntxent", (2, 4))(torch.zeros(2, 2), torch.eye(2, dtype=torch.bool))
