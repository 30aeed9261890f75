"""The command as a user meets it: a subprocess where the streams and exit codes matter, in-process elsewhere."""

import json
import os
import pickle
import signal
import sys

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import children
import cocos
from cocos import checkpoints, reports, results
from cocos.cli import app, output

PLAIN = {k: v for k, v in os.environ.items() if k not in {"FORCE_COLOR", "TTY_COMPATIBLE"}}


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture(scope="module")
def arrays():
    generator = np.random.default_rng(3)
    image = generator.normal(size=(50, 8)).astype(np.float32)
    group = np.repeat(np.arange(50), 5)
    caption = image[group] + 0.8 * generator.normal(size=(250, 8)).astype(np.float32)
    return {"query": image, "candidate": caption, "query_group": np.arange(50), "candidate_group": group}


@pytest.fixture
def file(tmp_path, arrays):
    np.savez(tmp_path / "embeddings.npz", **arrays)
    return tmp_path / "embeddings.npz"


KEYS = {
    "contributing_mean",
    "contributing_sum",
    "contributing_all",
    "idle",
    "relative",
    "weight_above",
    "weight_below",
    "weight_positive",
    "effective",
    "participation",
    "hardest_share",
}


def test_json_is_one_document_and_nothing_else(file):
    done = call("count", file, "--loss", "ntxent", "--json", "--batch-size", 32)
    assert done.exit_code == 0
    document = json.loads(done.stdout)
    assert document["cocos"] == cocos.__version__
    assert document["checkpoint"]["path"] == str(file)
    assert len(document["checkpoint"]["sha256"]) == 64
    assert document["loss"] == {"name": "ntxent", "parameters": {"temperature": 0.1}}
    assert (document["batches"], document["batch_size"], document["seed"], document["eps"]) == (
        8,
        32,
        0,
        0.01,
    )
    assert (document["convention"], document["device"]) == ("standard", "cpu")
    for direction in ("q2c", "c2q"):
        entry = document["directions"][direction]
        assert KEYS <= entry.keys()
        assert all(set(entry[key]) == {"mean", "std"} for key in KEYS)
        assert entry["n90"] is None
        assert entry["batches_without_active_queries"] == 0
    assert "temperature 0.1 (default)" in done.stderr


def test_n90_is_counted_where_it_is_asked_for(file):
    asked = json.loads(call("count", file, "--n90", "--json", "-q").stdout)
    assert all(entry["n90"]["mean"] >= 1 for entry in asked["directions"].values())
    assert "90 % of the push" in call("count", file, "--n90", "-q").stdout
    assert "90 %" not in call("count", file, "-q").stdout


def test_the_command_counts_what_python_counts(file, arrays, tmp_path):
    out = tmp_path / "count.nc"
    options = [
        "--loss",
        "smoothap",
        "-p",
        "temperature=0.05",
        "--eps",
        "0.02",
        "--batch-size",
        "16",
        "--seed",
        "4",
    ]
    done = call("count", file, *options, "--json", "--out", out)
    assert done.exit_code == 0
    embeddings = cocos.Embeddings(*arrays.values())
    loss = cocos.losses.load("smoothap", {"temperature": 0.05})
    expected = cocos.measures.count(embeddings, loss, 0.02, batch_size=16, seed=4)
    summary = reports.document("count", expected)
    assert json.loads(done.stdout)["directions"] == summary["directions"]
    assert set(summary["directions"]["q2c"]) >= KEYS | {"eq7_mean", "eq7_sum", "eq7_idle"}
    saved = results.open(out)
    assert saved.attrs["loss_repr"] == "SmoothAP(temperature=0.05)"
    np.testing.assert_array_equal(saved["contributing"], expected["contributing"])


def test_piped_output_is_plain_text(file, tmp_path, monkeypatch):
    monkeypatch.delenv("COLUMNS")
    done = children.forked(children.cocos("count", file, "--batch-size", 64), tmp_path)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("loss: ntxent, temperature 0.1") and " of 60.6, idle queries " in lines[1]
    flat = " ".join(lines)
    assert "ntxent(temperature=0.1), probability above 1 % (eps = 0.01), standard convention; 4 batches of 64" in flat
    assert any(line.startswith("* contributing negatives") and line.count("±") == 2 for line in lines)
    quiet = call("count", file, "--batch-size", 64, "--quiet")
    assert quiet.stdout == done.stdout and quiet.stderr == ""


def test_conventions_samplings_and_formats(file):
    full = ["--json", "--loss", "triplet", "--batch-size", 50]  # all five batches are full: conventions weigh alike
    published = json.loads(call("count", file, *full, "--convention", "ecir2022").stdout)
    standard = json.loads(call("count", file, *full, "--same-group", "negative").stdout)
    assert published["same_group"] == "negative"
    a, b = (d["directions"]["c2q"]["contributing_sum"] for d in (published, standard))
    assert a == b
    assert published["directions"]["c2q"]["idle"] != standard["directions"]["c2q"]["idle"]
    text = call("count", file, "--convention", "ecir2022", "--loss", "triplet").stdout
    assert "summed along the wrong axis, as published" in text
    groups = json.loads(
        call("count", file, "--json", "--sample", "groups", "--per-group", "2", "--batches", "1").stdout
    )
    assert (groups["sample"], groups["batches"]) == ("groups", 1)
    assert call("count", file, "--out", file.with_suffix(".tex")).exit_code == 0
    assert file.with_suffix(".tex").read_text().count(r"\begin{tabular}") == 1
    one = call("count", file, "--json", "--batch-size", "100000")
    assert json.loads(one.stdout)["batches"] == 1
    assert "note: batch size 100000 is above the 250 pairs there are: all of them make one batch" in one.stderr


def test_losses_are_listed():
    text = call("losses").stdout
    for name in cocos.losses.names():
        assert name in text
    assert "osap: unspecified" in text
    assert "ibc: not a function of the scores" in text and "quintuplet: not a function of the scores" in text
    listed = {each["name"]: each for each in json.loads(call("losses", "--json").stdout)}
    assert listed.keys() == set(cocos.losses.names())
    assert {
        "name": "triplet",
        "parameters": {"margin": 0.2},
        "metric": "cosine",
        "gradient": "exact",
    }.items() <= listed["triplet"].items()
    assert "arXiv:1707.05612" in listed["triplet"]["source"]


def test_inspect_says_what_a_file_is_and_what_to_type(file):
    text = call("inspect", file).stdout
    assert "(250, 8) float32" in text
    assert f"next: cocos count {file} --loss ntxent" in text
    assert json.loads(call("inspect", file, "--json").stdout)["format"] == "embeddings"


def test_version_and_help():
    assert call("--version").stdout.strip() == f"cocos {cocos.__version__}"
    assert "--loss" in call("count", "--help").stdout
    assert children.run(sys.executable, "-m", "cocos", env=PLAIN).returncode == 2


def bad(arrays, **change):
    """The embeddings with a fault."""
    return {k: v for k, v in (arrays | change).items() if v is not None}


def spoiled(array, value):
    array = array.copy()
    array[3] = value
    return array


FAULTS = {
    "misspelt": (lambda a: {"query_groups": a["query_group"], "query_group": None}, "did you mean 'query_group'?"),
    "two kinds": (
        lambda a: {"embeddings": a["query"], "labels": a["query_group"]},
        "both a labelled set and two sides",
    ),
    "mixed ids": (
        lambda a: {"query_group": a["query_group"].astype(str)},
        "query_group is text and candidate_group is num",
    ),
    "one group": (
        lambda a: {k: np.zeros_like(a[k]) for k in ("query_group", "candidate_group")},
        "no query has any neg",
    ),
    "directions": ({"directions": np.array(5)}, "directions are no list of names"),
    "blank": ({"directions": np.array(["a\n", "b"])}, "expected one name or two different ones"),
    "width": ({"query": np.ones((50, 7), np.float32)}, "query has width 7 and candidate has width 8"),
    "groups": ({"query_group": np.arange(49)}, "query_group: shape (49,), expected (50,)"),
    "missing groups": (
        {"query_group": None, "candidate_group": None},
        "50 query rows, 250 candidate rows and no groups",
    ),
    "nan": (lambda a: {"query": spoiled(a["query"], np.nan)}, "query: NaN or infinity in row 3 (of 50)"),
    "inf": (
        lambda a: {"candidate": spoiled(a["candidate"], np.inf)},
        "candidate: NaN or infinity in row 3 (of 250)",
    ),
    "zero": (lambda a: {"candidate": spoiled(a["candidate"], 0)}, "candidate: zero vector in row 3"),
    "lonely": (
        lambda a: {"query_group": spoiled(a["query_group"], 77)},
        "query without any positive: row 3 (group 77)",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faulty_embeddings_get_one_sentence(tmp_path, arrays, name):
    change, sentence = FAULTS[name]
    np.savez(tmp_path / "a.npz", **bad(arrays, **(change(arrays) if callable(change) else change)))
    done = call("count", tmp_path / "a.npz", "--out", tmp_path / "a.nc", "--json")
    assert (done.exit_code, done.stdout) == (2, "")
    assert sentence in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "a.nc").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--loss", "ntxnt"], "unknown loss 'ntxnt': did you mean 'ntxent'?"),
        (["-p", "temp=1"], "unknown parameter of ntxent 'temp': did you mean 'temperature'?"),
        (["-p", "temperature=0"], "ntxent: temperature must be finite and above 0, got 0.0"),
        (["-p", "temperature"], "parameter 'temperature': expected NAME=VALUE"),
        (["-p", "temperature=1", "-p", "temperature=2"], "temperature is given twice"),
        (["-p", "temperature=1e-320"], "NTXent(temperature=1e-320): its weights leave the range of float64"),
        (["-p", "temperature=1e-38"], "exponents leave the range of float32: a scale of 1e+38 times scores of up to 1"),
        (["-p", "scale=1e308"], "exponents leave the range of float32: a scale of 1e+308 times scores of up to 1"),
        (["--split", "val"], "split 'val'"),
        (["--seed", "99999999999999999999"], "seed: 99999999999999999999, expected at most"),
        (["--seed", "-1"], "seed: -1, expected at least 0"),
        (["--per-group", "2"], "per group: 2, but only batches of groups have it"),
        (
            ["--loss", "triplet", "--sample", "groups", "--convention", "ecir2022"],
            "batches of pairs (--sample pairs) only",
        ),
        (["--out", "a" * 300 + ".nc"], "the name is too long"),
        (["--device", ""], "device: '', expected auto, cpu or cuda"),
        (["--batch-size", "1"], "batch size: 1, expected at least 2"),
        (["--batches", "0"], "batches: 0, expected at least 1"),
        (["--eps", "-1"], "eps: -1.0, expected a share"),
        (
            ["--eps", "5"],
            "eps: 5, expected less than 1, since a share of ntxent is a probability: none exceeds 1; 5 % is",
        ),
        (["--device", "cuda:99"], "device: 'cuda:99', but PyTorch finds"),
        (["--device", "tpu"], "device: 'tpu', expected auto, cpu or cuda"),
        (["--out", "no/such/folder/a.nc"], "there is no folder no/such/folder; create it first"),
        (["--out", "a.txt"], "suffix '.txt', expected .nc or .tex"),
        (["--data", "somewhere"], "holds embeddings already and needs no data"),
        (["--model", "nothing"], "model 'nothing': no function is named; write it as file.py:function"),
        (["--convention", "ecir"], "--convention"),
        (["--batch-size", "many"], "batch size: 'many', expected a whole number, or all"),
    ],
)
def test_bad_options_get_one_sentence(file, arguments, sentence):
    done = call("count", file, *arguments, "--json")
    assert (done.exit_code, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_missing_empty_and_text_files(tmp_path):
    (tmp_path / "empty.pt").write_bytes(b"")
    (tmp_path / "text.pt").write_text("not a checkpoint\n")
    for name, sentence in (
        ("no.pt", "there is no such file"),
        ("empty.pt", "is empty"),
        ("text.pt", "is a text file"),
    ):
        for command in ("count", "inspect"):
            done = call(command, tmp_path / name)
            assert done.exit_code == 2
            assert sentence in done.stderr and done.stderr.startswith("cocos: ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["count", "LONG"],
        ["verify", "LONG"],
        ["count", "FILE", "--out", "LONG.nc"],
        ["losses", "ntxent", "--out", "LONG.png"],
        ["plot", "contributors", "FILE", "--row", "0", "--out", "LONG.png"],
        ["plot", "contributors", "FILE", "--row", "0", "--out", "LONG.gif"],
    ],
)  # fmt: skip
def test_a_name_that_is_too_long_gets_one_sentence(arguments, file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = call(*(str(file) if each == "FILE" else each.replace("LONG", "y" * 300) for each in arguments))
    right = "expected .png or .pdf or .svg or .nc" if ".gif" in arguments[-1] else "the name is too long for a file"
    assert done.exit_code == 2 and right in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert list(tmp_path.iterdir()) == [file]


class Bomb:
    """A pickle that makes a file when it is loaded the unsafe way."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


def test_a_file_that_would_run_code_ends_with_exit_code_3(tmp_path):
    marker = tmp_path / "ran"
    torch.save({"model": Bomb(marker)}, tmp_path / "zip.pt")
    (tmp_path / "plain.pt").write_bytes(pickle.dumps(Bomb(marker)))
    for name in ("zip.pt", "plain.pt"):
        done = call("count", tmp_path / name, "--loss", "ntxent")
        assert (done.exit_code, done.stdout) == (3, "")
        assert "is refused as unsafe: loading it would run" in done.stderr
        assert done.stderr.count("\n") == 1
    assert not marker.exists()


def test_an_interrupted_run_writes_nothing(tmp_path):
    side = np.random.default_rng(0).normal(size=(4_000, 32)).astype(np.float32)
    np.savez(tmp_path / "large.npz", query=side, candidate=side + 1)

    def counting():
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job starts with the signal ignored
        output.DELAY_SECONDS = output.LINE_SECONDS = 0
        children.cocos("count", "large.npz", "--batches", "10000", "--out", "a.nc", "--json")()

    read, write = os.pipe()
    with open(read, encoding="utf-8") as stderr, open(tmp_path / "out", "wb") as stdout:
        child = children.fork(counting, tmp_path, stdout=stdout.fileno(), stderr=write)
        os.close(write)
        assert stderr.readline().startswith("counting: ")
        os.kill(child, signal.SIGINT)
        said = stderr.read()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 130
    assert (tmp_path / "out").read_bytes() == b""
    assert said.splitlines()[-1] == "cocos: interrupted"
    assert "Traceback" not in said
    assert set(os.listdir(tmp_path)) == {"large.npz", "out"}


@pytest.mark.parametrize(("seconds", "text"), [(45, "45 s"), (1248, "20 min 48 s"), (8940, "2 h 29 min")])
def test_time_left_has_two_units(seconds, text):
    assert output.format_seconds(seconds) == text


def test_embedded_checkpoint_uses_recorded_parameters(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = call("count", "example", "--batches", "2", "--json")
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["loss"]["name"] == "ntxent"
    assert document["checkpoint"]["format"] == "native"
    assert document["checkpoint"]["path"] == "example"
    assert "(recorded in the checkpoint)" in done.stderr
    given = json.loads(call("count", "example", "--batches", "2", "--json", "-p", "temperature=0.05").stdout)
    assert given["loss"]["parameters"] == {"temperature": 0.05}
    text = call("inspect", "example").stdout
    assert "emoji_captions" in text and "trained with" in text


@pytest.mark.parametrize(
    "command",
    [
        "inspect {}",
        "count {} --batches 2",
        "evaluate {} --split val",
        "audit {} --batches 2",
        "run {} --batches 2",
        "whatif {} --batches 2",
        "verify {}",
        "report {} --batches 2",
        "plot count {} --batches 2",
    ],
)
def test_example_opens_in_every_command(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    done = call(*command.format("example").split())
    assert done.exit_code == 0, done.stderr
    assert str(checkpoints.EXAMPLE_FILE.parent) not in done.stdout + done.stderr


def test_example_is_never_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "example").write_text("a file of the user")
    checkpoint = cocos.open("example")
    assert checkpoint.format == "native"
    assert str(tmp_path / "example") in checkpoint.notes[0]
    with pytest.raises(cocos.InputError):
        cocos.open(tmp_path / "example")
