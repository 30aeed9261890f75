"""Trainings in worker processes: each is kept as soon as it is there, and can be compared with a later one."""

import functools
import json
import multiprocessing
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import xarray as xr

from cocos.base.errors import InputError

__all__ = ["Job", "chosen", "differing", "done", "known"]

Row = dict[str, Any]


class Job(Protocol):
    """A training of a plan."""

    @property
    def key(self) -> str:
        """Everything that the training depends on."""


J = TypeVar("J", bound=Job)


def known(path: Path) -> dict[str, Row]:
    """Lines of earlier runs by the key of their job; a last line that was cut off is none."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            held = json.loads(line)
        except ValueError:
            continue
        found[held["key"]] = held
    return found


def _line(job: J, row: Callable[[J], Row]) -> str:
    """The row of a job, with its key and the processor time that it took, as a line of JSON."""
    before = time.process_time()
    found = row(job)
    return json.dumps({"key": job.key, "seconds": time.process_time() - before, "row": found})


def done(planned: Sequence[J], row: Callable[[J], Row], path: Path, workers: int, say: Callable[[str], None]) -> dict:
    """Run the jobs that a file has no line of yet, and return the lines of all: `key`, `seconds` and `row`, by key.

    Args:
        planned: the jobs.
        row: trains and measures one, in a process of its own; what JSON can hold.
        path: the file; each line is written as soon as it is there.
        workers: processes.
        say: takes lines for the user.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    before = known(path)
    left, began = [job for job in planned if job.key not in before], time.monotonic()
    say(f"{path.stem}: {len(planned)} runs, {len(planned) - len(left)} done before")
    if left:
        often = max(1, len(left) // 20)
        with path.open("a", encoding="utf-8") as file, multiprocessing.get_context("spawn").Pool(workers) as pool:
            if before:
                file.write("\n")  # after a line that was cut off
            for number, line in enumerate(pool.imap_unordered(functools.partial(_line, row=row), left), start=1):
                file.write(line + "\n")
                file.flush()
                if number % often == 0 or number == len(left):
                    say(f"{path.stem}: {number} of {len(left)} in {(time.monotonic() - began) / 60:.1f} minutes")
    return known(path)


def chosen(part: str, planned: Sequence[J], number: int) -> J:
    """The job with a number, in the order of the plan.

    Raises:
        InputError: there is no such job.
    """
    if number >= len(planned):
        raise InputError(f"run {number}: {part} has {len(planned)} runs, expected 0 to {len(planned) - 1}")
    return planned[number]


def differing(made: Mapping[str, Any], written: xr.Dataset) -> tuple[list[str], int]:
    """A line for each number that is another one than before in any digit, and the quantity of numbers.

    Args:
        made: numbers by name.
        written: the numbers that were written before, in the same shapes.
    """
    found, numbers = [], 0
    for name, values in made.items():
        before, now = written[name].values, np.asarray(values)
        for place in np.ndindex(before.shape):
            numbers += 1
            if not (now[place] == before[place] or (np.isnan(now[place]) and np.isnan(before[place]))):
                found.append(f"{name} {list(place)}: {before[place]!r} before, {now[place]!r} now")
    return found, numbers
