"""No positives: no query has a match in its batch."""

from collections.abc import Sequence
from dataclasses import dataclass

from cocos.monitor.detectors._history import AtLeast0, Count, Record, Watcher, directions, numbers
from cocos.monitor.records import LABELLED

__all__ = ["NoPositives"]


@dataclass(frozen=True)
class NoPositives(Watcher):
    """No query, or few, have a positive in the batch, so that nothing is pulled together.

    Fires when: in every direction the mean number of positives per query is at most `positives`, in each of the last
    `records` records; of a loss that is read by its backward pass, where no negative is pushed either.

    Try: sample several rows per class (pytorch-metric-learning: `MPerClassSampler`), give both views of a row one
    label, and check that labels are not unique by mistake.

    Args:
        positives: mean number per query.
        records: how many in a row; of checkpoints, one.

    Source: by definition: a softmax over negatives alone has no term for a query without a positive.
    """

    READS = ("positives", "queries")
    SEVERITY = "stop"

    positives: AtLeast0 = 0.0
    records: Count = 2

    MESSAGE = "positives per query: {value:g} {since} (threshold {limit:g}), so nothing is pulled together. {why}"

    def value(self, record: Record) -> float | None:
        """Mean number of positives of the directions, where they are too few; None elsewhere."""
        found = []
        for _, each in directions(record):
            positives, queries, unpushed = numbers(each, "positives", "queries", "unpushed")
            read = record.get("source") != "backward pass" or (queries is not None and unpushed == queries)
            if positives is None or positives > self.positives or not read:
                return None
            found.append(positives)
        return max(found, default=None)

    def fires(self, record: Record) -> bool:
        """Whether there are too few."""
        return self.value(record) is not None

    def words(self, history: Sequence[Record]) -> dict[str, object]:
        """The cause, and the cure."""
        labels = (
            "All labels of the batch differ: sample several rows per class, as MPerClassSampler does, or give both "
            "views of a row the same label"
        )
        groups = (
            "No candidate has the group of its query: check the groups passed to the loss, and sample each query "
            "with its match"
        )
        return {"why": labels if any(name in LABELLED for name, _ in directions(history[-1])) else groups}
