"""Plants faults, one at a time, in a copy of the repository, and runs the tests that ought to catch them."""

import importlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["HERE", "Fault", "Found", "Unfit", "copied", "load", "place", "preload", "tried"]

HERE = Path(__file__).parent
SOURCES = (".py", ".c", ".h", ".js", ".html", ".css")
SAID = ".faults.txt"  # file of a copy for what pytest says
HEAVY = (  # imported once, before processes are forked that run tests
    *("h5netcdf", "matplotlib.pyplot", "numpy", "pandas", "PIL.Image", "pytest", "rich.console"),
    *("safetensors.torch", "scipy.cluster.vq", "scipy.special", "seaborn", "torch", "typer.testing", "xarray"),
)
LISTED = re.compile(r"^(?:FAILED|ERROR) ([^\s\[]+)", re.MULTILINE)  # in the summary of pytest; without parameters


class Unfit(ValueError):
    """A fault that cannot be planted as it is listed."""


@dataclass(frozen=True)
class Fault:
    """One change of the code that some test must notice.

    Args:
        name: of the fault.
        room: part of the package it belongs to.
        old: code that stands exactly once in the package.
        new: code that takes its place.
        tests: names of the test files that ought to catch it, the most specific first.
    """

    name: str
    room: str
    old: str
    new: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """Result of one fault.

    Args:
        fault: that was planted.
        caught: whether a test failed that passes without it.
        by: the test, or why the fault counts as missed.
        seconds: the run took.
    """

    fault: Fault
    caught: bool
    by: str
    seconds: float


def load(path: Path = HERE / "faults.toml") -> list[Fault]:
    """The listed faults, in their order."""
    listed = tomllib.loads(path.read_text("utf-8"))["fault"]
    return [Fault(**each | {"tests": tuple(each["tests"])}) for each in listed]


def place(fault: Fault, repository: Path) -> Path:
    """The source file of the package that holds the old code of a fault.

    Raises:
        Unfit: no file holds it, or it stands there more than once; or the new code is no Python.
    """
    sources = sorted(path for path in (repository / "cocos").rglob("*") if path.suffix in SOURCES)
    numbers = {path: number for path in sources if (number := path.read_text("utf-8").count(fault.old))}
    if sum(numbers.values()) != 1:
        where = ", ".join(f"{path.relative_to(repository)} ({number})" for path, number in numbers.items())
        raise Unfit(f"{fault.name}: expected its old code exactly once, found it in {where or 'no file'}: {fault.old}")
    (path,) = numbers
    if path.suffix == ".py":
        try:
            compile(path.read_text("utf-8").replace(fault.old, fault.new), str(path), "exec")
        except SyntaxError as error:
            raise Unfit(f"{fault.name}: its new code is no Python ({error.msg}): {fault.new}") from None
    return path


def copied(repository: Path, folder: Path) -> Path:
    """A copy of the files of a repository that git knows or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=repository, check=True, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        if (repository / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(repository / name, folder / name)
    return folder


def _write(path: Path, content: str) -> None:
    path.write_text(content, "utf-8")
    if path.suffix == ".py":  # a change within a second would go unseen
        Path(importlib.util.cache_from_source(path)).unlink(missing_ok=True)


@contextmanager
def _planted(fault: Fault, repository: Path) -> Generator[None]:
    path = place(fault, repository)
    sound = path.read_text("utf-8")
    try:
        _write(path, sound.replace(fault.old, fault.new))
        yield
    finally:
        _write(path, sound)


def preload() -> None:
    """Import what tests import, the package aside, so that a fork of this process starts at once."""
    for name in HEAVY:
        importlib.import_module(name)
    import torch

    torch.func.grad(torch.sum)(torch.ones(2))  # imports half as much again


def _tests(repository: Path, arguments: list[str]) -> None:
    """Be a process that runs pytest in a copy of the repository."""
    os.setsid()
    with open(repository / SAID, "wb") as said:
        for descriptor in (1, 2):
            os.dup2(said.fileno(), descriptor)
    os.chdir(repository)
    sys.path[:0] = [str(repository)]
    os.environ |= {"PYTHONPATH": str(repository), "XDG_CACHE_HOME": str(repository / ".cache")}
    for name in [name for name in sys.modules if name.partition(".")[0] == "faults"]:
        del sys.modules[name]
    code = 3
    try:
        import pytest

        code = pytest.main(["-x", "-q", "-rfE", "--tb=no", "-p", "no:cacheprovider", *arguments])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(code)


def _run(repository: Path, arguments: list[str], seconds: float) -> tuple[int | None, str]:
    """Exit code of pytest, None past the deadline, and the first test that failed."""
    child = os.fork()
    if not child:
        _tests(repository, arguments)
    end = time.monotonic() + seconds
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > end:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None, ""
        time.sleep(0.05)
    failed = LISTED.search((repository / SAID).read_text("utf-8", "replace"))
    return os.waitstatus_to_exitcode(ended[1]), failed[1] if failed else ""


def tried(fault: Fault, repository: Path, *, deadline: float, whole: bool) -> Found:
    """Plant a fault, and see whether the tests notice.

    Args:
        fault: to plant.
        repository: a copy, which is as it was in the end.
        deadline: seconds that its test files may take; the whole suite has six times as many.
        whole: run the whole suite where its test files miss it.

    Raises:
        Unfit: the fault does not apply, or a test file is not there.
    """
    files = []
    for name in fault.tests:
        there = sorted((repository / "tests").rglob(f"{name}.py"))
        if not there:
            raise Unfit(f"{fault.name}: there is no test file {name}.py")
        files.append(str(there[0].relative_to(repository)))
    begun, code, by = time.monotonic(), 0, ""
    with _planted(fault, repository):
        code, by = _run(repository, ["-n", "0", *files], deadline)
        if whole and code == 0:
            code, by = _run(repository, [], 6 * deadline)
    if code is None:
        why = f"no end within {deadline:g} s"
    elif code not in {1, 2}:
        why = "no test failed" if code == 0 else f"pytest ended with exit code {code}"
    elif by and _run(repository, ["-n", "0", by], deadline)[0] == 0:
        return Found(fault, True, by, time.monotonic() - begun)
    else:
        why = f"{by or 'some test'} fails without the fault too"
    return Found(fault, False, why, time.monotonic() - begun)
