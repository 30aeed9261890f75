"""Concatenate the counts of slices of one draw, each counted on any machine: see `concat`."""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import xarray as xr

from cocos.base.errors import InputError
from cocos.counting import averages
from cocos.counting.statistics import BY_NAME, SOURCE_STATISTICS
from cocos.embeddings.sources import SOURCES

# Attributes in which slices of one count may differ: batches, paths, and findings of the batches.
OF_A_SLICE = {"batch_slice", "device", "checkpoint_path", "data_path", "share", "unit", "notes", "findings"}
# Attribute of the batches of a count, such as 40:80.
BATCH_SLICE = "batch_slice"


def concat(datasets: Sequence[Any]) -> Any:
    """Concatenate counts of adjacent slices of the same batches, such as `batches="0:40"` and `"40:80"`.

    The result is identical to the count of the whole slice, bit for bit on processors of one type.

    Args:
        datasets: results of `cocos.measures.count` with a slice as `batches`, in any order; of several losses, dicts
            of label -> Dataset.

    Returns:
        One Dataset, or a dict of them, as in `datasets`.

    Raises:
        InputError: a dataset is not the count of a slice, or of another loss, seed, batch size, convention or file;
            slices overlap, or batches between them are missing.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(8), 2 * torch.eye(8))
        >>> slices = [cocos.measures.count(embeddings, batch_size=2, batches=ends) for ends in ("0:1", "1:4")]
        >>> whole = cocos.measures.count(embeddings, batch_size=2, batches="0:4")
        >>> cocos.results.concat(slices).identical(whole)
        True
    """
    if not datasets:
        raise InputError("concat: no datasets, expected at least one")
    first = datasets[0]
    if isinstance(first, dict):
        for index, counts in enumerate(datasets):
            if list(counts) != list(first):
                raise InputError(f"concat: datasets[{index}] has the losses {list(counts)}, expected {list(first)}")
        return {label: concat([counts[label] for counts in datasets]) for label in first}
    for index, dataset in enumerate(datasets):
        is_slice = re.fullmatch(r"\d+:\d+", str(dataset.attrs.get(BATCH_SLICE)))
        if not is_slice or not {"batch", "query"} <= set(dataset.dims):
            raise InputError(f"concat: datasets[{index}] is not a count of a slice, expected batches A:B, like 40:80")
        start, stop = _ends(dataset)
        if dataset.sizes["batch"] != stop - start:
            raise InputError(f"concat: datasets[{index}] has {dataset.sizes['batch']} of the batches {start}:{stop}")
    for index, dataset in enumerate(datasets):
        if difference := _difference(first, dataset):
            raise InputError(f"concat: datasets[{index}] and datasets[0] are of different counts: {difference}")
    order = sorted(range(len(datasets)), key=lambda index: _ends(datasets[index]))
    for before, after in pairwise(order):
        stop, start = _ends(datasets[before])[1], _ends(datasets[after])[0]
        if start < stop:
            raise InputError(
                f"concat: datasets[{before}] has the batches {datasets[before].attrs[BATCH_SLICE]}, datasets[{after}] "
                f"{datasets[after].attrs[BATCH_SLICE]}, expected each batch once"
            )
        if start > stop:
            raise InputError(f"concat: the batches {stop}:{start} are missing")
    ends = _ends(datasets[order[0]])[0], _ends(datasets[order[-1]])[1]
    return concatenated([datasets[index] for index in order]).assign_attrs({BATCH_SLICE: f"{ends[0]}:{ends[1]}"})


def _ends(dataset: xr.Dataset) -> tuple[int, int]:
    """Return the numbers of the first batch of a slice, and of the batch after the last one."""
    start, stop = map(int, dataset.attrs[BATCH_SLICE].split(":"))
    return start, stop


def _difference(first: xr.Dataset, second: xr.Dataset) -> str:
    """Describe the first difference that slices of one count cannot have; empty if there is none."""
    names = (first.attrs.keys() | second.attrs.keys()) - OF_A_SLICE
    if first.attrs.get("checkpoint_sha256"):
        names -= {"health"}  # follows from the file, up to rounding on another processor
    for name in sorted(names, key=lambda name: (name == "health", name)):
        value, expected = second.attrs.get(name), first.attrs.get(name)
        if not np.array_equal(np.asarray(value), np.asarray(expected)):
            return f"{name} is {str(value)[:60]}, expected {str(expected)[:60]}"
    if different := set(map(str, first.variables)) ^ set(map(str, second.variables)):
        return f"only one of them has {', '.join(sorted(different))[:60]}"
    for name, variable in first.variables.items():
        shared = name not in {"query", "source"} and not {"batch", "source"} & set(variable.dims)
        if shared and not variable.identical(second[name].variable):
            return f"their values of {name} differ"
    return ""


def concatenated(parts: Sequence[xr.Dataset]) -> xr.Dataset:
    """Concatenate the batches of the parts; NaN follows the last query of a shorter batch."""
    sources = [name for name in SOURCES if any("source" in part.dims and name in part["source"] for part in parts)]
    padded = [_with_sources(part, sources) for part in parts] if sources else parts
    whole = xr.concat(
        padded,
        "batch",
        data_vars="minimal",
        coords="minimal",
        compat="override",
        join="outer",
        combine_attrs="override",
    )
    whole["batch"] = ("batch", np.arange(whole.sizes["batch"]), parts[0]["batch"].attrs)
    first = next((part for part in parts if part.attrs.get("share") == "unknown"), parts[0])
    values = {str(name): variable.values for name, variable in whole.variables.items()
              if variable.dims == averages.QUERY_DIMS}  # fmt: skip
    for name, array in _over_all(values, zero_when_idle=first.attrs["convention"] != "standard").items():
        if name in whole:
            whole[name] = (whole[name].dims, array, whole[name].attrs)
    return whole.assign_attrs(first.attrs)


def _with_sources(part: xr.Dataset, sources: list[str]) -> xr.Dataset:
    """Add sources of candidates, which have no negatives in this part."""
    missing = ~np.isin(sources, part["source"])
    if not missing.any():
        return part
    wide = part.reindex(source=sources)
    for name in SOURCE_STATISTICS:
        absent = xr.DataArray(missing, dims="source") & part["negatives"].notnull()
        wide[name] = wide[name].where(~absent, 0.0).transpose(*part[name].dims).assign_attrs(part[name].attrs)
    return wide


def _over_all(values: dict[str, np.ndarray], *, zero_when_idle: bool) -> dict[str, np.ndarray]:
    """Return the numbers shared by all batches: unknown if unknown in one batch, and the largest pull."""
    if "contributing" in values and np.isnan(values["contributing"][averages.present(values)]).any():
        unknown = {BY_NAME[name].variable for name in averages.BY_SHARE if name in BY_NAME}
        values |= {name: np.full(values[name].shape, np.nan) for name in unknown & values.keys()}
    numbers = averages.of_batches(values, 2)
    if zero_when_idle and "eq7_mean" in numbers:
        numbers["eq7_mean"] = np.nan_to_num(numbers["eq7_mean"], nan=0.0)
    return values | numbers
