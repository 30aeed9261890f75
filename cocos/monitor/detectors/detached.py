"""Detached: a part of the network is in training, and no gradient reaches it."""

from collections.abc import Sequence
from dataclasses import dataclass

from cocos.monitor.detectors._history import Count, Part, Reason, Record, Watcher, number

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
    SEVERITY = "stop"

    part: Part = 0.1
    records: Count = 3

    SAYS = (
        "no gradient has reached {percent:.3g} % of the parameters in training{named} (above {limit_percent:g} %) "
        "{since}; look for detach(), no_grad or .data between them and the loss, or, if they are frozen on purpose, "
        "call requires_grad_(False)"
    )

    def watches(self, history: Sequence[Record]) -> Reason | None:
        """None where it would fire at the last record if its fault were there; else why it cannot, in words."""
        why = super().watches(history)
        side = next((each["no_gradient"] for each in history[-1:] if each.get("no_gradient")), None)
        if side is None or why is None or number(history[-1], "unreached") is not None:
            return why
        more, right = f", and no gradient reaches the {side}", "right for a frozen or a momentum encoder alone"
        if why.why:
            return Reason(why.kind, why.when, f"{why.why}{more}: {right}")
        return Reason(why.kind, why.when + more, right)

    def words(self, history: Sequence[Record]) -> dict[str, object]:
        """The modules."""
        where = history[-1].get("unreached_modules")
        return {"named": f", those of {where}," if where else ""}
