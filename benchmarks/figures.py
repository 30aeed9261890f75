"""Convert seconds and bytes to ratios, spreads, exponents and verdicts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import linear_regression, median

from benchmarks.cases import FLOOR, GATED, MEMORY, Bar, Case

__all__ = ["EXACT", "Ratio", "Verdict", "exponent", "growth", "over_floor", "ratio", "verdicts"]

# Largest exponent of the time of a pass in the number of queries.
EXPONENT = 2.05
EXACT = "equal to dense float64"
# Number of sizes, the largest ones, to which an exponent is fitted.
LAST = 3


@dataclass(frozen=True)
class Ratio:
    """Median of the ratios within rounds, and the smallest and largest of them."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Verdict:
    """A bar and the value reached; `value` is None if nothing could be measured, which misses the bar."""

    what: str
    value: float | None
    limit: float
    least: bool = False

    @property
    def ok(self) -> bool:
        """Whether the bar is reached."""
        return self.value is not None and (self.value >= self.limit if self.least else self.value <= self.limit)

    def __str__(self) -> str:
        return f"{'>=' if self.least else '<='} {self.limit:.4g} {'ok' if self.ok else 'MISSED'}"


def ratio(seconds: Sequence[float], others: Sequence[float]) -> Ratio:
    """Ratio of the times of two rows measured in the same rounds."""
    paired = [a / b for a, b in zip(seconds, others, strict=True)]
    return Ratio(median(paired), min(paired), max(paired))


def over_floor(row: dict | None) -> Ratio | None:
    """Ratio of the time of a row to that of the floor beside it; None if it was not timed."""
    return ratio(row["seconds"], row["floor"]) if row and row.get("seconds") else None


def exponent(values: dict[int, float]) -> float | None:
    """Slope of log value over log size at the three largest sizes; None for fewer sizes, or if a value is 0."""
    points = sorted(values.items())[-LAST:]
    if len(points) < LAST or not all(value > 0 for _, value in points):
        return None
    return linear_regression(*zip(*((math.log(size), math.log(value)) for size, value in points), strict=True)).slope


def _measured(bar: Bar, own: dict, other: dict) -> float | None:
    if bar.what == "speed":
        return ratio(own["one"], own["two"]).value if own.get("one") else None
    if not bar.against:
        return median(own["seconds"]) if bar.what == "seconds" and own.get("seconds") else own.get(bar.what)
    if bar.against == FLOOR and bar.what == "seconds":
        return (found := over_floor(own)) and found.value
    if bar.what == "seconds" and own.get("seconds") and other.get("seconds"):
        rounds = min(len(own["seconds"]), len(other["seconds"]))  # a long row has only one
        return ratio(own["seconds"][:rounds], other["seconds"][:rounds]).value
    if bar.what == "bytes" and own.get("bytes") is not None and other.get("bytes"):
        return own["bytes"] / other["bytes"]
    return None


def verdicts(case: Case, found: dict[str, dict]) -> dict[str, list[Verdict]]:
    """Judge each row of a case by its bars.

    Args:
        case: its rows have the bars.
        found: by row name, `seconds` and `floor` of every round, and `bytes`, where they were measured.
    """
    result = {}
    for row in case.rows:
        own, reached = found.get(row.name, {}), []
        for bar in row.bars:
            other = found.get(bar.against, {})
            if not other.get("missing"):
                what = f"{bar.what} / {bar.against}".removesuffix(" / ")
                what = "speed of two threads" if bar.what == "speed" else what
                reached.append(Verdict(what, _measured(bar, own, other), bar.limit, bar.least))
        if own.get("refused") and not row.bars and row.way in {"pass", "count"}:
            reached.append(Verdict(EXACT, None, 0))
        if row.way == "pass" and case.inputs.queries >= GATED and not case.inputs.others and "bytes" in own:
            limit = (MEMORY[0] + MEMORY[1] * case.inputs.queries * len(row.readings)) / 2**20
            value = None if own["bytes"] is None else own["bytes"] / 2**20
            reached.append(Verdict("MiB above the inputs", value, limit))
        result[row.name] = reached
    return result


def growth(cases: Sequence[Case], found: dict[str, dict[str, dict]]) -> dict[str, tuple]:
    """For each row of a series: largest size, exponents of time and memory, and a pass's verdict."""
    result = {}
    for row in dict.fromkeys((row.name, row.way) for case in cases for row in case.rows):
        each = {case.inputs.queries: found[case.name].get(row[0], {}) for case in cases}
        timed = {size: median(one["seconds"]) for size, one in each.items() if one.get("seconds")}
        if not timed:
            continue
        time, memory = exponent(timed), exponent({size: one["bytes"] for size, one in each.items() if one.get("bytes")})
        gated = row[1] == "pass" and time is not None
        verdict = Verdict("exponent of time", time, EXPONENT) if gated else None
        result[row[0]] = max(timed), time, memory, verdict
    return result
