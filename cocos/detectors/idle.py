"""All idle: no negative contributes to the gradient."""

from collections.abc import Sequence
from dataclasses import dataclass

from cocos.detectors._history import Alarm, Record, alarm, least, number, streak, threshold

__all__ = ["Idle"]


@dataclass(frozen=True)
class Idle:
    """Nearly all queries have no negative that contributes to the gradient.

    Fires when: in every direction the part of the queries without any contributing negative exceeds `part`, and their
    negatives weigh nothing together either, in each of the last `records` records.

    Try: a larger batch, harder negatives or a larger margin; or stop, where validation says that it is good enough.

    Args:
        part: of the queries.
        records: how many in a row; of checkpoints, one.

    Source: the threshold separates the synthetic runs of `benchmarks/alarms.py`.
    """

    part: float = threshold(0.95, 0, 1)
    records: int = threshold(3, 1)

    def __call__(self, history: Sequence[Record]) -> Alarm | None:
        """The alarm at the last record, if any."""
        since = streak(history, self.records, lambda each: (least(each, self._idle) or 0) > self.part)
        if since is None:
            return None
        value = least(history[-1], self._idle) or 0
        said = (
            f"{100 * value:.3g} % of the queries have no negative that contributes to the gradient (above "
            f"{100 * self.part:g} %) {since}; use a larger batch, harder negatives or a larger margin, or stop here"
        )
        return alarm(self, history, value, self.part, said)

    def _idle(self, _name: str, direction: Record) -> float | None:
        """Part of the queries that are idle; 0 where many light negatives push together."""
        idle, queries = number(direction, "idle"), number(direction, "queries")
        if idle is None or not queries:
            return None
        return 0.0 if (number(direction, "weight_negative") or 0) > 1 - self.part else idle / queries
