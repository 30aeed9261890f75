"""Results as text and as files: tables, JSON, LaTeX, cards of losses, figures on disk."""

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import xarray as xr

from cocos.reports.document import with_texts
from cocos.reports.tables import TABLES, Table, generic


def tables(
    name: str,
    dataset: xr.Dataset | Sequence[xr.Dataset],
    *,
    labels: Callable[[int], str] | None = None,
    query: str | None = None,
) -> list[Table]:
    """Return the tables of a Dataset; `verify` takes several Datasets.

    Tables of single rows take `labels`, row of a candidate -> its text, and the text of the `query`.
    """
    own = _file(name)
    if hasattr(own, "tables"):
        return own.tables(dataset)
    if hasattr(own, "table"):
        return [own.table(dataset)]
    return TABLES.get(name, generic)(with_texts(dataset, labels, query))


def table(name: str, dataset: xr.Dataset | Sequence[xr.Dataset], **texts: Any) -> Table:
    """Return the first table of a Dataset, with the texts of single rows as in `tables`."""
    return tables(name, dataset, **texts)[0]


def document(
    name: str,
    dataset: xr.Dataset,
    *,
    labels: Callable[[int], str] | None = None,
    query: str | None = None,
) -> dict[str, Any]:
    """Return the JSON document of a Dataset, with the texts of single rows as in `tables`."""
    own = _file(name)
    if hasattr(own, "document"):
        return own.document(dataset)
    measures = importlib.import_module("cocos.measures")
    return measures.document(name, dataset, labels=labels, query=query)


def _file(name: str) -> ModuleType:
    """Return the file with the tables of a measure: of its name here, or its own."""
    subpackage = __name__ if importlib.util.find_spec(f"{__name__}.{name}") else "cocos.measures"
    return importlib.import_module(f"{subpackage}.{name}")
