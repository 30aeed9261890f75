"""Results as text and as files: tables, LaTeX, cards of losses, figures on disk.

A measure whose table is more than its numbers has a file of its name here, with the function `table`.
"""

import importlib
import importlib.util
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import xarray as xr

    from cocos.reports.layout import Table


def table(
    name: str,
    dataset: "xr.Dataset | Sequence[xr.Dataset]",
    *,
    labels: Callable[[int], str] | None = None,
    query: str | None = None,
) -> "Table":
    """Write a Dataset as a table: in the way of its measure where it has one, as a general summary otherwise.

    `verify` takes several Datasets. Tables of single rows take `labels`, row of a candidate -> its text, and the text
    of the `query`.
    """
    own = f"{__name__}.{name}"
    module = importlib.import_module(own if importlib.util.find_spec(own) else f"{__name__}.summary")
    texts = {"labels": labels, "query": query}
    known = inspect.signature(module.table).parameters
    return module.table(dataset, **{key: text for key, text in texts.items() if key in known})
