"""Numbers of a table of runs by their names: one number a run, or one a checkpoint."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from cocos.base.errors import InputError, nearest

# Separates the name of a variable from a value of its further dim, as in `ruler_idle:triplet_sh`.
PART_SIGN = ":"
# Dims that every number of a run may have.
RUN_DIMS = ("run", "step")


@dataclass(frozen=True, eq=False)
class RunColumn:
    """A number of every run: (runs,), or (runs, checkpoints); NaN where there is none."""

    name: str
    values: np.ndarray
    label: str
    units: str

    @property
    def known(self) -> int:
        """Number of runs in which it is finite anywhere."""
        return int(np.isfinite(self.values).reshape(len(self.values), -1).any(axis=1).sum())


def known(table: xr.Dataset) -> list[str]:
    """Names of the numbers of a table: its variables, and coordinates that are numbers, along the runs."""
    both = table.variables.items()
    return [str(key) for key, each in both if "run" in each.dims and each.dtype.kind in "fiub"]


def expanded(table: xr.Dataset, name: str) -> list[str]:
    """The name, or one name for each value of the further dim that it leaves open."""
    if name not in table.variables or PART_SIGN in name:
        return [name]
    rest = [dim for dim in _further(table[name]) if dim != "direction"]
    if len(rest) != 1:
        return [name]
    return [f"{name}{PART_SIGN}{part}" for part in table[rest[0]].values]


def _further(values: xr.DataArray) -> list[str]:
    return [str(dim) for dim in values.dims if dim not in RUN_DIMS]


def column(table: xr.Dataset, name: str, option: str) -> RunColumn:
    """A number by its name; the mean of the directions, unless one is named as in `R@1:i2t`.

    Args:
        table: of runs.
        name: of a variable or coordinate, with a value of its further dim behind a colon.
        option: that named it, for the message.
    """
    base, _, part = name.partition(PART_SIGN)
    names = known(table)
    if base not in names:
        raise InputError(f"{option}: {nearest('number of the runs', base, names)}")
    values = table[base]
    rest = _further(values)
    if part:
        own = [dim for dim in rest if dim in table.coords and part in table[dim].values.astype(str)]
        if not own:
            parts = [str(each) for dim in rest if dim in table.coords for each in table[dim].values]
            raise InputError(f"{option} {name}: {nearest('part of ' + base, part, parts)}")
        values = values.isel({own[0]: int(np.flatnonzero(table[own[0]].values.astype(str) == part)[0])})
        rest.remove(own[0])
    if "direction" in rest:
        values = values.mean("direction", keep_attrs=True)
        rest.remove("direction")
    if rest:
        at = ", ".join(map(str, table[rest[0]].values[:5])) if rest[0] in table.coords else ""
        raise InputError(
            f"{option} {name}: it has a number for each {rest[0]}; write {name}{PART_SIGN} and one of {at}"
        )
    array = values.transpose("run", ...).values.astype(np.float64)
    return RunColumn(name, array, str(values.attrs.get("long_name", base)), str(values.attrs.get("units", "")))


def names_along_run(table: xr.Dataset, names: str, option: str) -> np.ndarray:
    """Text of a coordinate along the runs, or of several joined, as in `family,batch_size`."""
    parts = []
    for name in names.split(","):
        there = [str(key) for key in table.coords if table[key].dims == ("run",)]
        if name.strip() not in there:
            raise InputError(f"{option}: {nearest('coordinate of the runs', name.strip(), there)}")
        values = table[name.strip()].values
        parts.append([f"{each:g}" if isinstance(each, float | np.floating) else str(each) for each in values])
    return np.array([", ".join(each) for each in zip(*parts, strict=True)])


def chosen(table: xr.Dataset, where: Sequence[str]) -> xr.Dataset:
    """The runs in which coordinates have given values, like `batch_size=128`; several values are joined by commas."""
    for each in where:
        name, sign, text = (part.strip() for part in each.partition("="))
        if not (name and sign and text):
            raise InputError(f"--where {each!r}: write it as NAME=VALUE, like batch_size=128")
        values, wanted = names_along_run(table, name, "--where"), [part.strip() for part in text.split(",")]
        if table[name].dtype.kind in "fiu":
            try:
                own = np.isin(table[name].values.astype(float), [float(part) for part in wanted])
            except ValueError:
                raise InputError(f"--where {each!r}: {name} is a number, like {values[0]}") from None
        else:
            own = np.isin(values, wanted)
        if not own.any():
            some = ", ".join(dict.fromkeys(values.tolist()))
            raise InputError(f"--where {each!r}: no run has it; {name} is one of {some[:200]}")
        table = table.isel(run=np.flatnonzero(own))
    return table
