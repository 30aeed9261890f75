"""Pulled negatives: the gradient draws candidates near that do not match."""

from collections.abc import Sequence
from dataclasses import dataclass

from cocos.monitor.detectors._history import Alarm, Record, Watcher, alarm, directions, number, streak, threshold

__all__ = ["PulledNegatives"]


@dataclass(frozen=True)
class PulledNegatives(Watcher):
    """The gradient pulls candidates that are negatives to cocos.

    Fires when: on average more than `negatives` negatives per query are pulled, in any direction, in each of the last
    `records` records, while positives are pulled as well: elsewhere see `misaligned`.

    Try: groups or labels for the monitor, where rows match that it does not know of; else a look at the labels and at
    the sign of a loss of your own. Label smoothing, soft targets and some margins pull negatives by design: then switch
    the detector off.

    Args:
        negatives: mean number per query.
        records: how many in a row; of checkpoints, one.

    Source: a loss that falls with the score of a negative pulls it, by definition.
    """

    READS = ("pulled_negatives",)

    negatives: float = threshold(0.1)
    records: int = threshold(3, 1)

    def __call__(self, history: Sequence[Record]) -> Alarm | None:
        """The alarm at the last record, if any."""
        since = streak(history, self.records, lambda each: _pulled(each) > self.negatives)
        if since is None:
            return None
        value = _pulled(history[-1])
        said = (
            f"{value:.3g} negatives per query are pulled on average (above {self.negatives:g}) {since}; if they match "
            "their query, give the monitor groups; if they do not, look at the labels and at the sign of the loss, "
            "unless it smooths its labels"
        )
        return alarm(self, history, value, self.negatives, said)


def _pulled(record: Record) -> float:
    """Largest mean number of pulled negatives of the directions whose positives are pulled."""
    found = [0.0]
    for _, each in directions(record):
        pulled, pushed, positives = (
            number(each, name) for name in ("pulled_negatives", "pushed_positives", "positives")
        )
        if pulled is not None and (pushed or 0) <= (positives or 0) / 2:
            found.append(pulled)
    return max(found)
