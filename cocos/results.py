"""Tensors become Datasets here, and only here: dims, units, long names, provenance; summaries, saving, opening."""

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path

import numpy as np
import torch
import xarray as xr

import cocos
from cocos import health, losses, writing
from cocos.errors import InputError, unreachable
from cocos.matrices import Mapped

__all__ = [
    "BATCH",
    "DECOMPOSITION",
    "WEIGHTS",
    "above",
    "about_unit",
    "about_weights",
    "by_direction",
    "contributed",
    "count",
    "decomposed",
    "decomposition",
    "distances",
    "evaluate",
    "evaluated",
    "heading",
    "labelled",
    "health_of",
    "open_dataset",
    "provenance",
    "save",
    "summary",
    "verdict",
    "versions",
    "with_metrics",
    "writable",
]

QUERY = {
    "contributing": ("contributing negatives", "candidates"),
    "relative_per_query": ("negatives with a part above eps of the query's own push", "candidates"),
    "relative_uncertain": ("candidates whose part of the push is too near eps to tell", "candidates"),
    "uncertain": ("candidates too near eps to tell: the count lies within so many", "candidates"),
    "weight_above_per_query": ("summed share of the negatives above eps", "share"),
    "weight_below_per_query": ("summed share of the negatives not above eps", "share"),
    "weight_positive_per_query": ("summed share of the positives", "share"),
    "push": ("total weight above zero", "weight"),
    "pull": ("total weight below zero", "weight"),
    "effective_per_query": ("effective number of negatives (exp of entropy)", "candidates"),
    "participation_per_query": ("participation ratio of the negatives", "candidates"),
    "n90_per_query": ("negatives that hold 90 % of the push", "candidates"),
    "hardest_share_per_query": ("part of the push that the heaviest negative holds", "1"),
    "eq7_per_query": ("count of Eq. 7 (SmoothAP)", "pairs per positive"),
    "negatives": ("negatives in the batch", "candidates"),
    "query_index": ("row of the query in the embeddings", "1"),
}
BATCH = {
    "contributing_mean": (
        "contributing negatives, mean over the queries with at least one (C^A)",
        "candidates",
    ),
    "contributing_sum": ("contributing negatives, sum over the batch (C^B)", "candidates"),
    "contributing_all": ("contributing negatives, mean over all queries", "candidates"),
    "idle": ("queries without any contributing negative (C^0)", "queries"),
    "relative": ("negatives with a part above eps of the query's own push, mean over all queries", "candidates"),
    "weight_above": ("share of the negatives above eps, mean over the queries (W^{qv-})", "share"),
    "weight_below": ("share of the negatives not above eps, mean over the queries", "share"),
    "weight_positive": ("share of the positives, mean over the queries (W^{qv+})", "share"),
    "effective": ("effective number of negatives, mean over the queries with any push", "candidates"),
    "participation": ("participation ratio, mean over the queries with any push", "candidates"),
    "n90": ("negatives that hold 90 % of the push, mean over the queries with any push", "candidates"),
    "hardest_share": ("part of the push on the heaviest negative, mean over the queries with any push", "1"),
    "eq7_mean": ("count of Eq. 7, mean over the queries with at least one (C^q)", "pairs per positive"),
    "eq7_sum": ("count of Eq. 7, sum over the batch", "pairs per positive"),
    "eq7_idle": ("queries without any count of Eq. 7 (C^0)", "queries"),
}
OF_EACH_BATCH = {
    "queries": ("queries in the batch", "queries"),
    "same_group_pairs": ("pairs of rows in the batch that are of one group", "pairs"),
}
DECOMPOSITION = {
    "pull_norm": ("length of the pull of the positives, before the normalisation", "loss / length"),
    "push_norm": ("length of the push of the negatives, before the normalisation", "loss / length"),
    "net_norm": ("length of pull and push together", "loss / length"),
    "tangential_norm": ("length of what the normalisation leaves of it", "loss / length"),
    "gradient_norm": ("length of the gradient of the raw embedding", "loss / length"),
    "candidate_role_norm": ("length of its gradient as a candidate of the others", "loss / length"),
    "both_roles_norm": ("length of its gradient in both roles", "loss / length"),
    "mass_ratio": ("weight of the negatives against that of the positives", "1"),
    "pull_push_cosine": ("cosine of the angle between pull and push", "1"),
    "cancellation": ("part of pull and push that cancels", "1"),
    "radial_fraction": ("radial part of pull and push together, which the normalisation removes", "1"),
    "radial_fraction_pull": ("radial part of the pull", "1"),
    "radial_fraction_push": ("radial part of the push", "1"),
    "radial": ("slope of the loss along the norm of the query", "loss / length"),
    "hardest_share": ("part of the weight that pushes on the heaviest negative", "1"),
    "hardest_share_force": ("part of the force that pushes on the strongest negative", "1"),
    "hardest_projection": ("part of the push that the heaviest negative makes along it", "1"),
    "hardest_rank": ("rank by score of the heaviest negative", "rank"),
    "hardest_rank_force": ("rank by score of the strongest negative", "rank"),
    "contributing": ("negatives whose share by weight is above eps", "candidates"),
    "contributing_force": ("negatives whose share by force is above eps", "candidates"),
    "pushed_positives": ("positives that are pushed", "candidates"),
    "pushed_positives_part": ("part of all weight that pushes positives", "1"),
    "pulled_negatives": ("negatives that are pulled", "candidates"),
    "pulled_negatives_part": ("part of all weight that pulls negatives", "1"),
}
SIDE = {
    "rows": ("rows of the side", "rows"),
    "sampled": ("rows that spread and rank are taken of", "rows"),
    "dimensions": ("width of the embeddings", "dimensions"),
    "spread": ("root mean square distance from the mean, in parts of the length", "1"),
    "effective_rank": ("effective rank (exp of the entropy of the singular values)", "dimensions"),
    "duplicates": ("rows that repeat another one exactly", "rows"),
    "near_duplicates": ("rows that repeat another one up to rounding", "rows"),
    "at_one_point": ("part of the rows within rounding of one point", "1"),
    "collapsed": ("the side is one point up to rounding", "1"),
}
REACHING = {
    "queries": ("queries whose pull and push are added up", "queries"),
    "candidates": ("candidates that take part", "candidates"),
    "cancellation": ("part of pull and push that cancels", "1"),
    "reaching": ("part of pull and push that reaches the embeddings", "1"),
    "tied": ("queries whose best positive ties with a negative", "1"),
}
RETRIEVAL = {
    "queries": ("queries that have a positive", "queries"),
    "candidates": ("candidates that are ranked", "candidates"),
    "R@k": ("queries with a positive among the first {k}", "%"),
    "average_recall": ("mean of R@1, R@5 and R@10", "%"),
    "median_rank": ("median rank of the best positive", "rank"),
    "mean_rank": ("mean rank of the best positive", "rank"),
    "MRR": ("mean reciprocal rank of the best positive", "%"),
    "mAP@k": ("mean average precision among the first {k}, over min({k}, positives)", "%"),
    "mAP": ("mean average precision over all positives", "%"),
    "mAP@R": ("mean average precision among the first R, R the number of positives", "%"),
    "R-precision": ("positives among the first R, R their number", "%"),
    "tied": ("queries whose best positive ties with a negative", "%"),
    "left_out": ("queries without any positive, left out", "queries"),
    "unmatched": ("candidates that match no query: distractors", "candidates"),
    "rsum": ("sum of R@1, R@5 and R@10 of both directions", "%"),
    "PR-AUC": ("average precision over all pairs of the first direction, one threshold for all", "%"),
    "NMI": ("normalised mutual information of classes and k-means clusters", "%"),
}
WEIGHTS = {
    "stop_gradient": "stop-gradient: what training uses; a factor of the loss is held fixed in it",
    "pseudo": "pseudo-gradient: made up by the backward pass of its authors, not the derivative of the loss",
    "autograd": "by autograd: no closed form",
    "influence": "influence matrix: how far each candidate moves each query's loss; no sign, and no weights of scores",
}
# Compressed, with a checksum over each chunk: a damaged file is noticed where it is read.
PACKED = {"zlib": True, "complevel": 4, "fletcher32": True}
SPREAD = ("effective", "participation", "n90", "hardest_share")
OF_BATCHES = ("contributing_sum", "idle", "eq7_sum", "eq7_idle")  # what a batch has, and no query by itself
TOTALS = ("positives", "negatives", "left_out", "repeated", "contributing", "relative")  # of one query


def labelled(variables: Mapping[str, tuple], attrs: dict) -> xr.Dataset:
    """Make a Dataset of arrays with their labels; one whose only dimension has its own name is a coordinate.

    Args:
        variables: name -> (dims, values, long name, units); the units, or both labels, may be left out.
        attrs: provenance and options.
    """
    made = {}
    for name, (dims, values, *about) in variables.items():
        array = values.cpu().numpy() if isinstance(values, torch.Tensor) else values
        made[name] = xr.Variable(dims, array, dict(zip(("long_name", "units"), about, strict=False)))
    return xr.Dataset(made, attrs=attrs)


def by_direction(records: Mapping[str, Mapping[str, torch.Tensor]], labels: Mapping[str, tuple]) -> dict[str, tuple]:
    """Variables of several directions, as `labelled` takes them, and their coordinate.

    Args:
        records: direction -> name -> tensor.
        labels: name -> (dims of one direction, long name, units); along `query`, NaN follows the last query of a
            direction that has fewer.
    """
    variables = {"direction": ("direction", list(records))}
    for name, (dims, *about) in labels.items():
        values = [record[name].cpu() for record in records.values()]
        whole = torch.stack(values) if dims[:1] != ("query",) else _padded(values)
        variables[name] = (("direction", *dims), whole, *about)
    return variables


def _padded(values: Sequence[torch.Tensor]) -> np.ndarray:
    """Values along queries, in float64, NaN after the last ones of the shorter tensors."""
    made = np.full((len(values), max(map(len, values)), *values[0].shape[1:]), np.nan)
    for whole, each in zip(made, values, strict=True):
        whole[: len(each)] = each
    return made


def versions() -> dict[str, str]:
    """Versions of cocos and of PyTorch, as attributes."""
    return {"cocos": cocos.__version__, "torch": torch.__version__.split("+")[0]}


def _plain(value):
    """A parameter as JSON has it; what JSON does not have, infinity too, as text."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, Real) and not isinstance(value, bool):
        return float(value) if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, bool | str) else str(value)


def about_weights(attrs: dict) -> str:
    """One sentence on what the weights of a Dataset are; empty where they are the derivative, by a closed form."""
    return WEIGHTS.get("influence" if attrs.get("weights") == "influence" else attrs.get("gradient"), "")


def above(attrs: dict, eps: float | None = None) -> str:
    """When a negative contributes, in words: `probability above 1 %`. What a share is decides (docs/eps.md).

    Args:
        attrs: of a Dataset.
        eps: smallest share that contributes; None: that of the attributes.
    """
    eps = float(attrs["eps"] if eps is None else eps)
    percent = f"{100 * eps:.6g} %"
    return {
        "probability": f"probability above {percent}",
        "violations": "any violation" if eps < 1 else f"more than {eps:g} violations",
        "push": f"more than {percent} of the push",
    }.get(attrs.get("share"), f"weight above {percent} of its unit")


def about_unit(attrs: dict) -> str:
    """One sentence on the unit of a share; empty where it is the loss's own natural one."""
    unit = attrs.get("unit", "natural")
    said = {"own": "the unit is the loss's own", "sum": "the unit is the sum of the terms' units"}
    said |= {"push": "the unit of this loss is not known: a share is a part of the query's own push", "natural": ""}
    return said.get(unit, "the unit is " + (unit if unit.startswith("given") else f"that of {unit}, the same loss"))


def heading(data: xr.Dataset) -> str:
    """Title of a figure: the loss, what its weights are where they are not the derivative, and a word at collapse."""
    kind = about_weights(data.attrs).partition(":")[0]
    said = f"{data.attrs['loss_repr']}, {kind}" if kind else data.attrs["loss_repr"]
    return f"{said}\ncollapsed embeddings" if health.warnings(data.attrs.get("notes", "")) else said


def provenance(loss, **more) -> dict:
    """Attributes of a Dataset: the loss with all of its parameters, the options, the versions.

    There is no date among them: the same run writes the same bytes.
    """
    attrs = {
        **versions(),
        "loss": losses.name_of(loss),
        "loss_parameters": json.dumps({name: _plain(value) for name, value in losses.parameters(loss).items()}),
        "loss_repr": repr(loss),
        "gradient": loss.gradient,
        "weights": losses.traits(loss).weights,
        "metric": loss.metric,
        "unit": _unit(loss),
        "share": _share(loss),
        "loss_distribution": losses.distribution_of(loss),
    }
    return {key: value for key, value in (attrs | more).items() if value is not None}


def _unit(loss) -> str:
    """Where the unit of a weight comes from: `natural`, `own`, `sum`, `push`, `given: 3`, or the loss that it is."""
    source = losses.traits(loss).unit_from
    return f"given: {loss.unit_:g}" if source == "given" else source


def _share(loss) -> str:
    """What a share is: a `probability`, a number of `violations`, a part of the `push`, or of the `unit`."""
    traits = losses.traits(loss)
    if traits.unit_from == "push":
        return "push"
    loss = traits.twin or loss
    return losses.traits(loss).share or ("violations" if isinstance(loss, losses.Hinge) else "unit")


def _mean(values: np.ndarray, where: np.ndarray, axis) -> np.ndarray:
    """Mean of the values that are known in a mask, NaN where there is none."""
    where = where & ~np.isnan(values)
    number = where.sum(axis=axis)
    total = np.where(where, values, 0).sum(axis=axis)
    return np.divide(total, number, out=np.full(np.shape(total), np.nan), where=number > 0)


def _statistics(values: Mapping[str, np.ndarray], axis, *, zero_when_idle: bool = False) -> dict[str, np.ndarray]:
    """The entries of `BATCH` over the queries of each batch, or of all of them: a mean over no query is missing.

    Args:
        values: of the queries, by the names of `QUERY`, NaN where there is no query.
        axis: one or several, that the queries are along.
        zero_when_idle: `eq7_mean` without any count is 0 instead of missing.
    """
    counted = values["contributing"]
    every = ~np.isnan(counted)
    result = {
        "contributing_mean": _mean(counted, counted > 0, axis),
        "contributing_sum": np.where(every, counted, 0).sum(axis=axis),
        "contributing_all": _mean(counted, every, axis),
        "idle": (counted == 0).sum(axis=axis),
    }
    for name in ("relative", "weight_above", "weight_below", "weight_positive"):
        if f"{name}_per_query" in values:  # a file of an earlier version has no `relative`
            result[name] = _mean(values[f"{name}_per_query"], every, axis)
    for name in SPREAD:
        if f"{name}_per_query" in values:  # n90 is there where it was asked for
            result[name] = _mean(values[f"{name}_per_query"], values["effective_per_query"] > 0, axis)
    if "eq7_per_query" in values:
        eq7 = values["eq7_per_query"]
        found = _mean(eq7, eq7 > 0, axis)
        result["eq7_mean"] = np.nan_to_num(found, nan=0.0) if zero_when_idle else found
        result["eq7_sum"] = np.where(np.isnan(eq7), 0, eq7).sum(axis=axis)
        result["eq7_idle"] = (eq7 == 0).sum(axis=axis)
    return result


def _of_queries(
    records: dict[str, list[dict[str, torch.Tensor]]], sizes: dict[str, list[int]] | None = None
) -> dict[str, np.ndarray]:
    """Statistics by their names, (direction, batch, query), NaN where a batch has fewer queries than the largest."""
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


def _labelled(
    values: dict[str, np.ndarray], about: dict[str, tuple[str, str]], directions: list[str], attrs: dict
) -> xr.Dataset:
    """A Dataset of arrays over direction, batch and query: as many of these dims as an array has; (batch,) for one."""
    dims, variables = ("direction", "batch", "query"), {}
    for name, array in values.items():
        said = dict(zip(("long_name", "units"), about[name], strict=True)) if name in about else {}
        variables[name] = xr.Variable(dims[: array.ndim] if array.ndim > 1 else ("batch",), array, said)
    _, batches, width = values["contributing"].shape
    coords = {
        "direction": directions,
        "batch": xr.Variable("batch", np.arange(batches), {"long_name": "training batch"}),
        "query": xr.Variable("query", np.arange(width), {"long_name": "place in the batch"}),
    }
    return xr.Dataset(variables, coords=coords, attrs=attrs)


def count(
    records: dict[str, list[dict[str, torch.Tensor]]],
    same_group_pairs: list[int],
    attrs: dict,
    *,
    zero_when_idle: bool,
    sizes: dict[str, list[int]] | None = None,
) -> xr.Dataset:
    """Label the counts of a run.

    Args:
        records: direction -> one entry a batch, or a stack of batches -> statistic -> (queries of all of them,).
        same_group_pairs: of every batch, unordered pairs of rows that are of one group.
        attrs: provenance.
        zero_when_idle: `eq7_mean` of a batch without any count is 0 (as published) instead of missing.
        sizes: direction -> queries of every batch, in the order of the entries; None: each entry is one batch.

    Returns:
        Per query, dims (direction, batch, query): `contributing` and its kin, NaN where a batch has fewer queries than
        the largest one. Per batch, dims (direction, batch): the entries of the published tables.
    """
    values = _of_queries(records, sizes)
    values = {name if name in QUERY else f"{name}_per_query": array for name, array in values.items()}
    values |= _statistics(values, 2, zero_when_idle=zero_when_idle)
    values["queries"] = (~np.isnan(values["contributing"])).sum(axis=2)
    values["same_group_pairs"] = np.asarray(same_group_pairs, dtype=np.int64)
    return _labelled(values, QUERY | BATCH | OF_EACH_BATCH, list(records), attrs)


def with_metrics(data: xr.Dataset, metrics: dict[str, dict[str, float]], singles: dict[str, float]) -> xr.Dataset:
    """Counts with retrieval metrics beside them, (direction,), under the names of `RETRIEVAL`.

    Args:
        data: counts.
        metrics: direction -> metric -> value.
        singles: metric -> value, of no single direction.
    """
    names = next(iter(metrics.values()))
    more = {name: ("direction", [values[name] for values in metrics.values()]) for name in names} | singles
    data = data.assign(more)
    for name in more:
        kind, _, k = name.partition("@")
        long_name, units = RETRIEVAL.get(name) or RETRIEVAL[f"{kind}@k"]
        data[name].attrs.update(long_name=long_name.format(k=k), units=units)
    return data


def _metrics(data: xr.Dataset) -> dict:
    """The retrieval metrics among counts, as plain data; empty without any."""
    named = [name for name in data if name in RETRIEVAL or f"{name.partition('@')[0]}@k" in RETRIEVAL]
    found = [name for name in named if data[name].dims in {(), ("direction",)}]
    if not found:
        return {}
    directions = {
        str(name): {key: float(data[key].sel(direction=name)) for key in found if data[key].dims}
        for name in data["direction"].values
    }
    return {"metrics": {"directions": directions, **{key: float(data[key]) for key in found if not data[key].dims}}}


def _spread(values: xr.DataArray) -> dict[str, float | None]:
    """Mean and population deviation over the batches that have a value; None where no batch has one."""
    found = values.values[np.isfinite(values.values)].astype(np.float64)
    if not len(found):
        return {"mean": None, "std": None}
    return {"mean": float(found.mean()), "std": float(found.std())}


def _full(data: xr.Dataset) -> np.ndarray:
    """Which batches hold as many rows as were asked for, (batch,); all of them where none does.

    A batch of pairs is as large as its larger side; the candidates of other batches are not counted.
    """
    queries = data["queries"]
    rows = queries.max("direction") if data.attrs["sample"] == "pairs" else queries.isel(direction=0)
    full = rows.values >= int(data.attrs["batch_size"])
    return full if full.any() else np.ones_like(full)


def _deviation(values: np.ndarray) -> float | None:
    """Population deviation of the values that are known; None where there are fewer than two."""
    found = values[np.isfinite(values)].astype(np.float64)
    return float(found.std()) if len(found) > 1 else None


def _whole(one: xr.Dataset, full: np.ndarray) -> dict[str, dict[str, float | None]]:
    """The entries of one direction in the convention `standard`.

    The mean of what a query has is over all queries drawn, so that a batch weighs what it holds. The mean of what a
    batch has, and every deviation, is over the full batches alone; one batch has no deviation.
    """
    over, entries = _statistics({str(name): one[name].values for name in one if one[name].ndim == 2}, (0, 1)), {}
    for name in BATCH:
        if name in one:
            batches = one[name].values[full]
            mean = float(batches.mean() if name in OF_BATCHES else over[name])
            entries[name] = {"mean": mean if math.isfinite(mean) else None, "std": _deviation(batches)}
    return entries


def summary(data: xr.Dataset) -> dict:
    """The counts of a Dataset as the JSON document of `cocos count --json`.

    Entries are mean and deviation as the convention has them: over batches as published, and otherwise over the queries
    and the full batches; `n90` is None unless it was asked for. `batch_queries` is what `idle` is counted of: queries
    of a batch, of the mean one where they differ.
    """
    attrs = data.attrs
    without, directions = data["idle"] == data["queries"], {}
    full = _full(data) if attrs["convention"] == "standard" else np.ones(data.sizes["batch"], dtype=bool)
    for name in data["direction"].values:
        one = data.sel(direction=name)
        if attrs["convention"] == "standard":
            entry = _whole(one, full)
        else:
            entry = {key: _spread(one[key]) for key in BATCH if key in one}
        entry.setdefault("n90", None)
        entry["queries"] = int(one["queries"].sum())
        entry["active_queries"] = int((one["contributing"] > 0).sum())
        entry["batch_queries"] = float(one["queries"].values[full].mean())
        entry["batches_without_active_queries"] = int(without.sel(direction=name).sum())
        entry |= {key: int(one[key].sum()) for key in ("uncertain", "relative_uncertain") if key in one}
        directions[str(name)] = entry
    return {
        "cocos": attrs["cocos"],
        "checkpoint": {key: attrs.get(f"checkpoint_{key}", "") for key in ("path", "sha256", "format")},
        "loss": {"name": attrs["loss"], "parameters": json.loads(attrs["loss_parameters"])},
        "gradient": attrs["gradient"],
        "weights": attrs["weights"],
        "unit": attrs.get("unit", "natural"),
        "share": attrs.get("share", "unit"),
        "eps": float(attrs["eps"]),
        "convention": attrs["convention"],
        "batches": int(data.sizes["batch"]),
        "full_batches": int(full.sum()),
        "health": json.loads(attrs["health"]),
        "batch_size": int(attrs["batch_size"]),
        "seed": int(attrs["seed"]),
        "device": attrs["device"],
        "dtype": attrs["dtype"],
        "sample": attrs["sample"],
        "same_group": attrs["same_group"],
        "same_group_pairs": int(data["same_group_pairs"].sum()),
        "not_drawn": [line for line in attrs.get("undrawn", "").splitlines() if line],
        "batches_without_active_queries": int(without.any("direction").sum()),
        "directions": directions,
        **_metrics(data),
    }


def writable(path: Path) -> Path:
    """Refuse an output before anything is computed.

    Raises:
        InputError: a suffix other than .nc, or a folder that is missing or cannot be written.
    """
    path = Path(path)
    if len(os.fsencode(path.name)) > 255:
        raise InputError(f"output {path}: the name is too long for a file")
    if path.suffix != ".nc":
        raise InputError(f"output {path}: suffix {path.suffix!r}, expected .nc (netCDF)")
    try:
        folder, there = path.is_dir(), path.parent.is_dir()
    except OSError as error:
        raise InputError(f"output {path}: {unreachable(error)}") from None
    if folder:
        raise InputError(f"output {path} is a folder; name a file in it, like {path / 'count.nc'}")
    if not there:
        raise InputError(f"output {path}: there is no folder {path.parent}; create it first")
    writing.writable(path.parent, f"output {path}")
    return path


def _hashed(data: xr.Dataset) -> xr.Dataset:
    """The same with the sha256 of a file that was mapped, and so not read, when it was opened.

    Raises:
        InputError: the file is no longer what it was.
    """
    if "checkpoint_mapped" not in data.attrs:
        return data
    attrs = dict(data.attrs)
    size, time = map(int, attrs.pop("checkpoint_mapped").split())
    file = Mapped(Path(attrs["checkpoint_path"]), size, time)
    file.unchanged()
    with open(file.path, "rb") as stream:
        attrs["checkpoint_sha256"] = hashlib.file_digest(stream, "sha256").hexdigest()
    file.unchanged()
    made = data.copy(deep=False)
    made.attrs = attrs
    return made


def save(data: xr.Dataset, path: Path) -> Path:
    """Write a Dataset as netCDF-4, whole or not at all: under a temporary name first, then moved into place.

    Of a mapped file of embeddings the sha256 is taken here.

    Raises:
        InputError: the file cannot be written.

    Examples:
        >>> import pathlib, tempfile
        >>> data = cocos.measures.weight_curve("triplet", points=5)
        >>> path = cocos.results.save(data, pathlib.Path(tempfile.mkdtemp(), "curve.nc"))
        >>> cocos.results.open_dataset(path).equals(data)
        True
    """
    path, data = writable(path), _hashed(data)
    encoding = {name: PACKED for name, v in data.data_vars.items() if v.ndim}
    return writing.write(path, data.to_netcdf(engine="h5netcdf", encoding=encoding))


def open_dataset(path: Path) -> xr.Dataset:
    """Read a Dataset that `save` wrote, into memory.

    Raises:
        InputError: there is no such file, or it is damaged.

    Examples:
        >>> import pathlib, tempfile
        >>> data = cocos.measures.weight_curve("triplet", points=5)
        >>> path = cocos.results.save(data, pathlib.Path(tempfile.mkdtemp(), "curve.nc"))
        >>> cocos.results.open_dataset(path).attrs["loss"]
        'triplet'
    """
    import h5py  # only where a file is read

    try:
        with h5py.File(path):  # h5netcdf prints a traceback at the end of the run over a file that is none
            pass
        with xr.open_dataset(path, engine="h5netcdf") as data:
            return data.load()
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except (OSError, ValueError, KeyError, RuntimeError) as error:  # h5py has one for each kind of damage
        reason = str(error).partition("\n")[0][:120] or type(error).__name__
        raise InputError(f"{path} is no result of cocos, or a damaged one ({reason}); write it again") from None


def contributed(data: xr.Dataset, labels: Callable[[int], str] | None = None, query: str | None = None) -> dict:
    """The candidates of one query as the JSON document of `cocos query --json`.

    Args:
        data: of `cocos.measures.contributors`.
        labels: row of a candidate -> its text.
        query: text of the query.
    """
    attrs, listed = data.attrs, []
    for place in range(data.sizes["candidate"]):
        entry = {name: data[name].values[place].item() for name in data.data_vars}
        entry = {"row": entry.pop("candidate_index")} | entry
        listed.append(entry | ({"text": labels(entry["row"])} if labels else {}))
    return {
        "cocos": attrs["cocos"],
        "checkpoint": {key: attrs.get(f"checkpoint_{key}", "") for key in ("path", "sha256", "format")},
        "loss": {"name": attrs["loss"], "parameters": json.loads(attrs["loss_parameters"])},
        "gradient": attrs["gradient"],
        "unit": attrs.get("unit", "natural"),
        "share": attrs.get("share", "unit"),
        "eps": float(attrs["eps"]),
        "health": {"collapsed": bool(health.warnings(attrs["notes"]))},
        "query": {"row": int(attrs["row"]), "group": int(attrs["group"]), "direction": attrs["direction"]}
        | ({"text": query} if query is not None else {}),
        **{name: int(attrs[name]) for name in ("batch", "batches", "batch_size", "seed")},
        **{name: attrs[name] for name in ("sample", "same_group", "dtype", "device")},
        "totals": {name: float(attrs[name]) for name in ("push", "pull", "effective")}
        | {name: int(attrs[name]) for name in TOTALS if name in attrs},
        "candidates": listed,
    }


def minimum(data: xr.Dataset) -> dict:
    """A landscape as the command line prints it: proxies, and the minimum as predicted and as found.

    Args:
        data: of `cocos.measures.landscape`.

    Returns:
        Plain data; a place is (x, y), None where there is none.
    """

    def place(name: str) -> list[float] | None:
        values = data[name].values.tolist() if name in data else []
        return values if values and bool(np.isfinite(values).all()) else None

    attrs = data.attrs
    proxies = np.stack([data["proxy_x"].values, data["proxy_y"].values], axis=1)
    return {
        "cocos": cocos.__version__,
        "title": attrs["title"],
        "loss": {"name": attrs["loss"], "parameters": json.loads(attrs["loss_parameters"])},
        "proxies": proxies.tolist(),
        "distance": float(attrs["distance"]),
        "predicted": place("predicted"),
        "found": place("found"),
        **{name: attrs.get(name) for name in ("predicted_as", "found_as", "gap", "lemma")},
    }


def distances(data: xr.Dataset) -> dict:
    """Distances to proxies as the JSON document of `cocos dtp --json`; None for an alpha that is not known."""
    runs, attrs = {}, data.attrs
    for name in data["run"].values:
        one = data.sel(run=name)
        alpha = float(one["alpha"])
        runs[str(name)] = {
            "files": int(data.sizes["step"]),
            "first": float(one["average"][0]),
            "last": float(one["average"][-1]),
            "last_5": float(one["low"][-1]),
            "last_95": float(one["high"][-1]),
            "alpha": alpha if math.isfinite(alpha) else None,
            "average": one["average"].values.tolist(),
        }
    return {
        "cocos": attrs["cocos"],
        "metric": attrs["metric"],
        "classes": int(data.sizes["class"]),
        "steps": data["step"].values.tolist(),
        "runs": runs,
        "alpha_correlation": attrs.get("alpha_correlation"),
    }


def _worst_case(values: xr.DataArray) -> str | None:
    """Name of the case with the largest value; None where all are 0 or none is known."""
    known = values.dropna("case")
    return str(known["case"].values[known.values.argmax()]) if len(known) and float(known.max()) > 0 else None


def verdict(data: xr.Dataset) -> dict:
    """What `verify` found, as plain data; None where a question does not apply."""

    def number(value) -> float | None:
        return float(value) if np.isfinite(value) else None

    worst = {name: data[name].where(np.isfinite(data[name])).max("case") for name in ("gap", "error")}
    return {
        "loss": {"name": data.attrs["loss"], "parameters": json.loads(data.attrs["loss_parameters"])},
        "gradient": data.attrs["gradient"],
        "verdict": data.attrs["verdict"],
        "faults": data.attrs["faults"].splitlines(),
        "notes": data.attrs["notes"].splitlines(),
        "cases": int(data.sizes["case"]),
        **{name: {str(d): number(each.sel(dtype=d)) for d in data["dtype"].values} for name, each in worst.items()},
        "gap_on": _worst_case(data["gap"].sel(dtype="float64")),
        "finite_difference": number(data["finite_difference"].max()),
        "peer": {name: number(data.attrs[f"peer_{name}"]) for name in ("value", "gradient")},
        "largest": number(data["largest"].max()),
    }


def decomposition(records: dict[str, list[dict[str, torch.Tensor]]], attrs: dict) -> xr.Dataset:
    """Label what the gradients of a run are made of.

    Args:
        records: direction -> one entry a batch -> statistic -> (queries of the batch,).
        attrs: provenance.

    Returns:
        Per query, dims (direction, batch, query), in the order of `DECOMPOSITION`, NaN where a statistic is not
        defined and where a batch has fewer queries than the largest one; and `queries` (direction, batch).
    """
    found = _of_queries(records)
    values = {name: found[name] for name in (*DECOMPOSITION, "negatives", "query_index") if name in found}
    values["queries"] = (~np.isnan(found["contributing"])).sum(axis=2)
    data = _labelled(values, QUERY | DECOMPOSITION | OF_EACH_BATCH, list(records), attrs)
    return data


def decomposed(data: xr.Dataset) -> dict:
    """A decomposition as the JSON document of `cocos decompose --json`.

    An entry is the mean over all queries for which the statistic is defined, and the deviation over the full batches of
    their own means; one batch has no deviation.
    """
    attrs, named = data.attrs, data[[name for name in DECOMPOSITION if name in data]]
    whole, means, full = named.mean(("batch", "query")), named.mean("query"), _full(data)

    def entry(key: str, name: str) -> dict[str, float | None]:
        mean, batches = (each[key].sel(direction=name).values for each in (whole, means))
        return {"mean": float(mean) if np.isfinite(mean) else None, "std": _deviation(batches[full])}

    return {
        "cocos": attrs["cocos"],
        "checkpoint": {key: attrs.get(f"checkpoint_{key}", "") for key in ("path", "sha256", "format")},
        "loss": {"name": attrs["loss"], "parameters": json.loads(attrs["loss_parameters"])},
        "gradient": attrs["gradient"],
        "metric": attrs["metric"],
        "eps": float(attrs["eps"]),
        "batches": int(data.sizes["batch"]),
        "full_batches": int(full.sum()),
        "health": json.loads(attrs["health"]),
        "batch_size": int(attrs["batch_size"]),
        "seed": int(attrs["seed"]),
        "device": attrs["device"],
        "dtype": attrs["dtype"],
        "sample": attrs["sample"],
        "same_group": attrs["same_group"],
        "directions": {str(name): {key: entry(key, name) for key in named} for name in data["direction"].values},
    }


def health_of(found: dict, attrs: dict) -> xr.Dataset:
    """Label how embeddings are, (side,), and what reaches some of them, (direction,).

    Args:
        found: of `cocos.health.report`.
        attrs: provenance.
    """
    variables = {}
    for dim, entries in (("side", found["sides"]), ("direction", found["directions"])):
        for name in {"side": SIDE, "direction": REACHING}[dim]:
            values = [None if each is None else each[name] for each in entries.values()]
            kind = bool if name == "collapsed" else np.float64
            variables[name] = (dim, np.array([np.nan if value is None else value for value in values], dtype=kind))
    data = xr.Dataset(
        variables,
        coords={"side": list(found["sides"]), "direction": list(found["directions"])},
        attrs=attrs | {"health": json.dumps(found)},
    )
    for name, (long_name, units) in (SIDE | REACHING).items():
        data[name].attrs.update(long_name=long_name, units=units)
    return data


def evaluate(
    records: dict[str, dict[str, list[dict[str, float]]]],
    singles: dict[str, dict[str, list[float]]],
    sizes: dict[str, list[int]],
    attrs: dict,
) -> xr.Dataset:
    """Label the retrieval metrics of a run.

    Args:
        records: `without` and `with` distractors -> direction -> one entry a fold -> metric -> value.
        singles: the same -> what belongs to no single direction -> one value a fold.
        sizes: what is counted over all folds -> one number a direction.
        attrs: provenance.

    Returns:
        Dims (distractors, direction, fold), (distractors, fold) and (direction,), under the names of `RETRIEVAL`.
    """
    first = next(iter(records.values()))
    names = next(iter(first.values()))[0]
    variables = {
        name: (
            ("distractors", "direction", "fold"),
            [[[entry[name] for entry in entries] for entries in one.values()] for one in records.values()],
        )
        for name in names
    }
    variables |= {
        name: (("distractors", "fold"), [one[name] for one in singles.values()])
        for name in next(iter(singles.values()))
    }
    variables |= {name: ("direction", values) for name, values in sizes.items()}
    data = xr.Dataset(
        variables,
        coords={"distractors": list(records), "direction": list(first), "fold": np.arange(int(attrs["folds"]))},
        attrs=versions() | attrs,
    )
    for name in data.data_vars:
        kind, _, k = name.partition("@")
        long_name, units = RETRIEVAL.get(name) or RETRIEVAL[f"{kind}@k"]
        data[name].attrs.update(long_name=long_name.format(k=k), units=units)
    return data


def evaluated(data: xr.Dataset) -> dict:
    """Retrieval metrics as the JSON document of `cocos evaluate --json`: mean and deviation over the folds."""
    attrs, blocks = data.attrs, {}
    for condition in data["distractors"].values:
        one = data.sel(distractors=condition)
        blocks[str(condition)] = {
            "directions": {
                str(name): {
                    key: _spread(one[key].sel(direction=name)) for key in one if one[key].dims == ("direction", "fold")
                }
                for name in data["direction"].values
            },
            **{key: _spread(one[key]) for key in one if one[key].dims == ("fold",)},
        }
    whole = blocks["without"]
    for key in ("left_out", "unmatched"):
        for name, entry in whole["directions"].items():
            entry[key] = int(data[key].sel(direction=name))
    return {
        "cocos": attrs["cocos"],
        "checkpoint": {key: attrs.get(f"checkpoint_{key}", "") for key in ("path", "sha256", "format")},
        "split": attrs.get("split"),
        "health": json.loads(attrs["health"]),
        "metric": attrs["metric"],
        "k": [int(k) for k in attrs["k"].split(",")],
        "folds": int(attrs["folds"]),
        "ties": attrs["ties"],
        "seed": int(attrs["seed"]),
        "device": attrs["device"],
        **whole,
        **({"with_distractors": blocks["with"]} if "with" in blocks else {}),
    }
