"""`cocos whatif` answers as the three questions behind it; a help shows first what a newcomer needs, then all."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from cocos.commands import _program, _questions, app


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture(autouse=True)
def inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    query = draw.normal(size=(40, 6))
    np.savez("rows.npz", query=query, candidate=query + draw.normal(size=query.shape))


@pytest.mark.parametrize(
    ("name", "asked", "which"),
    [
        ("replay", ["--batch-size", 16], []),
        ("replay", ["--what", "temperature=.02,.05"], []),
        ("replay", ["--what", "top_k=3", "--eps", 0.02, "--by", "effective", "--seed", 4], []),
        ("solve", ["--effective", 4, "--loss", "supcon"], []),
        ("solve", ["--effective", 4, "--parameter", "temperature"], []),
        ("temperature", ["--batch-size", "8,16"], ["--settles"]),
        ("temperature", ["--effective", 3, "--clip", 50], ["--settles"]),
    ],
)
def test_whatif_is_the_question_behind_it(name, asked, which):
    for more in ([], ["--json"]):
        found, expected = call("whatif", "rows.npz", *which, *asked, *more), call(name, "rows.npz", *asked, *more)
        assert (found.exit_code, found.stdout, found.stderr) == (0, expected.stdout, expected.stderr)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--effective", 4, "--what", "top_k=3"], "--what does not go with --effective: see cocos solve --help-all"),
        (["--settles", "--eps", 0.1], "--eps does not go with --settles: see cocos temperature --help-all"),
        (["--clip", 3], "--clip does not go with --what: see cocos replay --help-all"),
        (
            ["--batch-size", 8, "--batch-size", 16],
            "--batch-size 8 16: several sizes go with --settles; --what takes one",
        ),
    ],
)
def test_options_of_two_questions_are_refused(arguments, sentence):
    done = call("whatif", "rows.npz", *arguments)
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"cocos: {sentence}\n")


def test_the_help_is_calm_and_names_the_rest():
    text = call("--help").stdout
    listed = text.partition("Commands:")[2].partition("More:")[0]
    assert (
        re.findall(r"^  ([a-z]+)  ", listed, re.MULTILINE) == list(_program.IN_SHORT_HELP)
        and len(_program.IN_SHORT_HELP) <= 12
    )
    every = call("--help-all").stdout
    rest = " ".join(text.partition("More:")[2].split())
    for name in _program.Program().commands:
        assert f"\n  {name}  " in every and (name in _program.IN_SHORT_HELP or re.search(rf"\b{name}\b", rest)), name


def test_the_help_of_a_command_is_calm():
    text = call("count", "--help").stdout
    options = re.findall(r"^  (-\S+)", text, re.MULTILINE)
    assert options == ["--loss", "-p,", "--eps", "--batch-size", "--batches", "--explain", "--out", "--json"]
    assert re.search(r"count --help-all shows all \d\d options\.", text)
    for name in _program.Program().commands:
        shown = re.findall(r"^  (-\S+)", call(name, "--help").stdout, re.MULTILINE)
        assert len(shown) <= 11, name
        assert set(shown) <= set(re.findall(r"^  (-\S+)", call(name, "--help-all").stdout, re.MULTILINE)), name


@pytest.mark.parametrize("name", _questions.QUESTION_ROWS)
def test_every_parameter_of_a_measure_is_an_option_or_left_out_by_name(name):
    row = _questions.QUESTION_ROWS[name]
    options = row.options()
    for parameter in row.parameters:
        assert row.renamed.get(parameter, parameter) in options
    assert all(hasattr(annotation, "__metadata__") for annotation, _ in options.values())
    assert all(each.help for annotation, _ in options.values() for each in annotation.__metadata__)


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
    both = call("encode", "a.jsonl", "--data", "pairs.jsonl", "--model", "own.py:ends", "--out", "x.npz")
    assert both.exit_code == 2 and "a.jsonl and --data pairs.jsonl: give the training data once" in both.stderr
