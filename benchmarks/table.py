"""Format results as text of at most 100 columns."""

import os
from statistics import median

from benchmarks.cases import FLOOR, Case
from benchmarks.figures import EXACT, Verdict, over_floor, ratio

__all__ = ["case_lines", "growth_lines", "header_lines"]

# Load average above which other processes may affect the numbers.
BUSY = 1.5
LEGEND = """
ratio: CPU seconds of one thread over those of the bare product of the same tiles right before, the median
of interleaved rounds; spread: smallest and largest such ratio; ns: per score; 2 thr.: the ratio of wall
time with two threads, for information; MiB: peak above the inputs, in a fresh process; exact: queries that
were equal to dense float64 before the clock started."""


def header_lines(machine: dict) -> list[str]:
    """Describe what the numbers depend on."""
    lines = [
        f"{machine['cpu']}, {machine['threads']} thread, torch {machine['torch']}, load average {machine['load']:.2f}",
        f"bare product: torch.mm, {machine['mm_gflops']:.0f} GFLOP/s at d = 512; kernel: {machine['kernel']}",
    ]
    if machine["gpu"]:
        lines.append(f"GPU: {machine['gpu']}")
    if machine["load"] > BUSY:
        lines.append(f"warning: the load average is above {BUSY}: other work may show in these numbers")
    return [*lines, LEGEND]


def _cell(value: float | None, width: int, form: str = "") -> str:
    return "-".rjust(width) if value is None else format(value, form or (".2f" if value < 100 else ",.0f")).rjust(width)


def _line(name: str, row: dict, scores: int, goal: str) -> str:
    times, wall = over_floor(row), over_floor(row.get("wall"))
    spread = f"{_cell(times.low, 0)}-{_cell(times.high, 0)}" if times and name != FLOOR else ""
    spread = "one round" if times and len(row["seconds"]) == 1 else spread
    cells = (
        f"{name:33}",
        _cell(times and times.value, 7),
        f"{spread:>13}",
        _cell(median(row["seconds"]) / scores * 1e9 if times else None, 8),
        _cell(wall and wall.value, 8),
        _cell(None if row.get("bytes") is None else row["bytes"] / 2**20, 9, ".1f"),
        _cell(row.get("checked") or None, 7, ","),
        goal and f"  {goal}",
    )
    return "".join(cells)


def case_lines(case: Case, found: dict[str, dict], goals: dict[str, list[Verdict]]) -> list[str]:
    """Format one line per row, and one line below it for each bar that is not relative to the floor."""
    inputs, above = case.inputs, f"seconds / {FLOOR}"
    many = f"{inputs.batches} batches of " if inputs.batches > 1 else ""
    sides = "one direction" if inputs.kind == "proxies" or inputs.hard else "both directions"
    shape = f"{many}{inputs.queries:,} x {inputs.candidates:,}, d = {inputs.width}"
    lines = ["", f"{case.name}: {shape}, {inputs.kind}, {sides}, {case.rounds} rounds, load {os.getloadavg()[0]:.1f}"]
    lines.append(f"{'':33}{'ratio':>7}{'spread':>13}{'ns':>8}{'2 thr.':>8}{'MiB':>9}{'exact':>7}  bar")
    for row in case.rows:
        own, verdicts = found.get(row.name, {}), goals[row.name]
        goal = next((str(verdict) for verdict in verdicts if verdict.what == above), "")
        lines.append(_line(row.name, own, inputs.scores, goal))
        if own.get("refused"):
            lines.append(f"    not timed: {own['refused']}")
        for verdict in verdicts:
            if verdict.what not in {above, EXACT}:
                lines.append(f"    {verdict.what:36}{_cell(verdict.value, 13)}  {verdict}")
        if own.get("one"):
            wall, cpu = ratio(own["one"], own["two"]), ratio(own["cpu_two"], own["cpu_one"])
            lines.append(
                f"    one thread over two: {wall.low:.2f}-{wall.high:.2f} in {len(own['one'])} pairs, CPU of two over "
                f"one {cpu.value:.2f}, load {min(own['load']):.1f}-{max(own['load']):.1f}"
            )
    return lines


def growth_lines(name: str, rows: dict[str, tuple]) -> list[str]:
    """Format the exponents of a series of cases; a pass has a bar on its time."""
    lines = ["", f"{name}: exponents over the three largest sizes", f"{'':33}{'up to':>9}{'time':>8}{'memory':>8}  bar"]
    for row, (size, time, memory, verdict) in rows.items():
        lines.append(f"{row:33}{size:>9,}{_cell(time, 8)}{_cell(memory, 8)}  {verdict or ''}".rstrip())
    return lines
