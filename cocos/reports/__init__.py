"""Results as text and as files: tables, JSON, LaTeX, cards of losses, figures on disk."""

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import xarray as xr

from cocos.base.errors import InputError
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


def show(dataset: xr.Dataset | dict[str, xr.Dataset], **texts: Any) -> None:
    """Print the verdict and the numbers of a result, as its command does.

    Args:
        dataset: result of a measure, or label -> result.
        **texts: texts of single rows, as in `tables`.

    Raises:
        InputError: the Dataset is not the result of a measure.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> cocos.show(cocos.measures.count(embeddings, "ntxent"))  # doctest: +SKIP
    """
    first = next(iter(dataset.values())) if isinstance(dataset, dict) else dataset
    if "measure" not in first.attrs:
        raise InputError("show: a Dataset without attrs['measure'], expected the result of a measure")
    print("\n\n".join(map(str, tables(first.attrs["measure"], dataset, **texts))))


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
