"""Plots: each draws the Dataset of the measure of its name on Axes, and computes nothing.

A file holds one plot: a function of `dataset`, one of its measure or several, their `names` (None: their losses), and
`ax` (None: the current Axes). Beside it stand the `title` that states what the Dataset shows, `SIZE` or `size` of a
panel if it is not the usual one, `together`, the options that panels side by side share, and `ALONE`, the reason why
several Datasets cannot share the plot.
"""

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

# Files that hold no plot, and serve all of them.
SERVICES = {"labels", "saving", "wording"}
__all__ = sorted({m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")} - SERVICES)

if TYPE_CHECKING:  # what the next statement binds

    def __getattr__(name: str) -> Any: ...


# Bind the functions now: each has the name of its file, and a later import of the file would bind the module instead.
globals().update({name: getattr(importlib.import_module(f"{__name__}.{name}"), name) for name in __all__})
