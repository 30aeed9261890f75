"""Count chunks of batches on any `concurrent.futures.Executor`.

The caller opens the file, encodes, draws all row numbers and computes health and findings. A worker counts one chunk of
the batches and returns the statistics of its queries. The chunks depend on the batches alone, so that results are equal
for any executor, for any number of workers, and without an executor.
"""

import concurrent.futures
import contextlib
import functools
import hashlib
import io
import multiprocessing
import os
import pickle
import socket
import sys
import tempfile
import warnings
from collections.abc import Callable, Generator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import cocos
from cocos.base import user_code
from cocos.base.errors import InputError
from cocos.checkpoints import open as open_checkpoint
from cocos.embeddings import Embeddings

# Bytes of rows that travel with each task. The own pool maps larger rows from temporary files.
MAX_MESSAGE = 2**26
# Bytes from which a tensor is mapped from a file of its own.
MIN_MAPPED = 2**20


@dataclass(frozen=True)
class RowsInFile:
    """Embeddings in a file that every worker opens itself.

    Args:
        path: of the file, absolute.
        size: in bytes.
        modified: time of its last change, in nanoseconds.
        split: of the embeddings.
        dims: number of first dimensions to keep; None: all.
    """

    path: Path
    size: int
    modified: int
    split: str
    dims: int | None = None

    @classmethod
    def at(cls, path: Path, split: str, dims: int | None = None) -> "RowsInFile":
        """Describe a file as it is now."""
        status = path.stat()
        return cls(path.resolve(), status.st_size, status.st_mtime_ns, split, dims)

    def load(self) -> Embeddings:
        """Read the embeddings.

        Raises:
            InputError: the file is missing on this machine, or is another file.
        """
        host = socket.gethostname()
        try:
            current = self.at(self.path, self.split, self.dims)
        except OSError:
            raise InputError(
                f"{self.path}: not found by the worker on {host}; use a path that all workers can read"
            ) from None
        if current != self:
            raise InputError(f"{self.path}: the worker on {host} has another size or time of change of this file")
        checkpoint = open_checkpoint(self.path)
        return (checkpoint if self.dims is None else checkpoint.truncate(self.dims)).embed(self.split, "cpu")


class Pool(concurrent.futures.ProcessPoolExecutor):
    """Pool of spawned processes on this machine, which share its processors equally."""

    def __init__(self, jobs: int):
        if jobs < 1:
            raise InputError(f"jobs: {jobs}, expected at least 1")
        self.jobs = jobs
        context = multiprocessing.get_context("spawn")
        threads = max(1, (os.cpu_count() or 1) // jobs)
        super().__init__(jobs, context, initializer=torch.set_num_threads, initargs=(threads,))


@contextlib.contextmanager
def connect_dask(address: str) -> Generator[concurrent.futures.Executor]:
    """Connect to a dask scheduler, and disconnect at the end; its workers keep running.

    Raises:
        InputError: dask is not installed, or no scheduler answers at the address.
    """
    try:
        import distributed
    except ImportError:
        raise InputError("dask is not installed; run pip install 'cocos-metric[cluster]'") from None
    try:
        client = distributed.Client(address)
    except (OSError, ValueError) as error:
        raise InputError(f"dask {address}: no scheduler answers ({error}), expected tcp://HOST:PORT") from None
    with client, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sending large graph")  # each task carries its rows
        yield client.get_executor()


class _Writer(pickle.Pickler):
    """Pickler that writes large tensors to files in a folder, if there is one."""

    def __init__(self, stream: io.BytesIO, folder: Path | None):
        super().__init__(stream)
        self.folder, self.number = folder, 0

    def persistent_id(self, value: Any) -> str | None:
        if self.folder is None or not isinstance(value, Tensor) or value.nbytes < MIN_MAPPED:
            return None
        path = self.folder / f"{self.number}.npy"
        self.number += 1
        np.save(path, value.numpy())
        return str(path)

    def reducer_override(self, value: Any) -> Any:
        """Write the elements of a tensor alone; PyTorch would write the whole storage of which it is a part."""
        if not isinstance(value, Tensor) or value.dtype == torch.bfloat16:
            return NotImplemented
        return torch.from_numpy, (value.numpy().copy(),)


class _Reader(pickle.Unpickler):
    """Unpickler of a message that `_Writer` has written in the calling process."""

    def persistent_load(self, path: str) -> Tensor:
        return torch.from_numpy(np.load(path, mmap_mode="c"))


def _write(work: Any, folder: Path | None) -> bytes:
    stream = io.BytesIO()
    try:
        _Writer(stream, folder).dump(work)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError(
            f"executor: {error}; a loss of your own must be in a file, file.py:name, to be counted by another process"
        ) from None
    return stream.getvalue()


@functools.lru_cache(maxsize=1)
def _read(message: bytes) -> Any:
    return _Reader(io.BytesIO(message)).load()


@dataclass(frozen=True)
class Environment:
    """Code that a worker must share with the caller.

    Args:
        versions: of cocos and torch.
        files: the user's own files: path, kind (`loss`), and sha256 of the content.
    """

    versions: str
    files: tuple[tuple[Path, str, str], ...]

    @classmethod
    def of_process(cls) -> "Environment":
        """Describe this process."""
        files = []
        for name, module in list(sys.modules.items()):
            if name.startswith("cocos_") and (path := Path(module.__file__)).is_file():
                kind = name.removeprefix("cocos_").removesuffix(f"_{path.stem}")
                files.append((path, kind, hashlib.sha256(path.read_bytes()).hexdigest()))
        return cls(f"cocos {cocos.__version__}, torch {torch.__version__}", tuple(files))

    def enter(self) -> None:
        """Import the user's files in a worker.

        Raises:
            InputError: the worker has other versions, or another file or none at a path.
        """
        host, versions = socket.gethostname(), Environment.of_process().versions
        if versions != self.versions:
            raise InputError(f"worker on {host}: {versions}, expected {self.versions}")
        for path, kind, sha256 in self.files:
            if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
                raise InputError(f"{path}: the worker on {host} has another file or none; use a path that all can read")
            user_code.load_file(path, kind)


def _work_on(message: bytes, environment: Environment, chunk: Any) -> bytes:
    """Run a task in a worker; the result is a message as well, since PyTorch would open a file for each tensor."""
    environment.enter()
    return _write(_read(message)(chunk), None)


def map_chunks(
    work: Callable[[Any], Any],
    chunks: Sequence[Any],
    executor: concurrent.futures.Executor,
    report: Callable[[int, int], None] | None,
) -> list:
    """Return the result of each chunk, in order.

    Args:
        work: function of a chunk, a picklable object. It travels with each task.
        chunks: small picklable objects.
        executor: it is never shut down here. A broken `Pool` is replaced once, for the chunks without a result.
        report: called with (chunks done, chunks).

    Raises:
        InputError: `work` cannot be pickled or is too large, or the worker has another version of cocos or torch.
        Exception: the first error of a worker; the chunks not yet begun are cancelled.
    """
    results: dict[int, Any] = {}

    def finish(place: int, result: Any) -> None:
        results[place] = result
        if report:
            report(len(results), len(chunks))

    with tempfile.TemporaryDirectory(prefix="cocos-", ignore_cleanup_errors=True) as folder:
        message = _write(work, None)
        if len(message) > MAX_MESSAGE:
            if not isinstance(executor, Pool):
                raise InputError(
                    f"executor: {len(message) / 2**20:,.0f} MiB of rows in memory, expected at most "
                    f"{MAX_MESSAGE / 2**20:.0f} for each task; save them to a file that all workers can read"
                )
            message = _write(work, Path(folder))
        try:
            _submit(executor, message, chunks, results, finish)
        except BrokenProcessPool:
            if not isinstance(executor, Pool):
                raise
            try:
                with Pool(executor.jobs) as second:
                    _submit(second, message, chunks, results, finish)
            except BrokenProcessPool:
                raise InputError(
                    f"jobs {executor.jobs}: a worker process ended twice before its chunk was counted, perhaps for "
                    "lack of memory; use fewer jobs"
                ) from None
    return [results[place] for place in range(len(chunks))]


def _submit(
    executor: concurrent.futures.Executor,
    message: bytes,
    chunks: Sequence[Any],
    results: dict[int, Any],
    finish: Callable[[int, Any], None],
) -> None:
    """Submit the chunks without a result, and wait for them; the first error cancels the rest."""
    environment = Environment.of_process()
    places = {
        executor.submit(_work_on, message, environment, chunk): place
        for place, chunk in enumerate(chunks)
        if place not in results
    }
    try:
        for future in concurrent.futures.as_completed(places):
            finish(places[future], _Reader(io.BytesIO(future.result())).load())
    except BaseException:
        for future in places:
            future.cancel()
        raise
