"""Run one case in a fresh process: `python -m benchmarks.child times|memory|speeds|machine ...` prints JSON."""

import ctypes
import gc
import json
import math
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from benchmarks import adapter, exact, ways
from benchmarks.cases import FLOOR, Case, Row, all_cases
from benchmarks.inputs import Inputs
from benchmarks.peers import TILE

__all__ = ["machine", "peak", "speeds", "times"]

# Seconds: a row that takes less is repeated within a round.
SHORT = 0.03
# Seconds: a row without a bar that takes more is timed in one round only.
LONG = 15.0
# Interleaved runs of one and of two threads.
PAIRS = 7


def _cpu() -> float:
    """CPU seconds of this process and its children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


CLOCKS = {"cpu": _cpu, "wall": time.perf_counter}


def _seconds(call: Callable[[], list], repeat: int, clock: str) -> float:
    """Measure one call: CPU seconds, wall seconds, or seconds between two events of the GPU."""
    gc.collect()
    if clock == "events":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(repeat):
            call()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / 1e3 / repeat
    now = CLOCKS[clock]
    begun = now()
    for _ in range(repeat):
        call()
    return (now() - begun) / repeat


@dataclass(frozen=True)
class _Ready:
    """A row that has passed the gate and is warmed up."""

    call: Callable[[], list]
    repeat: int  # calls per round
    checked: int  # number of queries compared
    once: bool


def _ready(row: Row, case: Case, drawn: tuple, clock: str) -> _Ready:
    kind, checked, found = ways.metric(case.rows), 0, []
    call = ways.prepare(row, *drawn, kind, case.inputs.queries)
    took = _seconds(lambda: found.append(call()), 1, clock)
    if clock != "wall":
        checked = exact.gate(row, case, kind) + exact.at_size(row, found.pop(), *drawn)
    if took < 10 * SHORT:  # the first call may include one-time set-up
        took = _seconds(call, 1, clock)
    return _Ready(call, math.ceil(SHORT / max(took, 1e-5)), checked, took > LONG and not row.bars)


def times(case: Case, clock: str = "cpu", rounds: int | None = None) -> dict[str, dict]:
    """Time every row in every round, and the floor right before it; rows are gated first.

    The order of the rows rotates from round to round.

    Args:
        case: the rows and their inputs.
        clock: `cpu`, `wall` (both on the CPU; only `cpu` gates) or `events`.
        rounds: number of rounds; None: that of the case.

    Returns:
        By row name: `seconds`, `floor`, and `checked`, the number of queries compared; or `refused`, the reason why
        there
        is no time.
    """
    drawn = case.inputs.draw(case.device)
    rows, found = {}, {}
    for row in case.rows:
        try:
            rows[row.name] = _ready(row, case, drawn, clock)
            found[row.name] = {"seconds": [], "floor": [], "checked": rows[row.name].checked}
        except (exact.Wrong, LookupError, ModuleNotFoundError) as error:
            found[row.name] = {"refused": str(error), "missing": isinstance(error, ModuleNotFoundError)}
    order, floor = list(rows), rows[FLOOR]
    for turn in range(rounds or case.rounds):
        at, step = turn % len(order), -1 if turn % 2 else 1
        for name in (order[at:] + order[:at])[::step]:
            row, own = rows[name], found[name]
            if row.once and turn:
                continue
            own["floor"].append(_seconds(floor.call, floor.repeat, clock))
            own["seconds"].append(own["floor"][-1] if name == FLOOR else _seconds(row.call, row.repeat, clock))
    return found


def speeds(case: Case) -> dict[str, dict]:
    """Measure wall and CPU seconds on one and two threads, interleaved, of rows with a bar on speed, and the load."""
    drawn, kind, found = case.inputs.draw(case.device), ways.metric(case.rows), {}
    for row in case.rows:
        if not any(bar.what == "speed" for bar in row.bars):
            continue
        call = ways.prepare(row, *drawn, kind, case.inputs.queries)
        own = {"one": [], "two": [], "cpu_one": [], "cpu_two": [], "load": []}
        for turn in range(-1, PAIRS):
            for threads, name in ((1, "one"), (2, "two"))[:: -1 if turn % 2 else 1]:
                torch.set_num_threads(threads)
                wall, cpu = time.perf_counter(), time.process_time()
                call()
                if turn >= 0:  # the first pair warms up
                    own[name].append(time.perf_counter() - wall)
                    own[f"cpu_{name}"].append(time.process_time() - cpu)
            if turn >= 0:
                own["load"].append(os.getloadavg()[0])
        found[row.name] = own
    return found


def _status(name: str) -> int:
    """Read a line of /proc/self/status, in bytes."""
    with open("/proc/self/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def peak(call: Callable[[], object], device: str = "cpu") -> int:
    """Measure the peak memory of a call above the memory in use before it, in bytes.

    Raises:
        OSError: not Linux.
    """
    gc.collect()
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        return torch.cuda.max_memory_allocated() - before
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w", encoding="ascii") as reset:
        reset.write("5")
    before = _status("VmRSS")
    call()
    return max(0, _status("VmHWM") - before)


def _memory(case: Case, name: str) -> int:
    """Measure the peak memory of a row above its inputs and above what PyTorch keeps after its first product."""
    row = next(row for row in case.rows if row.name == name)
    kind = ways.metric(case.rows)
    ways.prepare(Row(FLOOR, "bare"), *replace(case.inputs, queries=TILE, batches=1).draw(case.device), kind)()
    ways.prepare(row, *case.inputs.small(64).draw(case.device), kind, 64)()
    call = ways.prepare(row, *case.inputs.draw(case.device), kind, case.inputs.queries)
    return peak(call, case.device)


def machine() -> dict:
    """Describe what the numbers depend on: the kernel, and the speed of torch.mm."""
    embeddings, _ = Inputs(1024, 512).draw()
    query, candidate, buffer = embeddings.query, embeddings.candidate, torch.empty(1024, 1024)
    seconds = min(_seconds(lambda: torch.mm(query, candidate.T, out=buffer), 3, "cpu") for _ in range(5))
    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "kernel": adapter.kernel(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "mm_gflops": 2 * 1024**2 * 512 / seconds / 1e9,
    }


def main() -> None:
    """Run the measurement that the arguments name."""
    gc.freeze()  # modules are no garbage, and a collection before each measurement would walk them
    task, *names = sys.argv[1:]
    if task == "machine":
        found = machine()
    else:
        case = next(case for case in all_cases() if case.name == names[0])
        if task == "speeds":
            found = speeds(case)
        else:
            found = _memory(case, names[1]) if task == "memory" else times(case, names[1], int(names[2]) or None)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
