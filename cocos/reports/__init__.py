"""Results as text and as files: tables, LaTeX, cards of losses, figures on disk.

The table of a measure stands in its file, beside its JSON document; one with findings has a file of its name here.
"""

import importlib
import importlib.util
import inspect
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import xarray as xr

    from cocos.base.layout import Table


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
    write = getattr(_file(name), "table", None) or importlib.import_module("cocos.reports.summaries").table
    texts = {"labels": labels, "query": query}
    known = inspect.signature(write).parameters
    return write(dataset, **{key: text for key, text in texts.items() if key in known})


def document(name: str, dataset: "xr.Dataset") -> object:
    """The JSON document of a Dataset, as commands print it: that of its measure, or of its file here with findings."""
    measures = importlib.import_module("cocos.measures")
    write = getattr(_file(name), "document", None)
    return write(dataset) if write else measures.document(name, dataset)


def tables(name: str, dataset: "xr.Dataset") -> "list[Table]":
    """All tables of a Dataset: those of its measure where it has several, else its `table`."""
    several = getattr(_file(name), "tables", None)
    return several(dataset) if several else [table(name, dataset)]


def _file(name: str) -> ModuleType:
    """The file with the tables of a measure: of its name here, or its own."""
    room = __name__ if importlib.util.find_spec(f"{__name__}.{name}") else "cocos.measures"
    return importlib.import_module(f"{room}.{name}")
