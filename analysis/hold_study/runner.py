"""Run the stacks of a part in worker processes, keep each as soon as it is there, and write the table of trainings."""

import json
import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from analysis.hold_study.plan import AFTER, Stack, stacks
from analysis.hold_study.probe import measured
from analysis.hold_study.tasks import task
from analysis.hold_study.training import trained
from cocos import results
from cocos.base.errors import InputError
from cocos.monitor.hold import EVERY

__all__ = ["RESULTS", "again", "dataset", "row", "run"]

RESULTS = Path(__file__).parent / "results"
LABELS = {
    "rsum": ("sum of R@1, R@5 and R@10 of both directions, test items", "points of 600"),
    "rsum_val": ("sum of R@1, R@5 and R@10 of both directions, validation items", "points of 600"),
    "effective": ("effective number of negatives at the end, training items", "candidates"),
    "temperature": ("temperature at the end", "score"),
}


def row(stack: Stack) -> dict[str, Any]:
    """Train and measure: a list over the arms of each number, and the temperatures that were set, by arm."""
    torch.set_num_threads(1)  # the order of sums, and so the last digits, depends on it
    found = trained(stack, task(stack.data))
    settings = {stack.arms[place].kind: values for place, values in found.history.items()}
    return measured(found, task(stack.data), stack.batch_size, stack.loss) | {"settings": settings}


def _line(stack: Stack) -> str:
    """The row of a stack, with the stack and the processor time that it took, as a line of JSON."""
    before = time.process_time()
    found = row(stack)
    return json.dumps({"stack": json.loads(stack.key), "seconds": time.process_time() - before, "row": found})


def _known(path: Path) -> dict[str, dict]:
    """Rows of earlier runs by the key of their stack; a last line that was cut off is no row."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            held = json.loads(line)
        except ValueError:
            continue
        found[json.dumps(held["stack"])] = held
    return found


def run(part: str, work: Path, workers: int, say: Callable[[str], None]) -> Path:
    """Run all stacks of a part that are not in the work folder yet, and write its Dataset.

    Args:
        part: one of `plan.PARTS`.
        work: folder of the rows, a line of JSON each.
        workers: processes, one thread each.
        say: takes lines for the user.
    """
    path, planned = work / f"{part}.jsonl", stacks(part)
    work.mkdir(parents=True, exist_ok=True)
    known = _known(path)
    left, began = [stack for stack in planned if stack.key not in known], time.monotonic()
    say(f"{part}: {len(planned)} stacks, {len(planned) - len(left)} done before")
    if left:
        with path.open("a", encoding="utf-8") as file, multiprocessing.get_context("spawn").Pool(workers) as pool:
            if known:
                file.write("\n")  # after a line that was cut off
            for done, line in enumerate(pool.imap_unordered(_line, left), start=1):
                file.write(line + "\n")
                file.flush()
                if done % 24 == 0 or done == len(left):
                    say(f"{part}: {done} of {len(left)} in {(time.monotonic() - began) / 60:.1f} minutes")
    RESULTS.mkdir(exist_ok=True)
    return results.save(dataset(part, _known(path)), RESULTS / f"{part}.nc")


def again(part: str, number: int) -> tuple[list[str], int, str]:
    """Train a stack of the results once more.

    Args:
        part: one of `plan.PARTS`, whose results are written.
        number: of the stack, in the order of the plan.

    Returns:
        A line for each number that differs in any digit, the quantity of numbers, and the setting.

    Raises:
        InputError: there is no such stack.
    """
    planned = stacks(part)
    if number >= len(planned):
        raise InputError(f"run {number}: {part} has {len(planned)} stacks, expected 0 to {len(planned) - 1}")
    stack, differing, numbers = planned[number], [], 0
    arms = len(stack.arms)
    written = results.open(RESULTS / f"{part}.nc").isel(run=slice(number * arms, (number + 1) * arms))
    made = dataset_of(stack, row(stack))
    for name, values in made.items():
        for place, (before, now) in enumerate(zip(written[name].values.ravel(), values.ravel(), strict=True)):
            numbers += 1
            if not (now == before or (np.isnan(now) and np.isnan(before))):
                differing.append(f"{name} {place}: {before!r} before, {now!r} now")
    return differing, numbers, f"{stack.cell} rate={stack.rate:g} seed={stack.seed}, {arms} arms"


def dataset_of(stack: Stack, found: dict[str, Any]) -> dict[str, np.ndarray]:
    """Numbers of the arms of a stack, (arms,), and of cells the temperatures that were set, (arms, settings)."""
    made = {name: np.array(found[name], dtype=np.float64) for name in LABELS}
    every = round(1 / EVERY)
    path = np.full((len(stack.arms), every), np.nan)
    for place, arm in enumerate(stack.arms):
        own, first = found["settings"].get(arm.kind, []), round(AFTER.get(arm.kind, 0) * every)
        path[place, first : first + len(own)] = own
    return made | ({"path": path} if stack.part == "cells" else {})


def dataset(part: str, rows: dict[str, dict]) -> xr.Dataset:
    """The table of the trainings of a part, dims run and setting, in the order of the plan.

    Args:
        part: one of `plan.PARTS`.
        rows: `row`, `stack` and `seconds` by the key of each stack.
    """
    planned = stacks(part)
    found = [dataset_of(each, rows[each.key]["row"]) for each in planned]
    made: dict[str, tuple] = {
        name: ("run", np.concatenate([each[name] for each in found]), *label) for name, label in LABELS.items()
    }
    if part == "cells":
        path = np.concatenate([each["path"] for each in found])
        made["path"] = (("run", "setting"), path, "temperature at each setting", "score")
    spent = [rows[each.key]["seconds"] / len(each.arms) for each in planned for _ in each.arms]
    made["seconds"] = ("run", spent, "processor time of the stack over its arms", "s")
    attrs = results.versions() | {"title": f"Trainings of the second study: {part}"}
    data = results.labelled(made, attrs)
    about = {
        name: [getattr(each, name) for each in planned for _ in each.arms]
        for name in ("cell", "data", "loss", "width", "batch_size", "rate", "seed")
    }
    about |= {
        name: [getattr(arm, name) for each in planned for arm in each.arms]
        for name in ("kind", "temperature", "weight")
    }
    about["start"] = about.pop("temperature")
    return data.assign_coords({name: ("run", np.array(values)) for name, values in about.items()})
