"""Statistics of every query of a run, (direction, batch, query): their arrays, their Dataset, and the full batches."""

import json
from collections.abc import Mapping

import numpy as np
import xarray as xr
from torch import Tensor

from cocos import results

SHARED_LABELS = {
    "negatives": ("negatives in the batch", "candidates"),
    "query_index": ("row of the query in the embeddings", "1"),
    "query_group": ("group of the query, numbered in ascending order", "1"),
    "queries": ("queries in the batch", "queries"),
    "same_group_pairs": ("pairs of drawn rows in the batch that are of one group", "pairs"),
    "repeated": ("copies of candidates among the pairs of the batch as drawn", "candidates"),
}

# Largest count of each bin: 0 alone, then in even steps of the logarithm; the second where the first is too fine.
LADDERS = ((0, 1, 2, 5, 10, 20, 50, 100, 200), (0, 1, *(f * 10**n for n in range(9) for f in (3, 10))))


def arrays(
    records: dict[str, list[dict[str, Tensor]]], sizes: dict[str, list[int]] | None = None
) -> dict[str, np.ndarray]:
    """Statistics by their names, (direction, batch, query), NaN where a batch has fewer queries than the largest.

    Args:
        records: direction -> one entry a batch, or a stack of batches -> statistic -> (queries of all of them,).
        sizes: direction -> queries of every batch, in the order of the entries; None: each entry is one batch.
    """
    if sizes is None:
        sizes = {name: [len(entry["contributing"]) for entry in entries] for name, entries in records.items()}
    batches, width = max(map(len, sizes.values())), max(map(max, sizes.values()))
    there = np.zeros((len(records), batches, width), dtype=bool)
    for d, of_direction in enumerate(sizes.values()):
        there[d, : len(of_direction)] = np.arange(width) < np.asarray(of_direction)[:, None]
    full, found = bool(there.all()), {}
    for name in next(iter(records.values()))[0]:
        flat = np.concatenate([entry[name].cpu().numpy() for entries in records.values() for entry in entries])
        if full:
            found[name] = flat.astype(np.float64).reshape(there.shape)
        else:
            found[name] = np.full(there.shape, np.nan)
            found[name][there] = flat
    return found


def variables(
    values: Mapping[str, np.ndarray], labels: Mapping[str, tuple[str, str]], directions: list[str]
) -> dict[str, tuple]:
    """Label arrays over direction, batch and query, as many of these dims as an array has; (batch,) for one."""
    dims, labels = ("direction", "batch", "query"), SHARED_LABELS | labels
    made: dict[str, tuple] = {
        name: (dims[: array.ndim] if array.ndim > 1 else "batch", array, *labels.get(name, ()))
        for name, array in values.items()
    }
    _, batches, width = values["contributing"].shape
    made["direction"] = ("direction", directions)
    made["batch"] = ("batch", range(batches), "training batch")
    made["query"] = ("query", range(width), "place in the batch")
    return made


def dataset(
    values: Mapping[str, np.ndarray], labels: Mapping[str, tuple[str, str]], directions: list[str], attrs: dict
) -> xr.Dataset:
    """Make a Dataset of `variables`."""
    return results.labelled(variables(values, labels, directions), attrs)


def full_batches(data: xr.Dataset) -> np.ndarray:
    """Which batches hold as many rows as were asked for, (batch,); all of them where none does.

    A batch of pairs is as large as its larger side; the candidates of other batches are not counted.
    """
    queries = data["queries"]
    rows = queries.max("direction") if data.attrs["sample"] == "pairs" else queries.isel(direction=0)
    full = rows.values >= int(data.attrs["batch_size"])
    return full if full.any() else np.ones_like(full)


def deviation(values: np.ndarray) -> float | None:
    """Population deviation of the values that are known; None where there are fewer than two."""
    found = values[np.isfinite(values)].astype(np.float64)
    return float(found.std()) if len(found) > 1 else None


def mean(values: np.ndarray, where: np.ndarray, axis) -> np.ndarray:
    """Mean of the values that are known in a mask, NaN where there is none."""
    where = where & ~np.isnan(values)
    number = where.sum(axis=axis)
    total = np.where(where, values, 0).sum(axis=axis)
    return np.divide(total, number, out=np.full(np.shape(total), np.nan), where=number > 0)


def drawn(data: xr.Dataset, full: np.ndarray) -> dict:
    """Entries of a JSON document on eps, the health of the embeddings, and how the batches were drawn."""
    attrs = data.attrs
    return {
        "eps": float(attrs["eps"]),
        "batches": int(data.sizes["batch"]),
        "full_batches": int(full.sum()),
        "health": json.loads(attrs["health"]),
        "batch_size": int(attrs["batch_size"]),
        "seed": int(attrs["seed"]),
        **{name: attrs.get(name) for name in ("device", "dtype", "sample", "copies", "same_group")},
    }


def bins(most: float) -> np.ndarray:
    """Largest count of each bin of a histogram, from 0, which is a bin of its own, up to `most` or beyond."""
    ladder = np.array(next((each for each in LADDERS if each[-1] >= most), LADDERS[-1]))
    return ladder[: max(4, int(np.searchsorted(ladder, most)) + 1)]


def histogram(data: xr.Dataset, upper: np.ndarray | None = None, of: str = "contributing") -> xr.Dataset:
    """Counts of `cocos.measures.count` as they are drawn, each (direction,), over all queries of the run.

    Args:
        data: the counts.
        upper: largest count of each bin; None: as the counts have it.
        of: `contributing`, or `relative_per_query`.

    Returns:
        `mean`, the mean count; `idle_fraction`, the fraction of queries without any; `negatives` per query; and `part`
        (direction, bin), the part of the queries in each bin, whose largest counts ascend from 0 (None: `bins`).
    """
    found = data[of]
    upper = bins(float(found.max())) if upper is None else upper
    queries = found.notnull().sum(["batch", "query"])
    edges = np.concatenate([[-0.5], upper + 0.5])
    held = [np.histogram(each.values[np.isfinite(each.values)], edges)[0] for each in found.transpose("direction", ...)]
    part = xr.DataArray(np.stack(held), dims=("direction", "bin"), coords={"bin": upper})
    return xr.Dataset({
        "mean": found.mean(["batch", "query"]),
        "idle_fraction": (found == 0).sum(["batch", "query"]) / queries,
        "negatives": data["negatives"].mean(["batch", "query"]),
        "part": part / queries,
    })
