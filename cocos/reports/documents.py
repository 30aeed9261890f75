"""JSON documents: version, file, loss and options, then direction -> variable -> coordinate, then findings.

A measure with published keys has a function here; all other documents are generic.
"""

import json
import warnings
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from cocos import results
from cocos.counting import averages, findings
from cocos.measures.evaluate import OF_MEMBERS
from cocos.measures.run import axis, episodes

# Axes with many values, which are summarised by their mean and percentiles.
ITEMS = ("batch", "query", "proxy")
QUANTILES = {"p5": 0.05, "p50": 0.5, "p95": 0.95}
SHORT_AXIS = 12  # values of an axis; a variable along two longer axes of numbers is a matrix
# Variables that are nested by coordinates first: key of the document, and axes.
NESTED = {"same_gradient": ("kinds", "end", "kind"), "temperature": ("batch_sizes", "batch_size")}
# Attributes that are options of a measure, and those that are in documents in another form, or only in tables.
OPTIONS = "eps convention batches batch_size sample copies same_group seed dtype device split metric".split()
HIDDEN = (
    "measure title cocos torch gradient direction notes findings health footnotes undrawn data_kind frozen unit share"
).split()


def document(measure: str, data: xr.Dataset | dict[str, xr.Dataset]) -> dict[str, Any]:
    """Return the JSON document of a Dataset, or of label -> Dataset, with its findings."""
    if isinstance(data, dict):
        documents = [{"label": label, **document(measure, single)} for label, single in data.items()]
        return {"measure": measure, **{key: documents[0][key] for key in ("cocos", "checkpoint")}, "losses": documents}
    content = DOCUMENTS.get(measure, generic)(data)
    return {"measure": measure, **content, "findings": [finding.document() for finding in findings.of(data)]}


def generic(data: xr.Dataset) -> dict[str, Any]:
    """Return the header, the attributes with results, `directions`, and the variables without a direction.

    A variable over queries has its mean and its 5th, 50th and 95th percentile, one along an axis its values there,
    nested by their coordinates; a matrix its corners and its centre. Histograms are left to plots and files.
    """
    content, values, directions = header(data), results_of(data.attrs), {}
    key, *axes = NESTED.get(data.attrs["measure"], (None,))
    if inner := [name for name in data if axes and data[name].dims == tuple(axes)]:
        values[key], data = entries(data, inner, *axes), data.drop_vars(inner)
    for name in (name for name in data.data_vars if name not in content):
        if (shown := summarised(data, name)) is not None and "direction" not in shown.dims:
            values[name] = nested(shown)
        elif shown is not None:
            for side, numbers in nested(shown.transpose("direction", ...)).items():
                directions.setdefault(side, {})[name] = numbers
    if side := data.attrs.get("direction"):
        return content | {"directions": {side: values}}
    return content | values | {"directions": directions}


def results_of(attrs: dict) -> dict[str, Any]:
    """Return the attributes that are results, neither options nor provenance."""
    hidden = {*OPTIONS, *HIDDEN, *(name for name in attrs if name.startswith(("checkpoint_", "loss")))}
    return {name: plain(attrs[name]) for name in attrs if name not in hidden and np.ndim(attrs[name]) == 0}


def header(data: xr.Dataset) -> dict[str, Any]:
    """Return version, checkpoint, loss, health and options."""
    attrs = data.attrs
    checkpoint = {key: attrs.get(f"checkpoint_{key}", "") for key in ("path", "sha256", "format")}
    checkpoint |= {"dims": int(attrs["checkpoint_dims"])} if "checkpoint_dims" in attrs else {}
    content = {"cocos": attrs["cocos"], "checkpoint": checkpoint}
    if "loss_parameters" in attrs:
        content |= {"loss": loss_entry(attrs), "gradient": attrs.get("gradient")}
    content["health"] = {"collapsed": findings.collapsed(attrs)} | json.loads(attrs.get("health", "{}"))
    content |= {key: plain(attrs[key]) for key in OPTIONS if key in attrs}
    return content | ({"batches": data.sizes["batch"]} if "batch" in data.dims else {})


def loss_entry(attrs: dict) -> dict[str, Any]:
    """Return the name and parameters of the loss."""
    return {"name": attrs["loss"], "parameters": json.loads(attrs["loss_parameters"])}


def parameter_values(parameters: Mapping[str, object]) -> list[str]:
    """Write the parameters of a loss as values of `-p`; a list is written with commas."""
    texts = {k: ",".join(map(str, v)) if isinstance(v, list | tuple) else v for k, v in parameters.items()}
    return [f"{name}={text}" for name, text in texts.items()]


def summarised(data: xr.Dataset, name: Hashable) -> xr.DataArray | None:
    """Return a variable with its items summarised along `quantile`; None if it is left out."""
    values = data[name]
    if "fold" in values.dims:
        folds = values.astype(np.float64)
        return xr.concat([folds.mean("fold"), folds.std("fold")], "quantile").assign_coords(quantile=["mean", "std"])
    items = [dim for dim in values.dims if dim in ITEMS]
    if data.attrs["measure"] == "retrievals" and items:  # of a few queries, by their rows
        values, items = values.assign_coords(query=data["query_index"].values), []
    long = [dim for dim, size in values.sizes.items() if size > SHORT_AXIS and dim not in {"direction", *items}]
    long = [dim for dim in long if values[dim].dtype.kind != "U"]
    if values.dtype.kind not in "fiubU" or "bin" in values.dims or f"{name}_band" in data:
        return None
    if items and (long or str(name).endswith(("_index", "_group"))) or not set(long) <= set(values.coords):
        return None
    if len(long) > 1:  # a matrix, by its corners and its centre
        values = values.isel({dim: [0, values.sizes[dim] // 2, -1] for dim in long})
    if not items:
        return values
    values = values.astype(np.float64)
    with warnings.catch_warnings():  # of quantities that no query has
        warnings.simplefilter("ignore", RuntimeWarning)
        bands = values.quantile(list(QUANTILES.values()), items).assign_coords(quantile=list(QUANTILES))
    return xr.concat([values.mean(items).expand_dims(quantile=["mean"]), bands], "quantile")


def coordinate(value: Any) -> str:
    """Write a coordinate as a key of a document."""
    return value if isinstance(value, str) else f"{round(float(value), 12) + 0:.6g}"


def plain(value: Any) -> Any:
    """Return a number of numpy as JSON represents it; None if it is not finite."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not np.isfinite(value) else value


def nested(values: xr.DataArray) -> Any:
    """Nest a variable by the coordinates of its axes; an axis without coordinates is a list, no axis a number."""
    if not values.dims:
        return plain(values)
    axis = values.dims[0]
    parts = [plain(value) for value in values.values] if values.ndim == 1 else [nested(part) for part in values]
    return dict(zip(map(coordinate, values[axis].values), parts, strict=True)) if axis in values.coords else parts


def entries(data: xr.Dataset, names: Iterable[Hashable], *axes: str) -> Any:
    """Nest variables along the same axes by the coordinates of these axes, then by name."""
    return nested(data[list(names)].astype(object).to_dataarray("name").transpose(*axes, "name", ...))


def verification(data: xr.Dataset) -> dict[str, Any]:
    """Return mean, standard deviation over the folds, and threshold of each metric."""
    data = data.rename(value="mean", deviation="std")
    names = ["mean", "std", "threshold"]
    return generic(data.drop_vars(names)) | entries(data, names, "metric")


def landscape(data: xr.Dataset) -> dict[str, Any]:
    """Return the minimum as predicted and found, (x, y) or None."""
    ends = {name: data[name].values.tolist() for name in ("predicted", "found")}
    return generic(data) | {name: end if np.isfinite(end).all() else None for name, end in ends.items()}


def count(data: xr.Dataset) -> dict[str, Any]:
    """Return the counts of each direction, with means over all queries or, of sums and deviations, over full batches.

    In the convention `ecir2022` both are over all batches.
    """
    attrs, idle = data.attrs, data["idle"]
    full = averages.full_batches(data).sum() if attrs["convention"] == "standard" else data.sizes["batch"]
    inactive = (idle == data["queries"]).any("direction")
    content = header(data) | {
        "unit": attrs.get("unit", "natural"),
        "share": attrs.get("share", "unit"),
        "full_batches": int(full),
        "same_group_pairs": int(data["same_group_pairs"].sum()),
        "not_drawn": results.lines(attrs, "undrawn"),
        "batches_without_active_queries": int(inactive.sum()) if idle.notnull().all() else None,
        "directions": averages.of_directions(data),
    }
    if metrics := [name for name in data if data[name].dims == ("direction",)]:
        whole = {name: plain(data[name]) for name in data if not data[name].dims}
        content["metrics"] = {"directions": entries(data, metrics, "direction")} | whole
    return content


def evaluate(data: xr.Dataset) -> dict[str, Any]:
    """Return mean and standard deviation over the folds of each metric, by direction; again with distractors."""
    whole = data.drop_dims("member", errors="ignore")
    folds = whole[[name for name in whole if whole[name].dims[-1:] in (("fold",), ("direction",))]]
    content = {"split": None, "trained_with": None} | generic(folds.sel(distractors="without", drop=True))
    content["k"] = [int(k) for k in data.attrs["k"].split(",")]
    if data.sizes["distractors"] > 1:
        ranked = generic(folds.sel(distractors="with", drop=True))
        content["with_distractors"] = {key: ranked[key] for key in ranked if key not in header(data)}
    if members := {name: str(name).removesuffix(OF_MEMBERS) for name in data if str(name).endswith(OF_MEMBERS)}:
        alone = data[list(members)].rename(members | {"member": "fold"})
        content |= {"members": alone.sizes["fold"], "aggregate": {"directions": generic(alone)["directions"]}}
    return content


def audit(data: xr.Dataset) -> dict[str, Any]:
    """Return the rules and filters of each direction, and the suspected pairs, the largest push first."""
    attrs, directions = data.attrs, {}
    rules = [name for name in data if "rule" in data[name].dims]
    filters = [name for name in data if "filter" in data[name].dims and name != "filter_rule"]
    for side, single in results.sides(data).items():
        replayed = entries(single, filters, "filter") if filters else {}
        directions[side] = {"rules": entries(single, rules, "rule"), "filters": replayed}
    content = header(data) | {name: plain(attrs[name]) for name in ("neighbours", "known")}
    against = [name for name in attrs["against"].split(", ") if name]
    pairs = {"pairs": data.sizes["pair"], "suspected": suspects(data)}
    return content | {"against": against, "directions": directions} | pairs


def suspects(data: xr.Dataset) -> list[dict[str, Any]]:
    """Return the suspected pairs of an audit, with the rules that suspect them."""
    names = {str(name).removesuffix("_index"): name for name in data if data[name].dims == ("pair",)}
    columns = {key: map(plain, data[name].values) for key, name in names.items()}
    columns["rules"] = (data["suspicion"].values[suspected].tolist() for suspected in data["suspected"].values)
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def run(data: xr.Dataset) -> dict[str, Any]:
    """Return the numbers at every step, the alarms of the detectors, and the checkpoints that were left out."""
    step = axis(data)
    numbers = data.drop_vars(step)  # lists, not nested by step
    numbers = numbers[[name for name in numbers if numbers[name].dtype.kind in "fiu"]]
    by_direction = [name for name in numbers if numbers[name].dims == (step, "direction")]
    return {
        **header(data),
        "steps": data[step].values.tolist(),
        **({"files": data["file"].values.tolist()} if "file" in data else {}),
        "values": {name: nested(numbers[name]) for name in numbers if numbers[name].dims == (step,)},
        "directions": entries(numbers, by_direction, "direction"),
        "alarms": episodes(data),
        "watching": json.loads(data.attrs.get("watching", "{}")),
        "left_out": json.loads(data.attrs.get("left_out", "[]")),
    }


def verify(data: xr.Dataset) -> dict[str, Any]:
    """Return the verdict, and the largest difference of each comparison; None if one does not apply."""
    gaps = data["gap"].sel(dtype="float64").dropna("case")
    return {
        **header(data),
        "verdict": data.attrs["verdict"],
        "faults": results.lines(data.attrs, "faults"),
        "notes": results.lines(data.attrs),
        "cases": data.sizes["case"],
        **{name: nested(data[name].where(np.isfinite(data[name])).max("case")) for name in ("gap", "error")},
        "gap_on": str(gaps["case"].values[gaps.values.argmax()]) if len(gaps) and float(gaps.max()) > 0 else None,
        **{name: plain(data[name].max()) for name in ("finite_difference", "largest")},
    }


# Measures with a document of their own.
DOCUMENTS = {function.__name__: function for function in (audit, count, evaluate, landscape, run, verification, verify)}
