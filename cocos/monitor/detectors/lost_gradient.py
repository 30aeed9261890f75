"""Lost gradient: a part of the scores gets no gradient."""

from collections.abc import Sequence
from dataclasses import dataclass

from cocos.monitor.detectors._history import Alarm, Record, Watcher, alarm, number, streak, threshold

__all__ = ["LostGradient"]


@dataclass(frozen=True)
class LostGradient(Watcher):
    """Scores that the loss computed received no gradient, although it computed them for training.

    Fires when: the part of the scores whose gradient never arrived exceeds `part` in each of the last `records`
    records.

    Try: a look at `detach()`, `no_grad` and the loop over mini-batches of the loss: every part needs its own backward
    pass; a newer version of the library, if the loss is a cached one of it.

    Args:
        part: of the scores.
        records: how many in a row; of checkpoints, one.

    Source: https://github.com/huggingface/sentence-transformers/pull/3854, where mini-batches of a cached loss lost
    their gradients.
    """

    READS = ("lost",)

    part: float = threshold(0.0, 0, 1)
    records: int = threshold(2, 1)

    def __call__(self, history: Sequence[Record]) -> Alarm | None:
        """The alarm at the last record, if any."""
        since = streak(history, self.records, lambda each: (number(each, "lost") or 0) > self.part)
        if since is None:
            return None
        value = number(history[-1], "lost") or 0
        said = (
            f"{100 * value:.3g} % of the scores that the loss computed received no gradient (above "
            f"{100 * self.part:g} %) {since}; look for detach(), no_grad, or a mini-batch without its own backward pass"
        )
        return alarm(self, history, value, self.part, said)
