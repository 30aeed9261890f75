"""Fires and false alarms of the detectors: `python -m benchmarks.alarms [--seeds A B] [--json FILE]`; exit 1 on either.

Thresholds are set on seeds 0 to 9. The table is of seeds 100 to 109: how many faulty runs of each detector fire, after
how many steps, and how many healthy runs it fires in. Every run is read twice: with each of the first 30 steps and each
fifth one after them, and with each tenth step alone.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.trainings import FAULTS, HEALTHY, Fault, records
from cocos.monitor import detectors
from cocos.monitor.detectors import Record

__all__ = [
    "EVERY",
    "REPORTED",
    "SET",
    "alarm_lines",
    "fault_row",
    "first_steps",
    "healthy_row",
    "main",
    "shelf_lines",
    "thresholds",
]

SET, REPORTED = range(10), range(100, 110)
# Steps between two records of the second reading.
EVERY = 10


def first_steps(history: Sequence[Record]) -> dict[str, int]:
    """Step of the first alarm of each detector that fires in a run.

    Args:
        history: records of the run.
    """
    found: dict[str, int] = {}
    for each in detectors.replay(history, detectors.chosen()):
        found.setdefault(each.detector, each.step)
    return found


def _read(history: Sequence[Record]) -> list[dict[str, int]]:
    """First alarms of a run, with all of its records, and with those of each tenth step."""
    return [first_steps(each) for each in (history, [one for one in history if one["step"] % EVERY == 0])]


def fault_row(fault: Fault, runs: Sequence[Sequence[Record]]) -> dict[str, Any]:
    """How many runs with a fault fire its detector in every reading, and the median step of the first alarm."""
    name = fault.detector
    ways = [_read(history) for history in runs]
    # A short batch, or a step of NaN, may fall between two records.
    fired = [readings for readings in ways if name in readings[0] and (fault.brief or all(name in r for r in readings))]
    first = [readings[0][name] for readings in fired]
    others = sorted({each for readings in ways for found in readings for each in found} - {name})
    return {
        "detector": name,
        "fault": fault.fault,
        "fired": len(fired),
        "runs": len(runs),
        "step": statistics.median(first) if first else None,
        "others": others,
    }


def healthy_row(runs: Sequence[Sequence[Record]]) -> dict[str, Any]:
    """How many runs of a healthy family each detector fires in, in either reading."""
    fired = [{name for found in _read(history) for name in found} for history in runs]
    return {"runs": len(runs), "alarms": {name: sum(name in each for each in fired) for name in detectors.names()}}


def thresholds() -> dict[str, dict[str, float]]:
    """Thresholds of all detectors."""
    return {row["name"]: row["thresholds"] for row in detectors.table()}


def shelf_lines() -> list[str]:
    """A section for each detector, as Markdown."""
    lines = []
    for row in detectors.table():
        thresholds = ", ".join(f"`{name}={value:g}`" for name, value in row["thresholds"].items()) or "none"
        lines += [f"### `{row['name']}`", "", f"**Fires when** {row['fires_when']}", ""]
        lines += [f"**Thresholds:** {thresholds}", ""]
    return lines[:-1]


def alarm_lines(found: Mapping[str, Any]) -> list[str]:
    """The table of fires and false alarms, as Markdown."""
    healthy = found["healthy"].values()
    rows = ["| detector | fault | fires | first alarm | false alarms |", "| --- | --- | --- | --- | --- |"]
    for row in found["faults"]:
        step = row["step"]
        first = "never" if step is None else f"{step:g}"
        alarms = sum(each["alarms"][row["detector"]] for each in healthy)
        false = f"{alarms} of {sum(each['runs'] for each in healthy)}"
        rows.append(f"| `{row['detector']}` | {row['fault']} | {row['fired']} of {row['runs']} | {first} | {false} |")
    return rows


def main() -> None:
    """Train, print the table, and list the runs that went wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.alarms", description=__doc__)
    bounds = (REPORTED.start, REPORTED.stop)
    parser.add_argument("--seeds", nargs=2, type=int, default=bounds, metavar=("FIRST", "END"), help="a range of seeds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers to this file")
    parser.add_argument("--page", type=Path, metavar="FILE", help="print the tables of the page from this JSON file")
    chosen = parser.parse_args()
    if chosen.page:
        print("\n".join([*shelf_lines(), "", *alarm_lines(json.loads(chosen.page.read_text("utf-8")))]))
        return
    torch.set_num_threads(1)
    seeds = range(*chosen.seeds)
    found: dict[str, Any] = {"seeds": list(seeds), "thresholds": thresholds(), "faults": [], "healthy": {}}
    for fault in FAULTS:
        found["faults"].append(fault_row(fault, [records(fault.training, seed) for seed in seeds]))
        print(f"{fault.detector}, {fault.fault}: {found['faults'][-1]['fired']} fire", file=sys.stderr, flush=True)
    for name, training in HEALTHY.items():
        found["healthy"][name] = healthy_row([records(training, seed) for seed in seeds])
        print(f"{name}: {sum(found['healthy'][name]['alarms'].values())} alarms", file=sys.stderr, flush=True)
    print("\n".join(alarm_lines(found)))
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    missed = any(row["fired"] < row["runs"] for row in found["faults"])
    false = any(sum(each["alarms"].values()) for each in found["healthy"].values())
    sys.exit(1 if missed or false else 0)


if __name__ == "__main__":
    main()
