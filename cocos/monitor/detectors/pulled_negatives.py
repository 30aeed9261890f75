"""Pulled negatives: the gradient draws candidates near that do not match."""

from dataclasses import dataclass

from cocos.monitor.detectors._history import AtLeast0, Count, Record, Watcher, most, numbers

__all__ = ["PulledNegatives"]


@dataclass(frozen=True)
class PulledNegatives(Watcher):
    """The gradient pulls candidates that are negatives to cocos.

    Fires when: on average more than `negatives` negatives per query are pulled, in any direction, in each of the last
    `records` records, while positives are pulled as well: elsewhere see `misaligned`.

    Try: pass groups or labels of matching rows to the monitor; otherwise check the labels and the sign of a custom
    loss. Label smoothing, soft targets and some margins pull negatives by design: then switch the detector off.

    Args:
        negatives: mean number per query.
        records: how many in a row; of checkpoints, one.

    Source: a loss that falls with the score of a negative pulls it, by definition.
    """

    READS = ("pulled_negatives",)

    negatives: AtLeast0 = 0.1
    records: Count = 3

    MESSAGE = (
        "pulled negatives per query: {value:.3g} {since} (threshold {limit:g}). If they match their query, pass "
        "groups to the monitor; otherwise check the labels and the sign of the loss. Label smoothing pulls negatives "
        "by design"
    )

    def value(self, record: Record) -> float:
        """Largest mean number of pulled negatives of the directions whose positives are pulled."""
        return most(record, _pulled)


def _pulled(direction: Record) -> float | None:
    pulled, pushed, positives = numbers(direction, "pulled_negatives", "pushed_positives", "positives")
    return pulled if (pushed or 0) <= (positives or 0) / 2 else None
