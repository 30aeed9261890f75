"""Map a function over chunks of work on any `concurrent.futures.Executor`.

The function and the chunks travel to the workers as pickles. Large tensors are mapped from temporary files by the
processes of `Pool`. Workers import the files of the user that the caller has imported.
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

MAX_MESSAGE = 64  # MiB of a pickle that may travel with each task
MIN_MAPPED = 2**20  # bytes from which on a tensor is mapped from a temporary file
VERSIONS = f"cocos {cocos.__version__}, torch {torch.__version__}"


@dataclass(frozen=True)
class SourceFile:
    """A file or folder that every worker opens itself; `version` is the hash of code, else size and time of change."""

    path: Path
    version: str

    @classmethod
    def at(cls, path: Path) -> "SourceFile":
        """Describe a file or folder in its present state."""
        if path.suffix == ".py":
            return cls(path, hashlib.sha256(path.read_bytes()).hexdigest())
        files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
        statuses = [file.stat() for file in files]
        return cls(path, f"{sum(each.st_size for each in statuses)} {max(each.st_mtime_ns for each in statuses)}")

    def check(self) -> Path:
        """Return the path.

        Raises:
            InputError: the file is missing on this machine, or differs.
        """
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


@contextlib.contextmanager
def connect(jobs: int | None, address: str | None) -> Generator[concurrent.futures.Executor | None]:
    """Start a pool of processes, or connect to a dask scheduler, whose workers keep running; None for neither.

    Raises:
        InputError: both are asked for, dask is not installed, or no scheduler answers at the address.
    """
    if jobs is not None and address is not None:
        raise InputError("--jobs and --dask: expected one of them")
    if jobs is not None:
        with Pool(jobs) as pool:
            yield pool
    elif address is not None:
        try:
            import distributed

            client = distributed.Client(address)
        except ImportError:
            raise InputError("dask is not installed; run pip install 'cocos-metric[cluster]'") from None
        except (OSError, ValueError) as error:
            raise InputError(f"dask {address}: no scheduler answers ({error}), expected tcp://HOST:PORT") from None
        with client, warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")  # each task carries its rows
            yield client.get_executor()
    else:
        yield None


class _Writer(pickle.Pickler):
    """Pickler of tensors without the storage that they share, and to files of a folder if they are large."""

    def __init__(self, stream: io.BytesIO, folder: str | None):
        super().__init__(stream)
        self.folder = folder

    def persistent_id(self, value: Any) -> str | None:
        if self.folder is None or not isinstance(value, Tensor) or value.nbytes < MIN_MAPPED:
            return None
        handle, path = tempfile.mkstemp(".npy", dir=self.folder)
        with open(handle, "wb") as file:
            np.save(file, value.numpy())
        return path

    def reducer_override(self, value: Any) -> Any:
        if getattr(value, "__module__", None) == "__main__" and hasattr(value, "__qualname__"):
            raise pickle.PicklingError(f"{value.__qualname__} is defined in the main script")
        if isinstance(value, Tensor) and value.dtype != torch.bfloat16:
            return torch.from_numpy, (value.numpy().copy(),)
        return NotImplemented


class _Reader(pickle.Unpickler):
    """Unpickler of the messages of `_Writer`, which another process of this count has written."""

    def persistent_load(self, path: str) -> Tensor:
        return torch.from_numpy(np.load(path, mmap_mode="c"))


def write(value: Any, folder: str | None = None) -> bytes:
    """Pickle a value; tensors of at least `MIN_MAPPED` bytes go to files of the folder, if there is one.

    Raises:
        InputError: a part of it cannot be pickled.
    """
    stream = io.BytesIO()
    try:
        _Writer(stream, folder).dump(value)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError(
            f"executor: {error}; another process needs a loss of your own in a file, file.py:name, and a checkpoint "
            "as a path"
        ) from None
    return stream.getvalue()


def read(message: bytes) -> Any:
    """Read a message that another process of this count has written."""
    return _Reader(io.BytesIO(message)).load()


read_work = functools.lru_cache(maxsize=1)(read)  # a worker reads the work of many chunks once


def find_user_code() -> list[tuple[SourceFile, str]]:
    """Return the Python files of the user that this process has imported, with the kind of their objects."""
    files = []
    for name, module in list(sys.modules.items()):
        if name.startswith("cocos_") and hasattr(module, "cocos_stamp"):  # imported by `user_code.load_file`
            path = Path(module.__file__)
            files.append((SourceFile.at(path), name.removeprefix("cocos_").removesuffix(f"_{path.stem}")))
    return files


def run_task(work: bytes, chunk: bytes, versions: str, user_files: Sequence[tuple[SourceFile, str]]) -> bytes:
    """Run a task on a worker. The result is a pickle as well, since PyTorch would open a file for each tensor."""
    if versions != VERSIONS:
        raise InputError(f"worker on {socket.gethostname()}: {VERSIONS}, expected {versions}")
    for file, kind in user_files:
        user_code.load_file(file.check(), kind)
    return write(read_work(work)(read(chunk)))


def map_chunks(
    work: Callable[[Any], Any],
    chunks: Sequence[Any],
    executor: concurrent.futures.Executor | None,
    report: Callable[[int, int], None] | None = None,
) -> list:
    """Return the result of each chunk, in order.

    Args:
        work: function of a chunk, a picklable object. It travels with each task.
        chunks: picklable objects.
        executor: it is not shut down. A broken `Pool` is replaced once, for the chunks without a result. None: the
            chunks are counted in this process.
        report: called with (chunks done, chunks).

    Raises:
        InputError: `work` or a chunk cannot be pickled or is too large, or a worker has other code.
        Exception: the first error of a worker; the chunks not yet begun are cancelled.
    """
    report = report or (lambda done, number: None)
    results: dict[int, Any] = {}
    if executor is None:
        for place, chunk in enumerate(chunks):
            results[place] = work(chunk)
            report(len(results), len(chunks))
        return list(results.values())
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="cocos-", ignore_cleanup_errors=True))
        is_own = isinstance(executor, Pool)
        message, *messages = [write(value, folder if is_own else None) for value in (work, *chunks)]
        size = (len(message) + max(map(len, messages))) / 2**20
        if size > MAX_MESSAGE:
            raise InputError(
                f"executor: {size:,.0f} MiB of rows in memory for each task, expected at most {MAX_MESSAGE}; save them "
                "to a file that all workers can read"
            )
        user_files = find_user_code()
        for attempt in (1, 2):
            tasks: dict[concurrent.futures.Future, int] = {}
            try:
                for place in set(range(len(chunks))) - results.keys():
                    tasks[executor.submit(run_task, message, messages[place], VERSIONS, user_files)] = place
                for task in concurrent.futures.as_completed(tasks):
                    results[tasks[task]] = read(task.result())
                    report(len(results), len(chunks))
            except BrokenProcessPool as error:
                if not isinstance(executor, Pool):
                    raise
                if attempt == 2:
                    raise InputError(
                        "jobs: a worker process ended twice before its chunk was counted, perhaps for lack of memory; "
                        "use fewer jobs"
                    ) from error
                executor = stack.enter_context(Pool(executor.jobs))
            finally:
                for task in tasks:
                    task.cancel()
    return [results[place] for place in range(len(chunks))]
