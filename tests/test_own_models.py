"""A model of the user's on the command line: where it may live, what it may need, and what it raises."""

import json

import pytest
import torch
from typer.testing import CliRunner

from cocos.commands import app

MODEL = """
import cocos
from {sibling} import scaled

def encode(content, data, split, device):
    print("a line of the user's")
    return cocos.Embeddings(scaled(content["q"]), content["c"])

def two(content, data, split, device):
    first, second = content.values()
    assert list(content)[0].endswith("a.pt") and list(content)[1].endswith("b.pt")
    return cocos.Embeddings(first["q"], second["c"])

def broken(content, data, split, device):
    return content["weights"]

def hinge(scores, positive, negative):
    return scores / {{}}["x"]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    draw = torch.Generator().manual_seed(0)
    side = torch.randn(12, 4, generator=draw)
    torch.save({"q": side, "c": side + 0.1}, tmp_path / "a.pt")
    torch.save({"c": side + 0.2}, tmp_path / "b.pt")
    for name in ("beside", "package/inside", "elsewhere/apart"):
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text("def scaled(x):\n    return 2 * x\n")
    (tmp_path / "near.py").write_text(MODEL.format(sibling="beside"))
    (tmp_path / "package" / "model.py").write_text(MODEL.format(sibling="package.inside"))
    (tmp_path / "far.py").write_text(MODEL.format(sibling="apart"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def count(*arguments):
    return CliRunner().invoke(app, ["count", "a.pt", "--json", *map(str, arguments)])


@pytest.mark.parametrize(
    "models",
    [
        ["near.py:encode"],
        ["near:encode"],
        ["package.model:encode"],
        ["far.py:encode", "elsewhere"],
        ["elsewhere/apart.py", "far.py:encode"],
        ["near.py:two", "b.pt"],
    ],
    ids=" ".join,
)
def test_a_model_is_named_as_a_loss_is(folder, models):
    done = count(*(part for model in models for part in ("--model", model)))
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["checkpoint"]["format"] == "own"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--model", "near.py:broken"], "model 'near.py:broken': KeyError: 'weights' ({here}/near.py:15)"),
        (["--model", "near.py:nothing"], "unknown attribute of near.py 'nothing'"),
        (["--model", "none.py:f"], "model 'none.py:f': there is no file none.py"),
        (["--model", "near.py"], "no function is named; write it as file.py:function"),
        (["--model", "near.py:encode", "--model", "near.py:two"], "more than one function"),
        (["--model", "near.py:encode", "--model", "gone"], "'gone': there is no such file or folder"),
        (["--model", "syntax.py:f"], "model 'syntax.py:f' could not be imported: SyntaxError:"),
        (["--model", "needs.py:f"], "No module named 'not_installed' ({here}/needs.py:2)"),
        (["--model", "near.py:encode", "--loss", "near.py:hinge"], "near.py:hinge: KeyError: 'x' ({here}/near.py:18)"),
    ],
)
def test_what_a_users_code_raises_is_one_sentence(folder, arguments, sentence):
    (folder / "syntax.py").write_text("def f(:\n")
    (folder / "needs.py").write_text("import json\nimport not_installed\n")
    done = count(*arguments)
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    assert sentence.format(here=folder.resolve()) in done.stderr and "Traceback" not in done.stderr
    shown = count(*arguments, "--debug")
    assert shown.exit_code == 2 and shown.stderr.splitlines()[-1] == done.stderr.splitlines()[-1]
    raised = "Error: " in done.stderr
    assert ("Traceback (most recent call last)" in shown.stderr) == raised
