"""A short batch: the last one of an epoch has few rows."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from cocos.monitor.detectors._history import LOOKBACK, Alarm, Part, Record, Watcher, alarm, number, of_checkpoints, step

__all__ = ["ShortBatch"]

# Number of earlier records from which on a size is usual.
USUAL = 3


@dataclass(frozen=True)
class ShortBatch(Watcher):
    """A batch has far fewer rows than the others, as the last one of an epoch often has.

    Fires when: the number of queries is below `part` of its median over earlier records; at once.

    Try: `drop_last=True` in the data loader: such a batch has fewer negatives, and a mean gives its rows more weight.

    Args:
        part: of the usual number of queries.

    Source: a batch of half the size has half the negatives.
    """

    READS = ("queries",)

    part: Part = 0.5

    def not_applicable(self, history: Sequence[Record]) -> str | None:
        """Why its fault cannot be in these records; None: it can."""
        return "each checkpoint is measured on the same batches" if of_checkpoints(history) else None

    def least_records(self, history: Sequence[Record]) -> int:
        """How many records it needs."""
        return USUAL + 1

    def __call__(self, history: Sequence[Record]) -> Alarm | None:
        """The alarm at the last record, if any."""
        now = number(history[-1], "queries")
        earlier = history[-LOOKBACK:-1]
        if [each.get("queries") for each in earlier].count(now) == len(earlier):
            return None  # as nearly always
        sizes = [number(each, "queries") for each in earlier]
        known = [each for each in sizes if each is not None]
        if now is None or len(known) < USUAL or of_checkpoints(history):
            return None
        usual = statistics.median(known)
        if usual <= 0 or now >= self.part * usual:
            return None
        message = (
            f"batch with {now:g} queries at step {step(history[-1])}, {100 * now / usual:.3g} % of the usual {usual:g} "
            f"(threshold {100 * self.part:g} %). Use drop_last=True in the data loader"
        )
        return alarm(self, history, now / usual, self.part, message)
