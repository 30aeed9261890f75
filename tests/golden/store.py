"""Entries of the golden comparison: what is stored of a number, how it is written, and when it differs."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr

FOLDER = Path(__file__).with_name("values")
# Relative error in float64: a few hundred roundings.
DOUBLE = 1e-12
# Relative error in float32: some ten roundings. An entry that amplifies them has ten times its own error.
SINGLE = 1e-6
# Larger arrays are stored as four sums.
MOST_VALUES = 200
# A single number below this is compared with it: differences of nearly equal numbers are rounding.
LEAST_SCALE = 1e-2
# Variables that are no numbers of the method: bounds of the engine, and names of places.
LEFT_OUT = {"uncertain", "place", "other_rule", "overlap", "overlap_push"}
LEFT_OUT |= {"pusher", "pusher_part", "nearest", "nearest_positive"}  # of diff: who pushes a query


@dataclass(frozen=True)
class Entry:
    """A number or an array with a name.

    Args:
        name: unique in its group, parts divided by slashes.
        value: in float64; NaN equals NaN.
        tolerance: of the difference, relative to the largest finite number of the entry.
        single: the same in float32, compared with the float64 value.
        moved: the same for scores that are moved by one rounding; a larger change than `tolerance` widens it.
    """

    name: str
    value: np.ndarray
    tolerance: float = DOUBLE
    single: np.ndarray | None = None
    moved: np.ndarray | None = None


def condense(value) -> np.ndarray:
    """The array itself, or of a large one: finite numbers, their sum, sum of squares, and sum weighted by place."""
    array = np.asarray(value, dtype=np.float64)
    if array.size <= MOST_VALUES:
        return array
    finite = np.isfinite(array.ravel())
    kept = np.where(finite, array.ravel(), 0.0)
    place = np.arange(1, array.size + 1) / array.size
    return np.array([finite.sum(), kept.sum(), (kept**2).sum(), (kept * place).sum()])


def dataset_entries(prefix: str, dataset: xr.Dataset, tolerance: float = DOUBLE) -> Iterable[Entry]:
    """The numbers of a Dataset, one entry a variable."""
    for name, variable in dataset.variables.items():
        if variable.dtype.kind in "iufb" and name not in LEFT_OUT:
            yield Entry(f"{prefix}/{name}", condense(variable.values), tolerance)


def document_entries(prefix: str, value, left_out: frozenset[str], tolerance: float = DOUBLE) -> Iterable[Entry]:
    """The numbers of a JSON document by their keys; lists of numbers are arrays."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in left_out:
                yield from document_entries(f"{prefix}/{key}", item, left_out, tolerance)
    elif isinstance(value, list):
        if value and all(isinstance(item, int | float) for item in value):
            yield Entry(prefix, condense(value), tolerance)
        else:
            for place, item in enumerate(value):
                yield from document_entries(f"{prefix}/{place}", item, left_out, tolerance)
    elif isinstance(value, int | float):
        yield Entry(prefix, np.asarray(value, dtype=np.float64), tolerance)


def distance(value: np.ndarray, expected: np.ndarray) -> float:
    """Largest difference relative to the largest finite expected number; infinite where shapes or NaN differ."""
    if value.shape != expected.shape:
        return np.inf
    finite = np.isfinite(expected)
    if not np.array_equal(np.where(finite, 0, value), np.where(finite, 0, expected), equal_nan=True):
        return np.inf
    if not finite.any():
        return 0.0
    scale = np.abs(expected[finite]).max() or 1.0
    scale = scale if expected.shape else max(scale, LEAST_SCALE)
    difference = np.abs(value[finite] - expected[finite]).max()
    return float(difference / scale) if np.isfinite(difference) else np.inf


def write(group: str, entries: Iterable[Entry]) -> Path:
    """Write the entries of a group, whole or not at all."""
    entries = list(entries)
    names = [entry.name for entry in entries]
    assert len(set(names)) == len(names), sorted(name for name in set(names) if names.count(name) > 1)[:5]
    tolerance, single = [], []
    for entry in entries:
        change = 0.0 if entry.moved is None else distance(entry.moved, entry.value)
        # A change of a thousandth is a jump, as of a hinge at a tie: not rounding that grows.
        tolerance.append(max(entry.tolerance, 10 * change if change < 1e-3 else 0.0))
        error = np.nan if entry.single is None else distance(entry.single, entry.value)
        single.append(error if np.isnan(error) or error > 1e-3 else max(SINGLE, 10 * error))
    FOLDER.mkdir(exist_ok=True)
    path, partial = FOLDER / f"{group}.npz", FOLDER / f"{group}.part.npz"
    np.savez_compressed(
        partial,
        names=np.array(names),
        shapes=np.array([",".join(map(str, entry.value.shape)) for entry in entries]),
        values=np.concatenate([np.ravel(entry.value) for entry in entries]),
        tolerance=np.array(tolerance),
        single=np.array(single),
    )
    partial.replace(path)
    return path


def differences(group: str, entries: Iterable[Entry], optional: tuple[str, ...] = ()) -> list[str]:
    """One line for each stored entry that is missing or differs; new entries are no difference.

    Args:
        group: of the entries.
        entries: as they are now.
        optional: prefixes of entries that need a library which may be absent here.
    """
    stored = np.load(FOLDER / f"{group}.npz")
    ends = np.cumsum([int(np.prod([int(n) for n in shape.split(",") if n])) for shape in stored["shapes"]])
    values = np.split(stored["values"], ends[:-1])
    now = {entry.name: entry for entry in entries}
    lines = []
    for name, shape, flat, tolerance, single in zip(
        stored["names"], stored["shapes"], values, stored["tolerance"], stored["single"], strict=True
    ):
        entry, expected = now.get(str(name)), flat.reshape([int(n) for n in shape.split(",") if n])
        if entry is None:
            if not name.startswith(optional):
                lines.append(f"{name}: stored, but not computed")
            continue
        error = distance(entry.value, expected)
        if error > tolerance:
            lines.append(f"{name}: off by {error:.2g}, tolerance {tolerance:.2g}")
        if entry.single is not None and not np.isnan(single) and single < 1e-3:
            error = distance(entry.single, expected)
            if error > single:
                lines.append(f"{name} in float32: off by {error:.2g}, tolerance {single:.2g}")
    return lines
