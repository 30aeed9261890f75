"""Misaligned: the gradient pulls other candidates than those that match."""

from dataclasses import dataclass

from cocos.monitor.detectors._history import Count, Part, Record, Watcher, most, numbers

__all__ = ["Misaligned"]


@dataclass(frozen=True)
class Misaligned(Watcher):
    """The loss pushes the positives and pulls negatives: its labels point to other rows than the data do.

    Fires when: more than `part` of the positives are pushed, and negatives are pulled in their place, in any direction,
    in each of the last `records` records.

    Try: compare the candidate order with the labels, especially after a gather over processes or with appended hard
    negatives: positives first, then negatives, and an own offset for each process.

    Args:
        part: of the positives.
        records: how many in a row; of checkpoints, one.

    Source: https://github.com/huggingface/sentence-transformers/pull/3453, where a gather interleaved positives and
    hard negatives.
    """

    READS = ("pulled_negatives", "pushed_positives", "positives")
    SEVERITY = "stop"

    part: Part = 0.4
    records: Count = 2

    MESSAGE = (
        "positives pushed away while other candidates are pulled: {percent:.3g} % {since} (threshold "
        "{limit_percent:g} %). Compare the candidate order with the labels, especially after a gather or with hard "
        "negatives"
    )

    def value(self, record: Record) -> float:
        """Largest part of the positives that are pushed, of the directions that pull other candidates instead."""
        return most(record, self._pushed)

    def _pushed(self, direction: Record) -> float | None:
        pulled, pushed, positives = numbers(direction, "pulled_negatives", "pushed_positives", "positives")
        return pushed / positives if pulled and pushed and positives and pulled >= self.part * positives else None
