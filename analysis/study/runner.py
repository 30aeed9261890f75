"""Run the trainings of a part in worker processes, keep each row as soon as it is there, and write the Dataset."""

import json
import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from analysis.study.plan import RULERS, Trial, trials
from analysis.study.probe import LABELS, RULER_LABELS, measured
from analysis.study.tasks import task
from analysis.study.training import trained
from cocos import results
from cocos.base.errors import InputError

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


def _line(trial: Trial) -> str:
    """The row of a trial, with the trial and the processor time that it took, as a line of JSON."""
    before = time.process_time()
    found = row(trial)
    return json.dumps({"trial": json.loads(trial.key), "seconds": time.process_time() - before, "row": found})


def _known(path: Path) -> dict[str, dict]:
    """Rows of earlier runs by the key of their trial; a last line that was cut off is no row."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            held = json.loads(line)
        except ValueError:
            continue
        found[json.dumps(held["trial"])] = held
    return found


def run(part: str, work: Path, workers: int, say: Callable[[str], None]) -> Path:
    """Run all trainings of a part that are not in the work folder yet, and write its Dataset.

    Args:
        part: one of `plan.PARTS`.
        work: folder of the rows, a line of JSON each.
        workers: processes, one thread each.
        say: takes lines for the user.
    """
    path, planned = work / f"{part}.jsonl", trials(part)
    work.mkdir(parents=True, exist_ok=True)
    known = _known(path)
    left, began = [trial for trial in planned if trial.key not in known], time.monotonic()
    say(f"{part}: {len(planned)} trainings, {len(planned) - len(left)} done before")
    if left:
        with path.open("a", encoding="utf-8") as file, multiprocessing.get_context("spawn").Pool(workers) as pool:
            if known:
                file.write("\n")  # after a line that was cut off
            for done, line in enumerate(pool.imap_unordered(_line, left), start=1):
                file.write(line + "\n")
                file.flush()
                if done % 50 == 0 or done == len(left):
                    say(f"{part}: {done} of {len(left)} in {(time.monotonic() - began) / 60:.1f} minutes")
    RESULTS.mkdir(exist_ok=True)
    return results.save(dataset(part, _known(path)), RESULTS / f"{part}.nc")


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
    planned = trials(part)
    if number >= len(planned):
        raise InputError(f"run {number}: {part} has {len(planned)} runs, expected 0 to {len(planned) - 1}")
    trial, written = planned[number], results.open(RESULTS / f"{part}.nc").isel(run=number)
    differing, numbers = [], 0
    for name, values in row(trial).items():
        before = written[name].values
        for place in np.ndindex(before.shape):
            numbers += 1
            now = np.asarray(values)[place]
            if not (now == before[place] or (np.isnan(now) and np.isnan(before[place]))):
                differing.append(f"{name} {list(place)}: {before[place]!r} before, {now!r} now")
    return differing, numbers, f"{trial.config} seed={trial.seed}"


def dataset(part: str, rows: dict[str, dict]) -> xr.Dataset:
    """The table of the runs of a part, dims run, step and ruler, in the order of the plan.

    Args:
        part: one of `plan.PARTS`.
        rows: `row`, `trial` and `seconds` by the key of each trial.
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
