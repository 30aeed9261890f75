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

    Try: look for `detach()`, `no_grad` and `.data` between that part and the loss; call `requires_grad_(False)` if it
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

    MESSAGE = (
        "parameters without any gradient: {percent:.3g} %{named} {since} (threshold {limit_percent:g} %). Look for "
        "detach(),  no_grad or .data between them and the loss, or call requires_grad_(False) if they are frozen on "
        "purpose"
    )

    def watches(self, history: Sequence[Record]) -> Reason | None:
        """None where it would fire at the last record if its fault were there; else why it cannot, in words."""
        why = super().watches(history)
        side = next((each["no_gradient"] for each in history[-1:] if each.get("no_gradient")), None)
        if side is None or why is None or number(history[-1], "unreached") is not None:
            return why
        more, exception = f", no gradient for the {side}", "expected only for a frozen or momentum encoder"
        if why.why:
            return Reason(why.kind, why.when, f"{why.why}{more}: {exception}")
        return Reason(why.kind, why.when + more, exception)

    def words(self, history: Sequence[Record]) -> dict[str, object]:
        """The modules."""
        where = history[-1].get("unreached_modules")
        return {"named": f" ({where})" if where else ""}
