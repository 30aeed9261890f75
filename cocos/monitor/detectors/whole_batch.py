"""The whole batch: after the warm-up, all negatives still weigh nearly alike."""

from collections.abc import Sequence
from dataclasses import dataclass

from cocos.monitor.detectors._history import (
    Count,
    Part,
    Record,
    Steps,
    Watcher,
    alike,
    directions,
    fitting,
    least,
    negatives,
    number,
)

__all__ = ["WholeBatch"]


@dataclass(frozen=True)
class WholeBatch(Watcher):
    """After the warm-up the push is still spread over nearly all negatives of the batch.

    Fires when: in every direction the effective number of negatives, as a part of all negatives, exceeds `part` in
    each of the last `records` records, `warmup` steps after the first one; silent below `negatives` negatives.

    Try: use a smaller temperature (a larger scale) or, for a hinge loss, a smaller margin, and check that the loss
    decreases; if `collapse` fires too, fix it first.

    Args:
        part: of the negatives.
        negatives: smallest number of negatives per query.
        records: how many in a row; of checkpoints, one.
        warmup: steps since the first record; of checkpoints, one checkpoint.

    Source: the threshold separates the synthetic runs of `benchmarks/alarms.py`.
    """

    READS = ("effective", "candidates")

    part: Part = 0.9
    negatives: Count = 8
    records: Count = 3
    warmup: Steps = 200

    MESSAGE = (
        "push spread over {percent:.3g} % of negatives {since} (threshold {limit_percent:g} %). {cure}, then "
        "check that the loss decreases"
    )

    def not_applicable(self, history: Sequence[Record]) -> str | None:
        """Why its fault cannot be in these records; None: it can."""
        known = [negatives(name, each) for name, each in directions(history[-1])]
        few = all(each is not None and each < self.negatives for each in known)
        return f"a query has fewer than {self.negatives:g} negatives" if few else None

    def value(self, record: Record) -> float:
        """Effective number of negatives as a part of all, the smallest of the directions; 0 where there are few."""
        return least(record, self._spread) or 0

    def _spread(self, name: str, direction: Record) -> float | None:
        effective, others = number(direction, "effective"), negatives(name, direction)
        if effective is None or others is None:
            return None
        return effective / others if others >= self.negatives else 0.0

    def words(self, history: Sequence[Record]) -> dict[str, object]:
        """The cure."""
        soft = "Use a smaller temperature (a larger scale)"
        if alike(history[-1]):
            return {"cure": "Fix `collapse` first"}
        cures = {"hinge": "Use a smaller margin", "softmax": soft, "sigmoid": soft, "other": f"{soft} or margin"}
        return {"cure": fitting(history[-1], **cures)}
