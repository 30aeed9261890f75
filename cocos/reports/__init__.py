"""Results as text and as files: tables, JSON, LaTeX, cards of losses, figures on disk."""

from collections.abc import Callable, Sequence
from typing import Any

import xarray as xr

from cocos.base.errors import InputError
from cocos.counting import findings
from cocos.reports import count, run
from cocos.reports.documents import document as rendered
from cocos.reports.documents import with_texts
from cocos.reports.layouts import LAYOUTS
from cocos.reports.tables import Table, generic

# Measures whose JSON document has its findings; a count has a document of its own.
WITH_FINDINGS = ("evaluate", "audit", "diff", "run")


def tables(
    name: str,
    dataset: xr.Dataset | Sequence[xr.Dataset],
    *,
    labels: Callable[[int], str] | None = None,
    query: str | None = None,
    **options: Any,
) -> list[Table]:
    """Return the tables of a Dataset; `verify` takes several Datasets.

    Tables of single rows take `labels`, row of a candidate -> its text, and the text of the `query`; `audit` takes the
    `texts` of both sides and the `top` number of pairs.
    """
    if name in LAYOUTS:
        return LAYOUTS[name](dataset, **options)
    if name in {"count", "run"}:
        return [count.table(dataset) if name == "count" else run.table(dataset)]
    return generic(with_texts(dataset, labels, query))


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
    """Return the JSON document of a Dataset with its findings, and the texts of single rows as in `tables`."""
    entries = rendered(name, with_texts(dataset, labels, query))
    if name in WITH_FINDINGS:
        entries["findings"] = [finding.document() for finding in findings.of(dataset)]
    return entries
