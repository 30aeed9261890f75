"""Unheld: the number that `cocos.Hold` is to hold is not met."""

from collections.abc import Sequence
from dataclasses import dataclass

from cocos.monitor.detectors._history import LOOKBACK, Count, Part, Record, Watcher, number

__all__ = ["Unheld"]


@dataclass(frozen=True)
class Unheld(Watcher):
    """The controller of the loss does not reach its number.

    Fires when: the number at the last setting of `cocos.Hold` differs from the target by more than `part` of it, or
    could not be solved for, in each of the last `records` records.

    Try: a target below the number of negatives, a larger batch, wider `bounds`, or the loss without `cocos.Hold`.

    Args:
        part: of the target.
        records: how many in a row; of checkpoints, one.

    Source: a number that no temperature gives is not held, by definition; a margin may jump over it.
    """

    part: Part = 0.1
    records: Count = 3

    SAYS = (
        "the number at the last setting of cocos.Hold is {percent:.3g} % away from its target of {target:.3g} (more "
        "than {limit_percent:g} %) {since}; ask for fewer than there are negatives, widen bounds=, or train without it"
    )

    def value(self, record: Record) -> float | None:
        """Distance from the target in parts of it."""
        return number(record, "held_missed")

    def not_applicable(self, history: Sequence[Record]) -> str | None:
        """Why its fault cannot be in these records; None: it can."""
        seen = any(number(each, "held_target") is not None for each in history[-LOOKBACK:])
        return None if seen else "cocos.Hold sets nothing"

    def words(self, history: Sequence[Record]) -> dict[str, object]:
        """The target."""
        return {"target": number(history[-1], "held_target") or 0.0}
