"""Collapse: random pairs of candidates are too similar."""

from collections.abc import Sequence
from dataclasses import dataclass

from cocos.monitor.detectors._history import (
    Alarm,
    Record,
    Watcher,
    alarm,
    fitting,
    number,
    streak,
    threshold,
    unrelated,
    warm,
)

__all__ = ["Collapse"]


@dataclass(frozen=True)
class Collapse(Watcher):
    """Random pairs of candidates point almost in one direction.

    Fires when: the mean cosine of random pairs of different candidates exceeds `certain`, or exceeds `similarity` while
    more than the part `outranked` of the negatives score above a positive, in each of the last `records` records,
    `warmup` steps after the first one: an untrained network may begin there.

    Try: where it was so from the first record on, a look at the rows as the network gets them, and at layers that are
    dead; where the pairs or labels are unrelated, see `mispaired`; else a lower learning rate, a warm-up, or, of a
    hinge, all negatives in place of the hardest at the beginning.

    Args:
        similarity: mean cosine of random pairs.
        outranked: part of the negatives, where positives are known; 0.5 by chance.
        certain: mean cosine of random pairs, wherever positives rank.
        records: how many in a row; of checkpoints, one.
        warmup: steps since the first record; of checkpoints, one checkpoint.

    Source: an untrained tower begins near 0.5 (Liang et al. 2022, arXiv:2203.02053, fig. 2); the threshold separates
    the synthetic runs of `benchmarks/alarms.py`.
    """

    READS = ("similarity",)

    similarity: float = threshold(0.9, -1, 1)
    outranked: float = threshold(0.35, 0, 1)
    certain: float = threshold(0.98, -1, 1)
    records: int = threshold(3, 1)
    warmup: int = threshold(20)

    def __call__(self, history: Sequence[Record]) -> Alarm | None:
        """The alarm at the last record, if any."""
        since = streak(history, self.records, self._collapsed)
        if since is None or not warm(history, self.warmup):
            return None
        value = number(history[-1], "similarity") or 0
        said = (
            f"random pairs of candidates have a mean cosine of {value:.3g} (above {self.similarity:g}) {since}, so "
            f"they are hard to tell apart; {self._cure(history)}"
        )
        return alarm(self, history, value, self.similarity, said)

    def _collapsed(self, record: Record) -> bool:
        """Whether the candidates of a record are alike, and positives do not stand out of them."""
        alike, ranked = number(record, "similarity") or 0, number(record, "outranked")
        return alike > self.certain or (alike > self.similarity and (ranked is None or ranked > self.outranked))

    def _cure(self, history: Sequence[Record]) -> str:
        """A cure for the cause that the history shows: the input, the pairs, or the training."""
        if (number(history[0], "similarity") or 0) > self.similarity:
            return (
                "it was so from the first record on, before any training: look at a batch as the network gets it (all "
                "rows alike, empty, padding alone, a wrong normalisation), and for a layer whose output is constant"
            )
        if unrelated(history, self.records) is not None:
            return (
                "positives are no nearer than negatives from the first record on, so the loss gains most by making all "
                "rows alike: look at the pairs or the labels, which seem to be shuffled, before the learning rate"
            )
        said = "it came about in the training: lower the learning rate or warm it up"
        return said + fitting(history[-1], hinge=", or use all negatives in place of the hardest at the beginning")
