"""The names of the engine that benchmarks use."""

from collections.abc import Sequence

from cocos import engine
from cocos.batches import Batch
from cocos.embeddings import Embeddings
from cocos.engine import fused, readers

__all__ = ["PLAIN", "kernel", "passed", "plain", "reader", "view"]

PLAIN = {"ranks": readers.Ranks, "precision_recall": readers.PrecisionRecall, "histogram": readers.Histogram}


def reader(loss, eps: float, *, spread: bool = True, relative: bool = True):
    """The reader of a loss; None where it has none."""
    return readers.of(loss, eps, spread=spread, relative=relative)


def plain(name: str):
    """A reader that belongs to no loss: `ranks`, `precision_recall` or `histogram`."""
    return PLAIN[name]()


def view(embeddings: Embeddings, batches: Batch | Sequence[Batch] | None = None, **options) -> engine.View:
    """The scores of a batch, or of a stack of batches."""
    return engine.view(embeddings, batches, **options)


def passed(seen: engine.View, wanted: Sequence) -> list:
    """What each reader finds."""
    return engine.run(seen, list(wanted))


def kernel() -> str:
    """What reads the tiles on a CPU."""
    return fused.kernel_name()
