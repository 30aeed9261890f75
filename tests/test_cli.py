"""The command line: wrong inputs by exit code, results by numbers; subprocesses where streams and signals matter."""

import json
import os
import pickle
import re
import shlex
import signal
import sys

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import children
import cocos
from cocos import checkpoints, reports, results
from cocos.cli import COMMANDS, app, output

PLAIN = {k: v for k, v in os.environ.items() if k not in {"FORCE_COLOR", "TTY_COMPATIBLE", "PYTHONSAFEPATH"}}
HUGE = "9" * 5000
LONG = "y" * 300
STATISTICS = {
    *("contributing_mean", "contributing_sum", "contributing_all", "idle", "relative", "weight_above", "weight_below"),
    *("weight_positive", "effective", "participation", "hardest_share"),
}


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def document(*arguments):
    done = call(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def shell(line, folder):
    """Run a line of bash in which `cocos` is this program."""
    return children.run("bash", "-c", line.replace("cocos", f"{sys.executable} -m cocos"), cwd=folder, env=PLAIN)


@pytest.fixture(scope="module")
def arrays():
    generator = np.random.default_rng(3)
    image = generator.normal(size=(50, 8)).astype(np.float32)
    group = np.repeat(np.arange(50), 5)
    caption = image[group] + 0.8 * generator.normal(size=(250, 8)).astype(np.float32)
    return {"query": image, "candidate": caption, "query_group": np.arange(50), "candidate_group": group}


@pytest.fixture
def file(tmp_path, arrays, monkeypatch):
    """A file of images with five captions each, in the current folder."""
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "e.npz", **arrays)
    return tmp_path / "e.npz"


class Bomb:
    """A pickle that makes a file when it is loaded the unsafe way."""

    def __reduce__(self):
        return os.system, ("touch ran",)


# Command lines that exit with 2: each with the thing or the value that its message names.
WRONG = {
    "cnt e.npz": "'count'",
    "replay e.npz": "'replay'",
    "count": "FILE",
    "count e.npz f.npz": "f.npz",
    "count missing.npz": "missing.npz",
    "count empty.pt": "empty.pt",
    "count text.pt": "text.pt",
    "count .": "folder",
    f"count {LONG}": LONG,
    "count e.npz --los ntxent": "--los",
    "count e.npz --loss": "--loss",
    "count e.npz --loss ntxnt": "'ntxent'",
    "count e.npz --loss my.py": "my.py",
    "count e.npz --loss nowhere:f": "'nowhere'",
    "count e.npz --model nowhere:f": "'nowhere'",
    "count e.npz --data somewhere": "needs no data",
    "count e.npz --temperature 0.1": "-p temperature=",
    "count e.npz -p": "-p",
    "count e.npz -p temperature": "NAME=VALUE",
    "count e.npz -p temp=1": "'temperature'",
    "count e.npz -p temperature=0": "temperature",
    "count e.npz -p temperature=1 -p temperature=2": "temperature",
    "count e.npz -p temperature=1e-38": "float32",
    "count e.npz --loss ntxent --loss triplet -p margin=1": "ntxent.margin",
    "count e.npz --eps small": "--eps 'small'",
    "count e.npz --eps -1": "eps: -1",
    "count e.npz --eps 5": "eps 0.05",
    f"count e.npz --seed {HUGE}": "--seed",
    "count e.npz --seed -1": "seed: -1",
    "count e.npz --batches x": "'x'",
    "count e.npz --batches 0": "batches: 0",
    f"count e.npz --batches {2**70}": "batches",
    "count e.npz --batch-size 1": "batch size: 1",
    "count e.npz --batch-size many": "'many'",
    f"count e.npz --batch-size {HUGE}": "batch size",
    "count e.npz --per-group 2": "per group: 2",
    "count e.npz --loss triplet --sample groups --convention ecir2022": "--sample pairs",
    "count e.npz --convention ecir": "--convention 'ecir'",
    "count e.npz --split val": "'val'",
    "count e.npz --device cuda:99": "'cuda:99'",
    "count e.npz --out x.csv": "'.csv'",
    "count e.npz --out no/such/folder/a.nc": "no/such/folder",
    f"count e.npz --out {LONG}.nc": LONG,
    "count e.npz --jobs 0": "jobs: 0",
    "count e.npz --jobs 2 --dask tcp://a:1": "--jobs",
    "evaluate e.npz --k 1,five": "--k '1,five'",
    "evaluate e.npz --folds 99": "folds",
    "evaluate e.npz --k 1 --verification": "--k",
    "whatif e.npz --what temperatur=1": "'temperature'",
    "whatif e.npz --effective 4 --what top_k=3": "--what",
    "whatif e.npz --batch-size 8,16": "8,16",
    "plot pie e.npz": "pie",
    "plot contributors e.npz --row 99": "99",
    "plot contributors e.npz --row 1 --direction x": "'x'",
    "plot lorenz e.npz --confident 3": "--confident",
    "plot landscape --f1 wrap": "wrap",
    "plot landscape --alpha 3": "--alpha",
    f"plot landscape --proxies {2**70}": "proxies",
    "plot dtp e.npz": "proxies",
    "plot dtp": "FILE",
    "verify ntxent --batch-size 8": "--batch-size",
    "verify nothing": "'nothing'",
    "verify -p margin=1": "'margin'",
    "run missing": "missing",
    "run a.nc b.nc": "a.nc",
    "report missing.npz": "missing.npz",
    "diff e.npz a.nc": "a.nc",
    "losses foo": "'foo'",
    "inspect text.pt": "text.pt",
    "inspect e.npz --out a.txt": "'.txt'",
    "encode e.npz --model m.py:f": "'--out'",
}


@pytest.mark.parametrize("line", WRONG, ids=lambda line: line[:60])
def test_wrong_line_exits_with_2(line, file, tmp_path):
    (tmp_path / "empty.pt").write_bytes(b"")
    (tmp_path / "text.pt").write_text("not a checkpoint\n")
    before = sorted(tmp_path.iterdir())
    done = call(*shlex.split(line))
    assert (done.exit_code, done.stdout) == (2, ""), done.output[-2000:]
    assert done.stderr.startswith("cocos: ") and done.stderr.count("\n") == 1, done.stderr
    assert WRONG[line] in done.stderr and len(done.stderr) <= 2100
    assert sorted(tmp_path.iterdir()) == before


def spoiled(array, value):
    array = array.copy()
    array[3] = value
    return array


# Faults in a file of embeddings: each with the thing that its message names.
FAULTS = {
    "misspelt": (lambda a: {"query_groups": a["query_group"], "query_group": None}, "query_group"),
    "one group": (lambda a: {k: np.zeros_like(a[k]) for k in ("query_group", "candidate_group")}, "negative"),
    "width": (lambda a: {"query": np.ones((50, 7), np.float32)}, "width 7"),
    "missing groups": (lambda a: {"query_group": None, "candidate_group": None}, "250 candidate rows"),
    "nan": (lambda a: {"query": spoiled(a["query"], np.nan)}, "row 3"),
    "zero": (lambda a: {"candidate": spoiled(a["candidate"], 0)}, "row 3"),
    "lonely": (lambda a: {"query_group": spoiled(a["query_group"], 77)}, "row 3"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faulty_embeddings_exit_with_2(tmp_path, arrays, name):
    change, word = FAULTS[name]
    np.savez(tmp_path / "a.npz", **{k: v for k, v in (arrays | change(arrays)).items() if v is not None})
    done = call("count", tmp_path / "a.npz", "--out", tmp_path / "a.nc", "--json")
    assert (done.exit_code, done.stdout) == (2, "")
    assert word in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "a.nc").exists()


def test_unsafe_file_exits_with_3(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"model": Bomb()}, "zip.pt")
    (tmp_path / "plain.pt").write_bytes(pickle.dumps(Bomb()))
    for name in ("zip.pt", "plain.pt"):
        done = call("count", name, "--loss", "ntxent")
        assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert not (tmp_path / "ran").exists()


def test_high_temperature_gets_a_hint(file):
    assert "temperature=0.05" in call("count", file, "-p", "temperature=20").stderr
    assert "hint" not in call("count", file, "-p", "temperature=0.5").stderr
    assert call("count", file, "-p", "temperature=20", "-q").stderr == ""
    for text in ("0.1,0.2", "abc", "inf"):
        refused = call("count", file, "-p", f"temperature={text}")
        assert refused.exit_code == 2 and refused.stderr.count("\n") == 1 and "temperature" in refused.stderr


def test_count_json_has_the_contract_keys(file):
    counted = document("count", file, "--loss", "ntxent", "--batch-size", 32)
    assert counted["cocos"] == cocos.__version__ and counted["checkpoint"]["path"] == str(file)
    assert len(counted["checkpoint"]["sha256"]) == 64
    assert counted["loss"] == {"name": "ntxent", "parameters": {"temperature": 0.1}}
    expected = {"batches": 8, "batch_size": 32, "seed": 0, "eps": 0.01, "convention": "standard", "device": "cpu"}
    assert expected.items() <= counted.items()
    for entry in counted["directions"].values():
        assert STATISTICS <= entry.keys() and all(set(entry[key]) == {"mean", "std"} for key in STATISTICS)
        assert entry["n90"] is None and entry["batches_without_active_queries"] == 0
    n90 = document("count", file, "--n90")["directions"]
    assert all(entry["n90"]["mean"] >= 1 for entry in n90.values())


def test_count_equals_the_measure(file, arrays):
    words = "--loss smoothap -p temperature=0.05 --eps 0.02 --batch-size 16 --seed 4 --out count.nc"
    counted = document("count", file, *words.split())
    loss = cocos.losses.load("smoothap", {"temperature": 0.05})
    expected = cocos.measures.count(cocos.Embeddings(*arrays.values()), loss, 0.02, batch_size=16, seed=4)
    assert counted["directions"] == reports.document("count", expected)["directions"]
    saved = results.open("count.nc")
    assert saved.attrs["loss_repr"] == "SmoothAP(temperature=0.05)"
    np.testing.assert_array_equal(saved["contributing"], expected["contributing"])


@pytest.mark.slow
def test_count_jobs_equal_one_process(file):
    counted, pooled = (document("count", file, "--batch-size", 16, *words) for words in ((), ("--jobs", 2)))
    assert pooled == counted


def test_missing_dask_names_the_extra(file, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    done = call("count", file, "--dask", "tcp://host:8786")
    assert done.exit_code == 2 and "cocos-metric[cluster]" in done.stderr


def test_count_conventions_and_samplings_differ(file):
    full = ["--loss", "triplet", "--batch-size", 50]  # all five batches are full: conventions weigh alike
    published = document("count", file, *full, "--convention", "ecir2022")
    standard = document("count", file, *full, "--same-group", "negative")
    assert published["same_group"] == "negative"
    one, two = (entries["directions"]["c2q"] for entries in (published, standard))
    assert one["contributing_sum"] == two["contributing_sum"] and one["idle"] != two["idle"]
    groups = document("count", file, "--sample", "groups", "--per-group", 2, "--batches", 1)
    assert (groups["sample"], groups["batches"]) == ("groups", 1)
    assert document("count", file, "--batch-size", 100_000)["batches"] == 1
    assert call("count", file, "--out", "a.tex").exit_code == 0
    assert (file.parent / "a.tex").read_text().count(r"\begin{tabular}") == 1


def test_piped_output_is_plain_text(file, tmp_path, monkeypatch):
    monkeypatch.delenv("COLUMNS")
    done = children.forked(children.cocos("count", file, "--batch-size", 64), tmp_path)
    assert done.returncode == 0 and "\x1b" not in done.stdout + done.stderr
    quiet = call("count", file, "--batch-size", 64, "--quiet")
    assert quiet.stdout == done.stdout and quiet.stderr == ""


def test_losses_json_lists_every_loss():
    listed = {entry["name"]: entry for entry in document("losses")}
    assert listed.keys() == set(cocos.losses.names())
    triplet = {"name": "triplet", "parameters": {"margin": 0.2}, "metric": "cosine", "gradient": "exact"}
    assert triplet.items() <= listed["triplet"].items()


@pytest.mark.parametrize(
    ("name", "words", "options"),
    [
        ("replay", ["--batch-size", 16], {"batch_size": 16}),
        ("replay", ["--what", "temperature=.02,.05"], {"what": "temperature=.02,.05"}),
        ("solve", ["--effective", 4, "--loss", "supcon"], {"effective": 4, "loss": "supcon"}),
        ("temperature", ["--settles", "--batch-size", "8,16", "--eps", 0.1], {"batch_sizes": [8, 16]}),
        ("temperature", ["--settles", "--effective", 3], {"effective": 3}),
    ],
)
def test_whatif_equals_its_measure(file, name, words, options):
    dataset = getattr(cocos.measures, name)(cocos.open(file), **options)
    assert document("whatif", file, *words) == reports.document(name, dataset)


def test_inspect_writes_its_document(file, tmp_path):
    inspected = document("inspect", file, "--out", "about.json", "-q")
    assert inspected["format"] == "embeddings"
    assert json.loads((tmp_path / "about.json").read_text()) == inspected
    assert f"next: cocos count {file} --loss ntxent" in call("inspect", file).stdout


def test_landscape_json_has_both_minima():
    landscape = document("plot", "landscape", "--f1", "warp", "-q")
    assert landscape["predicted"] == [-8, 0] and landscape["found"] == pytest.approx([-8, 0], abs=1e-6)


def test_help_lists_commands_and_options():
    assert call("--version").stdout == f"cocos {cocos.__version__}\n"
    assert call().stdout == call("--help").stdout
    panel = call("--help").stdout.partition("─ Commands ─")[2]
    assert tuple(re.findall(r"^│ ([a-z]+) ", panel, re.MULTILINE)) == COMMANDS and len(COMMANDS) == 12
    titles = re.findall(r"^╭─ (.*?) ─", call("count", "--help").stdout, re.MULTILINE)
    assert titles == ["Arguments", "Options", "Loss", "Batches", "File and model", "Output"]
    for command in COMMANDS:
        assert all(option in call(command, "--help").stdout for option in ("--json", "--quiet", "-q", "--out"))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a Linux device")
def test_full_and_closed_streams(file):
    """Through a shell where the command is light; otherwise in a fork, which has imported what it needs."""
    for line, code, lines in (
        ("cocos --help > /dev/full", 2, 1),
        ("cocos count --help > /dev/full", 2, 1),
        ("cocos --version > /dev/full", 2, 1),
        ("cocos --bad 2> /dev/full", 2, 0),
        # Autograd does not run in a fork of a process that has used it.
        ("cocos verify --same-as ntxent triplet -q | true; exit ${PIPESTATUS[0]}", 1, 0),
    ):
        done = shell(line, file.parent)
        assert (done.returncode, done.stderr.count("\n")) == (code, lines), line
    full, unread = os.open("/dev/full", os.O_WRONLY), os.pipe()
    os.close(unread[0])
    for words, streams, code, lines in (
        (("inspect", "e.npz", "-q"), {"stdout": full}, 2, 1),
        (("losses",), {"stdout": None}, 2, 1),
        (("losses",), {"stdout": unread[1]}, 0, 0),
        (("count", "e.npz", "--json"), {"stderr": full}, 0, 0),
        (("inspect", "no.npz"), {"stderr": full}, 2, 0),
    ):
        done = children.forked(children.cocos(*words), file.parent, **streams)
        assert (done.returncode, done.stderr.count("\n")) == (code, lines), (words, done.stderr)
    os.close(full), os.close(unread[1])


def test_interrupted_run_writes_nothing(tmp_path):
    side = np.random.default_rng(0).normal(size=(4_000, 32)).astype(np.float32)
    np.savez(tmp_path / "large.npz", query=side, candidate=side + 1)

    def counting():
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job starts with the signal ignored
        output.DELAY_SECONDS = 0
        children.cocos("count", "large.npz", "--batches", "10000", "--out", "a.nc", "--json")()

    read, write = os.pipe()
    with open(read, encoding="utf-8") as stderr, open(tmp_path / "out", "wb") as stdout:
        child = children.fork(counting, tmp_path, stdout=stdout.fileno(), stderr=write)
        os.close(write)
        assert stderr.readline().startswith("counting: ")
        os.kill(child, signal.SIGINT)
        messages = stderr.read()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 130
    assert (tmp_path / "out").read_bytes() == b""
    assert messages.splitlines()[-1] == "cocos: interrupted" and "Traceback" not in messages
    assert set(os.listdir(tmp_path)) == {"large.npz", "out"}


def test_progress_off_a_terminal_is_sparse(monkeypatch, capsys):
    clock = iter(range(10_000))
    monkeypatch.setattr(output.time, "monotonic", lambda: next(clock))
    with output.progress(quiet=False) as start:
        report = start("counting")
        for done in range(1000):  # seconds
            report(done, 1000)
    assert 5 <= capsys.readouterr().err.count("counting: ") <= 20


def test_modules_of_the_folder_are_not_imported(file):
    for name in ("typer", "rich", "numpy", "torch", "xarray", "json", "shutil"):
        (file.parent / f"{name}.py").write_text("open('ran', 'w'); raise SystemExit(9)")
    done = shell("cocos count e.npz --json", file.parent)
    assert done.returncode == 0, done.stderr
    assert not (file.parent / "ran").exists()


def test_loss_of_the_folder_is_found(file, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (file.parent / "mine.py").write_text("def hinge(scores, positive, negative):\n    return scores.sum(dim=1)\n")
    for name in ("mine.py:hinge", "mine:hinge"):
        assert call("count", "e.npz", "--loss", name, "--json").exit_code == 0
    del sys.modules["mine"]


def test_library_warnings_are_notes_unless_quiet(file, caplog):
    (file.parent / "loud.py").write_text(
        "import logging\ndef hinge(scores, positive, negative):\n"
        "    logging.getLogger('cocos').warning('heard %d', 42)\n    return scores.sum(dim=1)\n"
    )
    for quiet, printed in (((), True), (("-q",), False)):
        caplog.clear()
        assert call("count", file, "--loss", "loud.py:hinge", *quiet).exit_code == 0
        assert ("heard 42" in caplog.text) == printed


def test_example_has_recorded_parameters(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    counted = document("count", "example", "--batches", 2)
    assert counted["loss"]["name"] == "ntxent"
    assert (counted["checkpoint"]["format"], counted["checkpoint"]["path"]) == ("native", "example")
    changed = document("count", "example", "--batches", 2, "-p", "temperature=0.05")
    assert changed["loss"]["parameters"] == {"temperature": 0.05}


@pytest.mark.parametrize(
    "line",
    [
        "inspect example", "count example --batches 2", "evaluate example --split val", "audit example --batches 2",
        "run example --batches 2", "whatif example --batches 2", "verify example", "report example --batches 2",
        "plot count example --batches 2",
    ],
)  # fmt: skip
def test_example_opens_in_every_command(tmp_path, monkeypatch, line):
    monkeypatch.chdir(tmp_path)
    done = call(*line.split())
    assert done.exit_code == 0, done.stderr
    assert str(checkpoints.EXAMPLE_FILE.parent) not in done.stdout + done.stderr
