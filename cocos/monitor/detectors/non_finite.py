"""Non-finite values in the loss, the scores or the gradient."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cocos.monitor.detectors._history import Alarm, Count, Record, Watcher, alarm, number, streak

__all__ = ["NonFinite"]


@dataclass(frozen=True)
class NonFinite(Watcher):
    """The loss, its scores or their gradient contain NaN or infinity.

    Fires when: a record says so, at once; of float16 scores with a finite loss only if it lasts for `records` records,
    because GradScaler finds its factor by overflows.

    Try: skip the step (GradScaler does), clip the gradient, compute the loss in float32, and look for a vector of
    length 0 or a temperature near 0.

    Args:
        records: how many in a row, where float16 may overflow.

    Source: by definition.
    """

    SEVERITY = "stop"

    records: Count = 10

    def least_records(self, history: Sequence[Record]) -> int:
        """How many records it needs."""
        return 1

    def __call__(self, history: Sequence[Record]) -> Alarm | None:
        """The alarm at the last record, if any."""
        since = streak(history, 1, _broken)
        now = history[-1]
        scaled = now.get("dtype") == "float16" and number(now, "value") is not None
        if since is None or (scaled and streak(history, self.records, _broken) is None):
            return None
        message = (
            f"NaN or infinity in the loss, its scores or their gradient {since}. Look for zero vectors, clip the "
            "gradient, lower the learning rate, or compute the loss in float32"
        )
        return alarm(self, history, 1.0, 0.0, message)


def _broken(record: Record) -> bool:
    """Whether a record says that a number is not finite."""
    value = record.get("value")
    return record.get("finite", True) is False or (isinstance(value, float) and not math.isfinite(value))
