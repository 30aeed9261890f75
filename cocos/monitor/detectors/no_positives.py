"""No positives: no query has a match in its batch."""

from collections.abc import Sequence
from dataclasses import dataclass

from cocos.monitor.detectors._history import Alarm, Record, Watcher, alarm, directions, number, streak, threshold
from cocos.results.records import LABELLED

__all__ = ["NoPositives"]


@dataclass(frozen=True)
class NoPositives(Watcher):
    """No query, or few, have a positive in the batch, so that nothing is pulled together.

    Fires when: in every direction the mean number of positives per query is at most `positives`, in each of the last
    `records` records; of a loss that is read by its backward pass, where no negative is pushed either.

    Try: several rows of each class in a batch (pytorch-metric-learning: `MPerClassSampler`), both views of a row under
    one label, and a look at whether each row has a label of its own by mistake.

    Args:
        positives: mean number per query.
        records: how many in a row; of checkpoints, one.

    Source: by definition: a softmax over negatives alone has no term for a query without a positive.
    """

    READS = ("positives", "queries")

    positives: float = threshold(0.0)
    records: int = threshold(2, 1)

    def __call__(self, history: Sequence[Record]) -> Alarm | None:
        """The alarm at the last record, if any."""
        since = streak(history, self.records, lambda each: self._without(each) is not None)
        value = self._without(history[-1])
        if since is None or value is None:
            return None
        labelled = any(name in LABELLED for name, _ in directions(history[-1]))
        why = (
            "all labels of the batch differ; draw several rows of each class, as MPerClassSampler does, or give both "
            "views of a row the same label"
            if labelled
            else "no candidate has the group of its query; look at the groups that the loss gets, and draw each query "
            "together with its match"
        )
        said = (
            f"a query has {value:g} positives on average (at most {self.positives:g}) {since}, so that nothing is "
            f"pulled together and the loss has nothing to teach: {why}"
        )
        return alarm(self, history, value, self.positives, said)

    def _without(self, record: Record) -> float | None:
        """Mean number of positives of the directions, where they are too few; None elsewhere."""
        found = []
        for _, each in directions(record):
            positives, queries, unpushed = (number(each, key) for key in ("positives", "queries", "unpushed"))
            read = record.get("source") != "backward pass" or (queries is not None and unpushed == queries)
            if positives is None or positives > self.positives or not read:
                return None
            found.append(positives)
        return max(found, default=None)
