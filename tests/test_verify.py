"""`cocos verify` finds the faults that are known in the wild, and finds none in the shelf."""

import json
import math
import sys

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from cocos import Embeddings, InputError, losses, measures, results
from cocos.cli import app
from cocos.embeddings import scores
from cocos.losses.equivalences import equal_losses
from cocos.measures.shared import synthetic_inputs
from cocos.reports import cards, table

# What third parties publish, each right at first sight. They are written out here as a user's own file would be.
FILE = '''
import math

import torch


def arcface(scores, positive, negative, scale=64.0, margin=0.5):
    """The margin goes into the value and, behind a detach, not into the gradient."""
    sine = (1 - scores.square()).clamp(min=1e-12).sqrt()
    moved = scores * math.cos(margin) - sine * math.sin(margin)
    moved = torch.where(scores > math.cos(math.pi - margin), moved, scores - margin * math.sin(margin))
    logits = scale * (scores + torch.where(positive, moved - scores, torch.zeros_like(scores)).detach())
    rest = logits.masked_fill(~negative, -math.inf).logsumexp(dim=1, keepdim=True)
    return torch.where(positive, torch.logaddexp(rest - logits, torch.zeros_like(logits)), 0).sum(dim=1)


def smoothap(scores, positive, negative, temperature=0.01):
    """The number of queries stands where the number of candidates should."""
    n = len(scores)
    scores, positive, negative = scores[:, :n], positive[:, :n], negative[:, :n]
    above = torch.sigmoid((scores[:, None, :] - scores[:, :, None]) / temperature)
    ranks = above * (1 - torch.eye(scores.shape[1], dtype=scores.dtype))
    among = 1 + (ranks * positive[:, None, :]).sum(dim=2)
    total = among + (ranks * negative[:, None, :]).sum(dim=2)
    number = positive.sum(dim=1).clamp(min=1)
    return torch.where(positive.any(dim=1), 1 - (positive * among / total).sum(dim=1) / number, 0)


def right(scores, positive, negative, temperature=0.1):
    logits = scores / temperature
    rest = logits.masked_fill(~negative, -math.inf).logsumexp(dim=1, keepdim=True)
    return torch.where(positive, torch.logaddexp(rest - logits, torch.zeros_like(logits)), 0).sum(dim=1).mean()


def refuses_rectangles(scores, positive, negative):
    return (scores * torch.eye(len(scores), dtype=scores.dtype)).sum(dim=1) + (scores * negative).sum(dim=1)
'''


@pytest.fixture
def wild(tmp_path):
    path = tmp_path / "wild_losses.py"
    path.write_text(FILE)
    return path


FILE_OF_VERIFY = sys.modules["cocos.measures.verify"]


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


# A pseudo-gradient, held ones, smooth and hinged exact ones, one of the batch, one without a closed form.
SOME = ("blackbox_ap", "circle", "dclw", "ntxent", "triplet", "ce_softmax", "contextual", "lifted_structure")


@pytest.mark.parametrize("name", SOME)
def test_losses_of_the_shelf_pass(name, monkeypatch):
    """On inputs of one seed, as tests/test_losses.py looks at the closed form of every loss."""
    monkeypatch.setattr(FILE_OF_VERIFY, "SEEDS", range(1))
    data = measures.verify(name)
    loss = losses.load(name)
    assert data.attrs["faults"] == ""
    assert data.attrs["verdict"] == {
        "exact": "exact", "stop_gradient": "stop-gradient", "pseudo": "pseudo", "autograd": "exact, by autograd"
    }[loss.gradient]  # fmt: skip
    if loss.closed_form:
        assert float(data["gap"].sel(dtype="float64").max()) <= 1e-9
    assert data.sizes["case"] >= 11 * len(FILE_OF_VERIFY.SEEDS) and (data["largest"] > 0).mean() >= 0.5
    if loss.gradient == "exact":
        assert float(data["finite_difference"].max()) < 1e-5


def test_a_straight_through_margin_is_found(wild):
    data = measures.verify(losses.load(f"{wild}:arcface"))
    assert data.attrs["verdict"] == "not the derivative of its value"
    assert "gradient: differs from the derivative of the value by" in data.attrs["faults"]
    against = measures.verify(losses.load(f"{wild}:arcface"), against="arcface")
    assert "differs from arcface by" in against.attrs["faults"]


def test_a_loss_that_is_right_for_square_batches_only_is_found(wild):
    data = measures.verify(losses.load(f"{wild}:smoothap"), against="smoothap")
    faults = data.attrs["faults"]
    assert data.attrs["verdict"] == "wrong"
    assert "weights: depend on the order of queries or candidates" in faults
    assert "differs from smoothap" in faults and "it is right only for square batches" in faults
    square = data.sel(case=[c for c in data["case"].values if c.startswith("square")])
    assert float(square["against"].max()) < 1e-9


def test_a_loss_that_raises_is_an_answer(wild):
    faults = measures.verify(losses.load(f"{wild}:refuses_rectangles")).attrs["faults"]
    assert "error on" in faults and "right only for square batches" in faults


def test_a_mean_of_a_right_loss_is_equal_up_to_it(wild):
    data = measures.verify(losses.load(f"{wild}:right", {"temperature": 0.07}), against="ntxent")
    assert data.attrs["faults"] == ""
    assert float(data["against"].max()) < 1e-9


def test_a_wrong_closed_form_is_found_and_placed():
    loss = losses.load("ce_softmax")

    class OwnRow(type(loss)):
        """Only the query's own term of the shared sum."""

        def weight(self, pairs):
            weight = super().weight(pairs)
            return torch.where(pairs.negative, weight / len(weight), weight)

    faults = measures.verify(OwnRow()).attrs["faults"]
    assert faults.startswith("closed form: differs from autograd by") and ", query " in faults


def test_the_exit_code_is_one_where_something_is_wrong(wild):
    done = call("verify", "--loss", f"{wild}:arcface", "--quiet")
    assert done.exit_code == 1 and "FAULT" in done.stdout
    assert call("verify", "triplet", "-q").exit_code == 0
    one = json.loads(call("verify", "--loss", "circle", "--json", "-q").stdout)
    assert one[0]["verdict"] == "stop-gradient" and one[0]["gap"]["float64"] < 1e-9
    assert one[0]["finite_difference"] > 0.01


def test_real_batches_are_tried(tmp_path):
    generator = np.random.default_rng(5)
    image = generator.normal(size=(60, 8)).astype(np.float32)
    caption = image + 0.5 * generator.normal(size=(60, 8)).astype(np.float32)
    np.savez(tmp_path / "e.npz", query=image, candidate=caption)
    done = call("verify", tmp_path / "e.npz", "--loss", "smoothap", "--batch-size", 30, "--json", "-q",
                "--out", tmp_path / "v.nc")  # fmt: skip
    found = json.loads(done.stdout)[0]
    assert done.exit_code == 0 and found["cases"] == 4 and found["finite_difference"] < 1e-5
    data = results.open(tmp_path / "v.nc")
    assert list(data["case"].values) == ["batch 0 q2c", "batch 0 c2q", "batch 1 q2c", "batch 1 c2q"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("verify", "-p", "margin=1"), "'margin'"),
        (("losses", "osap"), "osap"),
        (("losses", "--out", "x.png"), "'.png'"),
    ],
)
def test_bad_input_gets_a_sentence(arguments, sentence):
    done = call(*arguments)
    assert done.exit_code == 2 and done.stdout == ""
    assert sentence in done.stderr and "Traceback" not in done.stderr


def test_the_card_has_the_numbers(tmp_path):
    text = call("losses", "ntxent", "--out", tmp_path / "w.json").stdout
    for part in ("parameters.temperature  0.1",
                 "\\ell(s) = ", "unit |P|/τ", "push equals pull", "arXiv:2002.05709", "InfoNCE",
                 "SampledSoftmax(scale=10.0), where always"):  # fmt: skip
        assert part in text
    listed = json.loads(call("losses", "ntxent", "--json").stdout)
    assert listed == json.loads((tmp_path / "w.json").read_text("utf-8"))
    assert {each["where"] for each in listed["equal_to"]} == {"always", "unit vectors", "one positive"}


def embedding_gradient(loss, embeddings, unit):
    """∂ Σ loss / ∂ raw queries and candidates; `unit` divides them by their norms first."""

    def prepared(rows):
        return rows / rows.norm(dim=1, keepdim=True) if unit else rows.clone()

    query, candidate = prepared(embeddings.query), prepared(embeddings.candidate)
    given = embeddings.replace(query=query, candidate=candidate, candidate_variance=None)
    pairs, score = scores.pairs(given, metric=loss.metric), scores.METRICS[loss.metric]

    def total(query, candidate):
        return loss(pairs.with_scores(score(prepared(query), prepared(candidate)))).sum()

    return torch.cat(torch.func.grad(total, argnums=(0, 1))(embeddings.query, embeddings.candidate))


def largest_gap(loss, other, condition):
    """Largest relative difference of the gradients; odd seeds have one positive per query."""
    gaps = []
    for seed in (1, 3) if "one positive" in condition else (0, 1, 2, 3):
        given = synthetic_inputs.embeddings("random", seed)
        first, second = (embedding_gradient(one, given, "unit" in condition) for one in (loss, other))
        gaps.append(float((first - second).abs().max() / first.abs().max()))
    return max(gaps)


@pytest.mark.parametrize("name", losses.names())
def test_equal_losses_are_equal_and_every_loss_has_a_card(name):
    loss = losses.load(name)
    for other, parameters, condition in equal_losses(loss):
        assert largest_gap(loss, losses.load(other, parameters), condition) < 1e-9, (other, condition)
    text = cards.card(name).text(100)
    assert max(map(len, text.splitlines())) <= 100
    assert "nan" not in text


def test_losses_that_are_not_equal_differ():
    loss = losses.load("ntxent")
    assert largest_gap(loss, losses.load("sampled_softmax", {"scale": 2 / loss.temperature}), "always") > 0.1


def test_a_weight_curve_is_the_weight():
    data = measures.weight_curve("ntxent", points=5)
    others = [-1 + i / 7 for i in range(8)]
    logits = [5.0, *(10 * s for s in others), 10 * float(data["score"][3])]
    share = math.exp(logits[-1]) / sum(map(math.exp, logits))
    assert float(data["negative"][3]) == pytest.approx(10 * share, rel=1e-12)
    assert str(table("verify", [measures.verify("triplet_sh")])).count("triplet_sh") == 1


def test_verify_refuses_two_losses_of_different_scores():
    with pytest.raises(InputError, match="cannot be compared"):
        measures.verify("ntxent", against="triplet_euclidean")


def test_losses_as_people_write_them_pass(tmp_path):
    """Symmetric CLIP, a big negative number for a mask, a branch on numbers, float32 inside, masks written in place."""
    (tmp_path / "people.py").write_text("""
import torch
import torch.nn.functional as F


def clip(image_features, text_features, logit_scale=20.0):
    logits = logit_scale * F.normalize(image_features, dim=1) @ F.normalize(text_features, dim=1).T
    target = torch.arange(len(logits))
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2


def masked(scores, positive, negative):
    rest = (scores / 0.1).masked_fill(~negative, -1e9).logsumexp(dim=1, keepdim=True)
    return torch.where(positive, F.softplus(rest - scores / 0.1), 0).sum(dim=1)


def branches(scores, positive, negative):
    total = scores.sum(dim=1) * 0
    for q in range(len(scores)):
        if positive[q].any() and scores[q].max().item() > -10:
            total = total + (torch.arange(len(scores)) == q) * (scores[q] * negative[q]).sum() ** 2
    return total


def single(scores, positive, negative):
    return masked(scores.float(), positive, negative)


def writes(scores, positive, negative):
    negative &= scores > 0.3
    return (scores * negative).square().sum(dim=1) - (scores * positive).sum(dim=1)
""")
    for name in ("clip", "masked", "branches", "single"):
        data = measures.verify(losses.load(f"{tmp_path / 'people.py'}:{name}"))
        assert data.attrs["faults"] == "", (name, data.attrs["faults"])
        assert (data["largest"] > 0).sum() > 3
    generator = torch.Generator().manual_seed(1)
    given = Embeddings.labelled(torch.randn(60, 4, generator=generator), torch.arange(60) % 5)
    counted = measures.count(given, losses.load(f"{tmp_path / 'people.py'}:writes"), batch_size=60)
    assert (counted["negatives"] == 48).all()
