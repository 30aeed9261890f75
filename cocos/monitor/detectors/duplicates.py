"""Duplicates: candidates of a batch that equal another one."""

from collections.abc import Sequence
from dataclasses import dataclass

from cocos.monitor.detectors._history import Count, Part, Record, Watcher, number, numbers, unmatched

__all__ = ["Duplicates"]

# Mean cosine of random candidates above which all of them are alike, which is the business of `collapse`.
ALL_ALIKE = 0.999


@dataclass(frozen=True)
class Duplicates(Watcher):
    """Candidates of the batch equal another one exactly, as embeddings or as inputs of the network.

    Fires when: the candidates, or the rows of the inputs, that repeat another one are more than `part` of all in each
    of the last `records` records, without as many as the further positives of a query may be; silent where all
    embeddings are alike. Inputs are seen in the arguments of the loss and by the callbacks of trainers.

    Try: pass groups that mark matching rows, use a sampler without duplicates (sentence-transformers:
    `BatchSamplers.NO_DUPLICATES`), or remove them from the data set.

    Args:
        part: of the candidates.
        records: how many in a row; of checkpoints, one.

    Source: a repeated match is a negative that equals the positive, and its push cancels the pull; the threshold
    separates the synthetic runs of `benchmarks/alarms.py`.
    """

    READS = ("duplicates|repeated_inputs", "candidates|queries")

    part: Part = 0.05
    records: Count = 3

    MESSAGE = (
        "repeated {what} within a batch: {percent:.3g} % {since} (threshold {limit_percent:g} %). Without groups, a "
        "query pushes copies of its positive away: pass groups, or sample batches without duplicates"
    )

    def value(self, record: Record) -> float:
        """Part of the candidates or of the inputs that repeat another one, the larger one; 0 where it is unknown."""
        embedded = 0.0 if (number(record, "similarity") or 0) > ALL_ALIKE else _part(record, "duplicates", "candidates")
        return max(embedded or 0.0, _part(record, "repeated_inputs", "queries") or 0.0)

    def words(self, history: Sequence[Record]) -> dict[str, object]:
        """What repeats."""
        inputs = (_part(history[-1], "repeated_inputs", "queries") or 0) == self.value(history[-1])
        return {"what": "input rows" if inputs else "candidates"}


def _part(record: Record, key: str, of: str) -> float | None:
    """Part of the rows that repeat another one; None where it is unknown."""
    found, rows = numbers(record, key, of)
    return None if found is None or not rows else unmatched(record, found) / rows
