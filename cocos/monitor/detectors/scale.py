"""Scale: a temperature is far from all usual ones, or a learned one runs away."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cocos.monitor.detectors._history import (
    Alarm,
    AtLeast0,
    Part,
    Reason,
    Record,
    Steps,
    Watcher,
    alarm,
    directions,
    number,
    of_checkpoints,
    step,
    warm,
)

__all__ = ["Scale"]

# Part by which a scale has changed that is learned.
LEARNED = 0.01


@dataclass(frozen=True)
class Scale(Watcher):
    """The scale, one over the temperature, is far from all usual ones, or is learned and runs to an end of its range.

    Fires when: a scale that changes falls below `low`; or, unless the loss is a sigmoid, rises above `high`, or reaches
    it within `steps` steps of the first record: a sound training takes thousands, if it gets there. Of a softmax, a
    scale that stays as it is, `warmup` steps after the first record: above `fixed`; or below `low`, where even perfect
    embeddings leave more than the part `floor` of the loss of equal scores.

    Try: set a fixed scale to 10 to 100 (temperature 0.1 to 0.01): cocos whatif --settles computes it. Clamp a learned
    one (CLIP: 100), exclude it from weight decay and lower its learning rate. If it falls, check the pairing of the
    rows and the learning rate.

    Args:
        low: scale below which nearly all candidates weigh alike.
        high: largest sound scale of a softmax that is learned.
        fixed: largest sound scale of a softmax that is not.
        floor: part of the loss of equal scores.
        steps: since the first record; a checkpoint counts as slow.
        warmup: steps since the first record, after which a scale that has not changed is fixed; of checkpoints, one.

    Source: CLIP begins at 1/0.07 and clips at 100 (Radford et al. 2021, arXiv:2103.00020, section 2.5); SigLIP has no
    clip and ends above 100 (Zhai et al. 2023, arXiv:2303.15343); the scale falls with the loss at ln C in
    https://github.com/mlfoundations/open_clip/issues/815. SimCLR trains at a scale of 2 and above (Chen et al. 2020,
    arXiv:2002.05709, table 5). C candidates of unit length can have a mean cosine of no less than -1/(C - 1), so that
    the loss is at least ln(1 + (C - 1) exp(-scale C / (C - 1))).
    """

    READS = ("scale",)

    low: AtLeast0 = 2.0
    high: AtLeast0 = 100.0
    fixed: AtLeast0 = 200.0
    floor: Part = 0.5
    steps: Steps = 1000
    warmup: Steps = 20

    def begins(self, history: Sequence[Record]) -> Reason | None:
        """When it begins, in words; a scale that has changed is judged at once."""
        return None if _learned(history) else super().begins(history)

    def __call__(self, history: Sequence[Record]) -> Alarm | None:
        """The alarm at the last record, if any."""
        now = number(history[-1], "scale")
        start = next((each for each in history if number(each, "scale") is not None), None)
        first = number(start, "scale") if start is not None else None
        if now is None or start is None or not first:
            return None
        if not _learned(history):
            return self._constant(history, now)
        end, taken = step(history[-1]), step(history[-1]) - step(start)
        path = f"changed from {first:.3g} to {now:.3g}"
        if now < self.low:
            message = (
                f"scale {path} by step {end} (threshold {self.low:g}), all candidates have nearly equal weights. "
                "Check the pairing of the rows, lower the learning rate, or fix the scale"
            )
            return alarm(self, history, now, self.low, message)
        fast = now >= (1 - LEARNED) * self.high and taken <= self.steps and not of_checkpoints(history)
        if history[-1].get("kind") == "sigmoid" or not (fast or now > (1 + LEARNED) * self.high):
            return None
        message = (
            f"scale {path} by step {end} (threshold {self.high:g}). Clamp it, exclude it from weight decay, and lower "
            "its learning rate"
        )
        return alarm(self, history, now, self.high, message)

    def _constant(self, history: Sequence[Record], scale: float) -> Alarm | None:
        """The alarm about a scale that does not change, if any."""
        record = history[-1]
        if record.get("kind") != "softmax" or not warm(history, self.warmup) or scale <= 0:
            return None
        sides = [each for _, each in directions(record)]
        candidates = max((number(each, "candidates") or 0 for each in sides), default=0)
        effective = max((number(each, "effective") or 0 for each in sides), default=0)
        if scale > self.fixed:
            message = (
                f"scale {scale:.4g} (temperature {1 / scale:.2g}) at step {step(record)} (threshold {self.fixed:g}), "
                f"effective negatives {effective:.3g}. Set the scale to 10 to 100: cocos whatif --settles computes it"
            )
            return alarm(self, history, scale, self.fixed, message)
        if not scale < (1 - LEARNED) * self.low or candidates < 2:
            return None
        equal, others = math.log(candidates), candidates - 1
        least = math.log1p(others * math.exp(-scale * candidates / others))
        if least <= self.floor * equal:
            return None
        message = (
            f"scale {scale:.4g} at step {step(record)} (threshold {self.low:g}), smallest possible loss {least:.3g} "
            f"of ln {candidates:g} = {equal:.3g}, effective negatives {effective:.3g} of {others:g}. Multiply the "
            "cosines by 10 to 100 (temperature 0.1 to 0.01)"
        )
        return alarm(self, history, scale, self.low, message)


def _learned(history: Sequence[Record]) -> bool:
    """Whether the scale at the last record is another one than the first."""
    now = number(history[-1], "scale") if history else None
    first = next((v for each in history if (v := number(each, "scale"))), None)
    return now is not None and first is not None and abs(now / first - 1) > LEARNED
