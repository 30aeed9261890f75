"""Lost gradient: a part of the scores gets no gradient."""

from dataclasses import dataclass

from cocos.monitor.detectors._history import Count, Part, Watcher

__all__ = ["LostGradient"]


@dataclass(frozen=True)
class LostGradient(Watcher):
    """Scores that the loss computed received no gradient, although it computed them for training.

    Fires when: the part of the scores whose gradient never arrived exceeds `part` in each of the last `records`
    records.

    Try: look for `detach()` and `no_grad`, check that every mini-batch of the loss has its own backward pass, and
    update the library of a cached loss.

    Args:
        part: of the scores.
        records: how many in a row; of checkpoints, one.

    Source: https://github.com/huggingface/sentence-transformers/pull/3854, where mini-batches of a cached loss lost
    their gradients.
    """

    READS = ("lost",)
    SEVERITY = "stop"

    part: Part = 0.0
    records: Count = 2

    MESSAGE = (
        "scores without gradient: {percent:.3g} % {since} (threshold {limit_percent:g} %). Look for detach(), "
        "no_grad, or a mini-batch without its own backward pass"
    )
