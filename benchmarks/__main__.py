"""Run benchmarks: `python -m benchmarks [--quick | --full | --device cuda] [--case NAME]`; exit 1 on a missed bar."""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks import host
from benchmarks.cases import GATED, NTXENT, Case, selected
from benchmarks.figures import growth, verdicts
from benchmarks.table import case_lines, growth_lines, header_lines

__all__ = ["child", "main", "run"]

WALL_ROUNDS = 3
# Makes the C library return freed buffers to the system at once; set when memory is measured, never when time is.
RETURNED = {"MALLOC_MMAP_THRESHOLD_": "262144"}
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def child(*arguments: str, threads: int = 1, patience: float | None = None, kernel: str = "") -> dict | int:
    """Run `benchmarks.child` in a fresh process and return the JSON document that it prints.

    Args:
        *arguments: of the child.
        threads: of PyTorch.
        patience: seconds that it may take; None: any number.
        kernel: value of COCOS_KERNEL; empty: as in the environment.

    Raises:
        RuntimeError: it failed, was killed for lack of memory, or exceeded `patience` seconds.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.child", *arguments],
            cwd=Path(__file__).parent.parent,
            env=os.environ
            | dict.fromkeys(THREADS, str(threads))
            | (RETURNED if arguments[0] == "memory" else {})
            | ({"COCOS_KERNEL": kernel} if kernel else {}),
            capture_output=True,
            text=True,
            check=False,
            timeout=patience,
        )
    except subprocess.TimeoutExpired as late:
        raise RuntimeError(f"not done in {late.timeout:.0f} s") from None
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    return json.loads(done.stdout)


def _weighed(case: Case, tier: str) -> list[str]:
    """Rows whose memory is measured: all; in the tiers `quick` and `goals` only those that a bar compares."""
    if tier != "quick" and case.tier != "goals":
        return [row.name for row in case.rows]
    read = {name for row in case.rows for bar in row.bars if bar.what == "bytes" for name in (row.name, bar.against)}
    if case.tier == "goals":
        return sorted(read - {""})
    return [row.name for row in case.rows if row.name in read or (row.name == NTXENT and case.inputs.queries >= GATED)]


def run(case: Case, tier: str) -> dict[str, dict]:
    """Measure time and memory of every row of a case, each in fresh processes."""
    on_cpu, begun, kernel = case.device == "cpu", time.monotonic(), case.kernel
    try:
        found = child("times", case.name, "cpu" if on_cpu else "events", "0", kernel=kernel) if case.rounds else {}
    except RuntimeError as error:
        return {row.name: {"refused": str(error)} for row in case.rows}
    if any(bar.what == "speed" for row in case.rows for bar in row.bars):
        try:
            found |= child("speeds", case.name)
        except RuntimeError as error:
            print(f"{case.name}: {error}", file=sys.stderr)
    if found and on_cpu and tier != "quick" and case.tier != "goals":
        try:  # on a busy machine, small tensors on two threads can take arbitrarily long
            patience = 30 + 2 * (time.monotonic() - begun)
            for name, row in child(
                "times", case.name, "wall", str(WALL_ROUNDS), threads=2, patience=patience, kernel=kernel
            ).items():
                found[name]["wall"] = row
        except RuntimeError as error:
            print(f"{case.name}, two threads: {error}", file=sys.stderr)
    for name in _weighed(case, tier):
        row = found.setdefault(name, {})
        if "refused" not in row:
            try:
                row["bytes"] = child("memory", case.name, name, kernel=kernel)
            except RuntimeError as error:
                row["bytes"] = None
                print(f"{case.name}, {name}: {error}", file=sys.stderr)
    return found


def _cpu() -> str:
    """Return the model name of the processor."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def main() -> None:
    """Run the cases, print each as soon as it is done, and list the bars that were missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Speed and memory of the pass.")
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        "--quick",
        dest="tier",
        action="store_const",
        const="quick",
        help="run the cases that take about a minute in total",
    )
    size.add_argument("--goals", dest="tier", action="store_const", const="goals", help="run the goals of all commands")
    size.add_argument(
        "--full", dest="tier", action="store_const", const="full", help="run all cases, with up to 65,536 queries"
    )
    size.add_argument(
        "--device",
        choices=["cuda"],
        help="compare the GPU with the host first, then run the cases of the GPU: about five minutes",
    )
    parser.add_argument("--case", action="append", default=[], metavar="NAME", help="run only this case (repeatable)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measurements to this file")
    chosen = parser.parse_args()
    tier = chosen.device or chosen.tier or "default"
    if chosen.device and not torch.cuda.is_available():
        parser.error(f"--device {chosen.device}: PyTorch finds 0 CUDA devices")
    try:
        cases = selected(tier, chosen.case, cuda=torch.cuda.is_available())
    except ValueError as error:
        parser.error(str(error))
    machine = {"cpu": _cpu(), "load": os.getloadavg()[0], **child("machine")}
    print("\n".join(header_lines(machine)), flush=True)
    compared = list(host.checks(chosen.device)) if chosen.device else []
    if compared:
        print("\n".join(["", *host.lines(compared), *host.speed(chosen.device)]), flush=True)
    found, judged = {}, []
    for done, case in enumerate(cases):
        print(f"{done + 1} of {len(cases)}: {case.name}", file=sys.stderr, flush=True)
        found[case.name] = run(case, tier)
        goals = verdicts(case, found[case.name])
        judged += [(case.name, row, verdict) for row, each in goals.items() for verdict in each]
        print("\n".join(case_lines(case, found[case.name], goals)), flush=True)
    for series in sorted({case.series for case in cases} - {""}):
        rows = growth([case for case in cases if case.series == series], found)
        judged += [(series, name, verdict) for name, (*_, verdict) in rows.items() if verdict]
        print("\n".join(growth_lines(series, rows)))
    missed = [f"MISSED {case}: {row}, {verdict.what}" for case, row, verdict in judged if not verdict.ok]
    print(f"\n{len(judged) - len(missed)} of {len(judged)} bars reached", *missed, sep="\n")
    if chosen.json:
        bars = [{"case": case, "row": row, **asdict(verdict), "ok": verdict.ok} for case, row, verdict in judged]
        chosen.json.write_text(json.dumps({"machine": machine, "cases": found, "bars": bars}, indent=1), "utf-8")
    sys.exit(1 if missed or any(each.differs for each in compared) else 0)


if __name__ == "__main__":
    main()
