"""Map a function over chunks of work on any `concurrent.futures.Executor`: processes, dask, MPI.

The function and the chunks travel as pickles. Rows in a file are opened by the workers, large rows in memory are mapped
from temporary files by the processes of `Pool`, and the user's functions and classes are imported from their files.
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
from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor

import cocos
from cocos.base import user_code
from cocos.base.errors import InputError

MAX_MESSAGE = 64  # MiB of a pickle that may travel with each task
MIN_MAPPED = 2**20  # bytes from which on a tensor is mapped from a temporary file
VERSIONS = f"cocos {cocos.__version__}, torch {torch.__version__}"


@dataclass(frozen=True)
class SourceFile:
    """File or folder that every worker opens itself. The version is the hash of code, else size and time of change."""

    path: Path
    version: str

    @classmethod
    def at(cls, path: Path) -> "SourceFile":
        """Describe the present state of a file or folder."""
        if path.suffix == ".py":
            return cls(path, hashlib.sha256(path.read_bytes()).hexdigest())
        files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
        statuses = [file.stat() for file in files]
        size, changed = sum(status.st_size for status in statuses), max(status.st_mtime_ns for status in statuses)
        return cls(path, f"{size} {changed}")

    def check(self) -> Path:
        """Return the path; raise InputError if the file is missing on this machine or differs."""
        with contextlib.suppress(OSError, ValueError):
            if SourceFile.at(self.path) == self:
                return self.path
        host = socket.gethostname()
        raise InputError(f"{self.path}: missing or different for the worker on {host}; use a path that all can read")


class Pool(concurrent.futures.ProcessPoolExecutor):
    """Pool of spawned processes on this machine, which share its processors equally."""

    def __init__(self, jobs: int):
        if jobs < 1:
            raise InputError(f"jobs: {jobs}, expected at least 1")
        self.jobs = jobs
        threads = max(1, (os.cpu_count() or 1) // jobs)
        context = multiprocessing.get_context("spawn")
        super().__init__(jobs, context, initializer=torch.set_num_threads, initargs=(threads,))


def connect(jobs: int | None, address: str | None) -> contextlib.AbstractContextManager:
    """Return a context of a new pool, of the workers of a dask scheduler, which keep running, or of None."""
    if jobs is not None and address is not None:
        raise InputError("--jobs and --dask: expected one of them")
    if jobs is not None:
        return Pool(jobs)
    if address is None:
        return contextlib.nullcontext()
    try:
        import distributed

        return distributed.Client(address).get_executor()
    except ImportError:
        raise InputError("dask is not installed: pip install 'cocos-metric[cluster]'") from None
    except (OSError, ValueError) as error:
        raise InputError(f"dask {address}: no scheduler answers ({error}), expected tcp://HOST:PORT") from None


class Pickler(pickle.Pickler):
    """Pickler that writes tensors without the storage they share, large ones to files of a folder if there is one."""

    folder: Path | None = None

    def reducer_override(self, value: Any) -> Any:  # noqa: D102
        if type(value) is Tensor and value.dtype != torch.bfloat16 and not value.requires_grad:
            array = value.numpy()
            if self.folder is None or array.nbytes < MIN_MAPPED:
                return torch.from_numpy, (array.copy(),)
            path = self.folder / f"{len(os.listdir(self.folder))}.npy"
            np.save(path, array)
            return map_tensor, (path,)
        if isinstance(value, type | FunctionType):
            module = sys.modules.get(value.__module__)
            if value.__module__ == "__main__":
                raise pickle.PicklingError(f"{value.__qualname__} is defined in the main script")
            if hasattr(module, "cocos_stamp"):  # imported by `user_code.load`
                return import_object, (SourceFile.at(Path(module.__file__)), value.__qualname__)
        return NotImplemented


def map_tensor(path: Path) -> Tensor:
    """Map a tensor from a file of `Pickler`."""
    return torch.from_numpy(np.load(path, mmap_mode="c"))


def import_object(file: SourceFile, name: str) -> Any:
    """Import a function or class from a Python file."""
    return user_code.load(f"{file.check()}:{name}", "executor")


def write(value: Any, folder: Path | None = None) -> bytes:
    """Pickle a value, with its large tensors in the folder, if there is one."""
    stream = io.BytesIO()
    pickler = Pickler(stream)
    pickler.folder = folder
    try:
        pickler.dump(value)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        hint = "another process needs a loss of your own in a file, file.py:name, and a checkpoint as a path"
        raise InputError(f"executor: {error}; {hint}") from None
    return stream.getvalue()


def read(message: bytes) -> Any:
    """Read the message of `write` from another process of this run, never a file."""
    return pickle.Unpickler(io.BytesIO(message)).load()


read_work = functools.lru_cache(maxsize=1)(read)  # a worker reads the work of many chunks once


def run_task(versions: str, work: bytes, chunk: bytes) -> bytes:
    """Run a task on a worker. The result is a pickle as well, since PyTorch would open a file for each tensor."""
    if versions != VERSIONS:
        raise InputError(f"worker on {socket.gethostname()}: {VERSIONS}, expected {versions}")
    return write(read_work(work)(read(chunk)))


def map_chunks(
    work: Callable[[Any], Any],
    chunks: Sequence[Any],
    executor: concurrent.futures.Executor | None,
    report: Callable[[int, int], None] | None = None,
) -> list:
    """Return the result of each chunk, in order, from the workers of an executor, or from this process without one.

    The executor is not shut down. A `Pool` in which a process ended is replaced once, for the chunks without a result.
    The first error cancels the chunks that have not begun. `report` is called with (chunks done, chunks).
    """
    report = report or (lambda done, number: None)
    results: list[Any] = []
    if executor is None:
        for chunk in chunks:
            results.append(work(chunk))
            report(len(results), len(chunks))
        return results
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cocos-", ignore_cleanup_errors=True)))
        message, *messages = [write(value, folder if isinstance(executor, Pool) else None) for value in (work, *chunks)]
        size = (len(message) + max(map(len, messages))) / 2**20
        if size > MAX_MESSAGE:
            limit = f"expected at most {MAX_MESSAGE}; embeddings.save(PATH), and count the file, which workers read"
            raise InputError(f"executor: {size:,.0f} MiB for each task, {limit}")
        task = functools.partial(run_task, VERSIONS, message)
        for attempt in (1, 2):
            try:
                for result in executor.map(task, messages[len(results) :]):
                    results.append(read(result))
                    report(len(results), len(chunks))
                break
            except BrokenProcessPool as error:
                if attempt == 2 or not isinstance(executor, Pool):
                    hint = "perhaps for lack of memory; use fewer processes"
                    raise InputError(f"executor: a worker process ended early, {hint}") from error
                executor = stack.enter_context(Pool(executor.jobs))
    return results
