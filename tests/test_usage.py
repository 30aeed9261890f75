"""The command line as a newcomer gets it wrong, and as a hostile folder or a full disk has it."""

import json
import logging
import os
import re
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import children
import cocos
from cocos.cli import COMMANDS, app

PLAIN = {k: v for k, v in os.environ.items() if k not in {"FORCE_COLOR", "TTY_COMPATIBLE", "PYTHONSAFEPATH"}}
HUGE = "9" * 5000


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def shell(line, folder):
    line = line.replace("cocos", f"{sys.executable} -m cocos")
    return children.run("bash", "-c", line, cwd=folder, env=PLAIN)


@pytest.fixture
def file(tmp_path):
    side = np.random.default_rng(0).normal(size=(20, 6))
    np.savez(tmp_path / "e.npz", query=side, candidate=side + 0.3)
    return tmp_path / "e.npz"


WRONG = {
    "cnt e.npz": "no such command 'cnt'",
    "count": "missing argument",
    "count e.npz --seed 1 --seed 2": "--seed is given 2 times, expected once",
    "whatif e.npz --loss ntxent --loss triplet --effective 5": "--loss is given 2 times, expected once",
    "count e.npz f.npz": "f.npz",
    "count e.npz --los ntxent": "no such option: --los",
    "count e.npz --loss": "--loss",
    "count e.npz --batches x": "batches: 'x', expected a number, or a slice A:B",
    "count e.npz --batches 1.5": "batches: '1.5', expected a number, or a slice A:B",
    "count e.npz --eps small": "--eps 'small': expected a valid number",
    "count e.npz --convention ecir": "'ecir' is not one of",
    "count e.npz -p": "-p",
    "count e.npz --temperature 0.1": "use -p temperature=0.1",
    "count missing.npz": "there is no such file",
    "count .": "folder",
    "count e.npz --loss foo": "unknown loss 'foo'",
    "count e.npz --loss ''": "unknown loss ''",
    "count e.npz --loss my.py": "name the function or class in it",
    "count e.npz --loss my.py:f": "there is no file my.py",
    "count e.npz --loss nowhere:f": "there is no module 'nowhere'",
    "count e.npz --model nowhere:f": "there is no module 'nowhere'",
    "count e.npz --out x.csv": "suffix '.csv'",
    "evaluate e.npz --k 1,five": "--k '1,five'",
    "evaluate e.npz --k 0": "k",
    "evaluate e.npz --folds 99": "folds",
    "plot contributors e.npz --row 99": "99",
    "plot contributors e.npz --row 1 --direction x": "'x'",
    "losses foo": "unknown loss 'foo'",
    "plot pie e.npz": "pie",
    "plot lorenz e.npz --bins 3": "lorenz does not take --bins",
    "plot lorenz e.npz --bins many": "--bins",
    "plot landscape --f1 wrap": "wrap",
    "plot landscape --alpha 3": "--alpha",
    "plot dtp --steps 1": "missing FILE",
    "plot dtp e.npz": "proxies",
    "verify nothing": "unknown loss 'nothing'",
    "inspect": "missing argument",
    "inspect e.npz --model": "--model",
    # numbers that no machine holds
    f"evaluate e.npz --k {2**63}": "--k",
    f"evaluate e.npz --k {HUGE}": "--k",
    f"count e.npz --batch-size {HUGE}": "batch size",
    f"count e.npz --batch-size {2**70}": "batch size",
    f"count e.npz --batches {HUGE}": "batches",
    f"count e.npz --batches {2**70}": "batches",
    f"count e.npz --seed {HUGE}": "--seed",
    f"count e.npz --eps {HUGE}": "eps",
    f"plot count e.npz --batch-size {HUGE}": "at most 15 digits",
    f"plot weight_curve --points {2**63}": "points",
    f"plot weight_curve --points {HUGE}": "points",
    "plot landscape --scale 1e300": "take a smaller scale or distance",
    "plot landscape --f1 t --scale nan": "scale",
    f"plot landscape --proxies {2**70}": "proxies",
    "plot landscape --distance 1e300": "cocos: ",
    f"plot dtp e.npz --steps {HUGE}": "--steps",
    f"plot dtp e.npz --steps {10**26}": "--steps",
    f"plot contributors e.npz --row {2**70}": "row",
    f"plot lorenz e.npz --queries {HUGE}": "queries",
}


@pytest.mark.parametrize("line", WRONG, ids=lambda line: line[:60])
def test_a_wrong_command_line_gets_one_sentence(line, file, monkeypatch):
    monkeypatch.chdir(file.parent)
    done = call(*(each.strip("'") for each in line.split()))
    assert (done.exit_code, done.stdout) == (2, ""), done.output[-2000:]
    assert done.stderr.startswith("cocos: ") and done.stderr.count("\n") == 1, done.stderr
    assert WRONG[line] in done.stderr and len(done.stderr) <= 2100


def test_help_has_panels():
    text = call("count", "--help").stdout
    titles = re.findall(r"^╭─ (.*?) ─", text, re.MULTILINE)
    assert titles == ["Arguments", "Options", "Loss", "Batches", "File and model", "Output"]
    assert "Example: cocos count embeddings.npz" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_json_and_quiet(command):
    text = call(command, "--help").stdout
    assert "--json" in text and "--quiet" in text and "-q" in text


def test_json_of_a_landscape_and_of_a_file(file, monkeypatch):
    monkeypatch.chdir(file.parent)
    done = call("plot", "landscape", "--f1", "warp", "--json", "-q")
    document = json.loads(done.stdout)
    assert done.stderr == "" and document["predicted"] == [-8, 0]
    assert document["found"] == pytest.approx([-8, 0], abs=1e-6) and len(document["proxies"]) == 2
    done = call("inspect", file, "-q", "--json")
    assert done.stderr == "" and json.loads(done.stdout)["format"] == "embeddings"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a Linux device")
def test_streams_that_are_full_or_closed(file):
    """Through a shell where the command is light; otherwise in a fork, which has imported what it needs."""
    no_space, said = "(No space left on device)", "cocos: the output cannot be written"
    for line, code, error in (
        ("cocos --help > /dev/full", 2, f"{said} {no_space}\n"),
        ("cocos count --help > /dev/full", 2, f"{said} {no_space}\n"),
        ("cocos --version > /dev/full", 2, f"{said} {no_space}\n"),
        ("cocos count --help | true; exit ${PIPESTATUS[0]}", 0, ""),
        ("cocos --bad 2> /dev/full", 2, ""),
    ):
        done = shell(line, file.parent)
        assert (done.returncode, done.stderr) == (code, error), line
    full, unread = os.open("/dev/full", os.O_WRONLY), os.pipe()
    os.close(unread[0])
    for words, streams, code, error in (
        (("inspect", "e.npz", "-q"), {"stdout": full}, 2, f"{said} {no_space}\n"),
        (("losses",), {"stdout": None}, 2, f"{said} (stdout is closed)\n"),
        (("losses",), {"stdout": unread[1]}, 0, ""),
        (("count", "e.npz", "--json"), {"stderr": full}, 0, ""),
        (("inspect", "no.npz"), {"stderr": full}, 2, ""),
    ):
        done = children.forked(children.cocos(*words), file.parent, **streams)
        assert (done.returncode, done.stderr) == (code, error), words
    os.close(full), os.close(unread[1])


def test_the_current_folder_is_not_imported(file):
    for name in ("typer", "rich", "numpy", "torch", "xarray", "json", "shutil"):
        (file.parent / f"{name}.py").write_text("open('ran', 'w'); raise SystemExit(9)")
    done = shell("cocos count e.npz --json", file.parent)
    assert done.returncode == 0, done.stderr
    assert not (file.parent / "ran").exists()


def test_a_loss_of_the_current_folder_is_found(file, monkeypatch):
    monkeypatch.chdir(file.parent)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (file.parent / "mine.py").write_text("def hinge(scores, positive, negative):\n    return scores.sum(dim=1)\n")
    for name in ("mine.py:hinge", "mine:hinge"):
        done = call("count", "e.npz", "--loss", name, "--json")
        assert done.exit_code == 0, done.stderr
    del sys.modules["mine"]


def test_float64_beyond_its_range_gets_one_sentence(tmp_path):
    side = np.random.default_rng(0).normal(size=(20, 6)) * 1e160
    np.savez(tmp_path / "far.npz", query=side, candidate=side + 1e159)
    for metric in ("dot", "euclidean", "squared_euclidean"):
        done = call("evaluate", tmp_path / "far.npz", "--metric", metric)
        assert done.exit_code == 2 and done.stderr.count("\n") == 1, done.output
        assert "leave the range of float64; divide all embeddings by one number" in done.stderr


def test_version():
    assert call("--version").stdout == f"cocos {cocos.__version__}\n"


def test_warnings_of_the_library_are_notes_unless_quiet(file, monkeypatch):
    monkeypatch.chdir(file.parent)
    (file.parent / "loud.py").write_text(
        "import logging\ndef hinge(scores, positive, negative):\n"
        "    logging.getLogger('cocos').warning('heard %d', 42)\n    return scores.sum(dim=1)\n"
    )
    before = list(logging.getLogger("cocos").handlers)
    for quiet, heard in (((), True), (("-q",), False)):
        done = call("count", file, "--loss", "loud.py:hinge", *quiet)
        assert done.exit_code == 0 and ("heard 42\n" in done.stderr) == heard
    assert logging.getLogger("cocos").handlers == before
