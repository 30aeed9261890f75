"""A mean in place of a sum: the gradient is smaller than the loss's closed form says."""

from collections.abc import Sequence
from dataclasses import dataclass

from cocos.monitor.detectors._history import Alarm, Record, Watcher, alarm, directions, number, streak, threshold

__all__ = ["MeanReduction"]

# Negatives per query that are pulled from which on the closed form is another one.
OTHER_FORM = 0.01


@dataclass(frozen=True)
class MeanReduction(Watcher):
    """The pull is far smaller than that of a mean over the queries, as that of a mean over all pairs of scores.

    Fires when: the pull of the batch is below `softmax` (of a hinge, `hinge`) times that of a mean over its queries, in
    each of the last `records` records; a sum over Q queries has Q times as much. Where a learning rate was published
    for a sum, as that of VSE++, set the threshold to 2: a mean over the queries fires then.

    Try: the sum over the candidates and the mean over the queries, or a learning rate that makes up for it.

    Args:
        softmax: pull, in parts of the pull of a mean over the queries; the mean of two directions has a half.
        hinge: likewise; 0: never, because a mean over the triplets that violate the margin is common.
        records: how many in a row; of checkpoints, one.

    Source: a mean over Q queries and C candidates is C times smaller than one over the queries.
    """

    READS = ("reduction", "queries", "kind")

    softmax: float = threshold(0.25)
    hinge: float = threshold(0.0)
    records: int = threshold(3, 1)

    def aside(self, history: Sequence[Record]) -> str | None:
        """Why its fault cannot be in these records; None: it can."""
        kind = history[-1].get("kind")
        return None if self._least(history[-1]) else f"its threshold for a {kind or 'loss of an unknown kind'} is 0"

    def __call__(self, history: Sequence[Record]) -> Alarm | None:
        """The alarm at the last record, if any."""
        since = streak(history, self.records, self._small)
        least, value = self._least(history[-1]), _pull(history[-1])
        if since is None or value is None:
            return None
        said = (
            f"the gradient pulls matches together with {value:.3g} times the strength of a loss that is averaged over "
            f"its queries (below {least:g}) {since}; take a sum in place of a mean, or raise the "
            "learning rate accordingly"
        )
        return alarm(self, history, value, least, said)

    def _least(self, record: Record) -> float:
        """Threshold of the kind of the loss; 0 where there is none."""
        kind = record.get("kind")
        return self.softmax if kind == "softmax" else self.hinge if kind == "hinge" else 0.0

    def _small(self, record: Record) -> bool:
        pull = _pull(record)
        return pull is not None and pull < self._least(record)


def _pull(record: Record) -> float | None:
    """Pull of a record in parts of the pull of a mean over the queries; None where it is unknown."""
    reduction, queries = number(record, "reduction"), number(record, "queries")
    other = any((number(each, "pulled_negatives") or 0) > OTHER_FORM for _, each in directions(record))
    return None if reduction is None or not queries or other else reduction * queries
