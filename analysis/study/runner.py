"""Run the trainings of a part in worker processes, keep each row as soon as it is there, and write the Dataset."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from analysis import runs
from analysis.study.plan import RULERS, Trial, trials
from analysis.study.probe import LABELS, RULER_LABELS, measured
from analysis.study.tasks import task
from analysis.study.training import trained
from cocos import results

__all__ = ["RESULTS", "again", "dataset", "row", "run"]

RESULTS = Path(__file__).parent / "results"


def row(trial: Trial) -> dict[str, Any]:
    """Train and measure: step and all numbers, a list over the checkpoints each."""
    torch.set_num_threads(1)  # the order of sums, and so the last digits, depends on it
    made: dict[str, list] = {"step": []}
    for step, model, loss in trained(trial, task(trial.data)):
        made["step"].append(step)
        for name, value in measured(model, task(trial.data), trial, loss).items():
            made.setdefault(name, []).append(value)
    return made


def run(part: str, work: Path, workers: int, say: Callable[[str], None]) -> Path:
    """Run all trainings of a part that are not in the work folder yet, and write its Dataset.

    Args:
        part: one of `plan.PARTS`.
        work: folder of the rows, a line of JSON each.
        workers: processes, one thread each.
        say: takes lines for the user.
    """
    made = runs.done(trials(part), row, work / f"{part}.jsonl", workers, say)
    RESULTS.mkdir(exist_ok=True)
    return results.save(dataset(part, made), RESULTS / f"{part}.nc")


def again(part: str, number: int) -> tuple[list[str], int, str]:
    """Train a run of the results once more.

    Args:
        part: one of `plan.PARTS`, whose results are written.
        number: of the run, in the order of the plan.

    Returns:
        A line for each number that differs in any digit, the quantity of numbers, and the setting.

    Raises:
        InputError: there is no such run.
    """
    trial, written = runs.chosen(part, trials(part), number), results.open(RESULTS / f"{part}.nc")
    return *runs.differing(row(trial), written.isel(run=number)), f"{trial.config} seed={trial.seed}"


def dataset(part: str, rows: dict[str, dict]) -> xr.Dataset:
    """The table of the runs of a part, dims run, step and ruler, in the order of the plan.

    Args:
        part: one of `plan.PARTS`.
        rows: `row` and `seconds` by the key of each trial.
    """
    planned = trials(part)
    found = [rows[trial.key]["row"] for trial in planned]
    names = [name for name in (*LABELS, *RULER_LABELS) if any(name in each for each in found)]
    steps = found[0]["step"]
    made: dict[str, tuple] = {
        "step": ("step", steps, "step of the training", "steps"),
        "ruler": ("ruler", list(RULERS)),
    }
    for name in names:
        ruled = name in RULER_LABELS
        empty = np.full((len(steps), len(RULERS)) if ruled else len(steps), np.nan)
        values = np.stack([np.asarray(each.get(name, empty), dtype=np.float64) for each in found])
        made[name] = (("run", "step", "ruler") if ruled else ("run", "step"), values, *(LABELS | RULER_LABELS)[name])
    made["seconds"] = ("run", [rows[t.key]["seconds"] for t in planned], "processor time of the run", "s")
    attrs = results.versions() | {"title": f"Runs of the study: {part.replace('_', ', ')}", "eps": 0.01}
    about = {
        "family": [t.loss for t in planned],
        "config": [t.config for t in planned],
        **{
            name: [getattr(t, name) for t in planned]
            for name in ("value", "rate", "batch_size", "seed", "arm", "k", "mask")
        },
    }
    data = results.labelled(made, attrs)
    return data.assign_coords({name: ("run", np.array(values)) for name, values in about.items()})
