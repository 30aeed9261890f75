"""Count the negatives that contribute to the gradient of a frozen metric-learning model."""

import importlib
import importlib.util

TYPE_CHECKING = False
if TYPE_CHECKING:  # the same names for type checkers, which do not run `__getattr__`
    from cocos import batches, losses, measures, plots, results, statistics, weights
    from cocos import collisions as collisions
    from cocos import correlation as correlation
    from cocos import engine as engine
    from cocos import equilibrium as equilibrium
    from cocos import likeness as likeness
    from cocos import marks as marks
    from cocos import maxsim as maxsim
    from cocos import scores as scores
    from cocos import several as several
    from cocos import sharpness as sharpness
    from cocos.checkpoints import Checkpoint, open
    from cocos.embeddings import Embeddings
    from cocos.errors import InputError, UnsafeFile
    from cocos.monitor import Monitor
    from cocos.scores import Pairs

__version__ = "0.1.0"

_HOMES = {
    "Checkpoint": "cocos.checkpoints",
    "Embeddings": "cocos.embeddings",
    "InputError": "cocos.errors",
    "Monitor": "cocos.monitor",
    "Pairs": "cocos.scores",
    "UnsafeFile": "cocos.errors",
    "open": "cocos.checkpoints",
}
__all__ = [
    "Checkpoint",
    "Embeddings",
    "InputError",
    "Monitor",
    "Pairs",
    "UnsafeFile",
    "__version__",
    "batches",
    "losses",
    "measures",
    "open",
    "plots",
    "results",
    "statistics",
    "weights",
]
# Modules with a page of their own beside those in `__all__`; any other one is reached by its path too.
_MODULES = (
    "collisions",
    "correlation",
    "engine",
    "equilibrium",
    "likeness",
    "marks",
    "maxsim",
    "scores",
    "several",
    "sharpness",
)


def __getattr__(name: str):
    """Import on first use: `import cocos` and `cocos --help` stay free of torch (PEP 562).

    Raises:
        AttributeError: there is no such name.
    """
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if not name.startswith("_") and importlib.util.find_spec(f"cocos.{name}"):
        return importlib.import_module(f"cocos.{name}")
    raise AttributeError(f"module 'cocos' has no attribute {name!r}")


def __dir__():
    return sorted({*__all__, *_MODULES})
