"""All idle: no negative contributes to the gradient."""

from collections.abc import Sequence
from dataclasses import dataclass

from cocos.detectors._history import Alarm, Record, Watcher, alarm, fitting, least, negatives, number, streak, threshold

__all__ = ["Idle"]


@dataclass(frozen=True)
class Idle(Watcher):
    """Nearly all queries have no negative that contributes to the gradient.

    Fires when: in every direction the part of the queries without any contributing negative exceeds `part`, and neither
    their negatives nor their positives weigh anything together, in each of the last `records` records; of a loss whose
    unit is unknown, the part of the queries whose negatives are not pushed at all. Silent where there are no negatives
    or no positives, or numbers are not finite.

    Try: a larger batch, harder negatives, a larger margin of a hinge or a smaller scale of a softmax; or stop, where
    validation says that it is good enough.

    Args:
        part: of the queries.
        records: how many in a row; of checkpoints, one.

    Source: the threshold separates the synthetic runs of `benchmarks/alarms.py`.
    """

    READS = ("idle|unpushed", "queries")

    part: float = threshold(0.95, 0, 1)
    records: int = threshold(3, 1)

    def __call__(self, history: Sequence[Record]) -> Alarm | None:
        """The alarm at the last record, if any."""
        since = streak(history, self.records, lambda each: self._part(each) > self.part)
        if since is None:
            return None
        value = self._part(history[-1])
        soft = " or a smaller scale (a larger temperature)"
        more = fitting(history[-1], hinge=" or a larger margin", softmax=soft, sigmoid=soft)
        said = (
            f"{100 * value:.3g} % of the queries have no negative that contributes to the gradient (above "
            f"{100 * self.part:g} %) {since}; use a larger batch, harder negatives{more}, or stop if it is good enough"
        )
        return alarm(self, history, value, self.part, said)

    def _part(self, record: Record) -> float:
        """Smallest part of idle queries of the directions; 0 where it is unknown."""
        return 0.0 if record.get("finite") is False else least(record, self._idle) or 0.0

    def _idle(self, name: str, direction: Record) -> float | None:
        """Part of the queries that are idle; 0 without negatives, or where many light ones push together."""
        idle, queries, others = number(direction, "idle"), number(direction, "queries"), negatives(name, direction)
        idle = number(direction, "unpushed") if idle is None else idle
        if idle is None or not queries:
            return None
        if (others is not None and others < 1) or number(direction, "positives") == 0:
            return 0.0
        weights = [number(direction, key) or 0 for key in ("weight_negative", "weight_positive")]
        return 0.0 if max(weights) > 1 - self.part else idle / queries
