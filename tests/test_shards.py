"""Several processes give the numbers of one, and end together: torchrun as a user meets it, gloo on a CPU."""

import json
import os
import pickle
import signal
import socket
import sys
import traceback
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
import xarray as xr
from typer.testing import CliRunner

import children
import cocos
from cocos import measures, results
from cocos.base import processes
from cocos.base.errors import InputError
from cocos.base.processes import World
from cocos.checkpoints.formats import shards
from cocos.checkpoints.shard_rows import ShardRows
from cocos.commands import app, main
from cocos.embeddings import sources
from cocos.engine import prepared, streamed

LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
ELASTIC = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "FORCE_COLOR", "TTY_COMPATIBLE")
PLAIN = {k: v for k, v in os.environ.items() if k not in ELASTIC} | {"OMP_NUM_THREADS": "1"}


def torchrun(processes, *arguments, cwd):
    """Several processes of one command; (exit code, stdout, stderr)."""
    done = children.run(*LAUNCH, f"--nproc-per-node={processes}", *arguments, cwd=cwd, env=PLAIN)
    return done.returncode, done.stdout, done.stderr


def said(stderr):
    """The command's sentences, without what torchrun says."""
    return [line for line in stderr.splitlines() if line.startswith("cocos: ")]


def sides():
    """50 images with 5 captions each, around them."""
    generator = np.random.default_rng(3)
    image = generator.normal(size=(50, 8)).astype(np.float32)
    group = np.repeat(np.arange(50), 5)
    caption = image[group] + 0.8 * generator.normal(size=(250, 8)).astype(np.float32)
    return {"query": image, "candidate": caption, "query_group": np.arange(50), "candidate_group": group}


def large():
    """Two sides of 3,000 rows that are drawn in windows."""
    generator = np.random.default_rng(8)
    query = generator.normal(size=(3000, 6)).astype(np.float16)
    return {"query": query, "candidate": (query + generator.normal(size=query.shape) / 2).astype(np.float16)}


def counted_set():
    """The count of these rows, and the rows that this process has read of one side."""
    seen, read = [], ShardRows.read

    def noted(self, index):
        seen.append(index)
        return read(self, index)

    with patch.object(ShardRows, "read", noted):
        found = measures.count(cocos.open("set"), "ntxent", batch_size=20, window=100)
    with patch.object(shards, "MIN_MAPPED", 1), patch.object(streamed, "SECTION", 130):
        asked = measures.count(cocos.open("set"), "ntxent", queries=40)
    return (found, asked), len(torch.cat(seen).unique())


def runs():
    """Datasets of runs that differ in their sides, coupling, dtype, and number and size of batches.

    The last ones are of one batch, whose parts the processes share.
    """
    two = cocos.Embeddings(*sides().values())
    labelled = cocos.Embeddings.labelled(two.candidate, two.candidate_group)
    proxies = cocos.Embeddings(two.candidate, two.query, two.candidate_group, two.query_group, directions=("s2p",))
    yield "many batches", measures.count(two, "ntxent", batch_size=32)
    yield "two batches", measures.count(two, "smoothap", batch_size=25)
    yield "batches held", measures.count(two, "ntxent", batch_size=32, n90=True)
    yield "one batch", measures.count(two, "ce_softmax", batch_size=250)
    yield "labelled", measures.count(labelled, "multi_similarity", batch_size=40, batches=6, dtype="float32")
    yield "proxies", measures.count(proxies, "proxynca_pp", batch_size=60)
    with patch.object(prepared, "SHARED_SCORES", 0):  # as if the batch were a large one
        own = (torch.arange(250)[:, None] + torch.tensor([3, 70])) % 250  # hard negatives that others have as positives
        hard = cocos.Embeddings(two.candidate, two.candidate.roll(1, 1) + two.candidate, negatives=own)
        mnrl = cocos.losses.load("mnrl", {"directions": sources.GTE_DIRECTIONS})
        yield "columns", measures.count(hard, mnrl, batch_size=200)
        for name in ("ntxent", "siglip", "triplet", "smoothap", "ce_softmax", "ce_nm", "snm"):
            whole = measures.count(two, name, batch_size="all", sample="groups", metrics=name == "triplet")
            yield f"one batch, {name}", whole


@pytest.fixture
def alone(monkeypatch):
    """No launcher has set anything."""
    for name in ELASTIC:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A file of embeddings, and losses that fail in one of two processes."""
    folder = tmp_path_factory.mktemp("shards")
    np.savez(folder / "a.npz", **sides())
    (folder / "set").mkdir()
    for name, rows in large().items():
        for number, some in enumerate(np.array_split(rows, 5)):
            np.save(folder / "set" / f"{name}_{number}.npy", some)
    (folder / "mine.py").write_text(LOSSES)
    return folder


LOSSES = """
import os
import signal

from cocos.base import processes

processes.LINGER = min(1.0, processes.LINGER)  # a launcher of this machine ends the others at once


def raises(scores, positive, negative):
    if os.environ["RANK"] == "1":
        raise RuntimeError("no more of this")
    return scores.masked_fill(~negative, -10).logsumexp(dim=1) - (scores * positive).sum(dim=1)


def is_killed(scores, positive, negative):
    if os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    return scores.masked_fill(~negative, -10).logsumexp(dim=1) - (scores * positive).sum(dim=1)
"""


def in_one_of_several():
    """What each process of the first test below does."""
    here = processes.join("cpu")
    assert here == processes.world() == processes.launched() and here.size == 3
    assert torch.distributed.get_backend() == "gloo"
    own = {"rank": here.rank, "ones": [torch.ones(here.rank, dtype=torch.bool)], "nan": torch.tensor([0.1, np.nan])[1:]}
    for rank, other in enumerate(processes.gather(own)):
        assert other["rank"] == rank
        assert torch.equal(other["ones"][0], torch.ones(rank, dtype=torch.bool))
        assert other["nan"].shape == (1,) and other["nan"].isnan().all()
    found = dict(runs())
    if processes.first():
        Path("three.pickle").write_bytes(pickle.dumps(found))
    generator = torch.Generator().manual_seed(here.rank)  # encoders that are not seeded alike
    other = torch.randn(50, 8, generator=generator)
    with pytest.raises(InputError, match="the embeddings of ranks 0 and 1 differ"):
        measures.count(cocos.Embeddings(other, other + 0.1, torch.arange(50), torch.arange(50)))
    processes.close()
    assert processes.world() == World(0, 1) and processes.gather("me") == ["me"]


def one_of_fourteen():
    """What each of more processes than a matrix has parts does."""
    processes.join("cpu")
    found, read = counted_set()
    every = processes.gather(read)
    if processes.first():
        Path("fourteen.pickle").write_bytes(pickle.dumps((found, every)))
    processes.close()


def command(*arguments):
    """The command as a process of its own has it."""

    def work():
        sys.argv = ["cocos", "count", "a.npz", *arguments, "--out", "no.nc"]
        main()

    return work


WORK = {  # how many processes do what
    "three": (3, in_one_of_several),
    "fourteen": (14, one_of_fourteen),
    "unknown": (2, command("--loss", "ntxnt", "--json")),
    "killed": (2, command("--loss", "mine.py:is_killed", "--batch-size", "32")),
    "raises": (2, command("--loss", "mine.py:raises", "--batch-size", "32")),
}


def rank_of(rank, size, port, work):
    """Start a process with the environment that torchrun gives; its exit code is 0, or that of the command."""
    if child := os.fork():
        return child
    signal.alarm(children.DEADLINE)
    place = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in place.items()})
    for descriptor, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{name}{rank}", os.O_WRONLY | os.O_CREAT), descriptor)
    try:
        work()
    except SystemExit as stop:
        sys.stderr.flush()
        os._exit(stop.code or 0)
    except BaseException:
        traceback.print_exc()
        os._exit(99)
    os._exit(0)


def fork_all(names):
    """Do pieces of `WORK` in forks of one process, which has imported everything."""
    processes.LINGER = 0.5  # of launchers, and there is none
    found = {}
    for name in names:
        size, work = WORK[name]
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        forked = [rank_of(rank, size, port, work) for rank in range(size)]
        codes = {forked[-1]: os.waitpid(forked[-1], 0)[1]}
        if name == "raises":
            os.kill(forked[0], signal.SIGTERM)  # as torchrun does with the others when one fails
        codes |= {each: os.waitpid(each, 0)[1] for each in forked[:-1]}
        codes = [os.waitstatus_to_exitcode(codes[each]) for each in forked]
        found[name] = [
            (code, *(Path(f"{each}{k}").read_text("utf-8") for each in ("out", "err"))) for k, code in enumerate(codes)
        ]
        for path in Path().glob("[oe][ur][tr][0-9]*"):
            path.unlink()
    print(json.dumps(found))


def started(folder, *names):
    """(exit code, stdout, stderr) of every process of each piece of `WORK` that is named."""
    done = children.run(sys.executable, __file__, *names, cwd=folder, env=PLAIN)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def forked(folder):
    return started(folder, "unknown", "killed", "raises")


@pytest.mark.slow
def test_three_processes_count_what_one_counts(alone, folder):
    assert started(folder, "three")["three"] == [[0, "", ""]] * 3
    found, batches = pickle.loads((folder / "three.pickle").read_bytes()), []
    for name, expected in runs():
        xr.testing.assert_identical(found[name], expected)
        batches.append(expected.sizes["batch"])
    assert min(batches) == 1 and max(batches) > 6 and {size % 3 for size in batches} == {0, 1, 2}


@pytest.mark.slow
def test_fourteen_processes_share_the_shards_of_a_set(alone, folder):
    assert started(folder, "fourteen")["fourteen"] == [[0, "", ""]] * 14
    found, read = pickle.loads((folder / "fourteen.pickle").read_bytes())
    alone.chdir(folder)
    expected, whole = counted_set()
    for each, same in zip(found, expected, strict=True):
        xr.testing.assert_identical(each, same)
    assert whole == 3000
    assert max(read) <= 100 + 3 * 100 < sum(read)  # the first window, and three of the thirty


@pytest.mark.slow
def test_the_command_prints_and_writes_once(alone, folder):
    one, two = folder / "one.nc", folder / "two.nc"
    alone.chdir(folder)
    options = ["count", "a.npz", "--loss", "ntxent", "--batch-size", "32", "--json", "--out"]
    expected = CliRunner().invoke(app, [*options, str(one)])
    code, out, err = torchrun(2, "-m", "cocos", *options, two, cwd=folder)
    assert (code, said(err)) == (0, []), err
    assert out == expected.stdout and json.loads(out)["batches"] == 8
    assert err.count(f"wrote {two}") == err.count("a.npz (embeddings): loss ntxent") == 1
    xr.testing.assert_identical(results.open(two), results.open(one))
    assert not list(folder.glob(".cocos-*"))


def test_the_first_rank_speaks_first_and_the_others_say_who_they_are(folder, forked):
    first, second = forked["unknown"]
    sentence = "unknown loss 'ntxnt': did you mean 'ntxent'?"
    assert first == [2, "", f"cocos: {sentence}\n"] and second == [2, "", f"cocos: rank 1: {sentence}\n"]
    assert not (folder / "no.nc").exists()


def test_a_rank_that_is_killed_stops_the_others(folder, forked):
    first, second = forked["killed"]
    assert second == [-signal.SIGKILL, "", ""]
    assert first[:2] == [2, ""] and "another of the 2 processes ended without its part" in said(first[2])[0]
    assert not (folder / "no.nc").exists() and not list(folder.glob(".cocos-*"))


def test_a_rank_that_fails_says_why_and_the_others_end_silently(folder, forked):
    first, second = forked["raises"]
    assert second[:2] == [2, ""] and len(said(second[2])) == 1
    assert [second[2].count(each) for each in ("cocos: rank 1: mine.py:raises", "no more of this")] == [1, 1]
    assert first[:2] == [128 + signal.SIGTERM, ""] and said(first[2]) == []
    assert not (folder / "no.nc").exists() and not list(folder.glob(".cocos-*"))


def test_one_process_is_alone(alone):
    assert processes.join() == processes.world() == World(0, 1) and processes.first()
    assert not torch.distributed.is_initialized()
    assert processes.mine("abc") == ["a", "b", "c"] and processes.collect(["a"]) == ["a"]
    value = {"x": [torch.eye(2), (1, torch.tensor(True))]}
    (found,) = processes.gather(value)
    assert torch.equal(found["x"][0], torch.eye(2)) and found["x"][1] == (1, torch.tensor(True))
    processes.alike("nothing", torch.eye(2))
    assert processes.turn() == ""
    processes.close()
    alone.setenv("WORLD_SIZE", "1")
    alone.setenv("RANK", "0")
    assert processes.join() == World(0, 1) and not torch.distributed.is_initialized()


def test_who_does_not_join_is_alone(alone):
    """A training script under torchrun may count on one rank only: it must not wait for the others."""
    for name, value in zip(ELASTIC[:5], ("1", "2", "1", "localhost", "29500"), strict=True):
        alone.setenv(name, value)
    assert processes.launched() == World(1, 2)
    assert processes.world() == World(0, 1) and processes.first()
    assert processes.mine([1, 2, 3]) == [1, 2, 3] and processes.gather(5) == [5]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("number", [0, 1, 4, 9])
def test_shares_are_apart_and_come_back_in_order(monkeypatch, size, number):
    items, shares = list(range(number)), []
    for rank in range(size):
        monkeypatch.setattr(processes, "world", lambda rank=rank: World(rank, size))
        shares.append(processes.mine(items))
    assert sorted(sum(shares, [])) == items
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    monkeypatch.setattr(processes, "gather", lambda value, device: shares)
    assert processes.collect(shares[-1]) == items


WRONG = {
    "no size": ({"RANK": "0"}, "WORLD_SIZE is missing, expected a whole number from 1"),
    "no rank": ({"WORLD_SIZE": "2"}, "RANK is missing, expected a whole number from 0 to 1"),
    "rank too large": ({"WORLD_SIZE": "2", "RANK": "2"}, "RANK is '2', expected a whole number from 0 to 1"),
    "no number": ({"WORLD_SIZE": "2", "RANK": "-1"}, "RANK is '-1', expected a whole number from 0 to 1"),
    "no processes": ({"WORLD_SIZE": "0", "RANK": "0"}, "WORLD_SIZE is '0', expected a whole number from 1"),
    "no port": ({"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "localhost"}, "MASTER_PORT is missing"),
    "no host": ({"WORLD_SIZE": "2", "RANK": "0", "MASTER_PORT": "29500"}, "MASTER_ADDR is missing"),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_environment_that_is_not_whole_is_refused(alone, folder, name):
    environment, sentence = WRONG[name]
    for key, value in environment.items():
        alone.setenv(key, value)
    done = CliRunner().invoke(app, ["count", str(folder / "a.npz")])
    assert (done.exit_code, done.stdout) == (2, "")
    assert sentence in done.stderr and done.stderr.count("\n") == 1


def test_other_commands_are_not_repeated_by_every_rank(alone):
    alone.setenv("WORLD_SIZE", "2")
    alone.setenv("RANK", "0")
    alone.setenv("MASTER_ADDR", "localhost")
    alone.setenv("MASTER_PORT", "29500")
    done = CliRunner().invoke(app, ["losses"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "2 processes: only cocos count shares its work" in done.stderr


def test_processes_that_do_not_come_are_not_waited_for_forever(alone, tmp_path):
    """Rank 1 of 2 and no rank 0: nobody listens at its port."""
    for name, value in zip(ELASTIC[:5], ("1", "2", "1", "localhost", "1"), strict=True):
        alone.setenv(name, value)
    alone.setattr(processes, "MEETING", timedelta(seconds=1))
    with pytest.raises(InputError, match="2 processes should meet at localhost:1 and did not"):
        processes.join("cpu")
    assert processes.world() == World(0, 1)


@pytest.mark.parametrize(
    ("device", "gpus", "expected"),
    [
        ("cpu", 2, None),
        ("auto", 0, None),
        ("cuda", 2, 1),
        (None, 2, 1),
        ("cuda", 1, "process 2 of this machine finds 1 GPUs"),
        ("cuda:0", 2, "device: 'cuda:0', but each process takes a GPU of its own"),
    ],
)
def test_each_process_takes_a_gpu_of_its_own(alone, device, gpus, expected):
    alone.setenv("LOCAL_RANK", "1")
    alone.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    alone.setattr(torch.cuda, "device_count", lambda: gpus)
    if not isinstance(expected, str):
        assert processes._own_gpu(device) == expected
        return
    with pytest.raises(InputError, match=expected):
        processes._own_gpu(device)


if __name__ == "__main__":
    fork_all(sys.argv[1:])
