"""Duplicates: candidates of a batch that equal another one."""

from collections.abc import Sequence
from dataclasses import dataclass

from cocos.detectors._history import Alarm, Record, Watcher, alarm, number, streak, threshold, unmatched

__all__ = ["Duplicates"]


@dataclass(frozen=True)
class Duplicates(Watcher):
    """Candidates of the batch equal another one exactly.

    Fires when: the candidates that repeat another one are more than `part` of all in each of the last `records`
    records, without as many as the further positives of a query may be.

    Try: groups that say which rows match, a sampler without duplicates in a batch, or a data set without them.

    Args:
        part: of the candidates.
        records: how many in a row; of checkpoints, one.

    Source: a repeated match is a negative that equals the positive, and its push cancels the pull; the threshold
    separates the synthetic runs of `benchmarks/alarms.py`.
    """

    READS = ("duplicates", "candidates")

    part: float = threshold(0.05, 0, 1)
    records: int = threshold(3, 1)

    def __call__(self, history: Sequence[Record]) -> Alarm | None:
        """The alarm at the last record, if any."""
        since = streak(history, self.records, lambda each: (_part(each) or 0) > self.part)
        if since is None:
            return None
        value = _part(history[-1]) or 0
        said = (
            f"{100 * value:.3g} % of the candidates equal another one of their batch (above {100 * self.part:g} %) "
            f"{since}; unless groups say that they match, a query pushes away its own match: give groups, or draw "
            "batches without duplicates"
        )
        return alarm(self, history, value, self.part, said)


def _part(record: Record) -> float | None:
    """Part of the candidates that repeat another one; None where it is unknown."""
    found, candidates = number(record, "duplicates"), number(record, "candidates")
    return None if found is None or not candidates else unmatched(record, found) / candidates
