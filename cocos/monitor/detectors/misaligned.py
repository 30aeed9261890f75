"""Misaligned: the gradient pulls other candidates than those that match."""

from collections.abc import Sequence
from dataclasses import dataclass

from cocos.monitor.detectors._history import Alarm, Record, Watcher, alarm, directions, number, streak, threshold

__all__ = ["Misaligned"]


@dataclass(frozen=True)
class Misaligned(Watcher):
    """The loss pushes the positives and pulls negatives: its labels point to other rows than the data do.

    Fires when: more than `part` of the positives are pushed, and negatives are pulled in their place, in any direction,
    in each of the last `records` records.

    Try: the order of the candidates against that of the labels, above all after a gather over processes or where hard
    negatives are appended: positives first, then negatives, and each process with its own offset.

    Args:
        part: of the positives.
        records: how many in a row; of checkpoints, one.

    Source: https://github.com/huggingface/sentence-transformers/pull/3453, where a gather interleaved positives and
    hard negatives.
    """

    READS = ("pulled_negatives", "pushed_positives", "positives")

    part: float = threshold(0.4, 0, 1)
    records: int = threshold(2, 1)

    def __call__(self, history: Sequence[Record]) -> Alarm | None:
        """The alarm at the last record, if any."""
        since = streak(history, self.records, lambda each: self._pushed(each) > self.part)
        if since is None:
            return None
        value = self._pushed(history[-1])
        said = (
            f"{100 * value:.3g} % of the positives are pushed away and other candidates pulled in their place (above "
            f"{100 * self.part:g} %) {since}; compare the order of the candidates with that of the labels, above all "
            "after a gather or with hard negatives"
        )
        return alarm(self, history, value, self.part, said)

    def _pushed(self, record: Record) -> float:
        """Largest part of the positives that are pushed, of the directions that pull other candidates instead."""
        found = [0.0]
        for _, each in directions(record):
            pulled, pushed, positives = (
                number(each, name) for name in ("pulled_negatives", "pushed_positives", "positives")
            )
            if pulled and pushed and positives and pulled >= self.part * positives:
                found.append(pushed / positives)
        return max(found)
