"""A mean in place of a sum: the gradient is smaller than the loss's closed form says."""

from collections.abc import Sequence
from dataclasses import dataclass

from cocos.detectors._history import Alarm, Record, alarm, number, streak, threshold

__all__ = ["MeanReduction"]


@dataclass(frozen=True)
class MeanReduction:
    """The pull is far smaller than that of a mean over the queries, as of a mean over all pairs of scores.

    Fires when: the pull of the batch is below `least` times that of a mean over its queries, in each of the last
    `records` records. A sum has Q times as much. For a loss whose learning rate was published for a sum, set `least` to
    2: a mean over the queries fires then.

    Try: the sum over the candidates and the mean over the queries, or a learning rate that makes up for it.

    Args:
        least: pull, in parts of the pull of a mean over the queries; the mean of two directions has a half.
        records: how many in a row; of checkpoints, one.

    Source: a mean over Q queries and C candidates is C times smaller than one over the queries.
    """

    least: float = threshold(0.25)
    records: int = threshold(3, 1)

    def __call__(self, history: Sequence[Record]) -> Alarm | None:
        """The alarm at the last record, if any."""
        since = streak(history, self.records, lambda each: (found := _pull(each)) is not None and found < self.least)
        value = _pull(history[-1])
        if since is None or value is None:
            return None
        said = (
            f"the pull of the loss is {value:.3g} times that of a mean over the queries (below {self.least:g}) "
            f"{since}; sum over the candidates and average over the queries, or raise the learning rate accordingly"
        )
        return alarm(self, history, value, self.least, said)


def _pull(record: Record) -> float | None:
    """Pull of a record in parts of the pull of a mean over the queries; None where it is unknown."""
    reduction, queries = number(record, "reduction"), number(record, "queries")
    return None if reduction is None or not queries else reduction * queries
