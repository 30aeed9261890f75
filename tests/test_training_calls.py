"""A loss is called with (scores, positive, negative) in a training loop: same value and gradient as with Pairs."""

import dataclasses

import pytest
import torch

import cocos
import taught
from cocos import InputError, Pairs, losses
from cocos.measures.shared import synthetic_inputs

EXTERNAL = """
import torch

def softest(scores, positive, negative):
    return (scores * negative).sum(dim=1)

class OfPairs(torch.nn.Module):
    def forward(self, pairs):
        return pairs.cross_entropy(pairs.scores)
"""
SPELLINGS = ["triplet+0.5*ntxent", "mine.py:softest", "mine.py:OfPairs"]
BESIDE = ("candidate_group", "query_norm", "candidate_norm", "teacher")


def value_and_gradient(call, scores):
    leaf = scores.clone().requires_grad_()
    value = call(leaf)
    assert value.shape == leaf.shape[:1]
    return value.detach(), torch.autograd.grad(value.sum(), leaf)[0]


@pytest.mark.parametrize("name", [*losses.names(), *SPELLINGS])
def test_tensors_give_the_value_and_the_gradient_of_pairs(name, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(EXTERNAL)
    monkeypatch.chdir(tmp_path)
    loss = losses.load(name)
    pairs = synthetic_inputs.build("random", loss.metric, 1)
    takes_part = torch.arange(pairs.scores.shape[1]) % 5 > 0
    pairs = dataclasses.replace(pairs, negative=pairs.negative & takes_part)
    beside = {key: getattr(pairs, key) for key in BESIDE}
    found = value_and_gradient(lambda s: loss(s, pairs.positive, pairs.negative, **beside), pairs.scores)
    expected = value_and_gradient(lambda s: loss(pairs.with_scores(s)), pairs.scores)
    assert all(map(torch.equal, found, expected))
    assert expected[1].abs().max() > 0
    bare = Pairs(pairs.scores, pairs.positive, teacher=pairs.teacher)
    given = {"teacher": pairs.teacher} if taught.needs(loss) else {}
    for value in (
        loss(pairs.scores, bare.positive, **given),
        loss(scores=pairs.scores, positive=bare.positive, negative=None, **given),
    ):
        assert torch.equal(value, loss(bare))
    assert torch.equal(loss(pairs=bare), loss(bare))


@pytest.mark.parametrize("name", ["ntxent", "magface", "triplet+0.5*ntxent"])
def test_torch_func_differentiates_the_call_with_tensors(name):
    loss = losses.load(name)
    pairs = synthetic_inputs.build("random", loss.metric, 1)
    found = torch.func.grad(lambda s: loss(s, pairs.positive, pairs.negative, query_norm=pairs.query_norm).sum())
    assert torch.allclose(found(pairs.scores), cocos.weights.autograd(loss, pairs))


def test_norms_and_groups_beside_the_scores_are_read():
    for name, key in (("magface", "query_norm"), ("softtriple", "candidate_group")):
        loss = losses.load(name)
        pairs = synthetic_inputs.build("random", loss.metric, 1)
        beside = {key: torch.full_like(pairs.query_norm, 60) if key == "query_norm" else pairs.candidate_group // 2}
        plain = dataclasses.replace(pairs, candidate_group=None, query_norm=None)
        found = loss(pairs.scores, pairs.positive, pairs.negative, **beside)
        assert torch.equal(found, loss(dataclasses.replace(plain, **beside)))
        assert not torch.equal(found, loss(plain))


@pytest.mark.parametrize(
    "given, said",
    [
        ((torch.zeros(2, 3),), "positive: missing"),
        ((), "positive: missing"),
        ((torch.zeros(2, 3), torch.eye(3, dtype=torch.bool)), r"\(3, 3\), expected a bool tensor of shape \(2, 3\)"),
        ((torch.zeros(2, 2), torch.eye(2)), "positive: torch.float32 .* expected a bool tensor"),
        ((torch.zeros(2), torch.eye(2, dtype=torch.bool)), "scores: .* expected a floating-point tensor"),
        (([[0.0]], torch.eye(1, dtype=torch.bool)), "scores: list, expected a floating-point tensor"),
        ((torch.full((2, 2), torch.nan), torch.eye(2, dtype=torch.bool)), "NaN or infinity in rows 0, 1"),
        ((torch.zeros(2, 2), torch.eye(2, dtype=torch.bool), torch.eye(2, dtype=torch.bool)), "both positive and neg"),
        ((Pairs(torch.zeros(2, 2), torch.eye(2, dtype=torch.bool)), torch.eye(2)), "fields of the Pairs"),
    ],
)
def test_bad_tensors_are_one_sentence(given, said):
    with pytest.raises(InputError, match=said):
        losses.load("ntxent")(*given)
