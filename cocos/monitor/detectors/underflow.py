"""Underflow: weights of the gradient are too small for half precision."""

from collections.abc import Sequence
from dataclasses import dataclass

from cocos.monitor.detectors._history import Count, Part, Record, Watcher, number

__all__ = ["Underflow"]

# Part of the negatives' weights that are 0 where all of them are.
ALL_ZERO = 0.999
# Value of the loss from which on there is something to push.
NOT_ZERO = 0.01


@dataclass(frozen=True)
class Underflow(Watcher):
    """In half precision the weights of the gradient are rounded to few bits or to 0.

    Fires when: the scores are float16, and more than `part` of the push is on weights below the smallest normal number
    (6.1e-5), or all weights of a softmax or sigmoid are 0 although the loss is not, in each of the last `records`
    records.

    Try: GradScaler, the loss in float32 (`scores.float()`), or bfloat16, whose range is that of float32.

    Args:
        part: of the push.
        records: how many in a row; of checkpoints, one.

    Source: float16 has 11 bits down to 2⁻¹⁴ and none below 2⁻²⁵ (IEEE 754); Micikevicius et al. 2018, arXiv:1710.03740,
    section 3.2.
    """

    part: Part = 0.1
    records: Count = 2

    MESSAGE = (
        "push rounded to few bits or to 0 in float16: {percent:.3g} % {since} (threshold {limit_percent:g} %). Use "
        "GradScaler, compute the loss in float32, or train in bfloat16"
    )

    def not_applicable(self, history: Sequence[Record]) -> str | None:
        """Why its fault cannot be in these records; None: it can."""
        kind = history[-1].get("dtype")
        return None if kind == "float16" else f"the scores are {kind}, not float16" if kind else "no dtype is known"

    def value(self, record: Record) -> float | None:
        """Part of the push that half precision rounds away; None where it is unknown."""
        if record.get("dtype") != "float16":
            return None
        soft = record.get("kind") in ("softmax", "sigmoid") and (number(record, "value") or 0) > NOT_ZERO
        return 1.0 if soft and (number(record, "zero") or 0) > ALL_ZERO else number(record, "subnormal")
