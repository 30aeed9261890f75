"""All idle: no negative contributes to the gradient."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from cocos.monitor.detectors._history import (
    Count,
    Part,
    Record,
    Watcher,
    directions,
    fitting,
    least,
    negatives,
    number,
    numbers,
    of_checkpoints,
)

__all__ = ["Idle"]

# Share of all negatives of a query up to which those of a softmax or sigmoid, which are never 0, weigh nothing.
LIGHT = 0.01


@dataclass(frozen=True)
class Idle(Watcher):
    """Nearly all queries have no negative that contributes to the gradient.

    Fires when: in every direction the part of the queries without any contributing negative exceeds `part`, and neither
    their negatives nor their positives weigh anything together, in each of the last `records` records, or as many as
    have `queries` queries; of a loss whose unit is unknown, the part of the queries whose negatives are not pushed at
    all. Silent where there are no negatives or no positives, or numbers are not finite.

    Try: use a larger batch, harder negatives, a larger margin (hinge) or a smaller scale (softmax), or stop if the
    validation result is good enough.

    Args:
        part: of the queries.
        queries: fewest of the records together: of a batch of one query, a few in a row are idle by chance.
        records: how many in a row; of checkpoints, one.

    Source: the threshold separates the synthetic runs of `benchmarks/alarms.py`.
    """

    READS = ("idle|unpushed", "queries")

    part: Part = 0.95
    queries: Count = 24
    records: Count = 3

    MESSAGE = (
        "queries without a contributing negative: {percent:.3g} % {since} (threshold {limit_percent:g} %). Use a "
        "larger batch, harder negatives{cure}, or stop if the validation result is good enough"
    )

    def least_records(self, history: Sequence[Record]) -> int:
        """How many records it needs."""
        if not history or of_checkpoints(history):
            return 1 if history else self.records
        sizes = [number(each, "queries") or 0 for _, each in directions(history[-1])]
        return max(self.records, math.ceil(self.queries / max(1.0, min(sizes, default=0))))

    def value(self, record: Record) -> float:
        """Smallest part of idle queries of the directions; 0 where it is unknown."""
        light = 1 - self.part if record.get("kind") == "hinge" else LIGHT
        return 0.0 if record.get("finite") is False else least(record, partial(self._idle, light=light)) or 0.0

    def _idle(self, name: str, direction: Record, light: float) -> float | None:
        """Part of the queries that are idle; 0 without negatives, or where many light ones push together."""
        idle, queries = numbers(direction, "idle", "queries")
        idle = number(direction, "unpushed") if idle is None else idle
        if idle is None or not queries:
            return None
        if not idle:
            return 0.0
        others, positives = negatives(name, direction), number(direction, "positives")
        weights = [each or 0 for each in numbers(direction, "weight_negative", "weight_positive")]
        return 0.0 if (others is not None and others < 1) or positives == 0 or max(weights) > light else idle / queries

    def words(self, history: Sequence[Record]) -> dict[str, object]:
        """The cure."""
        soft = " or a smaller scale (a larger temperature)"
        return {"cure": fitting(history[-1], hinge=" or a larger margin", softmax=soft, sigmoid=soft)}
