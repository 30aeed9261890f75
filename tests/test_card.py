"""The card of an encoder: each number is that of its measure; formats; the badge; what a README says; refusals."""

import json
import math
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import cocos
from cocos import InputError, losses
from cocos.checkpoints import model_cards
from cocos.commands import app
from cocos.reports import card as reports

ROWS = 40


def embeddings(seed=0, noise=0.8):
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(ROWS, 12, generator=generator)
    return cocos.Embeddings(query, query + noise * torch.randn(ROWS, 12, generator=generator))


def files(folder):
    made = []
    for seed, name in enumerate(("first", "second")):
        each = embeddings(seed)
        made.append(folder / f"{name}.npz")
        np.savez(made[-1], query=each.query.numpy(), candidate=each.candidate.numpy())
    return made


def call(*arguments, code=0):
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == code, done.output + done.stderr
    return done


def test_each_number_is_that_of_its_measure():
    held, loss = embeddings(), losses.load("ntxent", {"temperature": 0.05})
    data = cocos.measures.card({"one": held}, batch_sizes=[8, 32, 512]).isel(set=0)
    settled = cocos.measures.temperature(held, loss, [8, 32])
    for name in ("equilibrium_temperature", "effective", "effective_own"):
        np.testing.assert_array_equal(data[name].sel(batch_size=[8, 32]), settled[name])
        assert math.isnan(data[name].sel(batch_size=512))
    audited = cocos.measures.audit(held, loss, batch_size=32).sel(direction="q2c", rule="any rule")
    assert float(data["suspected_push"]) == float(audited["push_share"])
    assert float(data["suspected"]) == float(audited["share"])
    ranked = cocos.measures.evaluate(held)
    assert float(data["R@1"]) == float(ranked["R@1"].sel(direction="q2c").squeeze())
    assert float(data["rank"]) == cocos.health.of(held, "cosine")["candidate"]["effective_rank"]


def test_hubs_have_most_of_the_push():
    """A tenth of the rows near the mean of all: a hundredth of 40 candidates is one, which a loop finds."""
    held = embeddings(noise=0.5)
    data = cocos.measures.card({"one": held}, batch_sizes=[ROWS])
    loss = losses.load("ntxent", {"temperature": 0.05})
    total = np.zeros(ROWS)
    for row in range(ROWS):
        found = cocos.measures.contributors(held, loss, row=row, batch_size="all", top=None)
        for place in range(found.sizes["candidate"]):
            if not found["positive"].values[place]:
                total[found["candidate_index"].values[place]] += max(0.0, found["weight"].values[place])
    assert float(data["hub_push"].item()) == pytest.approx(total.max() / total.sum(), rel=1e-9)


def test_the_formats_have_the_same_numbers(tmp_path):
    paths = files(tmp_path)
    found = json.loads(call("card", *paths, "--batch-size", 8, "--json").stdout)
    assert list(found["sets"]) == ["first", "second"]
    one = found["sets"]["first"]["batch_sizes"]["8"]
    for form in ("text", "markdown", "latex"):
        said = call("card", *paths, "--batch-size", 8, "--format", form).stdout
        assert f"{one['effective_own']:.3g}" in said and f"{found['sets']['first']['R@1']:.1f}" in said
    assert r"\begin{tabular}{lrr}" in said


def test_a_badge_is_a_picture_that_needs_nothing_else(tmp_path):
    call("card", *files(tmp_path), "--batch-size", 8, "--badge", tmp_path / "card.svg", "--out", tmp_path / "card.nc")
    text = (tmp_path / "card.svg").read_text()
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg" and "href" not in text
    data = cocos.results.open(tmp_path / "card.nc")
    assert reports.badge(data) == text
    low, high = sorted(float(each) for each in data["effective"].values[:, 0])
    assert f"{low:.2g} to {high:.2g} effective of 8" in text


def test_a_scale_is_named_as_a_temperature_and_a_badge_is_of_the_largest_batch():
    scaled = losses.load("sampled_softmax", {"scale": 20})
    data = cocos.measures.card({"one": embeddings()}, scaled, batch_sizes=[8, 32])
    assert "effective negatives at 0.05, batch 8" in reports.text(data) and "effective of 32" in reports.badge(data)


def test_a_readme_says_what_the_model_was_trained_with(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text(
        "---\nlicense: mit\nbase_model: 'small/encoder'\ndatasets:\n- one\n- two\ntags:\n- a\n- loss:CoSENTLoss\n"
        "- dataset_size:1200\nmodel-index:\n- name: x\n  results: 3\n---\nA contrastive model."
    )
    assert model_cards.read(tmp_path) == {
        "license": "mit", "base_model": "small/encoder", "datasets": "one, two", "loss": "CoSENTLoss",
        "training rows": "1200",
    }  # fmt: skip
    readme.write_text("# Title\nTrained by Distillation.\n---\nlicense: none\n")
    assert model_cards.read(tmp_path) == {"words in its text": "distill"}
    readme.write_bytes(b"---\nlicense: \x1b[31m" + b"x" * 1000)
    said = model_cards.read(tmp_path)
    assert all(each.isprintable() and len(each) <= 200 for each in said.values())
    readme.unlink()
    assert model_cards.read(tmp_path) == {}


def test_what_cannot_be_described_is_refused_in_a_sentence(tmp_path):
    first, second = files(tmp_path)
    (tmp_path / "more").mkdir()
    again = tmp_path / "more" / "first.npz"
    again.write_bytes(first.read_bytes())
    for arguments, said in (
        ((first, "--batch-size", 64), "fill no batch of 64"),
        ((first, again), "two sets are called first"),
        ((first, "--badge", tmp_path / "card.png"), "ends in .svg"),
        ((first, second, "--data", "x.jsonl"), "describe them one by one"),
        ((first, "--loss", "triplet"), "no parameter multiplies"),
    ):
        done = call("card", *arguments, code=2)
        assert said in done.stderr.replace("\n", " ") and "Traceback" not in done.stderr
    with pytest.raises(InputError, match="none were given"):
        cocos.measures.card({})
