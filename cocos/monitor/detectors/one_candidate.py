"""One candidate only: no query has a negative."""

from dataclasses import dataclass

from cocos.monitor.detectors._history import AtLeast0, Record, Watcher, directions, negatives

__all__ = ["OneCandidate"]


@dataclass(frozen=True)
class OneCandidate(Watcher):
    """Queries have no negatives, so that the loss is 0 by construction.

    Fires when: in every direction the mean number of negatives per query is below `negatives`; at once.

    Try: use a larger batch, hard negatives (a group size above 1), the other rows of the batch as negatives, or groups
    that differ.

    Args:
        negatives: mean number per query.

    Source: by definition: the softmax over one candidate is 1, and its logarithm is 0.
    """

    READS = ("candidates", "positives")
    SEVERITY = "stop"

    negatives: AtLeast0 = 1.0

    MESSAGE = (
        "negatives per query: {value:.3g} at step {step} (threshold {limit:g}). Without negatives the loss is 0 by "
        "construction: use a larger batch, hard negatives, or the other rows of the batch as negatives"
    )

    def value(self, record: Record) -> float | None:
        """Largest mean number of negatives of the directions."""
        known = (negatives(name, each) for name, each in directions(record))
        return max((each for each in known if each is not None), default=None)

    def fires(self, record: Record) -> bool:
        """Whether there are too few."""
        value = self.value(record)
        return value is not None and value < self.negatives
