"""Hubs: one candidate receives a large part of the push of the batch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cocos.monitor.detectors._history import (
    Alarm,
    Record,
    Watcher,
    alarm,
    directions,
    fitting,
    number,
    streak,
    threshold,
    warm,
)

__all__ = ["Hubs"]


@dataclass(frozen=True)
class Hubs(Watcher):
    """One candidate is a hard negative of many queries.

    Fires when: one candidate receives more than `part` of the push, and more than `times` as much as if all candidates
    received alike, each query with any push counted alike, in any direction, while the negatives of at least `queries`
    queries are pushed, in each of the last `records` records, `warmup` steps after the first one.

    Try: a look at that candidate: it is often an empty or broken item; a larger temperature, or, of a hinge, all
    negatives in place of the hardest.

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

    part: float = threshold(0.3, 0, 1)
    times: float = threshold(4.0)
    queries: int = threshold(12, 1)
    records: int = threshold(3, 1)
    warmup: int = threshold(100)

    def __call__(self, history: Sequence[Record]) -> Alarm | None:
        """The alarm at the last record, if any."""
        since = streak(history, self.records, lambda each: self._share(each) > self.part)
        if since is None or not warm(history, self.warmup):
            return None
        value = self._share(history[-1])
        soft = "a larger temperature"
        cure = fitting(history[-1], hinge="use all negatives in place of the hardest", softmax=soft, sigmoid=soft)
        said = (
            f"one candidate receives {100 * value:.3g} % of the push of a query on average (above "
            f"{100 * self.part:g} %) {since}; look whether it is an empty or broken item"
            + (f", or {cure}" if cure else "")
        )
        return alarm(self, history, value, self.part, said)

    def _share(self, record: Record) -> float:
        """Largest part of the push on one candidate, of the directions with enough queries that push and candidates."""
        found = [0.0]
        for _, each in directions(record):
            share, queries, unpushed = (number(each, name) for name in ("hub_share", "queries", "unpushed"))
            enough = (queries or 0) - (unpushed or 0) >= self.queries
            if share is not None and enough and share * (number(each, "candidates") or math.inf) > self.times:
                found.append(share)
        return max(found)
