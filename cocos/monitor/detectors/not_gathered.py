"""Not gathered: a process does not see the candidates of the others."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cocos.monitor.detectors._history import Alarm, Record, Watcher, alarm, directions, number, step, threshold

__all__ = ["NotGathered"]

# Part of the push on candidates of one process where the others get none.
ALL_OWN = 0.999


@dataclass(frozen=True)
class NotGathered(Watcher):
    """Several processes train, and the queries of one see only its own candidates.

    Fires when: there are `processes` processes or more, and the candidates were not gathered and are too few to come
    from all processes, or candidates of the other processes get no push; at once.

    Try: gather the embeddings before the loss (open_clip: `world_size=` and `rank=` of `ClipLoss`;
    sentence-transformers: `gather_across_devices=True`), or read the batch size as the size in one process.

    Args:
        processes: smallest number.

    Source: in-batch negatives come from one process unless they are gathered.
    """

    processes: int = threshold(2, 2)

    def aside(self, history: Sequence[Record]) -> str | None:
        """Why its fault cannot be in these records; None: it can."""
        return "one process trains" if (number(history[-1], "world") or 1) < self.processes else None

    def __call__(self, history: Sequence[Record]) -> Alarm | None:
        """The alarm at the last record, if any."""
        now = history[-1]
        world, candidates = number(now, "world") or 1, number(now, "candidates")
        own = [number(each, "push_own") for _, each in directions(now)]
        alone = bool(own) and all(each is not None and each > ALL_OWN for each in own)
        few = candidates is None or candidates < world * (number(now, "queries") or math.inf)
        if world < self.processes or not (alone or (few and now.get("gathered") is False)):
            return None
        some = "candidates" if candidates is None else f"{candidates:g} candidates"
        said = (
            f"{world:g} processes train ({self.processes} or more), and each query is pushed only from {some} of its "
            f"own process at step {step(now)}; gather the embeddings before the loss to use the negatives of all"
        )
        return alarm(self, history, world, float(self.processes), said)
