"""One candidate only: no query has a negative."""

from collections.abc import Sequence
from dataclasses import dataclass

from cocos.monitor.detectors._history import Alarm, Record, Watcher, alarm, directions, negatives, step, threshold

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

    negatives: float = threshold(1.0)

    def __call__(self, history: Sequence[Record]) -> Alarm | None:
        """The alarm at the last record, if any."""
        found = [negatives(name, each) for name, each in directions(history[-1])]
        known = [each for each in found if each is not None]
        if not known or max(known) >= self.negatives:
            return None
        value = max(known)
        said = (
            f"a query has {value:.3g} negatives on average (below {self.negatives:g}) at step {step(history[-1])}, and "
            "without a negative the loss is 0 by construction; use a larger batch, hard negatives, or the other rows "
            "of the batch as negatives"
        )
        return alarm(self, history, value, self.negatives, said)
