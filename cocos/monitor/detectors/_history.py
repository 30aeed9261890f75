"""What detectors read of a history: numbers, directions, warm-up, how long a condition has lasted, who is watching.

Records come from files as well, so a value of a wrong type, or one that is not finite, counts as unknown.
"""

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, ClassVar

from cocos.base.ranges import Range, whole
from cocos.counting import health

Record = Mapping[str, Any]
# Records that a detector looks back at most, so that its cost does not grow with the length of a run.
LOOKBACK = 256
# Largest number of float64.
LARGEST_NUMBER = sys.float_info.max
# Directions in which a query is a candidate of its own, neither positive nor negative.
OF_ONE_SET = ("s2s",)
# Words for numbers that no record has, by their keys; others are named by their key.
ABSENT = {
    "similarity": "no embeddings beside the scores",
    "duplicates": "no embeddings beside the scores",
    "near_duplicates": "no embeddings beside the scores",
    "copies": "no embeddings beside the scores",
    "outranked": "no query with a positive and a negative",
    "unreached": "the parameters are seen by the callbacks of trainers alone",
    "value": "no value of the loss",
    "scale": "no scale that is one number",
    "kind": "neither a softmax nor a sigmoid nor a hinge is recognised",
    "lost": "its loss is read by a closed form",
}
# Kinds of reasons why a detector does not watch, in the order in which they are told, and what several detectors do:
# it will later, its numbers are absent, its fault cannot be here, or nobody wants it.
BEGINS, UNSEEN_NUMBERS, NOT_APPLICABLE, SILENCED = "begins", "cannot see this loss", "does not apply", "is off"
PLURALS = {
    BEGINS: "begin",
    UNSEEN_NUMBERS: "cannot see this loss",
    NOT_APPLICABLE: "do not apply",
    SILENCED: "are off",
}


class Growing(list[Record]):
    """The records of a run, which are only added to, and how long the conditions of detectors have held.

    So a condition that holds for long is not looked for in all records anew at each of them.
    """

    def __init__(self) -> None:
        super().__init__()
        # By a condition, a method of a detector: number of records, and of the last ones in which it held.
        self.streaks: dict[Callable[[Record], bool], tuple[int, int]] = {}


class Reason(str):
    """Why a detector does not watch, as a text that knows its parts.

    Args:
        kind: of `PLURALS`.
        when: with what it begins; empty for another kind.
        why: further words; empty for none.

    Examples:
        >>> from cocos.monitor.detectors._history import Reason
        >>> reason = Reason("does not apply", why="one process trains")
        >>> str(reason), reason.why
        ('does not apply: one process trains', 'one process trains')
    """

    __slots__ = ("kind", "when", "why")

    kind: str
    when: str
    why: str

    def __new__(cls, kind: str, when: str = "", why: str = "") -> "Reason":
        """Join the parts."""
        made = super().__new__(cls, f"{kind}{when and ' '}{when}{why and ': '}{why}")
        made.kind, made.when, made.why = kind, when, why
        return made

    @classmethod
    def kept(cls, text: str) -> "Reason | None":
        """That of a text that a result has kept, or a detector of others has made; None: of no known kind."""
        if isinstance(text, cls):
            return text
        said, _, why = text.partition(": ")
        kind = next((kind for kind in PLURALS if said.startswith(kind)), None)
        return None if kind is None else cls(kind, said.removeprefix(kind).strip(), why)


@dataclass(frozen=True)
class Alarm:
    """What a detector says of the last record.

    Args:
        detector: its name.
        step: of the record.
        value: the number that it compared.
        threshold: what it compared the number with.
        sentence: one plain sentence with both, and what to try.
    """

    detector: str
    step: int
    value: float
    threshold: float
    sentence: str


def _between(least: float, most: float = math.inf) -> Range:
    words = f"from {least:g} to {most:g}" if math.isfinite(most) else f"of at least {least:g}"
    return Range(f"a number {words}", lambda value: math.isfinite(value) and least <= value <= most)


# Types of thresholds, with the values that make sense.
Part = Annotated[float, _between(0, 1)]
Half = Annotated[float, _between(0, 0.5)]
Cosine = Annotated[float, _between(-1, 1)]
AtLeast0 = Annotated[float, _between(0)]
Count = Annotated[int, whole(1)]
Several = Annotated[int, whole(2)]
Steps = Annotated[int, whole(0)]


class Watcher:
    """A detector that compares a number of each record with its first threshold, and says whether it watches.

    It fires where the number exceeds the threshold in the last `records` records (of checkpoints: one), if it has a
    threshold `warmup` that many steps after the first record. A detector of another kind has a call of its own.

    `READS` has the keys without which it is silent, of a record or of its directions; alternatives stand beside
    each other with a bar between. `SEVERITY` is that of its finding: `stop` where the training is worth nothing as it
    is, or `look`. `MESSAGE` is its sentence, a template of value, percent (100 times the value), limit,
    limit_percent, since ("since step 7"), step, and what `words` adds.
    """

    READS: ClassVar[tuple[str, ...]] = ()
    SEVERITY: ClassVar[str] = "look"
    MESSAGE: ClassVar[str] = ""

    def value(self, record: Record) -> float | None:
        """The number of a record that is compared; None where it is unknown."""
        return number(record, self.READS[0])

    def limit(self, record: Record) -> float:
        """What the number is compared with."""
        return float(next(iter(vars(self).values())))

    def fires(self, record: Record) -> bool:
        """Whether a record has the fault."""
        value = self.value(record)
        return value is not None and value > self.limit(record)

    def words(self, history: Sequence[Record]) -> dict[str, object]:
        """Further words of the sentence about the last record, by their names in `MESSAGE`."""
        return {}

    def __call__(self, history: Sequence[Record]) -> Alarm | None:
        """The alarm at the last record, if any."""
        if not history or not self.fires(history[-1]):
            return None  # as nearly always
        since, warmup = streak(history, self.least_records(history), self.fires), getattr(self, "warmup", None)
        value = self.value(history[-1]) if since else None
        if since is None or value is None or (warmup is not None and not warm(history, warmup)):
            return None
        limit = self.limit(history[-1])
        words: dict[str, object] = {
            "value": value,
            "percent": 100 * value,
            "limit": limit,
            "limit_percent": 100 * limit,
        }
        words |= {"since": since, "step": step(history[-1])} | self.words(history)
        return alarm(self, history, value, limit, self.MESSAGE.format(**words))

    def not_applicable(self, history: Sequence[Record]) -> str | None:
        """Why its fault cannot be in these records; None: it can."""
        return None

    def least_records(self, history: Sequence[Record]) -> int:
        """How many records it needs."""
        return 1 if of_checkpoints(history) else int(getattr(self, "records", 1))

    def watches(self, history: Sequence[Record]) -> Reason | None:
        """None where it would fire at the last record if its fault were there; else why it cannot, in words."""
        if not history:
            return Reason(BEGINS, f"with record {self.least_records(history)}")
        some = [*history[-LOOKBACK:], history[0]]
        lacking = [key for key in self.READS if not any(_holds(each, name) for name in key.split("|") for each in some)]
        if lacking:
            words = dict.fromkeys(ABSENT.get(key, f"no {key.partition('|')[0].replace('_', ' ')}") for key in lacking)
            return Reason(UNSEEN_NUMBERS, why=", ".join(words))
        why = self.not_applicable(history)
        return self.begins(history) if why is None else Reason(NOT_APPLICABLE, why=why)

    def begins(self, history: Sequence[Record]) -> Reason | None:
        """When it begins, in words; None where it has begun."""
        steps, least = float(getattr(self, "warmup", 0)), self.least_records(history)
        if of_checkpoints(history):
            least = max(least, 2 if steps else 1)
            return Reason(BEGINS, f"with checkpoint {least}") if len(history) < least else None
        if not warm(history, steps):
            return Reason(BEGINS, f"at step {step(history[0]) + steps:g}")
        return Reason(BEGINS, f"with record {least}") if len(history) < least else None


def _holds(record: Record, key: str) -> bool:
    """Whether a record or one of its directions has a key."""
    return record.get(key) is not None or any(each.get(key) is not None for _, each in directions(record))


def number(record: Record, key: str) -> float | None:
    """Finite number of a key; None where it is absent or anything else."""
    value = record.get(key)
    if value is None:
        return None
    if type(value) not in (float, int) and (isinstance(value, bool) or not isinstance(value, (int, float))):
        return None
    return float(value) if -LARGEST_NUMBER <= value <= LARGEST_NUMBER else None


def numbers(record: Record, *keys: str) -> list[float | None]:
    """Finite numbers of several keys."""
    return [number(record, key) for key in keys]


def step(record: Record) -> int:
    """Step of a record; 0 where it has none."""
    return int(number(record, "step") or 0)


def directions(record: Record) -> Iterator[tuple[str, Record]]:
    """Names and numbers of the directions of a record."""
    found = record.get("directions")
    for name, each in found.items() if type(found) is dict or isinstance(found, Mapping) else ():
        if type(each) is dict or isinstance(each, Mapping):
            yield str(name), each


def negatives(name: str, direction: Record) -> float | None:
    """Mean number of negatives of the queries of a direction; None where it is unknown."""
    candidates, positives = number(direction, "candidates"), number(direction, "positives")
    if candidates is None or positives is None:
        return None
    return candidates - positives - (name in OF_ONE_SET)


def unmatched(record: Record, repeated: float) -> float:
    """Candidates that repeat another one, without as many as the groups of the rows may explain.

    Args:
        record: whose first direction says how many positives a query has.
        repeated: number of candidates.
    """
    name, first = next(directions(record), ("", {}))
    positives, candidates = number(first, "positives"), number(first, "candidates")
    if positives is None or candidates is None:
        return repeated
    return max(0.0, repeated - max(0.0, positives - (name not in OF_ONE_SET)) * candidates)


def least(record: Record, value: Callable[[str, Record], float | None]) -> float | None:
    """Smallest value of the directions of a record; None where there is no direction or one is unknown."""
    found = [value(name, each) for name, each in directions(record)]
    known = [each for each in found if each is not None]
    return min(known) if known and len(known) == len(found) else None


def most(record: Record, value: Callable[[Record], float | None]) -> float:
    """Largest value of the directions of a record; 0 where none is known."""
    return max((found for _, each in directions(record) if (found := value(each)) is not None), default=0.0)


def fitting(record: Record, **cures: str) -> str:
    """The cure that fits the loss of a record: that of its kind, softmax, sigmoid or hinge, or else `other`."""
    return cures.get(str(record.get("kind")), cures.get("other", ""))


def alike(
    record: Record,
    similarity: float = health.NEARLY_ONE,
    outranked: float = health.OUTRANKED,
    certain: float = health.CERTAINLY_ALIKE,
) -> bool:
    """Whether the candidates of a record are alike, and positives do not stand out of them: see `collapse`."""
    found, ranked = number(record, "similarity") or 0, number(record, "outranked")
    return found > certain or (found > similarity and (ranked is None or ranked > outranked))


def pooled(some: Sequence[Record], key: str) -> float | None:
    """Mean of a number over the queries of some records; None where no record has it."""
    known = [
        (max(1.0, number(each, "queries") or 1.0), value) for each in some if (value := number(each, key)) is not None
    ]
    total = sum(weight for weight, _ in known)
    return sum(weight * value for weight, value in known) / total if total else None


# Pooled part of the negatives above a positive from which on it ranks as by chance, 0.5, and pooled correlation of the
# cosines of queries with those of their positives up to which there is none.
CHANCE, NO_AGREEMENT = 0.46, 0.05
# The former of the first records, which nothing can make up for: 150 queries scatter by 0.025.
FIRST_CHANCE = 0.42
# The same two of one record alone, beyond which a relation is certain.
RELATED, CERTAIN_AGREEMENT = 0.3, 0.2


def unrelated(history: Sequence[Record], records: int) -> float | None:
    """Part of the negatives that outrank a positive, where pairs have shown no relation so far; None: they have.

    Two towers that are not trained yet rank their positives by chance, too, but keep what is alike alike: the cosines
    between queries agree with those between their positives.

    Args:
        history: oldest first.
        records: how many make a mean, of the first and of the last ones.
    """
    ranked = (each for each in reversed(history[-LOOKBACK:]) if number(each, "outranked") is not None)
    known = [*islice(ranked, records)][::-1]  # the last ones, without a look at all
    if not known:
        return None
    if _related(known, CHANCE):
        return None  # as nearly always
    first = [each for each in history[:records] if number(each, "outranked") is not None] or [*known, *ranked][-1:]
    begins = pooled(first[:1], "outranked") or 0.0, pooled(first[:1], "agreement")
    if begins[0] < RELATED or (begins[1] is not None and begins[1] > CERTAIN_AGREEMENT):
        return None
    return None if _related(first, FIRST_CHANCE) else pooled(known, "outranked")


def _related(some: Sequence[Record], chance: float) -> bool:
    """Whether positives rank better than by chance, or what is alike among the queries is so among them."""
    return (pooled(some, "outranked") or 0.0) <= chance or (pooled(some, "agreement") or 0.0) >= NO_AGREEMENT


def of_checkpoints(history: Sequence[Record]) -> bool:
    """Whether the records are checkpoints of a run: far apart, few, and their steps may be epochs."""
    return bool(history) and history[-1].get("source") == "checkpoint"


def warm(history: Sequence[Record], steps: float) -> bool:
    """Whether the records span that many steps; of checkpoints, whether there are two."""
    if of_checkpoints(history):
        return len(history) > 1
    return bool(history) and step(history[-1]) - step(history[0]) >= steps


def streak(history: Sequence[Record], records: int, holds: Callable[[Record], bool]) -> str | None:
    """Tell since when a condition holds, in words; None unless it held in the last `records` (of checkpoints: one).

    Args:
        history: oldest first.
        records: how many at least.
        holds: the condition.
    """
    if not history or not holds(history[-1]):
        return None
    known = history.streaks if isinstance(history, Growing) and hasattr(holds, "__self__") else {}
    most, (before, length) = min(len(history), LOOKBACK), known.get(holds, (0, 0))
    if before and before == len(history) - 1:
        length = min(length + 1, most)
    else:
        length = next((k for k in range(1, most) if not holds(history[-1 - k])), most)
    known[holds] = len(history), length
    if length < (1 if of_checkpoints(history) else records):
        return None
    first = history[-length]
    if length == 1:
        return f"at step {step(first)}"
    return f"since step {step(first)}" + (" or earlier" if length == LOOKBACK < len(history) else "")


def name_of(detector: object) -> str:
    """Name of a detector: that of its file."""
    return type(detector).__module__.rpartition(".")[2]


def alarm(detector: object, history: Sequence[Record], value: float, threshold: float, said: str) -> Alarm:
    """The alarm of a detector at the last record; its sentence begins with the name of the detector."""
    name = name_of(detector)
    return Alarm(name, step(history[-1]), value, threshold, f"{name}: {said}")
