"""Hubs: one candidate receives a large part of the push of the batch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cocos.monitor.detectors._history import AtLeast0, Count, Part, Record, Steps, Watcher, fitting, most, numbers

__all__ = ["Hubs"]


@dataclass(frozen=True)
class Hubs(Watcher):
    """One candidate is a hard negative of many queries.

    Fires when: one candidate receives more than `part` of the push, and more than `times` as much as if all candidates
    received alike, each query with any push counted alike, in any direction, while the negatives of at least `queries`
    queries are pushed, in each of the last `records` records, `warmup` steps after the first one.

    Try: check that candidate, often an empty or broken item; use a larger temperature, or, for a hinge loss, all
    negatives instead of the hardest.

    Args:
        part: of the push, as a mean over the queries.
        times: the push of an average candidate.
        queries: with any push.
        records: how many in a row; of checkpoints, one.
        warmup: steps since the first record; of checkpoints, one checkpoint.

    Source: hubs are near neighbours of many (Radovanović et al. 2010, JMLR 11); the threshold separates the synthetic
    runs of `benchmarks/alarms.py`.
    """

    READS = ("hub_share", "candidates")

    part: Part = 0.3
    times: AtLeast0 = 4.0
    queries: Count = 12
    records: Count = 3
    warmup: Steps = 100

    MESSAGE = (
        "one candidate receives {percent:.3g} % of the push {since} (threshold {limit_percent:g} %). Check "
        "for an empty or broken item{cure}"
    )

    def value(self, record: Record) -> float:
        """Largest part of the push on one candidate, of the directions with enough queries that push and candidates."""
        return most(record, self._share)

    def _share(self, direction: Record) -> float | None:
        share, queries, unpushed, candidates = numbers(direction, "hub_share", "queries", "unpushed", "candidates")
        if share is None or (queries or 0) - (unpushed or 0) < self.queries:
            return None
        return share if share * (candidates or math.inf) > self.times else None

    def words(self, history: Sequence[Record]) -> dict[str, object]:
        """The cure."""
        soft = ", or use a larger temperature"
        hinge = ", or use all negatives instead of the hardest"
        return {"cure": fitting(history[-1], hinge=hinge, softmax=soft, sigmoid=soft)}
