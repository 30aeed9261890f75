"""The shelf of measures: one question a file, (embeddings or checkpoint, loss, ...) -> Dataset.

Each refuses options and embeddings that it cannot use with `cocos.InputError`; its docstring names the cases in which
another call may succeed.
"""

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

__all__ = sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg)

if TYPE_CHECKING:  # what the next statement binds

    def __getattr__(name: str) -> Any: ...


# Bound at once: a function has the name of its file, and the first import of a file would bind the module instead.
globals().update({name: getattr(importlib.import_module(f"{__name__}.{name}"), name) for name in __all__})
