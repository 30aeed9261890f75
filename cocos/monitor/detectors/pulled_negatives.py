"""Pulled negatives: the gradient draws candidates near that do not match."""

from dataclasses import dataclass

from cocos.monitor.detectors._history import AtLeast0, Count, Record, Watcher, most, numbers

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

    negatives: AtLeast0 = 0.1
    records: Count = 3

    SAYS = (
        "{value:.3g} negatives per query are pulled on average (above {limit:g}) {since}; if they match their query, "
        "give the monitor groups; if they do not, look at the labels and at the sign of the loss, unless it smooths "
        "its labels"
    )

    def value(self, record: Record) -> float:
        """Largest mean number of pulled negatives of the directions whose positives are pulled."""
        return most(record, _pulled)


def _pulled(direction: Record) -> float | None:
    pulled, pushed, positives = numbers(direction, "pulled_negatives", "pushed_positives", "positives")
    return pulled if (pushed or 0) <= (positives or 0) / 2 else None
