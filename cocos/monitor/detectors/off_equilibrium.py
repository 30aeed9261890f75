"""Off equilibrium: a learned scale runs to its clip, or stays far from where its derivative is 0."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median

from cocos.monitor.detectors._history import (
    LOOKBACK,
    Alarm,
    AtLeast0,
    Count,
    Ratio,
    Record,
    Steps,
    Watcher,
    alarm,
    number,
    of_checkpoints,
    step,
    warm,
)

__all__ = ["OffEquilibrium"]

# Part by which a scale that is learned has changed.
CHANGED_SCALE = 0.01
# Ratio of two distances, as ratios, below which the scale comes nearer.
CLOSER = 0.95


@dataclass(frozen=True)
class OffEquilibrium(Watcher):
    """A learned scale runs to its clip, or stays far from its equilibrium.

    Fires when: a scale that changes is above `near` of `clip` and has grown, while the median equilibrium of the last
    `records` records is beyond the clip, or there is none; or it is more than `times` times below or above that
    median, or the clip, and less than 5 % closer than it was `records` records before, while the median derivative of
    the loss by the logarithm of the scale is above `nats`. Both hold `warmup` steps after the first record.

    Try: where it runs to its clip, larger batches, harder negatives, or a fixed temperature: cocos temperature says
    which; where it stays far away, a larger learning rate for the scale, no weight decay on it, and a look at whether
    the optimizer has it.

    Args:
        clip: largest scale that training allows.
        near: part of the clip.
        times: ratio of the scale to its equilibrium, or the other way round.
        nats: derivative of the loss by the logarithm of the scale, up to which the distance does no harm.
        records: how many the median is over; of checkpoints, two.
        warmup: steps.

    Source: dL/dscale = 0 is where gradient descent on the scale ends; clip: Radford et al. 2021, arXiv:2103.00020,
    section 2.5.
    """

    READS = ("scale", "scale_slope|equilibrium_scale")

    clip: AtLeast0 = 100.0
    near: AtLeast0 = 0.5
    times: Ratio = 4.0
    nats: AtLeast0 = 1.0
    records: Count = 5
    warmup: Steps = 500

    def not_applicable(self, history: Sequence[Record]) -> str | None:
        """Why its fault cannot be in these records; None: it can."""
        known = [value for each in (history[0], *history[-LOOKBACK:]) if (value := _scale(each))]
        fixed = bool(known) and max(known) <= (1 + CHANGED_SCALE) * min(known)
        return "the scale is fixed" if fixed and warm(history, self.warmup) else None

    def least_records(self, history: Sequence[Record]) -> int:
        """How many records it needs."""
        return 2 if of_checkpoints(history) else self.records

    def __call__(self, history: Sequence[Record]) -> Alarm | None:
        """The alarm at the last record, if any."""
        if _scale(history[-1]) is None or _settles(history[-1]) is None or not warm(history, self.warmup):
            return None
        some, least = history[-LOOKBACK:], self.least_records(history)
        both = (
            (value, there)
            for each in reversed(some)
            if (value := _scale(each)) and (there := _settles(each)) is not None
        )
        known = [*islice(both, 2 * least)][::-1]
        first = next((value for each in history if (value := _scale(each))), math.nan)
        scale, (now, earlier) = known[-1][0], (known[-least:], known[-2 * least : -least])
        if len(now) < least or abs(scale / first - 1) <= CHANGED_SCALE:
            return None
        settles, path = median(there for _, there in now), f"the scale went from {first:.3g} to {scale:.3g}"
        if (
            settles > self.clip
            and scale > first
            and min(scale, median(each for each, _ in now)) > self.near * self.clip
        ):
            where = "none" if math.isinf(settles) else f"{settles:.3g}"
            said = (
                f"{path} by step {step(history[-1])} and runs to its clip of {self.clip:g}, for its equilibrium is "
                f"beyond it ({where}); take larger batches or harder negatives, or fix the temperature: cocos "
                "temperature says where it settles"
            )
            return alarm(self, history, scale, self.clip, said)
        settles = min(settles, self.clip)
        away = min(_apart(scale, settles), _apart(median(each for each, _ in now), settles))
        earliest = min(median(there for _, there in earlier), self.clip) if len(earlier) == least else math.nan
        before = _apart(earlier[-1][0], earliest) if len(earlier) == least else math.inf
        gain = median(abs(number(each, "scale_slope") or 0) * (_scale(each) or 0) for each in some[-least:])
        if away <= self.times or away < CLOSER * before or gain <= self.nats:
            return None
        side = "below" if scale < settles else "above"
        said = (
            f"{path} by step {step(history[-1])} and stays {away:.3g} times (more than {self.times:g}) {side} its "
            f"equilibrium of {settles:.3g}; give it a larger learning rate and no weight decay, and look whether the "
            "optimizer has it"
        )
        return alarm(self, history, away, self.times, said)


def _scale(record: Record) -> float | None:
    """The scale of a record, above 0; None where it is unknown."""
    found = number(record, "scale")
    return found if found is not None and found > 0 else None


def _settles(record: Record) -> float | None:
    """The equilibrium of a record; infinite where the loss falls with every scale."""
    found, slope = number(record, "equilibrium_scale"), number(record, "scale_slope")
    if found is not None and found > 0:
        return found
    return None if slope is None or slope >= 0 else math.inf


def _apart(one: float, other: float) -> float:
    """Ratio of the larger number to the smaller one."""
    return max(one / other, other / one)
