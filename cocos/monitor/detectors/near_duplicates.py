"""Near duplicates: candidates of a batch that point where another one points."""

from collections.abc import Sequence
from dataclasses import dataclass

from cocos.counting import health
from cocos.monitor.detectors._history import (
    LOOKBACK,
    Alarm,
    AtLeast0,
    Cosine,
    Count,
    Part,
    Record,
    Watcher,
    number,
    unmatched,
)

__all__ = ["NearDuplicates"]

# How candidates are near that are copies but for noise.
COPIED = "with a copy in the batch up to noise, such as dropout"


@dataclass(frozen=True)
class NearDuplicates(Watcher):
    """Candidates of the batch are almost equal to another one, without being equal.

    Fires when: the candidates whose cosine to another one exceeds 0.999 are more than `part` of all in each of the last
    `records` records, without exact duplicates and as many as the further positives of a query may be; silent where
    random pairs are more similar than `similarity`. Or more than `copied` of the positives are near one another as
    copies under dropout are: a cosine above 0.8, and less than a quarter of the distance of the next one; silent below
    an effective rank of `rank`, where such gaps come by chance, and where the first batches had no copies: then
    they are clusters that the training has made.

    Try: remove near-duplicates from the data set, pass groups that mark matching rows, or use a sampler that separates
    them (sentence-transformers: `BatchSamplers.NO_DUPLICATES`).

    Args:
        part: of the candidates.
        similarity: mean cosine of random pairs above which `collapse` is the better description.
        copied: part of the positives that may have a copy but for noise.
        rank: effective rank of the candidates, in dimensions.
        records: how many in a row; of checkpoints, one.

    Source: copies of a text under the dropout of MiniLM have a cosine of 0.91 to 0.98 and 0.08 to 0.2 of the distance
    of the next text; the thresholds separate the synthetic runs of `benchmarks/alarms.py`.
    """

    READS = ("near_duplicates|copies", "candidates")

    part: Part = 0.1
    similarity: Cosine = health.NEARLY_ONE
    copied: Part = 0.25
    rank: AtLeast0 = 6.0
    records: Count = 3

    MESSAGE = (
        "candidates {what}: {percent:.3g} % {since} (threshold {limit_percent:g} %). Without groups, a query pushes "
        "copies of its positive away: remove repeated rows, pass groups, or sample them into different batches"
    )

    def __call__(self, history: Sequence[Record]) -> Alarm | None:
        """The alarm at the last record, if any."""
        found = super().__call__(history)
        if found is not None and self._near(history[-1])[2] == COPIED:
            ranks = (value for each in reversed(history[-LOOKBACK:]) if (value := number(each, "rank")) is not None)
            if next(ranks, 0.0) < self.rank or not all(map(self.fires, history[: self.records])):
                return None  # copies in the data are there from the first batch on, clusters come with the training
        return found

    def value(self, record: Record) -> float | None:
        """Part of the candidates that are near another one; None: few are."""
        return self._near(record)[0]

    def limit(self, record: Record) -> float:
        """The threshold of near candidates, or of copies."""
        return self._near(record)[1]

    def words(self, history: Sequence[Record]) -> dict[str, object]:
        """How they are near."""
        return {"what": self._near(history[-1])[2]}

    def _near(self, record: Record) -> tuple[float | None, float, str]:
        """Part of the candidates that are near another one, its threshold, and how they are near; None: few are."""
        candidates, equal = number(record, "candidates"), number(record, "duplicates") or 0
        if not candidates or (number(record, "similarity") or 0) > self.similarity:
            return None, self.part, ""
        near, copies = number(record, "near_duplicates") or 0, number(record, "copies") or 0
        part = unmatched(record, max(0.0, near - 2 * equal)) / candidates
        if part > self.part:
            return part, self.part, "with a cosine above 0.999 to another one"
        known = 2 * max(equal, number(record, "repeated_inputs") or 0)
        part = unmatched(record, max(0.0, copies - known)) / (number(record, "queries") or candidates)
        return (part if part > self.copied else None), self.copied, COPIED
