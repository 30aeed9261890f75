"""Run the trainings of a part, keep each as soon as it is there, write its table, and run some once more."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from analysis import runs
from analysis.hold_study import scale_plan, scale_table, scale_training
from analysis.hold_study.plan import AFTER, PARTS, Stack, stacks
from analysis.hold_study.probe import measured
from analysis.hold_study.tasks import task
from analysis.hold_study.training import trained
from cocos import results
from cocos.monitor.hold import EVERY

__all__ = ["EVERY_PART", "RESULTS", "again", "dataset", "planned", "row", "run"]

EVERY_PART = (*PARTS, *scale_plan.PARTS)
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


def planned(part: str) -> list[Any]:
    """Stacks of one of `plan.PARTS`, or trainings of one of `scale_plan.PARTS`."""
    return scale_plan.trials(part) if part in scale_plan.PARTS else stacks(part)


def run(part: str, work: Path, workers: int, say: Callable[[str], None]) -> Path:
    """Run all trainings of a part that are not in the work folder yet, and write its Dataset.

    Args:
        part: one of `EVERY_PART`.
        work: folder of the rows, a line of JSON each.
        workers: processes, one thread each.
        say: takes lines for the user.
    """
    moving = part in scale_plan.PARTS
    made = runs.done(planned(part), scale_training.row if moving else row, work / f"{part}.jsonl", workers, say)
    RESULTS.mkdir(exist_ok=True)
    table = scale_table.dataset(part, planned(part), made) if moving else dataset(part, made)
    return results.save(table, RESULTS / f"{part}.nc")


def again(part: str, number: int) -> tuple[list[str], int, str]:
    """Train a stack of the results once more, or of one of `scale_plan.PARTS` a single training.

    Args:
        part: one of `EVERY_PART`, whose results are written.
        number: of the stack or training, in the order of the plan.

    Returns:
        A line for each number that differs in any digit, the quantity of numbers, and the setting.

    Raises:
        InputError: there is no such run.
    """
    one, written = runs.chosen(part, planned(part), number), results.open(RESULTS / f"{part}.nc")
    if part in scale_plan.PARTS:
        return *runs.differing(scale_training.row(one), written.isel(run=number)), f"{one.config} seed={one.seed}"
    arms = len(one.arms)
    own = written.isel(run=slice(number * arms, (number + 1) * arms))
    about = f"{one.cell} rate={one.rate:g} seed={one.seed}, {arms} arms"
    return *runs.differing(dataset_of(one, row(one)), own), about


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
        rows: `row` and `seconds` by the key of each stack.
    """
    every = stacks(part)
    found = [dataset_of(each, rows[each.key]["row"]) for each in every]
    made: dict[str, tuple] = {
        name: ("run", np.concatenate([each[name] for each in found]), *label) for name, label in LABELS.items()
    }
    if part == "cells":
        path = np.concatenate([each["path"] for each in found])
        made["path"] = (("run", "setting"), path, "temperature at each setting", "score")
    spent = [rows[each.key]["seconds"] / len(each.arms) for each in every for _ in each.arms]
    made["seconds"] = ("run", spent, "processor time of the stack over its arms", "s")
    attrs = results.versions() | {"title": f"Trainings of the second study: {part}"}
    data = results.labelled(made, attrs)
    about = {
        name: [getattr(each, name) for each in every for _ in each.arms]
        for name in ("cell", "data", "loss", "width", "batch_size", "rate", "seed")
    }
    about |= {
        name: [getattr(arm, name) for each in every for arm in each.arms] for name in ("kind", "temperature", "weight")
    }
    about["start"] = about.pop("temperature")
    return data.assign_coords({name: ("run", np.array(values)) for name, values in about.items()})
