"""Count the negatives that contribute to the gradient of a frozen metric-learning model."""

import importlib
import importlib.util
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # the same names for type checkers, which do not run `__getattr__`
    from cocos import engine as engine
    from cocos import losses, measures, plots, results
    from cocos.base.errors import InputError, UnsafeFile
    from cocos.checkpoints import Checkpoint, open
    from cocos.counting import equilibrium as equilibrium
    from cocos.counting import maxsim as maxsim
    from cocos.counting import sharpness as sharpness
    from cocos.counting import statistics, weights
    from cocos.embeddings import Embeddings, batches
    from cocos.embeddings import likeness as likeness
    from cocos.embeddings import marks as marks
    from cocos.embeddings import scores as scores
    from cocos.embeddings.scored import Scores
    from cocos.embeddings.scores import Pairs
    from cocos.embeddings.tokens import Tokens
    from cocos.monitor import Monitor
    from cocos.reports.page import report
    from cocos.results import several as several

__version__ = "0.1.0"

_HOMES = {
    "Checkpoint": "cocos.checkpoints",
    "Embeddings": "cocos.embeddings",
    "InputError": "cocos.base.errors",
    "Monitor": "cocos.monitor",
    "Pairs": "cocos.embeddings.scores",
    "Scores": "cocos.embeddings.scored",
    "Tokens": "cocos.embeddings.tokens",
    "UnsafeFile": "cocos.base.errors",
    "open": "cocos.checkpoints",
    "report": "cocos.reports.page",
}
__all__ = [
    "Checkpoint",
    "Embeddings",
    "InputError",
    "Monitor",
    "Pairs",
    "Scores",
    "Tokens",
    "UnsafeFile",
    "__version__",
    "batches",
    "losses",
    "measures",
    "open",
    "plots",
    "report",
    "results",
    "statistics",
    "weights",
]
# Modules with a page of their own beside those in `__all__`; any other one is reached by its path too.
_MODULES = (
    "engine",
    "equilibrium",
    "likeness",
    "marks",
    "maxsim",
    "scores",
    "several",
    "sharpness",
)


# The room of each module that lay beside the rooms in version 0.1; its first name keeps working.
_ROOMS = {
    "base": "annotations cache docstrings errors hdf5 html matrices processes reading tensor_files untrusted writing",
    "checkpoints": "data encoders",
    "counting": "comparisons conventions equilibrium forces health maxsim sharpness statistics verdicts weights",
    "embeddings": "batches likeness marks scores similarities sources teachers",
    "engine": "queries retrieval sampling",
    "losses.external": "units",
    "monitor": "detectors",
    "results": "records rows several summaries",
}
_MOVED = {f"cocos.{name}": f"cocos.{room}.{name}" for room, names in _ROOMS.items() for name in names.split()}
_MOVED["cocos.run"] = "cocos.engine.prepared"
# Families of checkpoints, each a file with its format and its encoder.
_MOVED |= {
    f"cocos.checkpoints.encoders.{name}": f"cocos.checkpoints.formats.{name}"
    for name in "iresnet timm vsepp vsrn warpnet".split()
}
# The table of a question, which had a file of its own, and what all tables share.
_MOVED |= {
    f"cocos.reports.{name}": f"cocos.measures.{name}"
    for name in "contributors decomposition diff dtp evaluate gradients landscape replay retrievals"
    " same_gradient solve temperature thresholds verification verify".split()
}
_MOVED |= {
    "cocos.reports.layout": "cocos.base.layout",
    "cocos.reports.phrases": "cocos.results.phrases",
    "cocos.reports.summary": "cocos.results.summaries",
    "cocos.reports.terminal": "cocos.base.terminal",
}


class _Moved:
    """Finds a module under its first name; the module itself is loaded once, under its present one."""

    @staticmethod
    def _first(name):
        return name if name in _MOVED else ".".join(name.split(".")[:2])

    @staticmethod
    def find_spec(name, path=None, target=None):
        return importlib.util.spec_from_loader(name, _Moved) if _Moved._first(name) in _MOVED else None

    @staticmethod
    def create_module(spec):
        first = _Moved._first(spec.name)
        module = importlib.import_module(_MOVED[first] + spec.name.removeprefix(first))
        spec.loader_state = module.__spec__
        return module

    @staticmethod
    def exec_module(module):
        module.__spec__ = module.__spec__.loader_state


sys.meta_path.insert(0, _Moved)


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
