"""The shelf of measures: one question a file, (embeddings or checkpoint, loss, ...) -> Dataset."""

import importlib
import pkgutil

__all__ = sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))

# Bound at once: a function has the name of its file, and the first import of a file would bind the module instead.
globals().update({name: getattr(importlib.import_module(f"{__name__}.{name}"), name) for name in __all__})
