"""Mispaired: positives are no nearer than negatives, all of them or a part."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cocos.counting import health
from cocos.monitor.detectors._history import (
    CHANCE,
    NO_AGREEMENT,
    Alarm,
    Count,
    Part,
    Record,
    Steps,
    Watcher,
    alarm,
    directions,
    negatives,
    number,
    of_checkpoints,
    pooled,
    step,
    unrelated,
    warm,
)
from cocos.monitor.records import LABELLED, OF_CLASSES

__all__ = ["Mispaired"]

# Part of the positives that rank behind half of the negatives which are behind three quarters: 0.5 of wrong ones.
FLAT = 0.3
# Part of the positives that are wrong from which on too few others are left to be told from them.
MOST_WRONG = 0.8
# Part of the negatives that outrank positives from which on the order is turned, rather than random.
TURNED = 0.75
# Cosine of random candidates from which on they differ by rounding alone, and the pairs cannot be told.
SAME_CANDIDATES = 0.9999


@dataclass(frozen=True)
class Mispaired(Watcher):
    """Positives do not belong to their queries: all of them, or a part.

    Fires when: from the first record on, positives are outranked by about half of the negatives, as random rows are,
    and the cosines between the queries do not agree with those between their positives, as they do even before the
    training where row i belongs to row i; or more than `part` of the positives rank as random rows do, while at least
    `clear` of the others are ahead of nine in ten negatives. Both over the last `records` records, or as many as have
    `queries` queries, the latter in either half of them; `warmup` steps after the first one; silent below `negatives`
    negatives per query, and of class vectors.

    Try: inspect ten pairs as passed to the loss: one side may be shuffled, sorted, filtered or off by one, and labels
    may be shuffled or taken from another split; `cocos audit` lists single wrong pairs.

    Args:
        part: of the positives.
        clear: part of the other positives.
        queries: fewest of the records together.
        negatives: fewest per query.
        records: how many; of checkpoints, one.
        warmup: steps since the first record; of checkpoints, one checkpoint.

    Source: of unrelated rows each place among the negatives is as likely as another; the thresholds separate the
    synthetic runs of `benchmarks/alarms.py`.
    """

    READS = ("outranked",)
    SEVERITY = "stop"

    part: Part = 0.3
    clear: Part = 0.75
    queries: Count = 150
    negatives: Count = 4
    records: Count = 5
    warmup: Steps = 25

    def not_applicable(self, history: Sequence[Record]) -> str | None:
        """Why its fault cannot be in these records; None: it can."""
        others = [negatives(name, each) for name, each in directions(history[-1])][:1]
        few = others and others[0] is not None and others[0] < self.negatives
        if any(name in OF_CLASSES for name, _ in directions(history[-1])):
            return "the candidates are class vectors"
        return f"a query has fewer than {self.negatives:g} negatives" if few else None

    def least_records(self, history: Sequence[Record]) -> int:
        """How many records it needs."""
        if of_checkpoints(history):
            return 1
        queries = number(history[-1], "queries") if history else None
        return max(self.records, math.ceil(self.queries / max(1.0, queries)) if queries else 0)

    def __call__(self, history: Sequence[Record]) -> Alarm | None:
        """The alarm at the last record, if any."""
        now, least = history[-1], self.least_records(history)
        if not warm(history, self.warmup) or len(history) < least or number(now, "outranked") is None:
            return None
        if self.not_applicable(history) is not None or (number(now, "similarity") or 0) > SAME_CANDIDATES:
            return None
        labelled = next((name for name, _ in directions(now)), "") in LABELLED
        value = unrelated(history, least)
        if value is not None:
            return alarm(self, history, value, CHANCE, self._all(history, value, labelled=labelled))
        half = -(-least // 2)  # the first and the last half agree, unless the training is learning its pairs
        if any(self._part(some) is None for some in (history[-half:], history[-least:][:half])):
            return None
        wrong = pooled(history[-least:], "far_behind") or 0
        wrong = min(4 * wrong, 2 * (pooled(history[-least:], "behind") or 0))
        cause = "some labels are probably wrong" if labelled else "one side is probably shuffled or shifted in part"
        message = (
            f"positives ranked like random rows: about {100 * wrong:.2g} % over the last {least} records (threshold "
            f"{100 * self.part:g} %), the other positives outrank nine in ten negatives. Inspect ten pairs as passed "
            f"to the loss: {cause}"
        )
        return alarm(self, history, wrong, self.part, message)

    def _part(self, some: Sequence[Record]) -> float | None:
        """Part of the positives that rank as by chance while the others are ahead; None where they do not."""
        behind = pooled(some, "behind") or 0.0
        if 2 * behind <= self.part:
            return None  # as nearly always
        far, ahead = (pooled(some, key) or 0.0 for key in ("far_behind", "ahead"))
        wrong = min(2 * behind, 4 * far)
        if not self.part < wrong < MOST_WRONG or far < FLAT * behind:
            return None
        return wrong if (ahead - wrong / 10) / (1 - wrong) >= self.clear else None

    def _all(self, history: Sequence[Record], value: float, *, labelled: bool) -> str:
        """The sentence about pairs without any relation."""
        now = history[-1]
        message = f"negatives above the positive: {100 * value:.3g} % since step {step(history[0])} (threshold "
        message += f"{100 * CHANCE:g} %, chance 50 %)"
        if value > TURNED:
            return f"{message}. Matches have the lowest scores: check the sign of the similarity"
        found = pooled(history[-self.least_records(history) :], "agreement")
        if found is not None:
            message += f", agreement of query and positive cosines {found:.2f} (threshold {NO_AGREEMENT:g})"
        if labelled:
            return (
                f"{message}. Rows with equal labels are no more similar than others: check for labels that were "
                "shuffled, sorted or taken from another split"
            )
        same = (number(now, "similarity") or 0) > health.NEARLY_ONE
        inputs = "Check whether all inputs are alike, then inspect" if same else "Inspect"
        return (
            f"{message}. {inputs} ten pairs as passed to the loss: one side may be shuffled, sorted, filtered or off "
            "by one"
        )
