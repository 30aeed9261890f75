"""Compare counts with dense float64: `python -m benchmarks.exactness --cases 20000 --seed 0`; exit 1 on a mismatch.

A case is one loss (or ranks, precision-recall, a histogram) on one input, both directions, every query, against
`tests/reference.py`. A count may differ by what the engine itself reports as uncertain, and by pairs that float64
rounding places on either side of the threshold.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import torch

from benchmarks import checks
from benchmarks.draws import draw

__all__ = ["Tally", "look", "main"]

# Every draw whose number is a multiple of this is checked without the compiled kernel.
PLAIN = 4
# Largest mean fraction of negatives reported as uncertain although float64 can decide them.
ALLOWED = 5e-3
# Maximum number of mismatches that are printed.
SHOWN = 20


@dataclass
class Tally:
    """Numbers of comparisons, and mismatches."""

    cases: int = 0
    queries: int = 0
    negatives: int = 0
    uncertain: float = 0.0  # fraction of a case's negatives that the engine reports as uncertain, summed over cases
    needless: float = 0.0  # likewise, for those that float64 can decide
    wrong: list[dict] = field(default_factory=list)
    kinds: Counter = field(default_factory=Counter)

    def add(self, other: "Tally") -> None:
        """Add another tally."""
        for name in ("cases", "queries", "negatives", "uncertain", "needless"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.wrong += other.wrong
        self.kinds.update(other.kinds)


def look(number: int, seed: int = 0, *, large: bool = True) -> Tally:
    """Make all comparisons of one draw.

    Args:
        number: number of the draw.
        seed: seed of the run.
        large: allow up to 3,000 rows a side.
    """
    found, one = Tally(), draw(number, seed, large=large)
    random = np.random.default_rng([seed, number, 1])
    for check in checks.checks(one, random):
        found.cases += 1
        try:
            result = check.run()
        except Exception as error:  # a crash is reported as a mismatch of its draw
            found.wrong.append({"draw": number, "what": check.name, "said": f"{type(error).__name__}: {error}"[:300]})
            continue
        found.kinds[check.name.split()[0]] += 1
        found.queries, found.negatives = found.queries + result.queries, found.negatives + result.negatives
        found.uncertain += result.uncertain / max(1, result.negatives)
        found.needless += result.needless / max(1, result.negatives)
        found.wrong += [{"draw": number, "what": check.name, "said": each} for each in result.wrong]
    for each in found.wrong:
        each["input"] = str(one)
    return found


def _child(chosen: argparse.Namespace) -> None:
    """Check some draws; print one line of JSON for each."""
    torch.set_num_threads(1)
    for number in range(chosen.first, chosen.stop):
        if (number % PLAIN == PLAIN - 1) == (os.environ.get("COCOS_KERNEL") == "plain"):
            begun = time.process_time()
            found = look(number, chosen.seed)
            line = found.__dict__ | {"kinds": dict(found.kinds), "draw": number, "cpu": time.process_time() - begun}
            print(json.dumps(line), flush=True)


def _lines(chosen: argparse.Namespace, kernel: str, first: int, stop: int):
    """Check some draws in a separate process, with a given kernel; yield its results.

    Raises:
        RuntimeError: it failed.
    """
    environment = os.environ | {"COCOS_KERNEL": kernel, "OMP_NUM_THREADS": "1"}
    if kernel == "compiled":
        environment.pop("COCOS_KERNEL")
    command = [sys.executable, "-m", "benchmarks.exactness", "--child", "--seed", str(chosen.seed)]
    command += ["--first", str(first), "--stop", str(stop)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        yield from map(json.loads, process.stdout)
    if process.returncode:
        raise RuntimeError(f"the {kernel} process ended with code {process.returncode} in draws {first} to {stop - 1}")


def main() -> None:
    """Check draws until there are enough cases, and print a summary."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exactness", description="Counts against dense float64.")
    parser.add_argument("--cases", type=int, default=20_000, help="Minimum number of cases to check.")
    parser.add_argument("--seed", type=int, default=0, help="Seed of all draws.")
    parser.add_argument("--first", type=int, default=0, help="Number of the first draw, to continue a run.")
    parser.add_argument("--stop", type=int, help="One past the last draw; then --cases is ignored.")
    parser.add_argument("--only", choices=("compiled", "plain"), help="Check only this kernel.")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        return _child(chosen)
    every, seconds, first, crashed = Tally(), 0.0, chosen.first, []
    step = min(200, chosen.stop - first) if chosen.stop else 200
    while every.cases < chosen.cases if chosen.stop is None else first < chosen.stop:
        for kernel in ("compiled", "plain"):
            if chosen.only in {None, kernel}:
                try:
                    for line in _lines(chosen, kernel, first, first + step):
                        del line["draw"]
                        seconds += line.pop("cpu")
                        every.add(Tally(**line))
                        for wrong in line["wrong"]:
                            if len(every.wrong) <= SHOWN:
                                print(_said(wrong, chosen.seed, kernel), flush=True)
                except RuntimeError as error:
                    crashed.append(str(error))
                    print(f"CRASHED {error}", flush=True)
        first += step
        print(f"draws to {first - 1}: {every.cases} cases, {len(every.wrong)} mismatches", file=sys.stderr, flush=True)
        if crashed:
            break
    kinds = ", ".join(f"{name} {number:,}" for name, number in sorted(every.kinds.items()))
    print(f"by kind: {kinds}")
    uncertain, needless = (part / max(1, every.cases) for part in (every.uncertain, every.needless))
    print(
        f"{every.cases:,} cases, {every.queries:,} queries, {every.negatives:,} negatives; "
        f"{len(every.wrong)} mismatches; uncertain {uncertain:.2e} of the negatives of a case, "
        f"{needless:.2e} where float64 can tell (at most {ALLOWED:g}); "
        f"seed {chosen.seed}, draws {chosen.first} to {first - 1}, {seconds:,.0f} CPU seconds"
    )
    return sys.exit(1 if every.wrong or crashed or needless > ALLOWED else 0)


def _said(wrong: dict, seed: int, kernel: str) -> str:
    """Format a mismatch, and the command that reproduces it."""
    plain = "COCOS_KERNEL=plain " if kernel == "plain" else ""
    again = f"{plain}python -m benchmarks.exactness --seed {seed} --first {wrong['draw']} --stop {wrong['draw'] + 1}"
    return f"MISMATCH {wrong['what']}: {wrong['said']}\n  {wrong['input']}\n  {again} --only {kernel}"


if __name__ == "__main__":
    main()
