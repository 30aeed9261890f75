"""JSON documents: what was measured of which file, then direction -> variable -> coordinate."""

import json
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

from cocos import results
from cocos.counting import findings

# Axes with many values, which are summarised by their mean and percentiles.
ITEMS = ("batch", "query", "proxy")
QUANTILES = {"p5": 0.05, "p50": 0.5, "p95": 0.95}
# Measures whose queries were chosen one by one: each is listed, by its row.
LISTS_QUERIES = ("retrievals",)
# Longer axes that are listed whole, by their measure.
LISTED_AXES = {"contributors": "candidate", "dtp": "step"}
# Values of an axis up to which all are listed, and those that are listed of a longer one, at least and at most.
SHORT_AXIS, FEWEST_PLACES, MOST_PLACES = 12, 5, 9
# Attributes that are options of a measure.
OPTIONS = (
    *("eps", "batches", "batch_size", "sample", "copies", "same_group", "seed", "dtype", "device", "split", "metric"),
)
# Attributes that are results: label and unit.
ATTRIBUTES = {
    "pr_auc": ("PR-AUC of one threshold for all pairs", "%"),
    "pairs": ("pairs of a query and a candidate", "pairs"),
    "positive_pairs": ("positive pairs", "pairs"),
    "not_reached": ("precisions that no cut-off reaches", "1"),
    "parameter": ("parameter", ""),
    "own": ("its value in the loss", ""),
    "by": ("compared by", ""),
    "level": ("level of the intervals", "1"),
    "alpha_correlation": ("correlation of alpha with the last average", "1"),
    "row": ("row of the query", "1"),
    "query_text": ("query", ""),
    "batch": ("batch of the query", "1"),
    "negatives": ("negatives", "candidates"),
    "contributing": ("contributing negatives", "candidates"),
    "relative": ("negatives with a part above eps of the query's own push", "candidates"),
    "effective": ("effective number of negatives", "candidates"),
    "positives": ("positives", "candidates"),
    "push": ("total weight above zero", "weight"),
    "pull": ("total weight below zero", "weight"),
    "left_out": ("rows of the batch that take no part", "candidates"),
    "repeated": ("rows of the batch that repeat a candidate", "candidates"),
}


def generic(data: xr.Dataset) -> dict[str, Any]:
    """Return version, file, loss and options; `directions`, name -> variable -> coordinate; `values` of no direction.

    A variable over queries has its mean and its 5th, 50th and 95th percentile, one along an axis its values there,
    nested by their coordinates; of a long axis, a few. Matrices and histograms are left to plots and files.
    """
    single = data.attrs.get("direction")
    names = [str(name) for name in data["direction"].values] if "direction" in data.dims else [single] if single else []
    directions: dict[str, dict] = {name: {} for name in names}
    values = directions[single] if single else {}
    values |= {key: plain(data.attrs[key]) for key in ATTRIBUTES if key in data.attrs}
    for key, variable in data.data_vars.items():
        if (shown := thinned(data, str(key))) is None:
            continue
        if "direction" in variable.dims:
            for name in names:
                directions[name][str(key)] = _nested(shown.sel(direction=name, drop=True))
        else:
            values[str(key)] = _nested(shown)
    return about(data) | {"directions": directions, "values": {} if single else values}


def with_texts(data: xr.Dataset, labels: Callable[[int], str] | None = None, query: str | None = None) -> xr.Dataset:
    """Add the texts of single rows: `labels`, row of a candidate -> its text, and the text of the query."""
    if labels is not None and "candidate_index" in data:
        texts = [labels(int(row)) for row in data["candidate_index"].values]
        data = data.assign(text=("candidate", texts, {"long_name": "text of the candidate"}))
    return data if query is None else data.assign_attrs(query_text=query)


def about(data: xr.Dataset) -> dict[str, Any]:
    """Return version, file, loss, health and options."""
    attrs, entries = data.attrs, results.about(data.attrs)
    entries |= {"gradient": attrs["gradient"]} if "loss" in attrs else {}
    if "checkpoint_path" in attrs:
        entries["health"] = {"collapsed": findings.collapsed(attrs)} | json.loads(attrs.get("health", "{}"))
    else:
        del entries["checkpoint"]
    entries |= {"batches": data.sizes["batch"]} if "batch" in data.dims else {}
    return entries | {key: plain(attrs[key]) for key in OPTIONS if key in attrs}


def thinned(data: xr.Dataset, key: str) -> xr.DataArray | None:
    """Return a variable with its items summarised along `quantile`, and a few places of long axes; None: not shown."""
    values = data[key]
    items = [axis for axis in ITEMS if axis in values.dims]
    if data.attrs["measure"] in LISTS_QUERIES:
        values, items = values.assign_coords(query=data["query_index"].values), []
    listed = {"direction", *items}
    indexed = all(axis in values.coords for axis in values.dims if axis not in listed)
    long = [axis for axis in values.dims if axis not in listed and values.sizes[axis] > SHORT_AXIS]
    rows = items and key.endswith(("_index", "_group"))
    if rows or f"{key}_band" in data or values.dtype.kind not in "fiubU" or not indexed or "bin" in values.dims:
        return None
    if items:
        if long or values.dtype.kind == "U":
            return None
        values = values.astype(np.float64)
        with warnings.catch_warnings():  # of quantities that no query has
            warnings.simplefilter("ignore", RuntimeWarning)
            bands = values.quantile(list(QUANTILES.values()), items).assign_coords(quantile=list(QUANTILES))
        return xr.concat([values.mean(items).expand_dims(quantile=["mean"]), bands], "quantile")
    long = [axis for axis in long if axis != LISTED_AXES.get(data.attrs["measure"])]
    places = [evenly(values.sizes[axis]) for axis in long]
    if len(long) > 1:
        places = [some[[0, len(some) // 2, -1]] for some in places]
    return values.isel(dict(zip(long, places, strict=True)))


def evenly(size: int) -> np.ndarray:
    """Return evenly spaced places of an axis, its ends among them: as many as divide it evenly, and at most nine."""
    if size <= SHORT_AXIS:
        return np.arange(size)
    even = [count for count in range(FEWEST_PLACES, MOST_PLACES + 1) if (size - 1) % (count - 1) == 0]
    return np.linspace(0, size - 1, max(even, default=MOST_PLACES - 2)).round().astype(int)


def coordinate(value: object) -> str:
    """Write a coordinate as a key of a document."""
    return str(value) if isinstance(value, str) else f"{round(float(value), 12) + 0:.6g}"  # type: ignore[arg-type]


def plain(value: Any) -> Any:
    """Return a number of numpy as JSON represents it; None where it is not finite."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _nested(values: xr.DataArray) -> Any:
    """Nest a variable by the coordinates of its axes; without axes it is a number."""
    if not values.dims:
        return plain(values)
    axis = values.dims[0]
    keys = map(coordinate, values[axis].values)
    return {key: _nested(values.isel({axis: place})) for place, key in enumerate(keys)}
