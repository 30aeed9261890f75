"""Results as text: tables, JSON documents, LaTeX, descriptions of losses."""

from collections.abc import Sequence
from typing import Any

import xarray as xr

from cocos.reports import cards, layouts
from cocos.reports.documents import document
from cocos.reports.text import Table, generic

__all__ = ["cards", "document", "show", "table", "tables"]


def tables(name: str, dataset: xr.Dataset | Sequence[xr.Dataset], **options: Any) -> list[Table]:
    """Return the tables of a Dataset; `verify` takes several Datasets, `count` label -> Dataset as well.

    `audit` takes the `texts` of both sides, row -> text.
    """
    return layouts.LAYOUTS.get(name, generic)(dataset, **options)


def table(name: str, dataset: xr.Dataset | Sequence[xr.Dataset], **options: Any) -> Table:
    """Return the first table of a Dataset, as `tables`."""
    return tables(name, dataset, **options)[0]


def show(dataset: xr.Dataset | dict[str, xr.Dataset], **options: Any) -> None:
    """Print the verdict and the numbers of a result, or of label -> result; `options` as for `tables`.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> cocos.show(cocos.measures.count(embeddings, "ntxent"))  # doctest: +SKIP
    """
    first = next(iter(dataset.values())) if isinstance(dataset, dict) else dataset
    print("\n\n".join(map(str, tables(first.attrs["measure"], dataset, **options))))
