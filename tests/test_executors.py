"""A count on the workers of an executor: equal to the serial count, and clear when a worker cannot do its part."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

import cocos
from cocos import InputError, measures
from cocos.measures.shared import executors

LOSS_FILE = """
import torch
def contrast(scores, positive):
    return torch.logsumexp(scores.masked_fill(positive, -torch.inf), 1) - (scores * positive).sum(1)
"""


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Chunks of one batch of 16 in this process, which cuts them."""
    monkeypatch.setattr(sys.modules["cocos.measures.count"], "STACK_ROWS", 16)


@pytest.fixture(scope="module")
def pool():
    with executors.Pool(2) as workers:
        yield workers


@pytest.fixture
def embeddings():
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(60, 8, generator=generator)
    return cocos.Embeddings(query, query + 0.5 * torch.randn(60, 8, generator=generator))


@pytest.fixture
def path(embeddings, tmp_path):
    path = tmp_path / "rows.npz"
    np.savez(path, query=embeddings.query.numpy(), candidate=embeddings.candidate.numpy())
    return path


@pytest.mark.parametrize("loss", ["ntxent", "triplet", "circle", "proxy_anchor", ["ntxent", "triplet"]])
def test_pool_count_equals_serial_count(loss, embeddings, path, pool):
    for source in (embeddings, cocos.open(path), cocos.open(path).truncate(4)):
        serial = measures.count(source, loss, batch_size=16)
        with ThreadPoolExecutor(2) as threads:
            counts = [measures.count(source, loss, batch_size=16, executor=workers) for workers in (threads, pool)]
        for count in counts:
            if isinstance(loss, list):
                assert all(count[label].identical(serial[label]) for label in serial)
            else:
                assert count.identical(serial)


def test_dask_count_equals_serial_count(path):
    distributed = pytest.importorskip("distributed")
    source = cocos.open(path)
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        count = measures.count(source, "ntxent", batch_size=16, executor=client.get_executor())
    assert count.identical(measures.count(source, "ntxent", batch_size=16))


def test_progress_reports_each_chunk(embeddings):
    steps = []
    with ThreadPoolExecutor(2) as threads:
        progress = lambda name: lambda done, number: steps.append((done, number))  # noqa: E731
        measures.count(embeddings, "ntxent", batch_size=16, executor=threads, progress=progress)
    assert steps[-4:] == [(k, 4) for k in (1, 2, 3, 4)]


def test_own_loss_in_file_is_counted(embeddings, tmp_path, pool):
    (tmp_path / "own.py").write_text(LOSS_FILE)
    loss = f"{tmp_path / 'own.py'}:contrast"
    serial = measures.count(embeddings, loss, batch_size=16)
    assert measures.count(embeddings, loss, batch_size=16, executor=pool).identical(serial)


def test_loss_without_file_is_refused(embeddings, pool):
    def contrast(scores, positive):
        return (scores.masked_fill(positive, -torch.inf)).logsumexp(1).square() - (scores * positive).sum(1)

    with pytest.raises(InputError, match="file.py:name"):
        measures.count(embeddings, contrast, batch_size=16, executor=pool)


def test_missing_file_is_named(path, pool):
    checkpoint = cocos.open(path)
    checkpoint.embed("train")
    path.rename(path.with_suffix(".old"))
    rows = executors.RowsInFile(path, 1, 1, "train")
    with pytest.raises(InputError, match=str(path)):
        rows.load()


def test_changed_file_is_refused(path):
    rows = executors.RowsInFile.at(path, "train")
    os.utime(path, ns=(1, 1))
    with pytest.raises(InputError, match="time of change"):
        rows.load()


def test_large_rows_need_own_pool(embeddings, monkeypatch, pool):
    monkeypatch.setattr(executors, "MAX_MESSAGE", 100)
    monkeypatch.setattr(executors, "MIN_MAPPED", 100)
    serial = measures.count(embeddings, "ntxent", batch_size=16)
    assert measures.count(embeddings, "ntxent", batch_size=16, executor=pool).identical(serial)
    with ThreadPoolExecutor(2) as threads, pytest.raises(InputError, match="MiB"):
        measures.count(embeddings, "ntxent", batch_size=16, executor=threads)


class Crash:
    """Work that ends its process until a number of marks is in a folder."""

    def __init__(self, folder: Path, times: int):
        self.folder, self.times = folder, times

    def __call__(self, chunk: int) -> int:
        if len(list(self.folder.iterdir())) < self.times:
            (self.folder / f"{os.getpid()}-{chunk}").touch()
            os._exit(1)
        return chunk


@pytest.mark.parametrize(("times", "works"), [(1, True), (99, False)])
def test_broken_pool_is_replaced_once(times, works, tmp_path):
    with executors.Pool(1) as workers:
        if works:
            assert executors.map_chunks(Crash(tmp_path, times), [5, 6], workers, None) == [5, 6]
        else:
            with pytest.raises(InputError, match="ended twice"):
                executors.map_chunks(Crash(tmp_path, times), [5, 6], workers, None)


def test_other_version_is_refused():
    with pytest.raises(InputError, match="expected cocos 0.0, torch 1"):
        executors.Environment("cocos 0.0, torch 1", ()).enter()
