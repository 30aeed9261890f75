"""Findings on text embeddings: the page says what the results say, and the results are what the data say."""

import json
import re

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import typed
from analysis.study.page import FIELD
from analysis.text_findings import compute, page
from analysis.text_findings.__main__ import app
from cocos import losses
from cocos.base.errors import InputError
from cocos.embeddings import batches, scores

pytestmark = pytest.mark.slow

# Names with digits that are no result: papers, and what a direction is called.
NAMES = re.compile(r"arXiv:\d{4}\.\d{5}|q2c|utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files like those of the findings, small and random."""
    made, rng = tmp_path_factory.mktemp("embeddings"), np.random.default_rng(0)

    def rows(number):
        found = rng.normal(size=(number, 8))
        return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float16)

    query = rows(48)
    near = (query.astype(float) + 0.3 * rng.normal(size=query.shape)).astype(np.float16)
    np.savez(made / "pubmedqa.npz", query_embeddings=query, passage_embeddings=near)
    asks = np.arange(60) % 20
    passages = rows(20)
    np.savez(made / "xquad_en.npz", query_embeddings=(passages[asks] + 0.2 * rows(60)).astype(np.float16),
             passage_embeddings=passages, query_to_passage=asks, passage_ids=np.arange(20))  # fmt: skip
    photo = np.repeat(np.arange(30), 5)
    np.savez(made / "coco_captions.npz", embeddings=(rows(30)[photo] + 0.3 * rows(150)).astype(np.float16),
             group_ids=np.array([f"photo {k}" for k in photo]), caption_index=np.tile(np.arange(5), 30))  # fmt: skip
    return made


def test_the_committed_page_says_what_the_results_say():
    assert page.PAGE.read_text("utf-8") == page.filled(), "run: python -m analysis.text_findings"


def test_nobody_types_a_result_into_the_template():
    prose = FIELD.sub("", page.TEMPLATE.read_text("utf-8"))
    found = typed.NAMES_WITH_DIGITS.sub("", NAMES.sub("", prose))
    assert not re.findall(r".*\d.*", found)


def test_every_number_comes_with_its_spread_and_the_origin_of_its_data():
    found = json.loads(compute.RESULTS.read_text("utf-8"))
    assert list(found["data"]) == list(compute.FILES)
    for one in found["data"].values():
        assert len(one["sha256"]) == 64 and one["licence"] and one["queries"] > 500
    for one in found["clamp"].values():
        for entry in (
            *one["by_prior"].values(),
            *(each for by in one["by_temperature"].values() for each in by.values()),
        ):
            clamped, pushless = entry["clamped"], entry["pushless"]
            assert clamped["seeds"] == len(compute.SEEDS) and clamped["batches"] > 1 and clamped["over_seeds"] >= 0
            assert pushless["mean"] == pytest.approx(clamped["mean"], abs=0.01)  # one positive: the clamp is no push
    for one in found["sources"].values():
        for entry in one.values():
            assert sum(each["push"]["mean"] for each in entry.values()) == pytest.approx(100, abs=0.01)


def test_the_numbers_are_those_of_a_slow_loop(folder, monkeypatch):
    monkeypatch.setattr(compute, "SEEDS", (0, 3))
    embeddings = compute.opened(folder)["PubMedQA"]
    loss = losses.load("hcl", {"temperature": 0.2})
    (found,) = compute._seeded(embeddings, [loss], compute.READ_HCL, 20)
    means, every, pulled = [], [], []
    for seed in (0, 3):
        on, number = [], []
        for batch in batches.plan(embeddings, batch_size=20, seed=seed).batches:
            pairs = scores.pairs(embeddings.to(dtype=torch.float64), batch)
            weight = loss.weight(pairs)
            on.append(sum(not (weight[q][pairs.negative[q]] != 0).any() for q in range(len(weight))))
            shares = weight / loss.unit(pairs)
            pulled += [int((shares[q][pairs.negative[q]] < -compute.EPS).sum()) for q in range(len(weight))]
            number.append(len(weight))
        means.append(100 * sum(on) / sum(number))
        every += [100 * k / n for k, n in zip(on, number, strict=True) if n == 20]
    assert 0 < found["clamped"]["mean"] < 100
    assert found["clamped"]["mean"] == pytest.approx(np.mean(means)) == pytest.approx(found["pushless"]["mean"])
    assert found["clamped"]["over_seeds"] == pytest.approx(np.std(means, ddof=1))
    assert found["clamped"]["over_batches"] == pytest.approx(np.std(every, ddof=1))
    assert (found["clamped"]["batches"], found["clamped"]["queries"]) == (len(every), 96)
    assert found["pulled"]["mean"] == pytest.approx(np.mean(pulled))


def test_shares_of_the_sources_are_those_of_the_weights(folder, monkeypatch):
    monkeypatch.setattr(compute, "SEEDS", (1, 2))
    monkeypatch.setattr(compute, "BATCH", 16)
    embeddings = compute.opened(folder)["COCO"]
    found, loss = compute._sources(embeddings)["20"], losses.load("mnrl", {"directions": compute.DIRECTIONS})
    shares = []
    for seed in (1, 2):
        total = 0
        for batch in batches.plan(embeddings, batch_size=16, seed=seed).batches:
            pairs = scores.pairs(embeddings.to(dtype=torch.float64), batch, directions=compute.DIRECTIONS)
            push = torch.where(pairs.negative, loss.weight(pairs).clamp(min=0), 0)
            of_hers = torch.stack([(push * (pairs.source == k)).sum(dim=1) for k in (0, 3, 4, 5)], dim=1)
            total = total + of_hers.sum(dim=0)
        shares.append(100 * total / total.sum())
    expected = torch.stack(shares).mean(dim=0).tolist()
    assert [each["push"]["mean"] for each in found.values()] == pytest.approx(expected, rel=1e-5)


def test_everything_is_computed_from_a_folder(folder, tmp_path, monkeypatch):
    for name, value in {
        "SEEDS": (0, 1), "BATCH": 16, "CLAMP_BATCHES": (16,), "TEMPERATURES": (0.5, 0.1), "PRIORS": (0.1,),
        "EQUILIBRIUM_BATCHES": (8,), "RESULTS": tmp_path / "results.json"}.items():  # fmt: skip
        monkeypatch.setattr(compute, name, value)
    found = compute.compute(folder, lambda name: None)
    assert json.loads((tmp_path / "results.json").read_text("utf-8")).keys() == found.keys()
    assert found["data"]["COCO"]["all_candidates"] == 120 and found["data"]["XQuAD"]["candidates"] == 20
    assert "group_push" not in found["filters"]["PubMedQA"] and found["filters"]["COCO"]["group_push"]["mean"] > 0
    assert list(found["shared"]) == list(page.WORDS)
    clamped = {name: one["clamped"]["mean"] for name, one in found["shared"].items()}
    assert clamped["once"] == pytest.approx(clamped["ignored"], abs=15) and clamped["pushed"] != clamped["ignored"]
    assert set(found["filters"]["XQuAD"]["filters"]) == {"self 0", "self 0.1", "percent 0.95"}


def test_a_folder_without_the_files_is_one_sentence(tmp_path):
    with pytest.raises(InputError, match="there is no pubmedqa.npz"):
        compute.opened(tmp_path)
    done = CliRunner().invoke(app, [str(tmp_path)])
    assert done.exit_code == 2 and "there is no pubmedqa.npz" in done.stderr and "Traceback" not in done.stderr
