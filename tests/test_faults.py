"""A full disk, folders that cannot be written, no descriptors left, signals: one sentence, and whole files."""

import inspect
import json
import os
import resource
import signal
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

import children
import cocos
from cocos import results
from cocos.base import writing
from cocos.base.errors import InputError
from cocos.cli import app
from cocos.plots import saving

needs_limits = pytest.mark.skipif(sys.platform == "win32", reason="no resource limits")


def embeddings(folder):
    generator = np.random.default_rng(0)
    query = generator.normal(size=(96, 8)).astype(np.float32)
    candidate = query + generator.normal(size=query.shape).astype(np.float32)
    np.savez(folder / "e.npz", query=query, candidate=candidate)
    labels = np.arange(96) % 4
    np.savez(folder / "p.npz", embeddings=query, labels=labels, proxies=candidate[:4], proxy_labels=labels[:4])
    return folder / "e.npz"


@pytest.fixture
def file(tmp_path):
    return embeddings(tmp_path)


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def limited(limit, value, arguments):
    """A command under a limit of the machine, as work of a fork."""

    def work():
        kind = getattr(resource, limit)
        resource.setrlimit(kind, (value, resource.getrlimit(kind)[1]))
        children.cocos(*arguments)()

    return work


def starve(cases, folder):
    """Print exit code and words of each, in forks of a process without autograd so far: PyTorch refuses others."""
    import cocos.engine  # noqa: F401
    import cocos.reports.drawing  # noqa: F401

    done = [children.forked(limited(*case), folder) for case in cases]
    print(json.dumps([(each.returncode, each.stdout + each.stderr) for each in done]))


@pytest.fixture(scope="module")
def starved(fresh, tmp_path_factory):
    """A folder, and (limit, its value, command, exit code, words) of commands that lack space or descriptors there."""
    folder = tmp_path_factory.mktemp("starved")
    embeddings(folder)
    outputs = {
        "count.nc": ["count", "e.npz", "--loss", "ntxent", "-q"],
        "evaluate.nc": ["evaluate", "e.npz", "-q"],
        "plot.png": ["plot", "lorenz", "e.npz", "--loss", "ntxent", "-q"],
        "plot.svg": ["plot", "weight-curve", "--loss", "ntxent", "-q"],
        "landscape.nc": ["plot", "landscape", "-q"],
        "dtp.pdf": ["plot", "dtp", "p.npz", "-q"],
    }
    for name in outputs:
        (folder / name).write_text("old")
    commands = [[*command, "--out", name] for name, command in outputs.items()]
    cases = [("RLIMIT_FSIZE", 2048, each) for each in commands]
    cases += [("RLIMIT_NOFILE", limit, commands[0]) for limit in (3, 4)]
    done = fresh(f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\nimport test_faults\n"
                 f"test_faults.starve({cases!r}, {str(folder)!r})")  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder, [(*case, *found) for case, found in zip(cases, json.loads(done.stdout), strict=True)]


@needs_limits
def test_a_full_disk_is_one_sentence_and_leaves_the_old_file_whole(starved):
    folder, found = starved
    for limit, _, command, code, said in found:
        if limit == "RLIMIT_FSIZE":
            assert code == 2, (command, code, said)
            assert said.startswith("cocos: ") and said.count("\n") == 1
            assert "cannot be written (File too large)" in said
    olds = {path.name: path.read_text() for path in folder.iterdir() if path.suffix in {".png", ".svg", ".pdf", ".nc"}}
    assert len(olds) == 6 and set(olds.values()) == {"old"}


@needs_limits
def test_without_descriptors_a_command_is_a_sentence(starved):
    for limit, number, _, code, said in starved[1]:
        if limit == "RLIMIT_NOFILE":
            assert code == 2, (number, said)
            assert said.startswith("cocos: ") and said.count("\n") == 1
    assert not [name for name in os.listdir(starved[0]) if name.startswith(".cocos")]


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="no folder that not even root can write")
def test_a_folder_that_cannot_be_written_is_a_sentence_before_any_work(tmp_path, file):
    for command in (
        ["count", file, "--out", "/sys/kernel/x.nc"],
        ["plot", "lorenz", file, "--out", "/sys/kernel/x.png"],
        ["plot", "landscape", "--out", "/sys/kernel/x.pdf"],
        ["plot", "dtp", file, "--out", "/sys/kernel/x.png"],
        ["losses", "ntxent", "--out", "/sys/kernel/x.json"],
    ):
        done = call(*command)
        assert done.exit_code == 2, (command, done.output, done.exception)
        assert "the folder /sys/kernel cannot be written (" in done.output and done.output.count("\n") == 1


def test_a_damaged_result_is_a_sentence(tmp_path, file):
    data = cocos.measures.count(cocos.open(file), cocos.losses.load("ntxent"))
    whole = results.save(data, tmp_path / "x.nc").read_bytes()
    assert results.open(tmp_path / "x.nc")["contributing"].equals(data["contributing"])
    with h5py.File(tmp_path / "x.nc") as held:
        place = held["weight_above"].id.get_chunk_info(0).byte_offset
        assert all(each.fletcher32 for name, each in held.items() if name in data.data_vars and each.ndim)
    (tmp_path / "x.nc").write_bytes(whole[:place] + bytes([whole[place] ^ 64]) + whole[place + 1 :])
    with pytest.raises(InputError, match="damaged one"):
        results.open(tmp_path / "x.nc")
    for damaged in (whole[: len(whole) // 2], b"", b"no result"):
        (tmp_path / "x.nc").write_bytes(damaged)
        with pytest.raises(InputError, match="damaged one"):
            results.open(tmp_path / "x.nc")


def test_the_output_is_never_an_input(tmp_path, file):
    """By its name, another spelling, a symbolic link or a hard link; for every command that reads and writes files."""
    held = {}
    for suffix in ("nc", "png"):
        (tmp_path / "data").mkdir(exist_ok=True)
        real, soft, hard = (tmp_path / f"{name}.{suffix}" for name in ("real", "soft", "hard"))
        real.write_bytes((tmp_path / "p.npz").read_bytes())
        soft.symlink_to(real)
        os.link(real, hard)
        held[suffix] = (real, tmp_path / "data" / ".." / real.name, soft, hard)
    read = {
        "nc": (
            ["count"],
            ["plot", "decomposition"],
            ["evaluate"],
            ["verify"],
            ["plot", "contributors", "--row", "0"],
            ["plot", "dtp"],
        ),
        "png": (["plot", "count"], ["plot", "contributors", "--row", "0"], ["plot", "dtp"]),
    }
    for suffix, commands in read.items():
        for place, command in enumerate(commands):
            real, out = held[suffix][0], held[suffix][place % 4]
            done = call(*command, real, "--out", out)
            assert (done.exit_code, done.stdout) == (2, ""), (command, done.output)
            assert f"output {out} is the input {real}, which it would destroy; write to another file" in done.stderr
    done = call("evaluate", file, "--distractors", held["nc"][0], "--out", held["nc"][3])
    assert done.exit_code == 2 and "is the input" in done.stderr
    assert held["nc"][0].read_bytes() == held["png"][0].read_bytes() == (tmp_path / "p.npz").read_bytes()


def test_the_output_is_no_file_of_the_training_data(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "train_ims.npy").write_bytes(b"numbers")
    (data / "cat.png").write_bytes(b"a picture")
    (data / "count.nc").write_bytes(b"\x89HDF with cocos 0.1.0 in it")
    os.link(data / "train_ims.npy", tmp_path / "linked.nc")
    for out in (data / "cat.png", tmp_path / "linked.nc"):
        with pytest.raises(InputError, match="is a file of the data folder"):
            writing.apart(out, data)
    writing.apart(data / "count.nc", data)  # an earlier result may be made again
    writing.apart(data / "new.nc", data, None)
    writing.apart(None, data)


# Writes a file slowly under a temporary name; the signal comes while it stands there.
SLOW = """
import signal, sys, time, typer
from cocos.base import writing
from cocos.cli import app, main
from pathlib import Path
for each in (signal.SIGINT, signal.SIGTERM):
    signal.signal(each, signal.default_int_handler)
def slow():
    with writing.replacing(Path("x.nc")):
        print("ready", flush=True)
        while True:
            time.sleep(0.05)
app.command("slow")(slow)
sys.argv = ["cocos", "slow"]
main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize(
    ("number", "code", "message"),
    [(signal.SIGTERM, 143, ""), (signal.SIGINT, 130, "cocos: interrupted\n")],
)
def test_a_signal_leaves_no_temporary_file(tmp_path, number, code, message):
    (tmp_path / "x.nc").write_text("old")
    with children.started(sys.executable, "-c", SLOW, cwd=tmp_path) as process:
        assert process.stdout.readline()
        process.send_signal(number)
        _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (code, message)
    assert os.listdir(tmp_path) == ["x.nc"] and (tmp_path / "x.nc").read_text() == "old"


def test_what_a_killed_run_left_is_swept_up(tmp_path):
    names = {".cocos-0123456789abcdef.nc", ".cocos-fedcba9876543210.nc", ".cocos-notes.nc", "cocos-0123456789abcdef.nc"}
    for name in names:
        (tmp_path / name).write_text("")
        if "fedcba" not in name:
            os.utime(tmp_path / name, (0, 0))
    writing.write(tmp_path / "x.nc", b"new")
    assert set(os.listdir(tmp_path)) == names - {".cocos-0123456789abcdef.nc"} | {"x.nc"}


def lines(path):
    with saving.styled():
        figure = Figure(figsize=(2, 2))
        figure.subplots().plot([1, 2], label="lines")
        figure.legend()
        return saving.save(figure, path, {})


def test_a_matplotlibrc_changes_no_picture(fresh, tmp_path):
    """One of the current folder is read by matplotlib itself: with LaTeX, another font and size."""
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\nfont.size: 30\naxes.facecolor: red\nsavefig.dpi: 20\n")
    code = f"import os\nos.chdir({str(tmp_path)!r})\nimport pathlib, matplotlib\n"
    code += "assert matplotlib.rcParams['font.size'] == 30\n"
    code += "from matplotlib.figure import Figure\nfrom cocos.plots import saving\n"
    code += inspect.getsource(lines) + "lines(pathlib.Path('with.png'))"
    done = fresh(code)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "with.png").read_bytes() == lines(tmp_path / "without.png").read_bytes()
