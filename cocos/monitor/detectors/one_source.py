"""One source: nearly all of the push comes from one kind of negatives, and the others do nothing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cocos.monitor.detectors._history import Alarm, Record, Watcher, alarm, directions, number, streak, threshold, warm
from cocos.results.records import SOURCE_KEYS

__all__ = ["OneSource"]

# Words for a source, from the end of its name in a record.
SAID = {"in_batch": "in-batch negatives", "own_hard": "own hard negatives", "others_hard": "hard negatives of others"}
REMEDIES = {
    "in_batch": (
        "the hard negatives are easier than random ones: look at the order of their columns, mine them anew with the "
        "present model, or leave them out"
    ),
    "own_hard": (
        "look for false negatives among the hard ones (cocos audit), or raise the temperature until the batch takes "
        "part"
    ),
}


@dataclass(frozen=True)
class OneSource(Watcher):
    """Nearly all of the push comes from one source of negatives.

    Fires when: of several sources of negatives (in-batch, own hard, others' hard, other directions) one has more than
    `part` of the push, and the others together less than `least` of the push of as many random negatives, in any
    direction, in each of the last `records` records, `warmup` steps after the first one.

    Try: where the batch has it all, hard negatives that are mined anew, and a look at the order of their columns; where
    hard negatives have it all, a search for false negatives among them, or a larger temperature.

    Args:
        part: of the push, from 0 to 1.
        least: push of the other sources in parts of that of as many random negatives.
        records: how many in a row; of checkpoints, one.
        warmup: steps.

    Source: the push of a source is the sum of its weights above zero, by definition.
    """

    part: float = threshold(0.95, 0, 1)
    least: float = threshold(0.5)
    records: int = threshold(3, 1)
    warmup: int = threshold(100)

    def aside(self, history: Sequence[Record]) -> str | None:
        """Why its fault cannot be in these records; None: it can."""
        return None if any(True for _ in _dominant(history[-1])) else "the negatives have one source"

    def __call__(self, history: Sequence[Record]) -> Alarm | None:
        """The alarm at the last record, if any."""
        found = self._found(history[-1])
        if found is None:
            return None
        since = streak(history, self.records, lambda each: self._found(each) is not None)
        if since is None or not warm(history, self.warmup):
            return None
        side, key, value, times = found
        said = (
            f"{SAID.get(key, SOURCE_KEYS[key])} have {100 * value:.3g} % of the push of {side} (above "
            f"{100 * self.part:g} %) {since}, and the others {times:.2g} times that of as many random negatives; "
            f"{REMEDIES.get(key, 'leave out the other sources, or look at their masks')}"
        )
        return alarm(self, history, value, self.part, said)

    def _found(self, record: Record) -> tuple[str, str, float, float] | None:
        """Direction, source, its part of the push, and the others' push over that of random ones; None without."""
        found = [each for each in _dominant(record) if each[2] > self.part and each[3] < self.least]
        return max(found, key=lambda each: each[2], default=None)


def _dominant(record: Record) -> Iterator[tuple[str, str, float, float]]:
    """Yield the source with the most push of each direction that has several."""
    for side, each in directions(record):
        push = {key: number(each, f"push_{key}") for key in SOURCE_KEYS}
        if sum(value is not None for value in push.values()) < 2:
            continue
        negatives = {key: number(each, f"negatives_{key}") for key in SOURCE_KEYS}
        known = {key: value for key, value in push.items() if value is not None and (negatives[key] or 0) > 0}
        total = sum(negatives[key] or 0 for key in known)
        if len(known) < 2:
            continue
        key = max(known, key=lambda name: known[name])
        rest = 1 - (negatives[key] or 0) / total
        if rest > 0:
            yield side, key, known[key], (1 - known[key]) / rest
