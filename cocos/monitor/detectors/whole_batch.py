"""The whole batch: after the warm-up, all negatives still weigh nearly alike."""

from collections.abc import Sequence
from dataclasses import dataclass

from cocos.monitor.detectors._history import (
    Alarm,
    Record,
    Watcher,
    alarm,
    directions,
    fitting,
    least,
    negatives,
    number,
    streak,
    threshold,
    warm,
)

__all__ = ["WholeBatch"]


@dataclass(frozen=True)
class WholeBatch(Watcher):
    """After the warm-up the push is still spread over nearly all negatives of the batch.

    Fires when: in every direction the effective number of negatives, as a part of all negatives, exceeds `part` in
    each of the last `records` records, `warmup` steps after the first one; silent below `negatives` negatives.

    Try: a smaller temperature (a larger scale), of a hinge a smaller margin, and a look at whether the loss falls at
    all.

    Args:
        part: of the negatives.
        negatives: smallest number of negatives per query.
        records: how many in a row; of checkpoints, one.
        warmup: steps since the first record; of checkpoints, one checkpoint.

    Source: the threshold separates the synthetic runs of `benchmarks/alarms.py`.
    """

    READS = ("effective", "candidates")

    part: float = threshold(0.9, 0, 1)
    negatives: int = threshold(8, 1)
    records: int = threshold(3, 1)
    warmup: int = threshold(200)

    def aside(self, history: Sequence[Record]) -> str | None:
        """Why its fault cannot be in these records; None: it can."""
        few = all(
            (found := negatives(name, each)) is not None and found < self.negatives
            for name, each in directions(history[-1])
        )
        return f"a query has fewer than {self.negatives:g} negatives" if few else None

    def __call__(self, history: Sequence[Record]) -> Alarm | None:
        """The alarm at the last record, if any."""
        since = streak(history, self.records, lambda each: (least(each, self._spread) or 0) > self.part)
        if since is None or not warm(history, self.warmup):
            return None
        value = least(history[-1], self._spread) or 0
        soft = "a smaller temperature (a larger scale)"
        cure = fitting(history[-1], hinge="a smaller margin", softmax=soft, sigmoid=soft, other=f"{soft} or margin")
        said = (
            f"the push is spread over {100 * value:.3g} % of the negatives (above {100 * self.part:g} %) {since}, so "
            f"near and far negatives weigh alike; use {cure}, and look whether the loss falls"
        )
        return alarm(self, history, value, self.part, said)

    def _spread(self, name: str, direction: Record) -> float | None:
        """Effective number of negatives as a part of all; 0 where there are few."""
        effective, others = number(direction, "effective"), negatives(name, direction)
        if effective is None or others is None:
            return None
        return effective / others if others >= self.negatives else 0.0
