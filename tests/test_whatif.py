"""`cocos whatif` has the numbers of the three measures behind it; a help shows first what a newcomer needs."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import cocos
from cocos import measures, reports
from cocos.cli import COMMANDS, app


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture(autouse=True)
def inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    query = draw.normal(size=(40, 6))
    np.savez("rows.npz", query=query, candidate=query + draw.normal(size=query.shape))


@pytest.mark.parametrize(
    ("name", "words", "options"),
    [
        ("replay", ["--batch-size", 16], {"batch_size": 16}),
        ("replay", ["--what", "temperature=.02,.05"], {"what": "temperature=.02,.05"}),
        ("solve", ["--effective", 4, "--loss", "supcon"], {"effective": 4, "loss": "supcon"}),
        ("temperature", ["--settles", "--batch-size", "8,16"], {"batch_sizes": [8, 16]}),
        ("temperature", ["--settles", "--effective", 3], {"effective": 3}),
    ],
)
def test_whatif_has_the_numbers_of_its_measure(name, words, options):
    done = call("whatif", "rows.npz", *words, "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout) == reports.document(name, getattr(measures, name)(cocos.open("rows.npz"), **options))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--effective", 4, "--what", "top_k=3"], "--what does not go with --effective"),
        (["--settles", "--eps", 0.1], "--eps does not go with --settles"),
        (["--batch-size", "8,16"], "--batch-size 8,16: several sizes require --settles"),
    ],
)
def test_options_of_two_questions_are_refused(arguments, sentence):
    done = call("whatif", "rows.npz", *arguments)
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"cocos: {sentence}\n")


@pytest.mark.parametrize("change", ["hardest_positive=1", "own_hard=1", "top_k=x", "margin=1"])
def test_unknown_change_exits_with_two(change):
    assert call("whatif", "rows.npz", "--what", change).exit_code == 2


def test_help_lists_the_commands():
    panel = call("--help").stdout.partition("─ Commands ─")[2]
    assert tuple(re.findall(r"^│ ([a-z]+) ", panel, re.MULTILINE)) == COMMANDS
    assert len(COMMANDS) == 12


@pytest.mark.parametrize("name", ["replay", "solve", "temperature", "landscape", "health", "weight-map", "options"])
def test_no_other_name_answers(name):
    done = call(name, "rows.npz")
    assert done.exit_code == 2 and f"no such command '{name}'" in done.stderr


def test_data_may_be_named_with_its_option():
    rows = [{"query": f"a {k}", "positive": f"b {k}"} for k in range(4)]
    Path("pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    code = "import numpy as np\ndef ends(texts):\n    return np.array([[int(text[-1]), 1.0] for text in texts])\n"
    Path("own.py").write_text(code, "utf-8")
    one = call("encode", "pairs.jsonl", "--model", "own.py:ends", "--out", "one.npz", "-q")
    two = call("encode", "--data", "pairs.jsonl", "--model", "own.py:ends", "--out", "two.npz", "-q")
    assert (one.exit_code, two.exit_code) == (0, 0), two.stderr
    assert one.stdout.replace("one", "two") == two.stdout
    assert "missing argument" in call("encode", "--model", "own.py:ends", "--out", "x.npz").stderr
    both = call("encode", "a.jsonl", "--data", "pairs.jsonl", "--model", "rows.npz", "--out", "x.npz")
    assert both.exit_code == 2 and "a.jsonl and --data pairs.jsonl: expected the training data once" in both.stderr
