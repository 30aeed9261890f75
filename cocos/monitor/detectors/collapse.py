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

    Try: if present from the first record, check the network input, dead layers and detached encoders; if `mispaired`
    fires too, check the pairs or labels; otherwise lower the learning rate, add warm-up, or start a hinge loss with all
    negatives instead of the hardest.

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

    MESSAGE = "mean cosine of random candidate pairs {value:.3g} {since} (threshold {limit:g}). {cure}"

    def fires(self, record: Record) -> bool:
        """Whether the candidates of a record are alike, and positives do not stand out of them."""
        return alike(record, self.similarity, self.outranked, self.certain)

    def words(self, history: Sequence[Record]) -> dict[str, object]:
        """A cure for the cause that the history shows: the input, the pairs, or the training."""
        if (self.value(history[0]) or 0) > self.similarity:
            cure = (
                "Untrained networks can start above the threshold; if it does not fall, check the input (equal or "
                "empty rows, normalisation), a layer with constant output, a detached encoder, the learning rate and "
                "the scale"
            )
        elif unrelated(history, self.records) is not None:
            cure = (
                "Positives have scored no higher than negatives since the first record: check the pairs or labels "
                "for a shuffle, then the learning rate"
            )
        else:
            cure = "It developed during training: lower the learning rate or add warm-up"
            cure += fitting(history[-1], hinge=", or start with all negatives instead of the hardest")
        return {"cure": cure}
