"""Counts and push of each query by the source of its candidates, and their means in the JSON document."""

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr
from torch import Tensor

from cocos import results
from cocos.counting.statistics import SOURCE_STATISTICS
from cocos.embeddings.sources import SOURCES
from cocos.measures import _per_query

# Of every query and source: long name and units.
SOURCE_LABELS = {
    "source_negatives": ("negatives of the source", "candidates"),
    "source_contributing": ("contributing negatives of the source", "candidates"),
    "source_pulled": ("contributing negatives of the source that are pulled", "candidates"),
    "source_push": ("total weight above zero of the negatives of the source", "weight"),
}


def columns(found: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Take (queries, sources) statistics apart: one entry (queries,) a statistic and source."""
    return {f"{name}/{place}": own for name, values in found.items() for place, own in enumerate(values.unbind(1))}


def taken(values: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Split the arrays of a run in its statistics by source, (sources, ...), and the others, which come first."""
    first = f"{SOURCE_STATISTICS[0]}/0"
    if first not in values:
        return dict(values), {}
    sourced = {
        name: np.stack([values[f"{name}/{place}"] for place in range(len(SOURCES))]) for name in SOURCE_STATISTICS
    }
    ours = {f"{name}/{place}" for name in SOURCE_STATISTICS for place in range(len(SOURCES))}
    return {name: array for name, array in values.items() if name not in ours}, sourced


def variables(sourced: Mapping[str, np.ndarray]) -> dict[str, tuple]:
    """Label the statistics by source over source, direction, batch and query: sources with any negative."""
    if not sourced:
        return {}
    there = np.nansum(sourced["source_negatives"], axis=(1, 2, 3)) > 0
    made: dict[str, tuple] = {
        "source": (
            "source",
            [name for name, some in zip(SOURCES, there, strict=True) if some],
            "where candidates come from",
        )
    }
    dims = ("source", "direction", "batch", "query")
    return made | {name: (dims, sourced[name][there], *about) for name, about in SOURCE_LABELS.items()}


def aligned(parts: Sequence[dict[str, tuple]]) -> list[dict[str, tuple]]:
    """Give the variables of several losses the sources of all of them: of one that a loss lacks it has no negatives."""
    own = [list(part["source"][1]) if "source" in part else [] for part in parts]
    every = [name for name in SOURCES if any(name in labels for labels in own)]
    made = []
    for part, labels in zip(parts, own, strict=True):
        found = dict(part)
        for name in SOURCE_LABELS if labels else ():
            dims, values, *about = part[name]
            none = np.where(np.isnan(np.asarray(values[0], dtype=float)), np.nan, 0)
            rows = [values[labels.index(label)] if label in labels else none for label in every]
            found[name] = (dims, np.stack(rows), *about)
        made.append(found | ({"source": ("source", every, *part["source"][2:])} if labels else {}))
    return made


def entries(one: xr.Dataset, full: np.ndarray, *, standard: bool) -> dict:
    """Entries `sources` of one direction in the JSON document: source -> number -> mean and deviation.

    `negatives`, `contributing` and `pulled` are means over all queries, `push` is the part of the summed push; a
    deviation is that of the full batches. {} without sources.
    """
    if "source" not in one.dims:
        return {}
    values = {name: one[name].transpose("source", "batch", "query").values for name in SOURCE_LABELS}
    total, made = np.nansum(values["source_push"], axis=0), {}
    for place, label in enumerate(map(str, one["source"].values)):
        own = {name: array[place] for name, array in values.items()}
        if not np.nansum(own["source_negatives"]):
            continue
        known = ~np.isnan(own["source_negatives"])
        entry = {
            name.removeprefix("source_"): _both(
                _per_query.mean(own[name], known, (0, 1)), _per_query.mean(own[name], known, 1), full, standard
            )
            for name in SOURCE_STATISTICS[:3]
        }
        push = np.nansum(own["source_push"], axis=1), total.sum(axis=1)
        parts = np.divide(push[0], push[1], out=np.full(len(push[0]), np.nan), where=push[1] > 0)
        whole = push[0].sum() / push[1].sum() if push[1].sum() > 0 else np.nan
        made[label] = entry | {"push": _both(whole, parts, full, standard)}
    return {"sources": made}


def _both(whole: float, batches: np.ndarray, full: np.ndarray, standard: bool) -> dict[str, float | None]:
    """Mean and deviation of one number, over all queries and full batches, or over batches as published."""
    if not standard:
        return results.mean_std(xr.DataArray(batches, dims="batch"))
    whole = float(whole)
    return {"mean": whole if np.isfinite(whole) else None, "std": _per_query.deviation(batches[full])}
