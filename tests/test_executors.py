"""Counts on the workers of an executor: equal to those without one, and one clear error if a worker cannot count."""

import concurrent.futures
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import cocos
from cocos import InputError, measures
from cocos.checkpoints.formats import shards
from cocos.measures.shared import executors

LOSS_FILE = """
import torch
def contrast(scores, positive):
    return torch.logsumexp(scores.masked_fill(positive, -torch.inf), 1) - (scores * positive).sum(1)"""
MAIN_SCRIPT = f"""
import concurrent.futures, multiprocessing, sys, torch, cocos
{LOSS_FILE}.square()  # no built-in loss
if __name__ == "__main__":
    rows = cocos.Embeddings(torch.eye(9), 2 * torch.eye(9))
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        try:
            cocos.count(rows, contrast, batch_size=3, executor=pool)
        except cocos.InputError as error:
            sys.exit(2)
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A file of pairs, the same pairs in shards, files of two steps, a loss, and the pairs in memory."""
    folder = tmp_path_factory.mktemp("files")
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(60, 8, generator=generator)
    embeddings = cocos.Embeddings(query, query + 0.5 * torch.randn(60, 8, generator=generator))
    arrays = {"query": embeddings.query.numpy(), "candidate": embeddings.candidate.numpy()}
    (folder / "shards").mkdir()
    for name, values in arrays.items():
        for number, part in enumerate(np.split(values, [13, 40])):
            np.save(folder / "shards" / f"{name}_{number}.npy", part)
    (folder / "run").mkdir()
    for step in (10, 20):
        np.savez(
            folder / "run" / f"step_{step}.npz", query=step * arrays["query"], candidate=arrays["candidate"] - step
        )
    np.savez(folder / "rows.npz", **arrays)
    (folder / "own.py").write_text(LOSS_FILE)
    return folder, embeddings


def count(source, loss="ntxent", **options):
    return measures.count(source, loss, **{"batch_size": 16} | options)


QUESTIONS = {
    "memory": lambda folder, rows, **options: count(rows, **options),
    "file": lambda folder, rows, **options: count(cocos.open(folder / "rows.npz"), "triplet", **options),
    "dimensions": lambda folder, rows, **options: count(cocos.open(folder / "rows.npz").truncate(4), **options),
    "rows": lambda folder, rows, **options: count(rows, "circle", **options),
    "coupled": lambda folder, rows, **options: count(rows, "proxy_anchor", **options),
    "slice": lambda folder, rows, **options: count(rows, batches="1:3", **options),
    "own loss": lambda folder, rows, **options: count(rows, f"{folder / 'own.py'}:contrast", **options),
    "two losses": lambda folder, rows, **options: count(rows, ["ntxent", "triplet"], **options)["Triplet(margin=0.2)"],
    "shards": lambda folder, rows, **options: count(cocos.open(folder / "shards"), **options),
    "shards, slice": lambda folder, rows, **options: count(cocos.open(folder / "shards"), batches="1:5", **options),
    "shards, dimensions": lambda folder, rows, **options: count(cocos.open(folder / "shards").truncate(3), **options),
}
RUNS = {
    "files": lambda folder, rows, **options: measures.run(folder / "run", "ntxent", batch_size=16, **options),
    "memory": lambda folder, rows, **options: measures.run([rows, rows], batch_size=16, **options),
    "evaluated": lambda folder, rows, **options: measures.run(folder / "run", evaluated=folder / "run", **options),
}


@pytest.fixture(scope="module", params=["threads", "own pool", "spawned pool", "dask"])
def executor(request):
    if request.param == "threads":
        with concurrent.futures.ThreadPoolExecutor(2) as threads:
            yield threads
    elif request.param == "own pool":
        with executors.Pool(2) as pool:
            yield pool
    elif request.param == "spawned pool":
        with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            yield pool
    else:
        distributed = pytest.importorskip("distributed")
        options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
        with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
            yield client.get_executor()


@pytest.fixture
def small_chunks(monkeypatch):
    """Chunks of one batch of 16 in this process, which cuts them; shards are read batch by batch."""
    monkeypatch.setattr(sys.modules["cocos.measures.count"], "STACK_ROWS", 16)
    monkeypatch.setattr(sys.modules["cocos.measures.count"], "STORED_ROWS", 16)
    monkeypatch.setattr(shards, "MIN_MAPPED", 1)


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.usefixtures("small_chunks")
def test_count_equals_serial_count(question, files, executor):
    ask = QUESTIONS[question]
    assert ask(*files, executor=executor).identical(ask(*files))


@pytest.mark.parametrize("question", RUNS)
def test_run_equals_serial_run(question, files, executor):
    ask = RUNS[question]
    assert ask(*files, executor=executor).identical(ask(*files))


@pytest.mark.usefixtures("small_chunks")
def test_progress_reports_each_chunk(files, executor):
    steps = []
    count(files[1], executor=executor, progress=lambda name: lambda done, number: steps.append((done, number)))
    assert steps[-4:] == [(k, 4) for k in (1, 2, 3, 4)]


def test_worker_error_keeps_its_class(files, executor, tmp_path):
    damaged = tmp_path / "own.py"
    damaged.write_text(LOSS_FILE.replace("torch.logsumexp", "1 / 0 * torch.logsumexp"))
    with pytest.raises(InputError, match=r"own\.py:4"):
        count(files[1], f"{damaged}:contrast", executor=executor)


def test_own_pool_maps_large_rows(files, monkeypatch):
    monkeypatch.setattr(executors, "MAX_MESSAGE", 0.02)
    monkeypatch.setattr(executors, "MIN_MAPPED", 100)
    with executors.Pool(1) as pool:
        assert count(files[1], executor=pool).identical(count(files[1]))
    with concurrent.futures.ThreadPoolExecutor(1) as threads, pytest.raises(InputError, match="MiB"):
        monkeypatch.setattr(executors, "MAX_MESSAGE", 1e-4)
        count(files[1], executor=threads)


def test_loss_of_main_script_is_refused(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(MAIN_SCRIPT)
    assert subprocess.run([sys.executable, script], timeout=120, check=False).returncode == 2


@pytest.mark.parametrize("change", [lambda path: path.unlink(), lambda path: os.utime(path, ns=(1, 1))])
def test_changed_or_missing_file_is_refused(change, tmp_path):
    path = tmp_path / "rows.npz"
    path.write_bytes(b"rows")
    source = executors.SourceFile.at(path)
    assert source.check() == path
    change(path)
    with pytest.raises(InputError, match=r"rows\.npz"):
        source.check()


class Crash:
    """Work that ends its process until a number of marks is in a folder."""

    def __init__(self, folder: Path, times: int):
        self.folder, self.times = folder, times

    def __call__(self, chunk: int) -> int:
        if len(list(self.folder.iterdir())) < self.times:
            (self.folder / f"{os.getpid()}-{chunk}").touch()
            os._exit(1)
        return chunk


def test_broken_pool_is_replaced_once(tmp_path):
    with executors.Pool(1) as pool:
        assert executors.map_chunks(Crash(tmp_path, 1), [5, 6], pool) == [5, 6]
    with executors.Pool(1) as pool, pytest.raises(InputError, match="ended early"):
        executors.map_chunks(Crash(tmp_path, 99), [5, 6], pool)


def test_killed_dask_worker_is_replaced(tmp_path):
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        assert executors.map_chunks(Crash(tmp_path, 1), [5, 6, 7], client.get_executor()) == [5, 6, 7]


def test_other_version_is_refused():
    with pytest.raises(InputError, match="expected cocos 0"):
        executors.run_task("cocos 0", b"", b"")
