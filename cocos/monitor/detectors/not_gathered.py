"""Not gathered: a process does not see the candidates of the others."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cocos.monitor.detectors._history import Record, Several, Watcher, directions, number, numbers

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

    processes: Several = 2

    MESSAGE = (
        "{value:g} processes at step {step} (threshold {limit:g}), but each query is pushed only by {some} of its "
        "own process. Gather the embeddings before the loss to use all negatives"
    )

    def not_applicable(self, history: Sequence[Record]) -> str | None:
        """Why its fault cannot be in these records; None: it can."""
        return "one process trains" if (number(history[-1], "world") or 1) < self.processes else None

    def value(self, record: Record) -> float:
        """Number of processes."""
        return number(record, "world") or 1

    def fires(self, record: Record) -> bool:
        """Whether candidates of other processes are missing, or get no push."""
        candidates, queries = numbers(record, "candidates", "queries")
        own = [number(each, "push_own") for _, each in directions(record)]
        alone = bool(own) and all(each is not None and each > ALL_OWN for each in own)
        few = candidates is None or candidates < self.value(record) * (queries or math.inf)
        return self.value(record) >= self.processes and (alone or (few and record.get("gathered") is False))

    def words(self, history: Sequence[Record]) -> dict[str, object]:
        """How many candidates."""
        candidates = number(history[-1], "candidates")
        return {"some": "candidates" if candidates is None else f"{candidates:g} candidates"}
