"""Plan counts of 10^8 and 10^9 rows: `python -m benchmarks.large_plan` prints the tables of docs/howto/large_plan.md.

In: `benchmarks/large.json`, which `python -m benchmarks.large --json` measured. CPU seconds are taken, since they
change less than wall seconds where other programs run. A count costs CPU seconds for each score, which grow linearly
with the width, and bytes for each row that it reads.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from cocos.embeddings import stored

FILE = Path(__file__).with_name("large.json")
PLANNED_WIDTH = 768
PLANNED_ROWS = (10**8, 10**9)
BATCHES, BATCH_SIZE, PARTS, QUERIES = 200, 32768, 16, 1000
GIB = 2**30


def measured() -> list[dict]:
    """The counts that were measured."""
    return json.loads(FILE.read_text("utf-8"))["counts"]


def seconds_per_score(counts: Iterable[dict]) -> dict[int, float]:
    """CPU seconds of a score of batches by width: of the largest count of a width less the smallest."""
    found: dict[int, float] = {}
    own = [one for one in counts if not one["queries"] and one["processes"] == 1 and one["shards"] == 10]
    for width in sorted({one["width"] for one in own}):
        of_width = sorted((one for one in own if one["width"] == width), key=_scores)
        small, large = of_width[0], of_width[-1]
        if _scores(large) >= 4 * _scores(small):
            found[width] = (large["CPU"] - small["CPU"]) / (_scores(large) - _scores(small))
    return found


def _scores(one: dict) -> int:
    """Scores of batches: one product serves both directions."""
    return one["drawn"] * one["batch_size"]


def at_width(found: dict[int, float], width: int) -> float:
    """Seconds of a score at another width, on the line through the smallest and the largest that were measured."""
    (low, first), *_, (high, last) = sorted(found.items())
    return first + (last - first) * (width - low) / (high - low)


def seconds_of_streaming(counts: Iterable[dict]) -> tuple[int, float, float]:
    """Width, CPU seconds of a candidate, and of a score: of two counts of the widest set, with few and more queries."""
    sets: dict[tuple[int, int], list[dict]] = {}
    for one in counts:
        if one["queries"]:
            sets.setdefault((one["width"], one["rows"]), []).append(one)
    several = {place: each for place, each in sets.items() if len(each) > 1}
    few, more = sorted(several[max(several)], key=lambda one: one["queries"])[:2]
    candidates = 2 * few["rows"]  # of both directions
    score = (more["CPU"] - few["CPU"]) / ((more["queries"] - few["queries"]) * candidates)
    return few["width"], few["CPU"] / candidates - few["queries"] * score, score


def base_memory(counts: Iterable[dict]) -> int:
    """Largest memory of the smallest set: the program, and what a count needs of any set."""
    return max(one["peak"] for one in counts if one["rows"] == min(each["rows"] for each in counts))


def plan() -> list[str]:
    """The table of plans; the cost of streaming is taken to grow with the width."""
    counts = measured()
    per_score, (width, of_row, of_score) = (
        at_width(seconds_per_score(counts), PLANNED_WIDTH),
        seconds_of_streaming(counts),
    )
    asked = PLANNED_WIDTH / width * (of_row + QUERIES * of_score)
    row, drawn = 2 * PLANNED_WIDTH, BATCHES * BATCH_SIZE
    window = max(stored.DRAWN_TOGETHER, stored.WINDOWED_BATCHES * BATCH_SIZE)
    memory = base_memory(counts) + 2 * window * row + 3 * RESULT_BYTES * drawn // PARTS
    lines = [
        "| rows x 768, float16 | the set | work | read | CPU hours | memory |",
        "| ---: | ---: | --- | ---: | ---: | ---: |",
    ]
    for rows in PLANNED_ROWS:
        size = 2 * rows * row
        lines.append(
            f"| {rows:,} | {size / 1e9:,.0f} GB | {BATCHES} batches of {BATCH_SIZE:,} in {PARTS} parts | "
            f"{2 * drawn * row / 1e9:.1f} GB | {drawn * BATCH_SIZE * per_score / 3600:.2g} | "
            f"{memory / GIB:.1f} GiB a part |"
        )
        hours = 2 * rows * asked / 3600
        lines.append(
            f"| | | {QUERIES:,} queries against everything | {size / 1e9:,.0f} GB | {hours:,.0f} | see above |"
        )
    return lines


# Bytes of a result for each pair that is counted, of both directions.
RESULT_BYTES = 280


def table() -> list[str]:
    """The table of what was measured."""
    lines = [
        "| rows | width | shards | processes | work | seconds | CPU seconds | MiB read | peak MiB |",
        "| ---: | ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    for one in measured():
        work = f"{one['queries']:,} queries" if one["queries"] else f"{one['drawn']:,} pairs in {one['batch_size']:,}s"
        lines.append(
            f"| {one['rows']:,} | {one['width']} | {one['shards']} | {one['processes']} | {work} | "
            f"{one['seconds']:.1f} | {one['CPU']:.1f} | {one['read'] / 2**20:,.0f} | {one['peak'] / 2**20:,.0f} |"
        )
    return lines


def constants() -> list[str]:
    """The constants that the plans use, in nanoseconds."""
    of = seconds_per_score(measured())
    every = [*of.items(), (PLANNED_WIDTH, at_width(of, PLANNED_WIDTH))]
    width, of_row, of_score = seconds_of_streaming(measured())
    return [
        "- batches: " + ", ".join(f"{1e9 * value:.2g} ns a score at {width}" for width, value in every),
        f"- queries against everything: {1e9 * of_row:,.0f} ns a candidate and {1e9 * of_score:.2g} ns a score "
        f"at {width}",
    ]


if __name__ == "__main__":
    print("\n".join([*table(), "", *constants(), "", *plan()]))
