"""A mean in place of a sum: the gradient is smaller than the loss's closed form says."""

from collections.abc import Sequence
from dataclasses import dataclass

from cocos.monitor.detectors._history import AtLeast0, Count, Record, Watcher, directions, number, numbers

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

    softmax: AtLeast0 = 0.25
    hinge: AtLeast0 = 0.0
    records: Count = 3

    SAYS = (
        "the gradient pulls matches together with {value:.3g} times the strength of a loss that is averaged over its "
        "queries (below {limit:g}) {since}; take a sum in place of a mean, or raise the learning rate accordingly"
    )

    def not_applicable(self, history: Sequence[Record]) -> str | None:
        """Why its fault cannot be in these records; None: it can."""
        kind = history[-1].get("kind")
        return None if self.limit(history[-1]) else f"its threshold for a {kind or 'loss of an unknown kind'} is 0"

    def limit(self, record: Record) -> float:
        """Threshold of the kind of the loss; 0 where there is none."""
        return {"softmax": self.softmax, "hinge": self.hinge}.get(str(record.get("kind")), 0.0)

    def value(self, record: Record) -> float | None:
        """Pull of a record in parts of the pull of a mean over the queries; None where it is unknown."""
        reduction, queries = numbers(record, "reduction", "queries")
        other = any((number(each, "pulled_negatives") or 0) > OTHER_FORM for _, each in directions(record))
        return None if reduction is None or not queries or other else reduction * queries

    def fires(self, record: Record) -> bool:
        """Whether the pull is below the threshold."""
        pull = self.value(record)
        return pull is not None and pull < self.limit(record)
