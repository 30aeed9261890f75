"""Detached: a part of the network is in training, and no gradient reaches it."""

from collections.abc import Sequence
from dataclasses import dataclass

from cocos.monitor.detectors._history import Alarm, Record, Watcher, alarm, number, streak, threshold

__all__ = ["Detached"]


@dataclass(frozen=True)
class Detached(Watcher):
    """A part of the network whose parameters require a gradient has never got one.

    Fires when: no gradient has reached more than `part` of the parameters that require one since the training began,
    in each of the last `records` records. Only the callbacks of trainers see parameters: a monitor without one says
    once that a side of the scores gets no gradient, as is right for a frozen or a momentum encoder.

    Try: a look for `detach()`, `no_grad` and `.data` between that part and the loss; `requires_grad_(False)` where it
    is frozen on purpose.

    Args:
        part: of the parameters.
        records: how many in a row.

    Source: by definition; a pooling layer that BERT does not use has 0.5 to 0.7 % of its parameters.
    """

    READS = ("unreached",)

    part: float = threshold(0.1, 0, 1)
    records: int = threshold(3, 1)

    def watches(self, history: Sequence[Record]) -> str | None:
        """None where it would fire at the last record if its fault were there; else why it cannot, in words."""
        why = super().watches(history)
        side = next((each["no_gradient"] for each in history[-1:] if each.get("no_gradient")), None)
        if side is None or why is None or number(history[-1], "unreached") is not None:
            return why
        return f"{why}, and no gradient reaches the {side}: right for a frozen or a momentum encoder alone"

    def __call__(self, history: Sequence[Record]) -> Alarm | None:
        """The alarm at the last record, if any."""
        since = streak(history, self.records, lambda each: (number(each, "unreached") or 0) > self.part)
        if since is None:
            return None
        value, where = number(history[-1], "unreached") or 0, history[-1].get("unreached_modules")
        named = f", those of {where}," if where else ""
        said = (
            f"no gradient has reached {100 * value:.3g} % of the parameters in training{named} (above "
            f"{100 * self.part:g} %) {since}; look for detach(), no_grad or .data between them and the loss, or, if "
            "they are frozen on purpose, call requires_grad_(False)"
        )
        return alarm(self, history, value, self.part, said)
