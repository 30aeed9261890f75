"""Losses that change the denominator of InfoNCE: numbers worked out by hand, limits, and what their cards say."""

import math

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from cocos import Embeddings, Pairs, losses, measures
from cocos.base import docstrings
from cocos.cli import app
from cocos.counting import findings
from cocos.embeddings import scores


def one(positive, *negatives):
    """One query with one positive."""
    row = torch.tensor([[positive, *negatives]], dtype=torch.float64)
    return Pairs(row, torch.arange(row.shape[1])[None] == 0)


def embeddings(queries=40, width=8, seed=0, noise=0.5):
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(queries, width, generator=generator, dtype=torch.float64)
    return Embeddings(query, query + noise * torch.randn(queries, width, generator=generator, dtype=torch.float64))


def test_dclw_pushes_the_positive_that_is_far_above_the_others():
    """The card: an advantage of 0.35 in score at σ = 0.5, which is σ log 2."""
    said = losses.load("dclw").__doc__
    assert f"{0.5 * math.log(2):.2f} in score" in said
    level = torch.full((50, 50), -1.0, dtype=torch.float64).fill_diagonal_(0.0)
    for advantage, sign in ((0.33, -1), (0.37, 1)):
        level[0, 0] = advantage
        weight = losses.load("dclw").weight(Pairs(level, torch.eye(50, dtype=torch.bool)))
        assert weight[0, 0].sign() == sign and weight[1, 1] < 0


@pytest.mark.parametrize("known", ("debiased", "dcl_debiased", "DebiasedContrastiveLoss"))
def test_the_debiased_loss_is_hcl_with_no_hardness(known):
    assert losses.load(known) == losses.load("hcl", {"beta": 0})
    assert losses.load(known, {"prior": 0.01}).prior == 0.01


def test_a_query_on_the_clamp_of_hcl_pushes_nothing():
    """At τ = 0.1 a positive that is 0.23 above equal negatives is on the clamp, at τ = 0.5 one that is 1.15 above."""
    said = " ".join(docstrings.sections(type(losses.load("hcl")))["Net"].split())
    assert "on it there is a pull alone" in said
    for temperature, prose in ((0.5, "1.15 in score at τ = 0.5"), (0.1, "0.23 at τ = 0.1")):
        gap = temperature * math.log(1 / 0.1)
        assert f"{gap:.2f}" in prose and prose in " ".join(type(losses.load("hcl")).__doc__.split())
        loss = losses.load("hcl", {"temperature": temperature})
        edge = temperature * math.log((1 - 0.9 * math.exp(-0.8 / temperature)) / 0.1)  # as the clamp is above 0
        for above, clamped in ((edge - 0.001, 0), (edge + 0.001, 1), (gap, 1)):
            pairs = one(above - 0.2, *[-0.2] * 30)
            weight = loss.weight(pairs)[0]
            assert loss.extra(pairs, 0.01)["clamped"].item() == clamped
            assert (weight[1:] == 0).all() if clamped else (weight[1:] > 0).all()
            assert weight[0] < 0


def test_count_says_how_many_queries_of_hcl_are_on_the_clamp(tmp_path):
    side = embeddings()
    np.savez(tmp_path / "e.npz", query=side.query.numpy(), candidate=side.candidate.numpy())
    loss = losses.load("hcl", {"temperature": 0.1})
    data = measures.count(side, loss, batch_size="all")
    expected = [
        loss.extra(each, 0.01)["clamped"].sum().item() for each in (scores.pairs(side), scores.pairs(side).flip())
    ]
    assert data["clamped"].values.ravel().tolist() == expected and 0 < min(expected) < len(side.query)
    push = data["push"].values[:, 0]
    assert ((push == 0) == (data["clamped_per_query"].values[:, 0] == 1)).all()
    done = CliRunner().invoke(
        app, ["count", str(tmp_path / "e.npz"), "--loss", "hcl", "-p", "temperature=0.1", "--batch-size", "20"]
    )
    (first, *_) = (each for each in findings.of(data) if each.kind == "clamped")
    assert first.severity == "look" and "temperature (0.1)" in first.cure and "prior (0.1)" in first.cure
    assert "raise temperature (0.1)" in done.stdout.lower()
    assert "clamped" not in {each.kind for each in findings.of(measures.count(side, "ntxent"))}
