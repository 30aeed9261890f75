"""The parts of the engine's interface that benchmarks use, so that one file adapts to a changed engine."""

from collections.abc import Sequence

from cocos import engine
from cocos.embeddings import Embeddings
from cocos.embeddings.batches import Batch
from cocos.engine import fused, readers
from cocos.engine.columns import columns
from cocos.engine.readers.columns import ColumnsReader

__all__ = ["PLAIN", "columned", "kernel", "passed", "plain", "reader", "view"]

PLAIN = {"ranks": readers.Ranks, "precision_recall": readers.PrecisionRecall, "histogram": readers.Histogram}


def reader(loss, eps: float, *, spread: bool = True, relative: bool = True):
    """Return the reader of a loss; None if it has none."""
    return readers.of(loss, eps, spread=spread, relative=relative)


def plain(name: str):
    """Return a reader that belongs to no loss: `ranks`, `precision_recall` or `histogram`."""
    return PLAIN[name]()


def view(embeddings: Embeddings, batches: Batch | Sequence[Batch] | None = None, **options) -> engine.View:
    """Build the view of a batch, or of a stack of batches."""
    return engine.view(embeddings, batches, **options)


def passed(seen: engine.View, wanted: Sequence) -> list:
    """Run the readers on a view and return their results."""
    return engine.run(seen, list(wanted))


def columned(embeddings: Embeddings, batch: Batch, loss, eps: float) -> dict:
    """Count the candidates of a batch by their source, in one direction; build the views as well."""
    found = ColumnsReader(loss, eps)
    directions = loss.directions
    return found.read(columns(embeddings, [batch], directions=directions, once=found.alike, metric=loss.metric))


def kernel() -> str:
    """Name the code that computes the tiles on a CPU."""
    return fused.kernel_name()
