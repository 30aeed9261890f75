"""Count the negatives that contribute to the gradient of a frozen metric-learning model."""

import importlib
import importlib.util

TYPE_CHECKING = False
if TYPE_CHECKING:  # the same names for type checkers, which do not run `__getattr__`
    from cocos import data as data
    from cocos import losses, measures, plots, results
    from cocos.base.errors import InputError, UnsafeFile
    from cocos.checkpoints import Checkpoint, open
    from cocos.counting import equilibrium as equilibrium
    from cocos.counting import sharpness as sharpness
    from cocos.counting import statistics, weights
    from cocos.embeddings import Embeddings
    from cocos.embeddings import marks as marks
    from cocos.embeddings import sampling as sampling
    from cocos.embeddings import scores as scores
    from cocos.embeddings import similarities as similarities
    from cocos.embeddings import sources as sources
    from cocos.embeddings.scores import Pairs, Scores
    from cocos.measures import count
    from cocos.monitor import Monitor
    from cocos.monitor import detectors as detectors
    from cocos.reports import show
    from cocos.reports.page import report

__version__ = "0.1.0"

_HOMES = {
    "Checkpoint": "cocos.checkpoints",
    "Embeddings": "cocos.embeddings",
    "InputError": "cocos.base.errors",
    "Monitor": "cocos.monitor",
    "Pairs": "cocos.embeddings.scores",
    "Scores": "cocos.embeddings.scores",
    "UnsafeFile": "cocos.base.errors",
    "count": "cocos.measures",
    "open": "cocos.checkpoints",
    "report": "cocos.reports.page",
    "show": "cocos.reports",
}
__all__ = [
    "Checkpoint",
    "Embeddings",
    "InputError",
    "Monitor",
    "Pairs",
    "Scores",
    "UnsafeFile",
    "__version__",
    "count",
    "losses",
    "measures",
    "open",
    "plots",
    "report",
    "results",
    "sampling",
    "show",
    "statistics",
    "weights",
]
# Short name of a module -> its path; any other module is reached by its own path.
_MODULES = {
    "data": "cocos.data",
    "detectors": "cocos.monitor.detectors",
    "equilibrium": "cocos.counting.equilibrium",
    "marks": "cocos.embeddings.marks",
    "sampling": "cocos.embeddings.sampling",
    "scores": "cocos.embeddings.scores",
    "sharpness": "cocos.counting.sharpness",
    "similarities": "cocos.embeddings.similarities",
    "sources": "cocos.embeddings.sources",
    "statistics": "cocos.counting.statistics",
    "weights": "cocos.counting.weights",
}


def __getattr__(name: str):
    """Import on first use: `import cocos` and `cocos --help` stay free of torch (PEP 562).

    Raises:
        AttributeError: there is no such name.
    """
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if not name.startswith("_") and importlib.util.find_spec(f"cocos.{name}"):
        return importlib.import_module(f"cocos.{name}")
    raise AttributeError(f"module 'cocos' has no attribute {name!r}")


def __dir__():
    return sorted({*__all__, *_MODULES})
