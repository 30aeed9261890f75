"""Stuck: the loss stands at the value that equal scores give."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cocos.monitor.detectors._history import (
    Alarm,
    AtLeast0,
    Count,
    Half,
    Record,
    Steps,
    Watcher,
    alarm,
    alike,
    directions,
    fitting,
    negatives,
    number,
    streak,
    warm,
)

__all__ = ["Stuck"]

# Part of the negatives that the push reaches at least where all scores are equal, as an effective number.
EVEN = 0.75


@dataclass(frozen=True)
class Stuck(Watcher):
    """The loss stands at the value of equal scores: it has learned nothing yet.

    Fires when: the loss is within the part `tolerance` of the value that it has where all scores are equal, in each of
    the last `records` records, `warmup` steps after the first one. That value is ln C of a softmax over C candidates;
    ln 2 of a sigmoid, or the entropy of its part of positives; the margin of a hinge: each as a mean or a sum over
    queries, candidates and directions. The push must be spread accordingly.

    Try: lower the learning rate, add warm-up, use a larger scale (a smaller temperature), and check that the gradient
    reaches both encoders; use all negatives in the first epoch of a triplet loss with the hardest negative; if
    `collapse` fires too, fix it first.

    Args:
        tolerance: part by which the loss may differ from that value.
        margin: of a hinge, where the record has none.
        records: how many in a row; of checkpoints, one.
        warmup: steps since the first record; of checkpoints, one checkpoint.

    Source: ln C, ln 2 and the margin follow from equal scores; margin 0.2 of Faghri et al. 2018, arXiv:1707.05612; the
    other thresholds separate the synthetic runs of `benchmarks/alarms.py`.
    """

    READS = ("value", "kind", "queries", "candidates", "positives")

    tolerance: Half = 0.02
    margin: AtLeast0 = 0.2
    records: Count = 3
    warmup: Steps = 200

    def __call__(self, history: Sequence[Record]) -> Alarm | None:
        """The alarm at the last record, if any."""
        found = self._nearest(history[-1])
        if found is None or not warm(history, self.warmup):
            return None
        value, level, name = found
        since = streak(history, self.records, lambda each: (self._nearest(each) or (0, 0, ""))[2] == name)
        if since is None:
            return None
        soft, hinge = ", raise the scale", ", start with all negatives instead of the hardest"
        more = "" if alike(history[-1]) else fitting(history[-1], softmax=soft, sigmoid=soft, hinge=hinge)
        message = (
            f"loss {value:.4g} {since}, within {100 * self.tolerance:g} % of {level:.4g}, the value for equal scores "
            f"({name}). Lower the learning rate, add warm-up{more}, or check that the pairs match and the gradient "
            "reaches both encoders"
        )
        return alarm(self, history, value, level, message)

    def _nearest(self, record: Record) -> tuple[float, float, str] | None:
        """The loss, the value of equal scores that it stands at, and its name; None where it stands at none."""
        value, first = number(record, "value"), next(directions(record), None)
        if value is None or first is None or not _even(record):
            return None
        for level, name in self._levels(record, *first):
            if abs(value - level) <= self.tolerance * level:
                return value, level, name
        return None

    def _levels(self, record: Record, name: str, direction: Record) -> list[tuple[float, str]]:
        """Values that equal scores give, with their names."""
        queries, others = number(direction, "queries"), negatives(name, direction)
        positives = number(direction, "positives")
        if queries is None or others is None or positives is None or others < 1 or positives <= 0:
            return []
        every, both = round(others + positives), ((), ("2",)) if len(list(directions(record))) > 1 else ((),)
        sums = [(*two, *rows) for two in both for rows in ((), (f"{queries:g} queries",))]
        if record.get("kind") == "softmax":
            return [_times(math.log(every), f"ln {every}", each) for each in sums]
        if record.get("kind") == "sigmoid":
            part = 1 - others / (others + positives)
            entropy = -part * math.log(part) - (1 - part) * math.log(1 - part) if 0 < part < 1 else math.log(2)
            pairs = [*sums, *((*each, f"{every} candidates") for each in sums)]
            name = f"entropy {entropy:.3g} of {100 * part:.3g} % positives"
            return [_times(*of, each) for of in ((math.log(2), "ln 2"), (entropy, name)) for each in pairs]
        margin = number(record, "margin") or self.margin
        if record.get("kind") != "hinge" or margin <= 0:
            return []
        pairs = [*sums, *((*each, f"{round(others)} negatives") for each in sums)]
        return [_times(margin, f"margin {margin:g}", each) for each in pairs]


def _times(value: float, name: str, factors: tuple[str, ...]) -> tuple[float, str]:
    """A value times factors, which begin with their numbers, and the name of the product."""
    return value * math.prod(float(each.partition(" ")[0]) for each in factors), " x ".join([*factors, name])


def _even(record: Record) -> bool:
    """Whether the push is spread as equal scores spread it: over all negatives; of a hinge, over all queries."""
    for name, each in directions(record):
        effective, others = number(each, "effective"), negatives(name, each)
        if record.get("kind") == "hinge":
            if number(each, "unpushed"):
                return False
        elif effective is None or others is None or effective < EVEN * others:
            return False
    return True
