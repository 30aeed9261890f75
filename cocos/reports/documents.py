"""JSON documents: what was measured of which file, then direction -> variable -> coordinate.

A measure whose keys are published has a function of its own; all others have the generic document.
"""

import json
import warnings
from collections.abc import Callable, Hashable, Iterable
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
# Measures whose queries were chosen one by one: each is listed, by its row.
LISTS_QUERIES = ("retrievals",)
# Longer axes that are listed whole, by their measure.
LISTED_AXES = {"contributors": "candidate", "diff": "metric", "dtp": "step"}
# Values of an axis up to which all are listed, and those that are listed of a longer one, at least and at most.
SHORT_AXIS, FEWEST_PLACES, MOST_PLACES = 12, 5, 9
# Largest number of suspected pairs in a document.
MOST_SUSPECTS = 100
# Attributes that are options of a measure.
OPTIONS = (
    *("eps", "batches", "batch_size", "sample", "copies", "same_group", "seed", "dtype", "device", "split", "metric"),
)
# Attributes that are not in documents: written in another form, or texts for tables.
HIDDEN = (
    *("measure", "title", "torch", "unit", "share", "direction", "notes", "findings", "health", "footnotes", "undrawn"),
    *("data_kind", "frozen"),
)
# Variables that are nested by coordinates first: key of the document, and axes.
NESTED = {"same_gradient": ("kinds", "end", "kind"), "temperature": ("batch_sizes", "batch_size")}


def generic(data: xr.Dataset) -> dict[str, Any]:
    """Return version, file, loss and attributes; `directions`, name -> variable -> coordinate; and other variables.

    A variable over queries has its mean and its 5th, 50th and 95th percentile, one along an axis its values there,
    nested by their coordinates; of a long axis, a few. Matrices and histograms are left to plots and files.
    """
    content, single = header(data), data.attrs.get("direction")
    names = data["direction"].values.tolist() if "direction" in data.dims else [single] if single else []
    directions: dict[str, dict] = {name: {} for name in names}
    values = directions[single] if single else {}
    values |= {key: plain(value) for key, value in results_of(data.attrs).items()}
    if measure := NESTED.get(data.attrs["measure"]):
        key, *axes = measure
        nested = [name for name in data if data[name].dims == tuple(axes)]
        values[key] = entries(data, nested, *axes)
        data = data.drop_vars(nested)
    for key in map(str, data.data_vars):
        if (shown := thinned(data, key)) is None:
            continue
        if "direction" in data[key].dims:
            for name in names:
                directions[name][key] = _nested(shown.sel(direction=name, drop=True))
        elif key not in content:
            values[key] = _nested(shown)
    content |= {} if single else values
    return content | {"directions": directions, "notes": results.lines(data.attrs)}


def results_of(attrs: dict) -> dict[str, Any]:
    """Return the attributes that are results, neither options nor provenance."""
    known = {*OPTIONS, *HIDDEN, "cocos", "gradient"}
    hidden = {name for name in attrs if name.startswith(("checkpoint_", "loss"))} | known
    return {name: value for name, value in attrs.items() if name not in hidden and np.ndim(value) == 0 and value != ""}


def with_texts(data: xr.Dataset, labels: Callable[[int], str] | None = None, query: str | None = None) -> xr.Dataset:
    """Add the texts of single rows: `labels`, row of a candidate -> its text, and the text of the query."""
    if labels is not None and "candidate_index" in data:
        texts = [labels(int(row)) for row in data["candidate_index"].values]
        data = data.assign(text=("candidate", texts, {"long_name": "text of the candidate"}))
    return data if query is None else data.assign_attrs(query_text=query)


def header(data: xr.Dataset) -> dict[str, Any]:
    """Return version, file, loss, health and options."""
    attrs, entries = data.attrs, origin(data.attrs)
    entries |= {"gradient": attrs["gradient"]} if "gradient" in attrs else {}
    if "checkpoint_path" in attrs:
        entries["health"] = {"collapsed": findings.collapsed(attrs)} | json.loads(attrs.get("health", "{}"))
    else:
        dims = entries.pop("checkpoint").get("dims")
        entries |= {} if dims is None else {"dims": dims}
    entries |= {"batches": data.sizes["batch"]} if "batch" in data.dims else {}
    return entries | {key: plain(attrs[key]) for key in OPTIONS if key in attrs}


def origin(attrs: dict) -> dict[str, Any]:
    """Return version, checkpoint and loss, as the JSON documents begin."""
    checkpoint = {key: attrs.get(f"checkpoint_{key}", "") for key in ("path", "sha256", "format")}
    if "checkpoint_dims" in attrs:
        checkpoint["dims"] = int(attrs["checkpoint_dims"])
    loss = {"loss": loss_entry(attrs)} if "loss_parameters" in attrs else {}
    return {"cocos": attrs["cocos"], "checkpoint": checkpoint, **loss}


def loss_entry(attrs: dict) -> dict[str, Any]:
    """Return the name and parameters of the loss."""
    return {"name": attrs["loss"], "parameters": json.loads(attrs["loss_parameters"])}


def mean_std(values: xr.DataArray) -> dict[str, float | None]:
    """Return the mean and the population standard deviation of the finite values; None without any."""
    return averages.entry(np.nan, values.values, standard=False)


def thinned(data: xr.Dataset, key: str) -> xr.DataArray | None:
    """Return a variable with its items summarised along `quantile`, and a few places of long axes; None: not shown."""
    values = data[key]
    items = [axis for axis in ITEMS if axis in values.dims]
    if data.attrs["measure"] in LISTS_QUERIES:
        values, items = values.assign_coords(query=data["query_index"].values), []
    listed = {"direction", *items}
    indexed = all(
        axis in values.coords or values.sizes[axis] <= SHORT_AXIS for axis in values.dims if axis not in listed
    )
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
        places = [ends[[0, len(ends) // 2, -1]] for ends in places]
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
    """Nest a variable by the coordinates of its axes; an axis without coordinates is a list, no axis a number."""
    if not values.dims:
        return plain(values)
    axis = values.dims[0]
    parts = [_nested(values.isel({axis: place})) for place in range(len(values))]
    return dict(zip(map(coordinate, values[axis].values), parts, strict=True)) if axis in values.coords else parts


def document(measure: str, data: xr.Dataset) -> dict[str, Any]:
    """Return the JSON document of a Dataset, with the name of its measure.

    Examples:
        >>> data = cocos.measures.weight_curve("triplet", points=5)
        >>> cocos.reports.document("weight_curve", data)["loss"]
        {'name': 'triplet', 'parameters': {'margin': 0.2}}
    """
    content = DOCUMENTS.get(measure, generic)(data)
    return {"measure": measure, **content} if isinstance(content, dict) else content


def entries(data: xr.Dataset, names: Iterable[Hashable], *axes: str) -> dict[str, Any]:
    """Return numbers by the labels along some axes, one within the other, then by their names.

    Examples:
        >>> import xarray as xr
        >>> from cocos.reports.documents import entries
        >>> data = xr.Dataset({"part": ("rule", [0.5, float("nan")])}, {"rule": ["group", "text"]})
        >>> entries(data, ["part"], "rule")
        {'group': {'part': 0.5}, 'text': {'part': None}}
    """
    if not axes:
        return {str(name): plain(data[name]) for name in names}
    axis, *rest = axes
    return {str(label): entries(data.sel({axis: label}), names, *rest) for label in data[axis].values}


def verification(data: xr.Dataset) -> dict[str, Any]:
    """Return metric -> mean, standard deviation over the folds, and threshold."""
    data = data.rename(value="mean", deviation="std")
    names = ("mean", "std", "threshold")
    return generic(data.drop_vars(names)) | entries(data, names, "metric")


def landscape(data: xr.Dataset) -> dict[str, Any]:
    """Return the minimum as predicted and found, (x, y) or None."""
    ends = {name: _listed(data[name]) for name in ("predicted", "found")}
    return generic(data) | {name: None if None in end else end for name, end in ends.items()}


def count(data: xr.Dataset | dict[str, xr.Dataset]) -> dict[str, Any]:
    """Return the counts of each direction; of several losses, a list of documents.

    The mean of a quantity of a query is over all queries drawn; the mean of a quantity of a batch, and every standard
    deviation, is over the full batches alone. In the convention `ecir2022` both are over batches.
    """
    if isinstance(data, dict):
        documents = [{"label": label, **count(single)} for label, single in data.items()]
        return {**{key: documents[0][key] for key in ("cocos", "checkpoint")}, "losses": documents}
    attrs = data.attrs
    standard = attrs["convention"] == "standard"
    full = averages.full_batches(data) if standard else np.ones(data.sizes["batch"], dtype=bool)
    known, idle = bool(data["idle"].notnull().all()), data["idle"] == data["queries"]
    metrics = [name for name in data if data[name].dims in {(), ("direction",)}]
    ranked = {
        "directions": entries(data, [name for name in metrics if data[name].dims], "direction"),
        **{str(name): float(data[name]) for name in metrics if not data[name].dims},
    }
    return {
        **origin(attrs),
        "gradient": attrs["gradient"],
        "unit": attrs.get("unit", "natural"),
        "share": attrs.get("share", "unit"),
        "convention": attrs["convention"],
        **averages.drawn(data, full),
        "same_group_pairs": int(data["same_group_pairs"].sum()),
        "not_drawn": results.lines(attrs, "undrawn"),
        "batches_without_active_queries": int(idle.any("direction").sum()) if known else None,
        "directions": averages.of_directions(data),
        **({"metrics": ranked} if metrics else {}),
        "findings": [finding.document() for finding in findings.of(data)],
    }


def evaluate(data: xr.Dataset) -> dict[str, Any]:
    """Return mean and standard deviation over the folds of each metric, by direction; with distractors once more."""
    attrs, blocks = data.attrs, {}
    for condition in map(str, data["distractors"].values):
        single = data.sel(distractors=condition)
        ranked = [key for key in single if single[key].dims == ("direction", "fold")]
        sides = results.sides(single).items()
        blocks[condition] = {
            "directions": {name: {key: mean_std(side[key]) for key in ranked} for name, side in sides},
            **{key: mean_std(single[key]) for key in single if single[key].dims == ("fold",)},
        }
    whole: dict[str, Any] = blocks["without"]
    for name, entry in whole["directions"].items():
        entry |= {key: int(data[key].sel(direction=name)) for key in ("left_out", "unmatched")}
    if "with" in blocks:
        whole["with_distractors"] = blocks["with"]
    if "members" in attrs:
        members = [str(key) for key in data if str(key).endswith(OF_MEMBERS)]
        sides = results.sides(data).items()
        directions = {
            name: {key.removesuffix(OF_MEMBERS): mean_std(side[key]) for key in members} for name, side in sides
        }
        whole |= {"members": int(attrs["members"]), "aggregate": {"directions": directions}}
    return {
        **origin(attrs),
        "split": attrs.get("split"),
        "health": json.loads(attrs["health"]),
        "metric": attrs["metric"],
        "trained_with": attrs.get("trained_with"),
        "k": [int(k) for k in attrs["k"].split(",")],
        "folds": int(attrs["folds"]),
        "ties": attrs["ties"],
        "seed": int(attrs["seed"]),
        "device": attrs["device"],
        **whole,
    }


def audit(data: xr.Dataset) -> dict[str, Any]:
    """Return the rules and filters of each direction, and the suspected pairs with the largest push."""
    attrs, directions = data.attrs, {}
    rules = [key for key in data if "rule" in data[key].dims]
    filters = [key for key in data if "filter" in data[key].dims and key != "filter_rule"]
    for name, single in results.sides(data).items():
        replayed = entries(single, filters, "filter") if "filter" in data.coords else {}
        directions[name] = {"rules": entries(single, rules, "rule"), "filters": replayed}
    return header(data) | {
        **{name: plain(attrs[name]) for name in ("neighbours", "known")},
        "against": [name for name in attrs["against"].split(", ") if name],
        "directions": directions,
        "pairs": data.sizes["pair"],
        "suspected": suspects(data)[:MOST_SUSPECTS],
    }


def suspects(data: xr.Dataset) -> list[dict[str, Any]]:
    """Return the suspected pairs of an audit, with the rules that suspect them."""
    keys = [str(key) for key in data if data[key].dims == ("pair",)]
    columns = {key.removesuffix("_index"): data[key].values for key in keys}
    rules, suspected = data["suspicion"].values, data["suspected"].values
    return [
        {key: plain(values[place]) for key, values in columns.items()} | {"rules": rules[suspected[place]].tolist()}
        for place in range(data.sizes["pair"])
    ]


def run(data: xr.Dataset) -> dict[str, Any]:
    """Return the numbers at every step, the alarms of the detectors, and the checkpoints that were left out."""
    step = axis(data)
    curves = {
        str(name): values
        for name, values in data.data_vars.items()
        if values.dims in {(step,), (step, "direction")} and values.dtype.kind in "fiu"
    }
    attrs = data.attrs
    return {
        "cocos": attrs["cocos"],
        "loss": loss_entry(attrs),
        "eps": float(attrs["eps"]),
        **({"dims": int(attrs["checkpoint_dims"])} if "checkpoint_dims" in attrs else {}),
        "steps": [int(value) for value in data[step].values],
        **({"files": [str(name) for name in data["file"].values]} if "file" in data else {}),
        "values": {name: _listed(values) for name, values in curves.items() if "direction" not in values.dims},
        "directions": {
            side: {name: _listed(single[name]) for name, values in curves.items() if "direction" in values.dims}
            for side, single in results.sides(data).items()
        },
        "alarms": episodes(data),
        "watching": json.loads(attrs.get("watching", "{}")),
        "left_out": json.loads(str(attrs.get("left_out", "[]"))),
    }


def verify(data: xr.Dataset) -> dict[str, Any]:
    """Return the verdict, and the largest difference of each comparison; None where one does not apply."""
    attrs = data.attrs
    worst = {name: data[name].where(np.isfinite(data[name])).max("case") for name in ("gap", "error")}
    gaps = data["gap"].sel(dtype="float64").dropna("case")
    dtypes = data["dtype"].values.tolist()
    return {
        "loss": loss_entry(attrs),
        "gradient": attrs["gradient"],
        "verdict": attrs["verdict"],
        "faults": results.lines(attrs, "faults"),
        "notes": results.lines(attrs),
        "cases": data.sizes["case"],
        **{name: dict(zip(dtypes, _listed(values), strict=True)) for name, values in worst.items()},
        "gap_on": str(gaps["case"].values[gaps.values.argmax()]) if len(gaps) and float(gaps.max()) > 0 else None,
        "finite_difference": plain(data["finite_difference"].max()),
        "largest": plain(data["largest"].max()),
    }


def _listed(values: xr.DataArray) -> list:
    return [plain(value) for value in values.values]


# Measures with a document of their own.
DOCUMENTS: dict[str, Callable[[xr.Dataset], dict[str, Any]]] = {
    "audit": audit,
    "count": count,
    "evaluate": evaluate,
    "landscape": landscape,
    "run": run,
    "verification": verification,
    "verify": verify,
}
