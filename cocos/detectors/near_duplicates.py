"""Near duplicates: candidates of a batch that point where another one points."""

from collections.abc import Sequence
from dataclasses import dataclass

from cocos.detectors._history import Alarm, Record, Watcher, alarm, number, streak, threshold, unmatched

__all__ = ["NearDuplicates"]


@dataclass(frozen=True)
class NearDuplicates(Watcher):
    """Candidates of the batch are almost equal to another one, without being equal.

    Fires when: the candidates whose cosine to another one exceeds 0.999 are more than `part` of all in each of the last
    `records` records, without exact duplicates and as many as the further positives of a query may be; silent where
    random pairs are more similar than `similarity`.

    Try: a data set without near duplicates, groups that say which rows match, or a sampler that keeps them apart.

    Args:
        part: of the candidates.
        similarity: mean cosine of random pairs above which `collapse` is the better description.
        records: how many in a row; of checkpoints, one.

    Source: the threshold separates the synthetic runs of `benchmarks/alarms.py`.
    """

    READS = ("near_duplicates", "candidates")

    part: float = threshold(0.1, 0, 1)
    similarity: float = threshold(0.9, -1, 1)
    records: int = threshold(3, 1)

    def __call__(self, history: Sequence[Record]) -> Alarm | None:
        """The alarm at the last record, if any."""
        since = streak(history, self.records, lambda each: (self._part(each) or 0) > self.part)
        if since is None:
            return None
        value = self._part(history[-1]) or 0
        said = (
            f"{100 * value:.3g} % of the candidates have a cosine above 0.999 to another one without being equal "
            f"(above {100 * self.part:g} %) {since}; unless groups say that they match, a query pushes away its own "
            "match: remove near duplicates from the data, give groups, or keep them in different batches"
        )
        return alarm(self, history, value, self.part, said)

    def _part(self, record: Record) -> float | None:
        """Part of the candidates with a near duplicate; None where it is unknown."""
        found, candidates = number(record, "near_duplicates"), number(record, "candidates")
        if found is None or not candidates or (number(record, "similarity") or 0) > self.similarity:
            return None
        return unmatched(record, max(0.0, found - 2 * (number(record, "duplicates") or 0))) / candidates
