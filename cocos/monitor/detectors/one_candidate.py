"""One candidate only: no query has a negative."""

from dataclasses import dataclass

from cocos.monitor.detectors._history import AtLeast0, Record, Watcher, directions, negatives

__all__ = ["OneCandidate"]


@dataclass(frozen=True)
class OneCandidate(Watcher):
    """Queries have no negatives, so that the loss is 0 by construction.

    Fires when: in every direction the mean number of negatives per query is below `negatives`; at once.

    Try: a larger batch, hard negatives (a group size above 1), negatives of the other rows of the batch, or groups
    that are not all the same.

    Args:
        negatives: mean number per query.

    Source: by definition: the softmax over one candidate is 1, and its logarithm is 0.
    """

    READS = ("candidates", "positives")
    SEVERITY = "stop"

    negatives: AtLeast0 = 1.0

    SAYS = (
        "a query has {value:.3g} negatives on average (below {limit:g}) at step {step}, and without a negative the "
        "loss is 0 by construction; use a larger batch, hard negatives, or the other rows of the batch as negatives"
    )

    def value(self, record: Record) -> float | None:
        """Largest mean number of negatives of the directions."""
        known = (negatives(name, each) for name, each in directions(record))
        return max((each for each in known if each is not None), default=None)

    def fires(self, record: Record) -> bool:
        """Whether there are too few."""
        value = self.value(record)
        return value is not None and value < self.negatives
