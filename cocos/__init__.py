"""Count the negatives that contribute to the gradient of a frozen metric-learning model."""

import importlib

__version__ = "0.1.0"

_HOMES = {
    "Embeddings": "cocos.embeddings",
    "Pairs": "cocos.scores",
    "Checkpoint": "cocos.checkpoints",
    "InputError": "cocos.errors",
    "UnsafeFile": "cocos.errors",
    "open": "cocos.checkpoints",
}
_SUBPACKAGES = (
    "batches",
    "checkpoints",
    "conventions",
    "data",
    "demo",
    "embeddings",
    "encoders",
    "engine",
    "errors",
    "forces",
    "losses",
    "measures",
    "plots",
    "results",
    "processes",
    "queries",
    "reports",
    "retrieval",
    "run",
    "runs",
    "scores",
    "statistics",
    "summaries",
    "weights",
    "writing",
)

__all__ = ["__version__", *_HOMES, *_SUBPACKAGES]


def __getattr__(name: str):
    """Import on first use: `import cocos` and `cocos --help` stay free of torch (PEP 562).

    Raises:
        AttributeError: there is no such name.
    """
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _SUBPACKAGES:
        return importlib.import_module(f"cocos.{name}")
    raise AttributeError(f"module 'cocos' has no attribute {name!r}")


def __dir__():
    return sorted(__all__)
