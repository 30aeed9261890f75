"""From statistics of every query to numbers of batches and of a whole count: arrays, means, deviations, labels.

Arrays are (direction, batch, query), NaN where a batch has fewer queries than the largest; a statistic of each source
of candidates, or of each kind of mark, has one more axis behind them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from torch import Tensor

from cocos.counting.statistics import (
    BATCH_NUMBERS,
    BY_NAME,
    BY_SHARE,
    MARKED_LABELS,
    MARKED_PARTS,
    OF_SOURCES,
    SOURCE_STATISTICS,
    STATISTICS,
    Number,
)
from cocos.embeddings.sources import SOURCES

# Dimensions of what every query has.
QUERY_DIMS = ("direction", "batch", "query")
# Long names and units of what a Dataset of queries has beside their statistics.
DRAWN_LABELS = {
    "query_index": ("row of the query in the embeddings", "1"),
    "query_group": ("group of the query, numbered in ascending order", "1"),
    "queries": ("queries in the batch", "queries"),
    "same_group_pairs": ("row pairs of one group in the batch", "pairs"),
    "repeated": ("repeated candidates among the sampled pairs", "candidates"),
}


def arrays(
    records: Mapping[str, Sequence[Mapping[str, Tensor]]], sizes: Mapping[str, Sequence[int]] | None = None
) -> dict[str, np.ndarray]:
    """Return statistics by name, (direction, batch, query, ...), NaN if a batch has fewer queries than the largest.

    Args:
        records: direction -> one entry a batch, or a stack of batches -> statistic -> (queries of all of them, ...).
        sizes: direction -> queries of every batch, in the order of the entries; None: each entry is one batch.
    """
    if sizes is None:
        sizes = {name: [len(next(iter(entry.values()))) for entry in entries] for name, entries in records.items()}
    exists = np.zeros((len(records), max(map(len, sizes.values())), max(map(max, sizes.values()))), dtype=bool)
    for d, of_direction in enumerate(sizes.values()):
        exists[d, : len(of_direction)] = np.arange(exists.shape[2]) < np.asarray(of_direction)[:, None]
    values = {}
    for name in next(iter(records.values()))[0]:
        flat = np.concatenate([entry[name].cpu().numpy() for entries in records.values() for entry in entries])
        values[name] = np.full((*exists.shape, *flat.shape[1:]), np.nan)
        values[name][exists] = flat
    return values


def known(values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays of a count with NaN for all statistics by the unit of the loss if any batch lacks it."""
    if "contributing" not in values or not np.isnan(values["contributing"][present(values)]).any():
        return dict(values)
    return dict(values) | {name: np.full(values[name].shape, np.nan) for name in BY_SHARE if name in values}


def present(values: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return a mask of the entries with a query: a batch may have fewer than the largest one."""
    if "negatives" in values:
        return ~np.isnan(values["negatives"])
    names = ("contributing",) if "contributing" in values else tuple(values)
    return np.logical_or.reduce([~np.isnan(values[name]) for name in names])


def of_batches(values: Mapping[str, np.ndarray], axis: int | tuple[int, ...]) -> dict[str, np.ndarray]:
    """Return every number of `STATISTICS` over some axes of queries; NaN for a mean of no query.

    Args:
        values: statistics of the queries by their names in a Dataset (`Statistic.variable`).
        axis: of the queries.
    """
    exists, numbers = present(values), {}
    unknown = "contributing" in values and np.isnan(values["contributing"][exists]).any()
    if "pull" in values:
        largest = np.max(values["pull"], where=exists & np.isfinite(values["pull"]), initial=0.0)
        values = {**values, "pull": values["pull"] / (largest or 1)}  # so that no sum overflows
    for statistic in STATISTICS:
        if (observed := values.get(statistic.variable)) is None:
            continue
        for number in statistic.numbers:
            if number.by and number.by not in values and number.value is not None:
                continue  # its denominator was not computed
            numbers[number.name] = _average(number, observed, exists, values, axis)
            if number.how == "sum" and statistic.by_unit and unknown:
                numbers[number.name] = np.full(np.shape(numbers[number.name]), np.nan)
    return numbers


def _average(
    number: Number,
    observed: np.ndarray,
    exists: np.ndarray,
    values: Mapping[str, np.ndarray],
    axis: int | tuple[int, ...],
) -> np.ndarray:
    """Return one number of the queries that exist, from the values of its statistic."""
    where, chosen = exists & ~np.isnan(observed), None if number.value is None else observed == number.value
    if number.how == "sum":
        return (np.where(where, observed, 0) if chosen is None else chosen).sum(axis=axis)
    if number.by in values:  # without the statistic it is a mean over the queries
        weight = np.where(where, values[number.by], 0)
        parts = np.where(chosen, weight, 0) if chosen is not None else np.where(where, observed * weight, 0)
        return ratio(parts.sum(axis=axis), weight.sum(axis=axis))
    over = {"all": exists, "any": observed > 0, "pushed": values.get("effective_per_query", observed) > 0}[number.over]
    return mean(observed if chosen is None else np.where(np.isnan(observed), np.nan, chosen), over, axis)


def mean(values: np.ndarray, where: np.ndarray, axis: int | tuple[int, ...]) -> np.ndarray:
    """Return the mean of the values that are not NaN in a mask; NaN without any."""
    where = where & ~np.isnan(values)
    return ratio(np.where(where, values, 0).sum(axis=axis), where.sum(axis=axis))


def ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Return quotients; NaN if the whole is not above 0."""
    return np.divide(part, whole, out=np.full(np.shape(part), np.nan), where=np.asarray(whole) > 0)


def entry(
    whole: float, batches: np.ndarray, full: np.ndarray | slice = slice(None), *, standard: bool = True
) -> dict[str, float | None]:
    """Return mean and standard deviation of one number, as in a JSON document; None if unknown.

    Args:
        whole: the number over all queries.
        batches: (batches,) the number of each.
        full: (batches,) bool; without it all are.
        standard: the deviation is over the full batches; otherwise both are over all batches, as published.
    """
    values = (batches[full] if standard else batches).astype(np.float64)
    values = values[np.isfinite(values)]
    if standard:
        deviation = float(values.std()) if len(values) > 1 else None
        return {"mean": float(whole) if np.isfinite(whole) else None, "std": deviation}
    return {"mean": float(values.mean()), "std": float(values.std())} if len(values) else {"mean": None, "std": None}


def full_batches(data: xr.Dataset) -> np.ndarray:
    """Return a mask of the batches with the requested number of rows, (batch,); all if none has.

    A batch of pairs is as large as its larger side; the candidates of other batches are not counted.
    """
    queries = data["queries"]
    rows = queries.max("direction") if data.attrs.get("sample") == "pairs" else queries.isel(direction=0)
    full = rows.values >= int(data.attrs["batch_size"])
    return full if full.any() else np.ones_like(full)


def variables(
    values: Mapping[str, np.ndarray], directions: Sequence[str], labels: dict[str, tuple[str, str]] | None = None
) -> dict[str, tuple]:
    """Label arrays over direction, batch and query, as many of these dims as an array has; (batch,) for one.

    Args:
        values: name in the Dataset -> array; one of them at least over queries.
        directions: their names.
        labels: name -> long name and units; None: those of `STATISTICS`.
    """
    if labels is None:
        labels = {statistic.variable: statistic.about for statistic in STATISTICS}
        labels |= {name: number.about for name, number in BATCH_NUMBERS.items()}
    labels = {"negatives": BY_NAME["negatives"].about, **DRAWN_LABELS, **labels}
    variables: dict[str, tuple] = {
        name: (QUERY_DIMS[: array.ndim] if array.ndim > 1 else "batch", array, *labels.get(name, ()))
        for name, array in values.items()
    }
    _, batches, width = next(array.shape[:3] for array in values.values() if array.ndim > 2)
    variables["direction"] = ("direction", list(directions))
    variables["batch"] = ("batch", range(batches), "training batch")
    variables["query"] = ("query", range(width), "index in the batch")
    return variables


def of_records(
    records: dict[str, list[dict[str, Tensor]]],
    same_group_pairs: list[int],
    *,
    zero_when_idle: bool,
    repeated: dict[str, list[int]] | None = None,
    sizes: dict[str, list[int]] | None = None,
    marks: Sequence[str] = (),
) -> dict[str, tuple]:
    """Label the statistics of one loss, as `cocos.results.labelled` takes them.

    Args:
        records: direction -> one entry a batch, or a stack of batches -> statistic -> (queries of all of them, ...).
        same_group_pairs: of every batch, unordered pairs of rows that are of one group.
        repeated: direction -> of every batch, copies of candidates among its pairs as drawn; None: not known.
        zero_when_idle: `eq7_mean` of a batch without any count is 0 (as published) instead of missing.
        sizes: direction -> queries of every batch, in the order of the entries; None: each entry is one batch.
        marks: labels of the kinds of marked candidates, whose statistics are in the records.

    Returns:
        Per query, dims (direction, batch, query): `contributing` and its kin, NaN where a batch has fewer queries than
        the largest one. Per batch, dims (direction, batch): the entries of the published tables. With the dimension
        `mark` or `source` in front, the numbers of marked candidates and of each source.
    """
    statistics = known(arrays(records, sizes))
    kinds, sources = (
        {name: np.ascontiguousarray(np.moveaxis(statistics.pop(name), -1, 0)) for name in names if name in statistics}
        for names in (MARKED_LABELS, SOURCE_STATISTICS)
    )
    names = {statistic.name: statistic.variable for statistic in STATISTICS} | {name: name for name in DRAWN_LABELS}
    values = {names.get(name, f"{name}_per_query"): array for name, array in statistics.items()}
    values |= of_batches(values, 2)
    if zero_when_idle and "eq7_mean" in values:
        values["eq7_mean"] = np.nan_to_num(values["eq7_mean"], nan=0.0)
    values["queries"] = present(values).sum(axis=2)
    values["same_group_pairs"] = np.asarray(same_group_pairs, dtype=np.int64)
    if repeated is not None:
        values["repeated"] = np.asarray([repeated[name] for name in records], dtype=np.int64)
    labelled = variables(values, list(records))
    if kinds:
        parts = marked_parts(kinds, values["negatives"], values["negative_push"], -1)
        dims = ("mark", *QUERY_DIMS)
        labelled["mark"] = ("mark", list(marks), "mark on candidates")
        labelled |= {name: (dims, kinds[name], *about) for name, about in MARKED_LABELS.items()}
        labelled |= {part.name: (dims[:3], parts[part.name], *part.about) for part in MARKED_PARTS.values()}
    if sources:
        used = np.nansum(sources["source_negatives"], axis=(1, 2, 3)) > 0
        labels = [name for name, is_used in zip(SOURCES, used, strict=True) if is_used]
        labelled["source"] = ("source", labels, "source of the candidates")
        dims = ("source", *QUERY_DIMS)
        labelled |= {row.name: (dims, sources[row.name][used], *row.about) for row in OF_SOURCES}
    return labelled


def marked_parts(
    values: Mapping[str, np.ndarray], negatives: np.ndarray, push: np.ndarray, axis: int | tuple[int, ...]
) -> dict[str, np.ndarray]:
    """The numbers of `MARKED_PARTS` over some axes of queries: ratios of sums, NaN where there is nothing to divide by.

    Args:
        values: of `MARKED_LABELS`, each (kinds, ..., queries).
        negatives: (..., queries).
        push: (..., queries), of all negatives.
        axis: of the queries, counted from the last one.
    """
    marked, *pushed = (values[name] for name in MARKED_LABELS)
    ratios = []
    for subset, whole in ((marked, negatives), *((part * push, push) for part in pushed)):
        total = np.where(np.isnan(subset), 0, np.broadcast_to(whole, subset.shape)).sum(axis=axis)
        ratios.append(ratio(np.nansum(subset, axis=axis), total))
    names = [part.name for part in MARKED_PARTS.values()]
    return dict(zip(names, [*ratios, ratio(ratios[1], ratios[0])], strict=True))


def of_directions(data: xr.Dataset) -> dict[str, dict]:
    """Return the entries of every direction of a count, as its JSON document has them."""
    standard = data.attrs["convention"] == "standard"
    full = full_batches(data) if standard else np.ones(data.sizes["batch"], dtype=bool)
    names = map(str, data["direction"].values)
    return {name: direction_entry(data.sel(direction=name), full, standard) for name in names}


def direction_entry(one: xr.Dataset, full: np.ndarray, standard: bool) -> dict:
    """Return the entries of one direction: name -> mean and standard deviation, and integers."""
    over = of_batches({str(name): one[name].values for name in one if one[name].ndim == 2}, (0, 1))
    entries: dict[str, Any] = {}
    for name, number in BATCH_NUMBERS.items():
        if name in one:
            batches = one[name].values
            whole = float(batches[full].mean() if number.how == "sum" else over[name])
            entries[name] = entry(whole, batches, full, standard=standard)
    has_unit = bool(one["idle"].notnull().all())
    entries |= {key: entries.get(key) for key in ("n90", "pushed_positives")}
    entries["queries"] = int(one["queries"].sum())
    entries["active_queries"] = int((one["contributing"] > 0).sum()) if has_unit else None
    entries["negatives"] = {"mean": float(one["negatives"].mean()), "std": None}
    entries["batch_queries"] = float(one["queries"].values[full].mean())
    entries["batches_without_active_queries"] = int((one["idle"] == one["queries"]).sum()) if has_unit else None
    entries |= {key: int(one[key].sum()) for key in ("uncertain", "relative_uncertain", "repeated") if key in one}
    entries |= {"marks": _of_marks(one, full, standard)} if "mark" in one.dims else {}
    return entries | ({"sources": _of_sources(one, full, standard)} if "source" in one.dims else {})


def _of_marks(one: xr.Dataset, full: np.ndarray, standard: bool) -> dict:
    """Return label of a mark -> number -> mean and standard deviation; the means are ratios of sums."""
    values = {name: one[name].transpose("mark", "batch", "query").values for name in MARKED_LABELS}
    over = marked_parts(values, one["negatives"].values, one["negative_push"].values, (-2, -1))
    entries: dict[str, dict[str, Any]] = {}
    for k, label in enumerate(map(str, one["mark"].values)):
        entries[label] = {
            key: entry(over[part.name][k], one[part.name].isel(mark=k).values, full, standard=standard)
            for key, part in MARKED_PARTS.items()
        }
        entries[label]["queries"] = int((values["marked_negatives"][k] > 0).sum())
    return entries


def _of_sources(one: xr.Dataset, full: np.ndarray, standard: bool) -> dict:
    """Return source -> number -> mean and standard deviation; `push` is the part of the summed push."""
    values = {name: one[name].transpose("source", "batch", "query").values for name in SOURCE_STATISTICS}
    total = np.nansum(values["source_push"], axis=0).sum(axis=1)
    entries: dict[str, dict] = {}
    for k, label in enumerate(map(str, one["source"].values)):
        if not np.nansum(values["source_negatives"][k]):
            continue
        exists, push = ~np.isnan(values["source_negatives"][k]), np.nansum(values["source_push"][k], axis=1)
        entries[label] = {}
        for statistic in OF_SOURCES:
            if statistic.name == "source_push":
                whole, batches = ratio(push.sum(), total.sum()), ratio(push, total)
            else:
                whole, batches = (mean(values[statistic.name][k], exists, axis) for axis in ((0, 1), 1))
            entries[label][statistic.numbers[0].name] = entry(float(whole), batches, full, standard=standard)
    return entries
