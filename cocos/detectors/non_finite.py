"""Non-finite values in the loss, the scores or the gradient."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cocos.detectors._history import Alarm, Record, alarm, step

__all__ = ["NonFinite"]


@dataclass(frozen=True)
class NonFinite:
    """The loss, its scores or their gradient contain NaN or infinity.

    Fires when: a record says so, or its loss is not finite; at once.

    Try: skip the step (GradScaler does), clip the gradient, compute the loss in float32, and look for a vector of
    length 0 or a temperature near 0.

    Source: by definition.
    """

    def __call__(self, history: Sequence[Record]) -> Alarm | None:
        """The alarm at the last record, if any."""
        now = history[-1]
        value = now.get("value")
        lost = isinstance(value, float) and not math.isfinite(value)
        if now.get("finite", True) is not False and not lost:
            return None
        said = (
            f"the loss, its scores or their gradient contain NaN or infinity at step {step(now)} (a healthy step has "
            "none); skip the step, clip the gradient, or compute the loss in float32"
        )
        return alarm(self, history, 1.0, 0.0, said)
