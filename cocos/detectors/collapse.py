"""Collapse: random pairs of candidates are too similar."""

from collections.abc import Sequence
from dataclasses import dataclass

from cocos.detectors._history import Alarm, Record, Watcher, alarm, number, streak, threshold, warm

__all__ = ["Collapse"]


@dataclass(frozen=True)
class Collapse(Watcher):
    """Random pairs of candidates point almost in one direction.

    Fires when: the mean cosine of random pairs of different candidates exceeds `similarity` in each of the last
    `records` records, `warmup` steps after the first one: an untrained network may begin there.

    Try: a lower learning rate, a warm-up, or all negatives in place of the hardest at the beginning.

    Args:
        similarity: mean cosine of random pairs.
        records: how many in a row; of checkpoints, one.
        warmup: steps since the first record; of checkpoints, one checkpoint.

    Source: an untrained tower begins near 0.5 (Liang et al. 2022, arXiv:2203.02053, fig. 2); the threshold separates
    the synthetic runs of `benchmarks/alarms.py`.
    """

    READS = ("similarity",)

    similarity: float = threshold(0.9, -1, 1)
    records: int = threshold(3, 1)
    warmup: int = threshold(20)

    def __call__(self, history: Sequence[Record]) -> Alarm | None:
        """The alarm at the last record, if any."""
        since = streak(history, self.records, lambda each: (number(each, "similarity") or 0) > self.similarity)
        if since is None or not warm(history, self.warmup):
            return None
        value = number(history[-1], "similarity") or 0
        said = (
            f"random pairs of candidates have a mean cosine of {value:.3g} (above {self.similarity:g}) {since}, so "
            "they are hard to tell apart; lower the learning rate, warm it up, or use all negatives in place "
            "of the hardest"
        )
        return alarm(self, history, value, self.similarity, said)
