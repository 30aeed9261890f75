"""The names of the engine that benchmarks use, wherever they live."""

import importlib.util
import os
from collections.abc import Sequence

from cocos.batches import Batch
from cocos.embeddings import Embeddings

__all__ = ["PLAIN", "is_new", "kernel", "passed", "plain", "readers", "statistics", "view"]

PLAIN = {"ranks": "Ranks", "precision_recall": "PrecisionRecall", "histogram": "Histogram"}


def is_new() -> bool:
    """Whether cocos.engine is looked at: COCOS_BENCH is `new` or `old`; unset, the old one while it is there."""
    return os.environ.get("COCOS_BENCH", "old" if importlib.util.find_spec("cocos.sweep") else "new") == "new"


def readers():
    """The module of readers."""
    return importlib.import_module("cocos.engine.readers" if is_new() else "cocos.readers")


def plain(name: str):
    """A reader that belongs to no loss: `ranks`, `precision_recall` or `histogram`."""
    shelf = importlib.import_module(f"cocos.{'engine.' * is_new()}readers.{name}")
    return getattr(shelf, PLAIN[name])()


def view(embeddings: Embeddings, batches: Batch | Sequence[Batch] | None = None, **options):
    """The scores of a batch; of a stack of batches only in the new engine."""
    return importlib.import_module("cocos.engine" if is_new() else "cocos.sweep").view(embeddings, batches, **options)


def passed(seen, wanted: Sequence) -> list:
    """What each reader finds."""
    return importlib.import_module("cocos.engine" if is_new() else "cocos.sweep").run(seen, list(wanted))


def kernel() -> str:
    """What reads the tiles on a CPU."""
    return importlib.import_module("cocos.engine.fused" if is_new() else "cocos.tiles").kernel_name()


def statistics(loss, eps: float):
    """The reader of a loss."""
    return readers().of(loss, eps, spread=True, relative=True)
