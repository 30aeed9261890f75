"""Pipes, sockets and devices are refused at once, wherever a file is read."""

import ast
import os
import re
import signal
import socket
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import cocos
from cocos import checkpoints, results
from cocos.base import cache, reading, writing
from cocos.base.errors import InputError
from cocos.checkpoints import data, image_files, recipes, words
from cocos.checkpoints.data import saved_datasets
from cocos.commands import app
from cocos.results import records

HOUSE = Path(cocos.__file__).parent
DEADLINE = 20.0  # seconds of one reader or command
# Calls that open a file by themselves, and the first argument that makes them safe.
OPENERS = re.compile(
    r"open|gzip\.open|np\.(load|fromfile|memmap)|zipfile\.(ZipFile|is_zipfile)|(Image|library)\.open|safe_open|"
    r"(\w+\.)*load_file|arrow\.memory_map|parquet\.ParquetFile|h5py\.File|xr\.open_dataset|io\.FileIO|"
    r"tarfile\.open|.*\.(read_text|read_bytes)"
)
# Files of the package itself, of this system, of the user's own code, or that were just written here.
OWN = {
    "base/cache.py path.read_bytes()",
    "checkpoints/encoded.py",
    "checkpoints/formats/shards.py np.memmap(file, np.uint8, 'r+', shape=(size,))",
    "commands/doctor.py",
    "engine/kernel/build.py",
    "engine/kernel/structs.py",
    "base/reading.py",
    "base/signatures.py",
    "measures/paper_table.py",
    "reports/figures.py",
    "reports/inputs.py",
    "reports/page/__init__.py",
}


@contextmanager
def deadline(seconds=DEADLINE):
    """End a read that waits."""

    def over(*_):
        raise TimeoutError(f"still waiting after {seconds} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def pipe(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    return path


def test_the_kind_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind("socket")
    (tmp_path / "link").symlink_to(pipe(tmp_path / "pipe"))
    for path, kind in (("pipe", "pipe"), ("link", "pipe"), ("socket", "socket"), ("/dev/zero", "device")):
        for read in (reading.stream, reading.regular):
            with deadline(), pytest.raises(InputError, match=f"{path} is no regular file but a {kind}; write"):
                read(path)
    listening.close()


def test_a_pipe_that_takes_the_place_of_a_file_is_refused_as_well(tmp_path, monkeypatch):
    pipe(tmp_path / "late")
    monkeypatch.setattr(reading, "regular", lambda path: path)
    opened = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    with deadline(), pytest.raises(InputError, match="late is no regular file but a pipe"):
        reading.stream(tmp_path / "late")
    assert not opened or len(os.listdir("/proc/self/fd")) == opened


def test_files_and_folders_are_as_for_open(tmp_path):
    (tmp_path / "some").write_bytes(b"ntxent")
    with reading.stream(tmp_path / "some") as stream:
        assert stream.read() == b"ntxent"
    assert reading.regular(tmp_path) == tmp_path
    with pytest.raises(IsADirectoryError):
        reading.stream(tmp_path)
    for read in (reading.stream, reading.regular):
        with pytest.raises(FileNotFoundError):
            read(tmp_path / "none")


def by_itself(call):
    """Whether a call opens a path that `reading` has not seen."""
    name, given = ast.unparse(call.func), [ast.unparse(each) for each in call.args]
    if name.endswith(".open") and given and re.fullmatch(r"'[rwax]b?'", given[0]):  # of a path
        return given[0][1] == "r"
    if not OPENERS.fullmatch(name):
        return False
    streams = given and re.match(r"(stream|packed|raw)$|reading\.|str\(reading\.|io\.", given[0])
    return not streams and not (len(given) > 1 and re.fullmatch(r"'[wax]b?'", given[1]))


def test_every_reader_opens_files_through_reading():
    """A call that opens a file by itself is one of the package's own files, or given a stream or a checked path."""
    found, calls = set(), 0
    for path in sorted(HOUSE.rglob("*.py")):
        room = str(path.relative_to(HOUSE))
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                calls += ast.unparse(node.func) in {"reading.stream", "reading.regular"}
                if by_itself(node):
                    found |= {room, f"{room} {ast.unparse(node)}"}
    assert OWN <= found
    assert not [each for each in found if " " in each and not {each, each.partition(" ")[0]} & OWN]
    assert calls > 25


# Arguments of each command that it needs, of files that are good; "plan" reads pairs, "run" and "table" results.
NEEDED = {
    "audit": ["two.npz"],
    "card": ["two.npz"],
    "correlate": ["count.nc", "count.nc", "count.nc"],
    "count": ["two.npz"],
    "decompose": ["two.npz"],
    "demo": [],
    "diff": ["two.npz", "other.npz"],
    "dtp": ["two.npz", "other.npz"],
    "encode": ["pairs.jsonl"],
    "evaluate": ["two.npz"],
    "figures": [],
    "gradients": ["two.npz"],
    "inspect": ["two.npz"],
    "join": ["part1.nc", "part2.nc"],
    "landscape": ["two.npz"],
    "losses": ["ntxent"],
    "plan": ["two.npz"],
    "plot": ["score_distribution", "two.npz"],
    "query": ["two.npz", "--row", "0"],
    "replay": ["two.npz"],
    "report": ["two.npz"],
    "run": ["two.npz"],
    "solve": ["two.npz", "--effective", "5"],
    "table": ["count.nc"],
    "temperature": ["two.npz"],
    "verify": ["two.npz"],
    "whatif": ["two.npz"],
}
# Parameters that are paths, or may be, with the suffixes that lead to different readers.
SUFFIXES = {
    **dict.fromkeys(
        ("file", "first", "second", "run", "files", "parts", "target"), ("jsonl", "nc", "npz", "pt", "safetensors")
    ),
    **dict.fromkeys(("data", "images"), ("jsonl", "npz")),
    **dict.fromkeys(("names", "labels"), ("jsonl", "csv")),
    **dict.fromkeys(("distractors", "ensemble"), ("npz",)),
    **dict.fromkeys(("trials",), ("txt",)),
    **dict.fromkeys(("model",), ("safetensors", "py")),
    **dict.fromkeys(("loss",), ("py",)),
    **dict.fromkeys(("recipe",), ("toml",)),
}
# Parameters that are paths of what is written, or folders of it.
WRITTEN = ("out", "figure", "analysis", "badge")


def commands():
    """Every command with its parameters that are, or may be, paths; of click's kinds."""
    program = typer.main.get_command(app)
    for name in program.commands:
        parameters = program.get_command(None, name).params
        maybe = SUFFIXES if name != "figures" else ()  # its names are those of scripts
        yield name, {each.name: each for each in parameters if "Path" in repr(vars(each)) or each.name in maybe}


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A folder with good files, and a pipe of every suffix."""
    folder, generator = tmp_path_factory.mktemp("good"), np.random.default_rng(0)
    for name in ("two", "other"):
        rows = {side: generator.normal(size=(8, 4)).astype(np.float32) for side in ("query", "candidate")}
        np.savez(folder / f"{name}.npz", **rows)
    (folder / "pairs.jsonl").write_text('{"query": "a", "positive": "b"}\n{"query": "c", "positive": "d"}\n')
    results.save(cocos.measures.weight_curve("triplet", points=5), folder / "count.nc")
    for suffix in {each for some in SUFFIXES.values() for each in some}:
        pipe(folder / f"pipe.{suffix}")
    return folder


def test_every_path_that_a_command_takes_is_tried():
    found = dict(commands())
    assert {name for name, parameters in found.items() if parameters} | {"table"} == NEEDED.keys()
    assert {each for some in found.values() for each in some} == SUFFIXES.keys() | set(WRITTEN)


@pytest.mark.parametrize("command", NEEDED)
def test_a_command_refuses_a_pipe_at_once(command, good, monkeypatch):
    monkeypatch.chdir(good)
    parameters = dict(commands())[command] or dict.fromkeys(("files",))
    for name, each in parameters.items():
        if name in WRITTEN:
            continue
        for suffix in SUFFIXES[name]:
            given = f"pipe.{suffix}:own" if suffix == "py" else f"pipe.{suffix}"
            arguments = list(NEEDED[command])
            if each is None or each.param_type_name == "argument":
                place = min(int(name == "second" or command == "plot"), len(arguments) - 1)
                arguments[place] = given
            else:
                arguments += [each.opts[0], given]
            if command == "encode":
                arguments += [] if name == "model" else ["--model", "pipe.safetensors"]
                arguments += ["--out", "rows.npz"]
            with deadline():
                done = CliRunner().invoke(app, [command, *arguments, "--quiet"])
            assert done.exit_code == 2 and isinstance(done.exception, SystemExit), (arguments, done.exception)
            assert done.stderr.count("\n") == 1 and done.stderr.startswith("cocos: "), (arguments, done.stderr)


def test_a_result_that_is_a_pipe_is_named(tmp_path):
    with deadline(), pytest.raises(InputError, match=r"^\S*r.nc is no regular file but a pipe"):
        results.open(pipe(tmp_path / "r.nc"))


# Pipes among the files of a folder, by the reader of the folder.
INSIDE = {
    "train.jsonl": data.find,
    "data/train.parquet": data.find,
    "captions_train.json": lambda folder: data.find(folder).load("train"),
    "dataset_dict.json": data.find,
    "train_ims.npy": data.find,
    "train.npz": data.find,
    "README.md": checkpoints.open,
    "config.json": checkpoints.open,
    "model.safetensors": checkpoints.open,
    "cocos.toml": lambda folder: recipes.read(folder / "cocos.toml", inside=True),
    "run.jsonl": lambda folder: records.read(folder / "run.jsonl"),
    "some_vocab.pkl": lambda folder: words.read_vocabulary(folder / "some_vocab.pkl", 4),
    "a.png": lambda folder: image_files.ImageFiles((str(folder / "a.png"),))[0],
    "b.png": lambda folder: image_files.ImageFiles((str(folder / "b.png"),)).digest(),
}


@pytest.mark.parametrize("name", INSIDE)
def test_a_pipe_in_a_folder_is_refused_at_once(name, tmp_path):
    pipe(tmp_path / name)
    with deadline(), pytest.raises(InputError):
        INSIDE[name](tmp_path)


def test_a_pipe_among_the_arrow_files_of_a_dataset_is_refused(tmp_path):
    (tmp_path / "state.json").write_text("{}")
    pipe(tmp_path / "data-00000.arrow")
    for read in (
        lambda: saved_datasets.load("train", tmp_path),
        lambda: saved_datasets._table(tmp_path / "data-00000.arrow"),
    ):
        with deadline(), pytest.raises(InputError):
            read()


def test_a_pipe_in_the_cache_is_listed_and_cleared(tmp_path, monkeypatch):
    monkeypatch.setenv("COCOS_CACHE", str(tmp_path))
    pipe(tmp_path / f"{'0' * 64}.safetensors")
    with deadline():
        assert [each.label for each in cache.entries()] == [""]
        assert cache.clear() == (1, 0)
    assert not list(tmp_path.iterdir())


def test_an_output_that_is_a_pipe_among_the_data_is_refused(tmp_path):
    out = pipe(tmp_path / "data" / "out.nc")
    (tmp_path / "link.nc").symlink_to(out)
    with deadline(), pytest.raises(InputError, match="is a file of the data folder"):
        writing.apart(tmp_path / "link.nc", tmp_path / "data")


def test_looking_for_holes_leaves_the_place_of_the_reader(tmp_path):
    """The header of a cached file of several megabytes was read from its end, as 0 bytes."""
    file = tmp_path / "large.bin"
    file.write_bytes(b"head" + b"x" * 2**20)
    with reading.stream(file) as stream:
        assert reading.written(stream, 2**10) == 2**20 + 4 and stream.read(4) == b"head"
