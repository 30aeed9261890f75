"""Duplicates: candidates of a batch that equal another one."""

from collections.abc import Sequence
from dataclasses import dataclass

from cocos.monitor.detectors._history import Alarm, Record, Watcher, alarm, number, streak, threshold, unmatched

__all__ = ["Duplicates"]

# Mean cosine of random candidates above which all of them are alike, which is the business of `collapse`.
ALL_ALIKE = 0.999


@dataclass(frozen=True)
class Duplicates(Watcher):
    """Candidates of the batch equal another one exactly, as embeddings or as inputs of the network.

    Fires when: the candidates, or the rows of the inputs, that repeat another one are more than `part` of all in each
    of the last `records` records, without as many as the further positives of a query may be; silent where all
    embeddings are alike. Inputs are seen in the arguments of the loss and by the callbacks of trainers.

    Try: groups that say which rows match, a sampler without duplicates in a batch (sentence-transformers:
    `BatchSamplers.NO_DUPLICATES`), or a data set without them.

    Args:
        part: of the candidates.
        records: how many in a row; of checkpoints, one.

    Source: a repeated match is a negative that equals the positive, and its push cancels the pull; the threshold
    separates the synthetic runs of `benchmarks/alarms.py`.
    """

    READS = ("duplicates|repeated_inputs", "candidates|queries")

    part: float = threshold(0.05, 0, 1)
    records: int = threshold(3, 1)

    def __call__(self, history: Sequence[Record]) -> Alarm | None:
        """The alarm at the last record, if any."""
        since = streak(history, self.records, lambda each: self._most(each) > self.part)
        if since is None:
            return None
        value = self._most(history[-1])
        inputs = (_part(history[-1], "repeated_inputs", "queries") or 0) == value
        said = (
            f"{100 * value:.3g} % of the {'rows of the inputs' if inputs else 'candidates'} equal another one of their "
            f"batch (above {100 * self.part:g} %) {since}; unless groups say that they match, a query pushes away its "
            "own match: give groups, or draw batches without duplicates"
        )
        return alarm(self, history, value, self.part, said)

    def _most(self, record: Record) -> float:
        """Part of the candidates or of the inputs that repeat another one, the larger one; 0 where it is unknown."""
        embedded = 0.0 if (number(record, "similarity") or 0) > ALL_ALIKE else _part(record, "duplicates", "candidates")
        return max(embedded or 0.0, _part(record, "repeated_inputs", "queries") or 0.0)


def _part(record: Record, key: str, of: str) -> float | None:
    """Part of the rows that repeat another one; None where it is unknown."""
    found, rows = number(record, key), number(record, of)
    return None if found is None or not rows else unmatched(record, found) / rows
