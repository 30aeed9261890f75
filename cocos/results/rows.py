"""A result becomes one run of a table, and runs become a table: what comparisons of many trainings read.

A table of runs is a Dataset with the dim `run`, and `step` where runs have several checkpoints. Its coordinates along
`run` say what a run is: `family`, the loss that is counted; `config`, the setting without the seed; and any others.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from cocos.base.errors import InputError
from cocos.counting.averages import full_batches
from cocos.counting.statistics import BATCH_NUMBERS, BY_NAME, Number

TABLE_TITLE = "Table of runs"
# Variables of an evaluation and of a run that are sizes of the data.
SIZES_OF_DATA = ("candidates", "left_out", "unmatched", "rows", "evaluated", "width")
# Means over the directions that have a name of their own.
BOTH_DIRECTIONS = {"contributing": "contributing_all", "r1": "R@1"}
# Splits whose counts, and whose metrics, have names without an ending.
UNMARKED_SPLITS = {"counts": "train", "metrics": "test"}


def row(data: xr.Dataset) -> xr.Dataset:
    """Make one run of a table out of a result of count, evaluate or run, or of the store of a monitor.

    Numbers keep their names and directions; `contributing` is the mean over all queries of all directions, and `r1`
    that of R@1. Counts of a split other than train, and metrics of one other than test, end in its name, as in
    `contributing_val` and `rsum_train`, where the file names splits. Several checkpoints are along `step`.

    Args:
        data: a Dataset of `cocos.measures.count` (of one loss), `evaluate` or `run`, or what `cocos.results.open`
            reads from a store.

    Returns:
        A Dataset without the dim run, with the coordinates `family` and `config` where a loss is counted, `batch_size`
        and `sha256` where they are known. `cocos.results.concat` makes a table of several.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> data = cocos.measures.count(embeddings, "triplet", batch_size="all", metrics=True)
        >>> one = cocos.results.row(data)
        >>> float(one["contributing"]), float(one["rsum"]), str(one["family"].values)
        (0.0, 600.0, 'triplet')
    """
    title = data.attrs.get("title", "no title")
    if "run" in data.dims:
        raise InputError(f"row: {title}, a table of {data.sizes['run']} runs already; concat takes it as it is")
    if "loss" in data.dims:
        raise InputError(f"row: a count of {data.sizes['loss']} losses, expected one; take data.sel(loss=...)")
    if "distractors" in data.dims:
        found = _of_evaluation(data)
    elif "checkpoint" in data.dims or "step" in data.dims:
        found = _of_steps(data)
    elif "batch" in data.dims and "contributing_all" in data:
        found = _of_count(data)
    else:
        raise InputError(f"row: {title}, expected a Dataset of count, evaluate or run, or the store of a monitor")
    found = found | _both_directions(found)
    made = xr.Dataset(found, attrs={key: data.attrs[key] for key in ("cocos", "torch") if key in data.attrs})
    return made.assign_coords(_coordinates(data)).assign_attrs(title="One run")


def _coordinates(data: xr.Dataset) -> dict[str, Any]:
    """Coordinates of a run: family and config of the loss, batch size, sha256 of the checkpoint."""
    attrs = data.attrs
    known: dict[str, Any] = {}
    if "loss" in attrs:
        values = json.loads(attrs.get("loss_parameters", "{}"))
        said = [str(attrs["loss"]), *(f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
                                      for name, value in values.items())]  # fmt: skip
        said += [f"batch={attrs['batch_size']}"] if "batch_size" in attrs else []
        known |= {"family": str(attrs["loss"]), "config": " ".join(said)}
    if "batch_size" in attrs:
        known["batch_size"] = int(attrs["batch_size"])
    sha = str(attrs.get("checkpoint_sha256", "")).strip()
    return known | ({"sha256": sha} if sha and "\n" not in sha else {})


def _ending_of_split(data: xr.Dataset, kind: str) -> str:
    """Ending of the names of counts or metrics: `_val` and the like, where the file has splits."""
    split = str(data.attrs.get("split", ""))
    known = split and data.attrs.get("checkpoint_format") != "embeddings"
    return f"_{split}" if known and split != UNMARKED_SPLITS[kind] else ""


def _number(values: xr.DataArray) -> bool:
    return values.dtype.kind in "fiub"


def _both_directions(found: Mapping[str, xr.DataArray]) -> dict[str, xr.DataArray]:
    """Means over the directions, of every split."""
    made = {}
    for name, source in BOTH_DIRECTIONS.items():
        for key in (key for key in found if key == source or key.startswith(f"{source}_")):
            if "direction" in found[key].dims:
                directions = found[key]["direction"].values.tolist()
                # Of samples with class proxies, recall is that among samples.
                some = ["s2s"] if "s2s" in directions else directions
                whole = found[key].sel(direction=some).mean("direction", keep_attrs=True)
                whole.attrs["long_name"] = f"{whole.attrs.get('long_name', key)}, mean of the directions"
                made[name + key.removeprefix(source)] = whole
    return made


def _of_count(data: xr.Dataset) -> dict[str, xr.DataArray]:
    """Numbers of a count, as its JSON document has them: means over queries, of totals over full batches."""
    standard, ending = data.attrs.get("convention", "standard") == "standard", _ending_of_split(data, "counts")
    full, along = xr.Variable("batch", full_batches(data)), {"direction": data["direction"]}
    made = {}
    for key, values in ((str(key), each) for key, each in data.data_vars.items() if _number(each)):
        found = values.variable  # without labels, which are the same of all: five times as fast
        if values.dims == ("direction", "batch"):
            if not standard:
                mean = found.mean("batch")
            elif key == "queries" or (key in BATCH_NUMBERS and BATCH_NUMBERS[key].how == "sum"):
                mean = found.where(full).mean("batch")
            else:
                number = _weight(data, key)
                total = number.where(found.notnull()).sum("batch")
                mean = (found * number).sum("batch") / total.where(total > 0)
            made[f"{key}{ending}"] = xr.DataArray(mean, along, attrs=values.attrs)
        elif key == "negatives":
            made[f"{key}{ending}"] = xr.DataArray(found.mean(["batch", "query"]), along, attrs=values.attrs)
        elif set(values.dims) <= {"direction"}:
            made[f"{key}{_ending_of_split(data, 'metrics')}"] = values
    return made


def _weight(data: xr.Dataset, name: str) -> xr.Variable:
    """Weight of each batch in the mean of a number: its queries, or those that the number is a mean of."""
    number = BATCH_NUMBERS.get(name, Number())
    if number.by in data:
        return data[number.by].variable.sum("query")
    where = {"any": BY_NAME[number.of].variable, "pushed": "effective_per_query"}.get(number.over) if number.of else ""
    return (data[where].variable > 0).sum("query") if where in data else data["queries"].variable


def _of_evaluation(data: xr.Dataset) -> dict[str, xr.DataArray]:
    """Metrics without distractors, mean over the folds."""
    one, ending = data.sel(distractors="without", drop=True), _ending_of_split(data, "metrics")
    left = (*SIZES_OF_DATA, "queries")
    return {
        f"{key}{ending}": values.mean("fold", keep_attrs=True)
        for key, values in ((str(key), each) for key, each in one.data_vars.items())
        if "fold" in values.dims and _number(values) and key not in left
    }


def _of_steps(data: xr.Dataset) -> dict[str, xr.DataArray]:
    """Numbers at the checkpoints of a run, or at the records of a store; of the largest width, the last of a step."""
    data = data.rename(checkpoint="step") if "checkpoint" in data.dims else data
    data = data.sel(width=data["width"].max(), drop=True) if "width" in data.dims else data
    data = data.isel(step=~data.indexes["step"].duplicated(keep="last"))
    numbers = {
        str(key): values
        for key, values in data.data_vars.items()
        if set(values.dims) in ({"step"}, {"step", "direction"}) and _number(values) and key not in SIZES_OF_DATA
    }
    return {{"contributing": "contributing_all"}.get(key, key): values for key, values in numbers.items()}


def concat(rows: Sequence[xr.Dataset], **coordinates: Any) -> xr.Dataset:
    """Stack runs, and tables of runs, into one table; a number that a run lacks is NaN.

    Where only some runs have steps, the others stand at the last step of all.

    Args:
        rows: of `row`, or tables.
        **coordinates: along `run`: one value for each run, in their order, or one for all; such as `seed=[0, 1, 2]`,
            `config=[...]` or `data="captions"`.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> losses = ["triplet", "ntxent"]
        >>> rows = [cocos.results.row(cocos.measures.count(embeddings, loss, batch_size="all")) for loss in losses]
        >>> table = cocos.results.concat(rows, seed=0)
        >>> table["family"].values.tolist(), table["contributing"].dims, table["seed"].values.tolist()
        (['triplet', 'ntxent'], ('run',), [0, 0])
    """
    if not rows:
        raise InputError("concat: no runs, expected one at least")
    tables = [each if "run" in each.dims else each.expand_dims("run") for each in rows]
    tables = _at_the_last_step([each.drop_vars("run", errors="ignore") for each in map(_along_run, tables)])
    kinds: dict[str, bool] = {}  # whether a coordinate is text in any table
    for each in tables:
        for key in (str(key) for key in each.coords if each[key].dims == ("run",)):
            kinds[key] = kinds.get(key, False) or each[key].dtype.kind in "UO"
    filled = [_with_every_coordinate(each, kinds) for each in tables]
    made = xr.concat(filled, "run", data_vars="all", coords="different", compat="equals", join="outer",
                     combine_attrs="override")  # fmt: skip
    number = made.sizes["run"]
    for name, given in coordinates.items():
        if name in made.data_vars or name in made.dims:
            raise InputError(f"concat: {name} is a number or a dimension of the runs, expected a new coordinate")
        values = np.full(number, given) if np.ndim(given) == 0 else np.asarray(given)
        if values.shape != (number,):
            raise InputError(f"concat: {name} has {len(values)} values, expected one for each of {number} runs, or one")
        made = made.assign_coords({name: ("run", values)})
    return made.transpose("run", "step", ..., missing_dims="ignore").assign_attrs(title=TABLE_TITLE)


def _along_run(table: xr.Dataset) -> xr.Dataset:
    """Put single values, which `expand_dims` leaves alone, along the runs."""
    single = [key for key in table.coords if not table[key].dims]
    return table.assign_coords({key: ("run", np.full(table.sizes["run"], table[key].values)) for key in single})


def _at_the_last_step(tables: Sequence[xr.Dataset]) -> list[xr.Dataset]:
    """Put runs without steps at the last step of the others, for the numbers that these have at steps."""
    steps = [int(each["step"].max()) for each in tables if "step" in each.dims and each.sizes["step"]]
    if not steps:
        return list(tables)
    moving = {key for each in tables for key, values in each.data_vars.items() if "step" in values.dims}
    return [
        each
        if "step" in each.dims
        else each.assign({key: each[key].expand_dims(step=[max(steps)]) for key in each.data_vars if key in moving})
        for each in tables
    ]


def _with_every_coordinate(table: xr.Dataset, kinds: Mapping[str, bool]) -> xr.Dataset:
    """Complete the coordinates along the runs: without a value, an empty text or NaN."""
    number, missing = table.sizes["run"], {}
    for key, text in kinds.items():
        if key not in table.coords:
            missing[key] = ("run", np.full(number, "" if text else np.nan))
        elif text:
            missing[key] = ("run", table[key].values.astype(str))
    return table.assign_coords(missing)
