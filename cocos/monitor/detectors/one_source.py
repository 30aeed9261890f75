"""One source: nearly all of the push comes from one kind of negatives, and the others do nothing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cocos.monitor.detectors._history import AtLeast0, Count, Part, Record, Steps, Watcher, directions, number
from cocos.monitor.records import SOURCE_KEYS

__all__ = ["OneSource"]

# Keys of the parts of the push, by the ends of their names.
PUSHES = {key: f"push_{key}" for key in SOURCE_KEYS}
# Words for a source, from the end of its name in a record.
SAID = {
    "in_batch": "in-batch negatives",
    "own_hard": "own hard negatives",
    "others_hard": "hard negatives of other queries",
}
REMEDIES = {
    "in_batch": (
        "The hard negatives are easier than random ones: check their column order, mine them again with the current "
        "model, or remove them"
    ),
    "own_hard": (
        "Look for false negatives among the hard ones (cocos audit), or raise the temperature until other negatives "
        "contribute"
    ),
}


@dataclass(frozen=True)
class OneSource(Watcher):
    """Nearly all of the push comes from one source of negatives.

    Fires when: of several sources of negatives (in-batch, own hard, others' hard, other directions) one has more than
    `part` of the push, and the others together less than `least` of the push of as many random negatives, in any
    direction, in each of the last `records` records, `warmup` steps after the first one.

    Try: if in-batch negatives dominate, mine the hard negatives again and check their column order; if hard negatives
    dominate, look for false negatives among them, or use a larger temperature.

    Args:
        part: of the push, from 0 to 1.
        least: push of the other sources in parts of that of as many random negatives.
        records: how many in a row; of checkpoints, one.
        warmup: steps.

    Source: the push of a source is the sum of its weights above zero, by definition.
    """

    part: Part = 0.95
    least: AtLeast0 = 0.5
    records: Count = 3
    warmup: Steps = 100

    MESSAGE = (
        "{name} receive {percent:.3g} % of the push in {side} {since} (threshold {limit_percent:g} %), the other "
        "sources {times:.2g} times the push of as many random negatives. {remedy}"
    )

    def not_applicable(self, history: Sequence[Record]) -> str | None:
        """Why its fault cannot be in these records; None: it can."""
        return None if any(True for _ in _dominant(history[-1])) else "the negatives have one source"

    def value(self, record: Record) -> float | None:
        """Largest part of the push that one source has, where the others do nothing."""
        found = self._found(record)
        return None if found is None else found[2]

    def words(self, history: Sequence[Record]) -> dict[str, object]:
        """The source, the others, and what to try."""
        side, key, _, times = self._found(history[-1]) or ("", "", 0.0, 0.0)
        remedy = REMEDIES.get(key, "Remove the other sources, or check their masks")
        return {"name": SAID.get(key, SOURCE_KEYS[key]), "side": side, "times": times, "remedy": remedy}

    def _found(self, record: Record) -> tuple[str, str, float, float] | None:
        """Direction, source, its part of the push, and the others' push over that of random ones; None without."""
        found = [each for each in _dominant(record) if each[2] > self.part and each[3] < self.least]
        return max(found, key=lambda each: each[2], default=None)


def _dominant(record: Record) -> Iterator[tuple[str, str, float, float]]:
    """Yield the source with the most push of each direction that has several."""
    for side, each in directions(record):
        push = {
            key: value for key, name in PUSHES.items() if name in each and (value := number(each, name)) is not None
        }
        if len(push) < 2:
            continue  # as nearly always
        negatives = {key: number(each, f"negatives_{key}") or 0 for key in push}
        known = {key: value for key, value in push.items() if negatives[key] > 0}
        if len(known) < 2:
            continue
        key = max(known, key=lambda name: known[name])
        rest = 1 - negatives[key] / sum(negatives[name] for name in known)
        if rest > 0:
            yield side, key, known[key], (1 - known[key]) / rest
