"""Near duplicates: candidates of a batch that point where another one points."""

from collections.abc import Sequence
from dataclasses import dataclass

from cocos.monitor.detectors._history import (
    LOOKBACK,
    Alarm,
    Record,
    Watcher,
    alarm,
    number,
    streak,
    threshold,
    unmatched,
)

__all__ = ["NearDuplicates"]


@dataclass(frozen=True)
class NearDuplicates(Watcher):
    """Candidates of the batch are almost equal to another one, without being equal.

    Fires when: the candidates whose cosine to another one exceeds 0.999 are more than `part` of all in each of the last
    `records` records, without exact duplicates and as many as the further positives of a query may be; silent where
    random pairs are more similar than `similarity`. Or more than `copied` of the positives are near one another as
    copies under dropout are: a cosine above 0.8, and less than a quarter of the distance of the next one; silent below
    an effective rank of `rank`, where such gaps come by chance, and where the first batches had no copies: then
    they are clusters that the training has made.

    Try: a data set without near duplicates, groups that say which rows match, or a sampler that keeps them apart
    (sentence-transformers: `BatchSamplers.NO_DUPLICATES`).

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

    part: float = threshold(0.1, 0, 1)
    similarity: float = threshold(0.9, -1, 1)
    copied: float = threshold(0.25, 0, 1)
    rank: float = threshold(6.0)
    records: int = threshold(3, 1)

    def __call__(self, history: Sequence[Record]) -> Alarm | None:
        """The alarm at the last record, if any."""
        since = streak(history, self.records, lambda each: self._found(each) is not None)
        found = self._found(history[-1])
        if since is None or found is None:
            return None
        if found[1] == self.copied:
            ranks = (value for each in reversed(history[-LOOKBACK:]) if (value := number(each, "rank")) is not None)
            if next(ranks, 0.0) < self.rank or None in map(self._found, history[: self.records]):
                return None  # copies in the data are there from the first batch on, clusters come with the training
        value, most, what = found
        said = (
            f"{100 * value:.3g} % of the candidates {what} (above {100 * most:g} %) {since}; unless groups say that "
            "they match, a query pushes away its own match: remove repeated rows from the data, give groups, or keep "
            "them in different batches"
        )
        return alarm(self, history, value, most, said)

    def _found(self, record: Record) -> tuple[float, float, str] | None:
        """Part of the candidates that are near another one, its threshold, and how they are near; None: few are."""
        candidates, equal = number(record, "candidates"), number(record, "duplicates") or 0
        if not candidates or (number(record, "similarity") or 0) > self.similarity:
            return None
        near, copies = number(record, "near_duplicates") or 0, number(record, "copies") or 0
        part = unmatched(record, max(0.0, near - 2 * equal)) / candidates
        if part > self.part:
            return part, self.part, "have a cosine above 0.999 to another one without being equal"
        known = 2 * max(equal, number(record, "repeated_inputs") or 0)
        queries = number(record, "queries") or candidates
        part = unmatched(record, max(0.0, copies - known)) / queries
        if part > self.copied:
            return (
                part,
                self.copied,
                "that match have a copy in the batch that differs by noise alone, as under dropout",
            )
        return None
