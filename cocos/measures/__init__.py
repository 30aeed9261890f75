"""The shelf of measures: one question a file, (embeddings or checkpoint, loss, ...) -> Dataset.

Each refuses options and embeddings that it cannot use with `cocos.InputError`; its docstring names the cases in which
another call may succeed.
"""

import importlib
import pkgutil
import sys
from typing import TYPE_CHECKING, Any

import xarray as xr

__all__ = sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))

if TYPE_CHECKING:  # what the next statement binds

    def __getattr__(name: str) -> Any: ...


# Bound at once: a function has the name of its file, and the first import of a file would bind the module instead.
globals().update({name: getattr(importlib.import_module(f"{__name__}.{name}"), name) for name in __all__})


def document(measure: str, data: xr.Dataset, **texts: Any) -> dict:
    """Return the JSON document of a Dataset: of its measure, or the generic one.

    Examples:
        >>> import cocos
        >>> data = cocos.measures.weight_curve("triplet", points=5)
        >>> cocos.measures.document("weight_curve", data)["loss"]
        {'name': 'triplet', 'parameters': {'margin': 0.2}}
    """
    if measure == "count":
        return sys.modules["cocos.measures.count"].document(data)
    rendering = importlib.import_module("cocos.reports.document")
    return rendering.document(measure, rendering.with_texts(data, **texts))
