"""A count in parts, `i/n`, each a run of its own on any machine; the parts together are the count, bit for bit.

A part has the batches that its number gives it, of those that the seed draws. Nothing is summed until all are joined.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from cocos.base.errors import InputError, rows
from cocos.counting import averages
from cocos.counting.statistics import BY_NAME

MOST_PARTS = 100_000  # parts of a count
# Attributes that parts of one count may differ in: the place of a file, the number of a part, what its batches showed.
OF_A_PART = {"part", "device", "checkpoint_path", "data_path", "share", "unit", "notes", "findings"}


def _read(text: Any) -> tuple[int, int]:
    """Read the number of a part, from 1 on, and how many there are."""
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", str(text), re.ASCII)
    place, number = map(int, found.groups()) if found else (0, 0)
    if not 1 <= place <= number <= MOST_PARTS:
        raise InputError(f"part {str(text)[:40]!r}, expected i/n with i from 1 to n, like 2/5 (n up to {MOST_PARTS:,})")
    return place, number


def batches_of(part: str, number: int) -> slice:
    """Places of the batches of a part, next to each other, of a number of batches.

    Examples:
        >>> [cocos.results.parts.batches_of(part, 5) for part in ("1/2", "2/2")]
        [slice(0, 2, None), slice(2, 5, None)]
    """
    place, every = _read(part)
    if every > number:
        raise InputError(f"part {part}: there are {number} batches, so expected at most {number} parts")
    return slice(number * (place - 1) // every, number * place // every)


def join(parts: Sequence[xr.Dataset], names: Sequence[str] = ()) -> xr.Dataset:
    """Join the parts of a count: the result of the same count in one run, bit for bit.

    Args:
        parts: results of `cocos.measures.count` with `part`, in any order.
        names: of their files, for the messages.

    Raises:
        InputError: a part is missing, is given twice, or is of another count.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(8), 2 * torch.eye(8))
        >>> parts = [cocos.measures.count(embeddings, batch_size=2, part=part) for part in ("1/2", "2/2")]
        >>> cocos.results.parts.join(parts).identical(cocos.measures.count(embeddings, batch_size=2))
        True
    """
    said = list(names) or [f"part {place}" for place in range(len(parts))]
    if not parts:
        raise InputError("parts: none were given")
    held: dict[int, tuple[str, xr.Dataset]] = {}
    (first_name, first), every = (said[0], parts[0]), 0
    for name, part in zip(said, parts, strict=True):
        if "part" not in part.attrs or not {"batch", "query"} <= set(part.dims):
            raise InputError(f"{name} is no part of a count; expected results of cocos count --part i/n --out FILE.nc")
        place, number = _read(part.attrs["part"])
        every = every or number
        if differs := _difference(first, part):
            raise InputError(f"{name} is of another count than {first_name}: {differs}")
        if number != every:
            raise InputError(f"{name} is part {place}/{number}, and {first_name} is one of {every} parts; join one cut")
        if place in held:
            raise InputError(f"{name} and {held[place][0]} are both part {place}/{number}; give each part once")
        held[place] = name, part
    missing = [place for place in range(1, every + 1) if place not in held]
    if missing:
        raise InputError(f"parts: {rows(missing).replace('row', 'part', 1)} of {every} missing; count them, then join")
    ordered = [held[place][1] for place in range(1, every + 1)]
    for place, part in enumerate(ordered, 1):
        wanted = batches_of(f"{place}/{every}", int(first.attrs["batches"]))
        if part.sizes["batch"] != wanted.stop - wanted.start:
            raise InputError(
                f"{held[place][0]} has {part.sizes['batch']} batches, expected {wanted.stop - wanted.start} of part "
                f"{place}/{every}; count it again"
            )
    return concatenated(ordered)


def _difference(one: xr.Dataset, other: xr.Dataset) -> str:
    """Name the first difference that two parts of one count cannot have; empty if there is none."""
    names = (one.attrs.keys() | other.attrs.keys()) - OF_A_PART
    for name in sorted(names, key=lambda each: (each == "health", each)):  # which follows from the others
        mine, theirs = one.attrs.get(name), other.attrs.get(name)
        if not np.array_equal(np.asarray(mine), np.asarray(theirs)):
            return f"{name} is {str(theirs)[:60]}, and {str(mine)[:60]} there"
    if dict(one.coords.items()).keys() != dict(other.coords.items()).keys():
        return "its coordinates are others"
    if set(one.data_vars) != set(other.data_vars):
        return f"{', '.join(sorted(map(str, set(one.data_vars) ^ set(other.data_vars))))[:60]} is in one alone"
    for name in [each for each in one.variables if each != "query" and "batch" not in one[each].dims]:
        if not one[name].variable.identical(other[name].variable):
            return f"{name} differs"
    return ""


def concatenated(parts: Sequence[xr.Dataset]) -> xr.Dataset:
    """Put the batches of parts behind each other; NaN follows the last query of a batch that has fewer."""
    widest = max(part.sizes["query"] for part in parts)
    unknown = [part for part in parts if part.attrs.get("share") == "unknown"]
    first, made = (unknown or parts)[0], {}
    for name, held in parts[0].variables.items():
        if "batch" not in held.dims:
            made[name] = held
            continue
        arrays = [part[name].transpose(*held.dims).values for part in parts]
        if "query" in held.dims:
            axis = held.dims.index("query")
            for place, array in enumerate(arrays):
                if array.shape[axis] < widest:
                    more = [(0, widest - size if at == axis else 0) for at, size in enumerate(array.shape)]
                    arrays[place] = np.pad(array.astype(np.float64), more, constant_values=np.nan)
        values = np.concatenate(arrays, axis=held.dims.index("batch"))
        made[name] = xr.Variable(held.dims, np.arange(len(values)) if name == "batch" else values, held.attrs)
    made["query"] = xr.Variable("query", np.arange(widest), parts[0]["query"].attrs)
    for name, values in _over_all(made, zero_when_idle=first.attrs["convention"] != "standard").items():
        made[name] = xr.Variable(made[name].dims, values, made[name].attrs)
    attrs = {name: value for name, value in first.attrs.items() if name not in {"part", "batches"}}
    return xr.Dataset(made, attrs=attrs)


def _over_all(made: dict[Any, xr.Variable], *, zero_when_idle: bool) -> dict[str, np.ndarray]:
    """Numbers of batches that all batches together decide: what is unknown in one is unknown, and a largest pull."""
    values = {str(name): held.values for name, held in made.items() if held.dims == averages.QUERY_DIMS}
    if "contributing" in values and np.isnan(values["contributing"][averages.present(values)]).any():
        unknown = {BY_NAME[name].variable for name in averages.BY_SHARE if name in BY_NAME}
        values |= {name: np.full(values[name].shape, np.nan) for name in unknown & values.keys()}
    found = averages.of_batches(values, 2)
    if zero_when_idle and "eq7_mean" in found:
        found["eq7_mean"] = np.nan_to_num(found["eq7_mean"], nan=0.0)
    return {name: each for name, each in (values | found).items() if name in made}
