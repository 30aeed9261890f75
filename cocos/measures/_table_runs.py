"""Runs of a table of a paper, read from tables of runs and from results of `count` and `evaluate`."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from cocos import losses, results
from cocos.base.errors import InputError
from cocos.measures._papers import PRINTED_DIRECTIONS, PaperColumn, PaperTable
from cocos.measures.count import document as counts_of
from cocos.measures.evaluate import document as metrics_of
from cocos.results import several

# Coordinates of a table of runs that tell settings apart where `config` leaves them out.
VARIED_SETTINGS = ("mask", "arm", "k", "rate", "batch_size")
# Kinds of a share that a table of counts knows; losses of another kind stand in the first one.
COUNTED_SHARES = ("violations", "probability", "unit")

# A value and its deviation over the batches or folds of the run, NaN where there is none.
Value = tuple[float, float]


@dataclass(frozen=True)
class TableRun:
    """The values of one run.

    Args:
        label: of its row; runs that differ in the seed alone share it.
        family: name of its loss, or empty.
        convention: of its counts, or empty.
        place: of a table `across`, the value of that coordinate.
        seed: None where it is not known.
        values: key of the column -> value.
    """

    label: str
    family: str = ""
    convention: str = ""
    place: str = ""
    seed: int | None = None
    values: Mapping[str, Value] = field(default_factory=dict)


def _named(direction: str | None, there: Sequence[str]) -> str | None:
    """The direction of a result that a column reads: that of its name, or the one in its place; None: there is none.

    A column without a direction reads the only one of labelled samples.
    """
    if direction is None:
        return there[0] if len(there) == 1 else None
    if direction in there:
        return direction
    place = PRINTED_DIRECTIONS.index(direction)
    other = set(PRINTED_DIRECTIONS).isdisjoint(there) and place < len(there)
    return there[place] if other else None


def _value(entry: Any) -> Value:
    """A number of a document, with its deviation where it has one."""
    if isinstance(entry, dict):
        return tuple(math.nan if entry[key] is None else float(entry[key]) for key in ("mean", "std"))
    return (math.nan if entry is None else float(entry)), math.nan


def _of_document(found: Mapping[str, Any], columns: Sequence[PaperColumn]) -> dict[str, Value]:
    """Values of the columns in a document of `count` or `evaluate`; a column that it lacks is left out."""
    values = {}
    for column in columns:
        block = found.get("with_distractors", {}) if column.distractors else found
        where = [block, block.get("metrics", {})]
        sides = [each.get("directions", {}) for each in where]
        name = _named(column.direction, list(sides[0]))
        single = where if column.direction is None else []
        for entries in (*single, *(side.get(name, {}) for side in sides)):
            if column.variable in entries and column.key not in values:
                values[column.key] = _value(entries[column.variable])
    whole = found.get("folds") == 1  # one fold has no deviation
    return {key: (mean, math.nan if whole else std) for key, (mean, std) in values.items()}


def _of_result(data: xr.Dataset, table: PaperTable, label: str) -> TableRun:
    """The run of one result of `count` or `evaluate`."""
    counted = "contributing" in data
    found = counts_of(data) if counted else metrics_of(data)
    family = found["loss"]["name"] if "loss" in found else ""
    convention = found["convention"] if counted and table.counts else ""
    return TableRun(label, family, convention, values=_of_document(found, table.columns))


def _of_row(one: xr.Dataset, columns: Sequence[PaperColumn]) -> dict[str, Value]:
    """Values of the columns in one run of a table of runs."""
    values = {}
    for column in columns:
        if column.variable not in one:
            continue
        cell, over = one[column.variable], one.get(f"{column.variable}_over_batches")
        chosen = {}
        if "direction" in cell.dims:
            name = _named(column.direction, [str(each) for each in cell["direction"].values])
            chosen = {"direction": name}
        if "distractors" in cell.dims:
            chosen["distractors"] = "with" if column.distractors else "without"
        fits = None not in chosen.values() and (column.direction is None or "direction" in cell.dims)
        if fits and column.distractors == (chosen.get("distractors") == "with"):
            picked = [math.nan if each is None else float(each.sel(chosen)) for each in (cell, over)]
            values[column.key] = picked[0], picked[1]
    return {key: value for key, value in values.items() if not math.isnan(value[0])}


def _setting(one: xr.Dataset, varied: Sequence[str]) -> str:
    """Name of the setting of a run."""
    family = str(one.coords["family"].item()) if "family" in one.coords else ""
    parts = [str(one.coords["config"].item()) if "config" in one.coords else family]
    parts += [f"{name}={one.coords[name].item()}" for name in varied if f"{name}=" not in parts[0]]
    return " ".join(parts)


def _of_runs(data: xr.Dataset, table: PaperTable, label: str | None) -> Iterator[TableRun]:
    """Every run of a table of runs at its last step, once for each convention of counts."""
    data = data.isel(step=-1) if "step" in data.dims else data
    if "table" in data.coords:
        data = data.isel(run=np.flatnonzero(data["table"].values == table.name))
    varied = [name for name in VARIED_SETTINGS if name in data.coords and len(np.unique(data[name].values)) > 1]
    conventions = [str(name) for name in data["convention"].values] if "convention" in data.dims else [""]
    for number in range(data.sizes["run"]):
        for convention in conventions if table.counts else conventions[:1]:
            one = data.isel(run=number)
            one = one.sel(convention=convention) if convention else one
            family, seed = (one.coords[name].item() if name in one.coords else None for name in ("family", "seed"))
            place = str(one.coords[table.across].item()) if table.across in one.coords else ""
            columns = table.columns if table.across is None else table.columns[:1]
            yield TableRun(
                _setting(one, varied) if label is None else label,
                family or "",
                convention if table.counts else "",
                place,
                None if seed is None else int(seed),
                _of_row(one, columns),
            )


def _belongs(run: TableRun, table: PaperTable) -> bool:
    """Whether a table of counts is for the loss of a run; a loss that is unknown here belongs anywhere."""
    if not table.shares or losses.canonical(run.family) not in losses.names():
        return True
    share = results.share(losses.load(run.family))
    return share in table.shares or (share not in COUNTED_SHARES and table.shares == COUNTED_SHARES[:1])


def read(data: xr.Dataset, table: PaperTable, name: str, label: str | None) -> list[TableRun]:
    """Read the runs of a table from a result.

    Args:
        data: a table of runs, or a result of `count` or `evaluate`.
        table: which table they are for.
        name: of the result, for messages and as the label of a single one.
        label: of the row; None: the setting of each run, or the name.
    """
    if "run" in data.dims:
        found = list(_of_runs(data, table, label))
    elif "convention" in data.attrs or {"ties", "folds"} <= data.attrs.keys():
        parts = several.each(data)
        whole = label or name
        found = [_of_result(one, table, f"{whole}, {each}" if len(parts) > 1 else whole) for each, one in parts.items()]
    else:
        raise InputError(f"{name}: neither a table of runs nor a result of cocos count or cocos evaluate")
    if table.across is not None and found and not any(run.place for run in found):
        raise InputError(f"{name}: its runs have no coordinate {table.across!r}, which makes the rows of the table")
    chosen = [run for run in found if run.values and _belongs(run, table)]
    if not chosen:
        wanted = ", ".join(dict.fromkeys(column.variable for column in table.columns))
        there = ", ".join(dict.fromkeys(run.family for run in found if run.family))
        of = f"; it has runs of {there}" if there else ""
        more = " (count --metrics and evaluate write the first)" if table.name in {"1", "2"} else ""
        raise InputError(f"{name}: nothing for table {table.name}, which shows {wanted}{more}{of}")
    return chosen
