"""Names of the directions: neutral unless a file or an image encoder says that images ask for texts."""

import re

import numpy as np
import pytest
from typer.testing import CliRunner

import cocos
from cocos.cli import app
from cocos.counting import findings

WORDS = re.compile(r"\b(image|caption)s?\b|i2t|t2i", re.IGNORECASE)


@pytest.fixture(autouse=True)
def inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def call(*arguments):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(a) for a in arguments])


@pytest.fixture
def arrays():
    draw, group = np.random.default_rng(0), np.arange(12).repeat(3)
    query = draw.normal(size=(12, 8)).astype(np.float32)
    candidate = query[group] + draw.normal(size=(36, 8)).astype(np.float32)
    return {"query": query, "candidate": candidate, "query_group": np.arange(12), "candidate_group": group}


def test_directions_are_queries_and_candidates(arrays):
    embeddings = cocos.Embeddings(*arrays.values())
    assert embeddings.directions == ("q2c", "c2q") and embeddings.flip().directions == ("c2q", "q2c")
    assert cocos.Embeddings.labelled(arrays["candidate"], arrays["candidate_group"]).directions == ("s2s",)


def test_image_encoder_names_its_directions():
    example = cocos.open("example")
    assert example.embed("test", "cpu").directions == ("i2t", "t2i")


@pytest.mark.parametrize(
    "command",
    [
        ("count", "--batch-size", 18, "--loss", "triplet"),
        ("count", "--batch-size", 18, "--loss", "smoothap", "--convention", "ecir2022"),
        ("plot", "contributors", "--row", 3, "--direction", "c2q", "--batch-size", "all"),
        ("plot", "contributors", "--row", 3, "--batch-size", 18),
        ("evaluate",),
        ("plot", "decomposition", "--batch-size", 18),
        ("inspect",),
    ],
    ids=lambda each: "-".join(map(str, each)),
)
def test_output_without_images_avoids_image_words(tmp_path, arrays, command, monkeypatch):
    monkeypatch.chdir(tmp_path)  # plots are written into the working folder
    np.savez(tmp_path / "rows.npz", **arrays)
    done = call(*command, tmp_path / "rows.npz")
    assert done.exit_code == 0, done.output
    assert not WORDS.search(done.stdout + done.stderr)


@pytest.mark.parametrize("command", ["count", "evaluate", "plot"])
def test_help_avoids_image_words(command):
    assert not WORDS.search(call(command, "--help").stdout)


def test_rows_of_one_group_are_reported(arrays):
    for names in (("q2c", "c2q"), ("i2t", "t2i")):
        embeddings = cocos.Embeddings(*arrays.values(), directions=names)
        data = cocos.measures.count(embeddings, "ntxent", batch_size=18)
        pairs = int(data["same_group_pairs"].sum())
        (finding,) = [finding for finding in findings.of(data) if finding.kind == "one group"]
        assert pairs > 0 and f": {pairs}," in finding.sentence
