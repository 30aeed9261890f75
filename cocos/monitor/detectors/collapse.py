"""Collapse: random pairs of candidates are too similar."""

from collections.abc import Sequence
from dataclasses import dataclass

from cocos.counting import health
from cocos.monitor.detectors._history import (
    Cosine,
    Count,
    Part,
    Record,
    Steps,
    Watcher,
    alike,
    fitting,
    unrelated,
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
    SEVERITY = "stop"

    similarity: Cosine = health.NEARLY_ONE
    outranked: Part = health.OUTRANKED
    certain: Cosine = health.CERTAINLY_ALIKE
    records: Count = 3
    warmup: Steps = 20

    SAYS = (
        "random pairs of candidates have a mean cosine of {value:.3g} (above {limit:g}) {since}, so they are hard to "
        "tell apart; {cure}"
    )

    def fires(self, record: Record) -> bool:
        """Whether the candidates of a record are alike, and positives do not stand out of them."""
        return alike(record, self.similarity, self.outranked, self.certain)

    def words(self, history: Sequence[Record]) -> dict[str, object]:
        """A cure for the cause that the history shows: the input, the pairs, or the training."""
        if (self.value(history[0]) or 0) > self.similarity:
            cure = (
                "it was so from the first record on, before any training: look at a batch as the network gets it (all "
                "rows alike, empty, padding alone, a wrong normalisation), and for a layer whose output is constant"
            )
        elif unrelated(history, self.records) is not None:
            cure = (
                "positives are no nearer than negatives from the first record on, so the loss gains most by making all "
                "rows alike: look at the pairs or the labels, which seem to be shuffled, before the learning rate"
            )
        else:
            cure = "it came about in the training: lower the learning rate or warm it up"
            cure += fitting(history[-1], hinge=", or use all negatives in place of the hardest at the beginning")
        return {"cure": cure}
