"""Do runs with more contributing negatives retrieve better, and does it hold at every level?"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from cocos import results
from cocos.base import ranges, terminal
from cocos.base.errors import InputError, nearest
from cocos.base.layout import Table
from cocos.counting.comparisons import adjusted
from cocos.results import correlation, records, several
from cocos.results.correlation import LEVELS, Permutations, Resamples, Seed
from cocos.results.summaries import chosen, entries, plain

# Numbers that are correlated, and the one that they are correlated with, unless others are named.
DEFAULT_X = ("contributing", "effective", "idle", "hardest_share")  # or, where the unit is unknown, `records.BY_PUSH`
DEFAULT_Y = ("rsum", "r1", "rsum_val", "r1_val", "rsum_train", "r1_train")
# Endings of numbers that were not measured on the test split.
NOT_TEST = ("_val", "_train", "_dev")
# Coordinates along the runs that a table has at least.
TABLE_COORDINATES = ("family", "config")
# Separates the name of a variable from a value of its further dim, as in `ruler_idle:triplet_sh`.
PART_SIGN = ":"
# The parts of a name that say the seed, like `seed3` or `seed=3`, and the checkpoint, like `epoch_3` or `step=100`.
SEED_IN_NAME = re.compile(r"(?:^|(?<=[\W_]))seed[=_-]?(\d+)(?=$|[\W_])", re.IGNORECASE)
STEP_IN_NAME = re.compile(r"(?:^|(?<=[\W_]))(?:epoch|step|iter|checkpoint|ckpt)[=_-]?(\d+)(?=$|[\W_])", re.IGNORECASE)
# Files that a message names.
MOST_FILES = 3
# Of every x and level: long name and units of the fields of `cocos.correlation.Association`.
ASSOCIATION_LABELS = {
    "rho": ("rank correlation", "1"),
    "low": ("lower end of its interval", "1"),
    "high": ("upper end of its interval", "1"),
    "p": ("p-value of the permutation test", "1"),
    "smallest": ("smallest p-value that the test can give", "1"),
    "number": ("units", "units"),
    "blocks": ("blocks, or runs", "1"),
    "left_out": ("units with a number that is not finite", "units"),
    "undefined": ("why there is no correlation", ""),
    "without": ("blocks left out, with their reasons", ""),
}
# Of every x, `quadratic_` before the name: fields of `cocos.correlation.Quadratic`, of which `r2` has three.
QUADRATIC_LABELS = {
    "log": ("whether the parabola is in log x", ""),
    "curvature": ("coefficient of the square", ""),
    "low": ("lower end of its interval", ""),
    "high": ("upper end of its interval", ""),
    "p": ("p-value of the curvature", "1"),
    "slope": ("coefficient of x", ""),
    "optimum": ("x of the largest y", ""),
    "optimum_low": ("lower end of its interval", ""),
    "optimum_high": ("upper end of its interval", ""),
    "bent_down": ("resamples with a curvature below 0", "1"),
    "inside": ("whether the optimum is inside the range of x", ""),
    "r2_blocks": ("part of the variance that families explain", "1"),
    "r2_linear": ("part with x", "1"),
    "r2_quadratic": ("part with x and its square", "1"),
    "number": ("settings", "settings"),
    "undefined": ("why there is no parabola", ""),
}
# Of every x, `ordered_` before the name: fields of `cocos.correlation.Ordered`, and its p-value adjusted by Holm.
ORDERED_LABELS = {
    "p": ("p-value between settings against smooth curves along the grid", "1"),
    "p_holm": ("the same, adjusted for the number of x (Holm)", "1"),
    "length": ("length scale of the curves", "steps of the grid"),
    "noise": ("variance of the noise, in parts of that of the curves", "1"),
    "number": ("settings", "settings"),
    "undefined": ("why there is no test", ""),
}
# Coordinate along which the settings of a family are a grid, where a table of runs has it and none is named.
DEFAULT_ORDER = "value"
# Of every x and baseline, `beyond_` before the name: place in `cocos.correlation.Beyond`, long name and units.
BEYOND_LABELS = {
    "partial": ("partial.rho", "rank correlation given the baseline", "1"),
    "partial_low": ("partial.low", "lower end of its interval", "1"),
    "partial_high": ("partial.high", "upper end of its interval", "1"),
    "partial_p": ("partial.p", "its p-value", "1"),
    "x_alone": ("x", "rank correlation of x, same settings", "1"),
    "baseline_alone": ("baseline", "rank correlation of the baseline", "1"),
    "difference": ("difference", "size of that of x less that of the baseline", "1"),
    "difference_low": ("low", "lower end of its interval", "1"),
    "difference_high": ("high", "upper end of its interval", "1"),
    "difference_p": ("p", "its p-value", "1"),
    "number": ("partial.number", "settings", "settings"),
    "undefined": ("partial.undefined", "why there is no comparison", ""),
}
# Blocks that are named below a table.
MOST_BLOCKS_NAMED = 2
# Smallest p-value that is written as a number.
LEAST_P = 1e-4
# Percent of simulated smooth curves, unrelated to the count, that the exchange of settings on a grid rejects at 5 %:
# `analysis/study/results/null_rates.json`, length scales of 1 to 3 steps.
REJECTED_SMOOTH = (14, 31)


@ranges.checked
def correlate(
    runs: xr.Dataset | Sequence[Path | str],
    x: Sequence[str] | str | None = None,
    y: str | None = None,
    *,
    family: str = "family",
    config: str = "config",
    where: Sequence[str] = (),
    order: str | None = None,
    baseline: Sequence[str] | str = (),
    holm: bool = True,
    permutations: Permutations = 10_000,
    resamples: Resamples = 10_000,
    level: ranges.Level = 0.95,
    seed: Seed = 0,
) -> xr.Dataset:
    """Correlate numbers of many runs with their recall, at every level side by side.

    The sign depends on what varies, so that no level stands for another: see `cocos.correlation.levels`. The finding is
    the level `settings`, adjusted by Holm's method for the number of x; a pooled correlation is none. Its test
    exchanges the settings of a family, as if each had been drawn by itself. Where they form a grid, such as the
    temperatures of a loss, the finding is the test against smooth curves along it: see `cocos.correlation.ordered`.
    Beside it are a parabola over the settings, in the log of x where x is above 0, and what x says beyond a baseline.

    Args:
        runs: a table of runs (`cocos.results.concat`), or files: results of count, evaluate and run, stores of a
            monitor, tables.
        x: numbers of the runs; None: `contributing`, `effective`, `idle` and `hardest_share`, those that the runs have;
            `relative` and `unpushed` in place of the first and third where the unit of a loss is unknown.
        y: number that x is correlated with. None: rsum, or r1. The latter is R@1, where there is one direction.
        family: coordinate within whose values settings are compared, like family or family,batch_size.
        config: coordinate that the seeds of a setting share. It differs between settings.
        where: only runs in which a coordinate has a value, like `batch_size=128`.
        order: coordinate whose values are the grid of the settings of a family; None: `value`, where the runs have it.
        baseline: numbers that x is to surpass, such as `rsum_val`.
        holm: adjust p-values between settings for the number of x.
        permutations: number of random orders of a test.
        resamples: number of resamples of an interval.
        level: of the intervals.
        seed: for both.

    Returns:
        A Dataset over x, level and, where there is a baseline, baseline, with the numbers of all runs (`x_value`,
        `y_value`).

    Raises:
        InputError: a single run, no recall, no such number or coordinate, or no x with a correlation at any level.

    Examples:
        >>> import xarray as xr
        >>> runs = {"family": ("run", ["triplet"] * 6), "config": ("run", list("abcdef"))}
        >>> numbers = {"contributing": ("run", [1, 2, 3, 4, 5, 6]), "rsum": ("run", [3, 1, 2, 5, 4, 6])}
        >>> data = cocos.measures.correlate(xr.Dataset(numbers, runs), permutations=1000, resamples=100)
        >>> round(float(data["rho"].sel(x="contributing", level="settings")), 2)
        0.77
    """
    table, notes = (runs, []) if isinstance(runs, xr.Dataset) else _table_of_files(runs)
    for name in TABLE_COORDINATES:
        if name not in table.coords:
            raise InputError(
                f"a table of runs without the coordinate {name!r}; cocos.results.concat(..., {name}=[...])"
            )
    table = _filtered(table, where)
    if table.sizes["run"] < 2:
        raise InputError(f"{table.sizes['run']} run, expected several: its checkpoints are shown by cocos run")
    target = _number_y(table, y, notes)
    asked = _numbers_x(table, x, target)
    bases = [_column(table, each, "--baseline") for each in ([baseline] if isinstance(baseline, str) else baseline)]
    owners = {
        "family": _texts(table, family, "--family"),
        "config": _texts(table, config, "--config"),
    }
    grid = _grid(table, order, **owners)
    drawing = {"resamples": resamples, "level": level, "seed": seed}
    tests = {"permutations": permutations} | drawing
    found = []
    for each in asked:  # at the last checkpoint of each run where only one of the two has checkpoints
        alike = each.values.ndim == target.values.ndim
        columns = [number.values if alike else number.last for number in (each, target)]
        found.append(correlation.levels(*columns, names=(each.name, target.name), **owners, **tests))
    if all(each.undefined for levels in found for each in levels.values()):
        reason = found[0]["pooled"].undefined
        raise InputError(f"no correlation of {', '.join(each.name for each in asked)} with {target.name}: {reason}")
    variables = _of_levels(asked, found, holm) | _parabolas(asked, target, owners, drawing)
    variables |= _along_grid(asked, target, grid, owners, {"permutations": permutations, "seed": seed}, holm)
    variables |= _beyond(asked, bases, target, owners, tests) | _points(asked, target, table)
    variables |= {name: ("run", values) for name, values in owners.items()}
    variables |= {"seed": ("run", table["seed"].values)} if "seed" in table.coords else {}
    attrs = results.versions() | {
        "title": f"{target.name} of {table.sizes['run']} runs",
        **{"y": target.name, "y_label": target.label, "y_units": target.units},
        "order": grid.name if grid else "",
        **{"family_name": family, "config_name": config, "baselines": "\n".join(each.name for each in bases)},
        **tests,
        "holm": int(holm),
        "notes": "\n".join(notes),
    }
    made = results.labelled(variables, attrs)
    return made.set_coords([name for name in ("family", "config", "seed") if name in made])


@dataclass(frozen=True, eq=False)
class NumberOfRuns:
    """A number of every run: (runs,), or (runs, checkpoints); NaN where there is none."""

    name: str
    values: np.ndarray
    label: str
    units: str

    @property
    def known(self) -> bool:
        """Whether it is finite in any run."""
        return bool(np.isfinite(self.values).any())

    @property
    def last(self) -> np.ndarray:
        """The last finite number of each run."""
        return self.at(np.isfinite(self.values))

    def at(self, there: np.ndarray) -> np.ndarray:
        """The numbers of the runs at the last checkpoint where `there` is true, (runs,)."""
        if self.values.ndim == 1:
            return self.values
        place = self.values.shape[1] - 1 - np.argmax(there[:, ::-1], axis=1)
        return self.values[np.arange(len(self.values)), place]


def _numbers_along_runs(table: xr.Dataset) -> list[str]:
    """Names of the numbers of a table: its variables, and coordinates that are numbers, along the runs."""
    both = table.variables.items()
    return [str(key) for key, each in both if "run" in each.dims and each.dtype.kind in "fiub"]


def _further(values: xr.DataArray) -> list[str]:
    return [str(dim) for dim in values.dims if dim not in ("run", "step")]


def _expanded(table: xr.Dataset, name: str) -> list[str]:
    """Expand a name that leaves a further dimension open to one name for each of its values."""
    rest = [dim for dim in _further(table[name]) if dim != "direction"] if name in table.variables else []
    return [f"{name}{PART_SIGN}{part}" for part in table[rest[0]].values] if len(rest) == 1 else [name]


def _column(table: xr.Dataset, name: str, option: str) -> NumberOfRuns:
    """A number by its name; the mean of the directions, unless one is named as in `R@1:i2t`."""
    base, _, part = name.partition(PART_SIGN)
    names = _numbers_along_runs(table)
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
    return NumberOfRuns(name, array, str(values.attrs.get("long_name", base)), str(values.attrs.get("units", "")))


def _number_y(table: xr.Dataset, y: str | None, notes: list[str]) -> NumberOfRuns:
    """Choose y; a note says where it is not of the test split."""
    names = _numbers_along_runs(table)
    there = [name for name in DEFAULT_Y if name in names and _column(table, name, "--y").known]
    if y is None and not there:
        raise InputError(
            f"none of the {table.sizes['run']} runs has recall: count with --metrics, give the results of cocos "
            "evaluate of the same checkpoints as well, or name another number with --y"
        )
    made = _column(table, y or there[0], "--y")
    if y is None and made.name.endswith(NOT_TEST):
        notes.append(f"{made.name} is not of the test split: no run has that")
    return made


def _numbers_x(table: xr.Dataset, x: Sequence[str] | str | None, target: NumberOfRuns) -> list[NumberOfRuns]:
    """Choose the numbers that are correlated with y."""
    names = [x] if isinstance(x, str) else list(x or ())
    if not names:
        known = _numbers_along_runs(table)

        def there(name: str | None) -> bool:
            return name is not None and name in known and _column(table, name, "--x").known

        every = [each for name in DEFAULT_X for each in _expanded(table, name)]
        either = [name if there(name) else records.BY_PUSH.get(name) for name in every]
        names = [name for name in either if there(name)] or [f"ruler_{key}" for key in DEFAULT_X[:2]]
    names = [each for name in dict.fromkeys(names) for each in _expanded(table, name)]
    if target.name in names:
        raise InputError(f"--x {target.name}: it is y as well; name another number of the runs")
    return [_column(table, name, "--x") for name in names]


def _texts(table: xr.Dataset, names: str, option: str) -> np.ndarray:
    """Text of a coordinate along the runs, or of several joined, as in `family,batch_size`."""
    parts = []
    for name in map(str.strip, names.split(",")):
        there = [str(key) for key in table.coords if table[key].dims == ("run",)]
        if name not in there:
            raise InputError(f"{option}: {nearest('coordinate of the runs', name, there)}")
        parts.append([f"{each:g}" if isinstance(each, float) else str(each) for each in table[name].values])
    return np.array([", ".join(each) for each in zip(*parts, strict=True)])


def _filtered(table: xr.Dataset, where: Sequence[str]) -> xr.Dataset:
    """Keep the runs in which coordinates have given values, like `batch_size=128` or `batch_size=64,128`."""
    for each in where:
        name, sign, text = (part.strip() for part in each.partition("="))
        if not (name and sign and text):
            raise InputError(f"--where {each!r}: write it as NAME=VALUE, like batch_size=128")
        values, wanted = _texts(table, name, "--where"), [part.strip() for part in text.split(",")]
        own = np.isin(values, wanted)
        if table[name].dtype.kind in "fiu":
            try:
                own = np.isin(table[name].values.astype(float), [float(part) for part in wanted])
            except ValueError:
                raise InputError(f"--where {each!r}: {name} is a number, like {values[0]}") from None
        if not own.any():
            some = ", ".join(dict.fromkeys(values.tolist()))
            raise InputError(f"--where {each!r}: no run has it; {name} is one of {some[:200]}")
        table = table.isel(run=np.flatnonzero(own))
    return table


def _at_settings(
    columns: Sequence[NumberOfRuns], family: np.ndarray, config: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Means over seeds at the last checkpoint that the first or second number has, and the family of each setting."""
    values = [each.last for each in columns]
    if all(each.values.ndim == 2 for each in columns):
        there = np.isfinite(columns[0].values) | np.isfinite(columns[1].values)
        values = [each.at(there) for each in columns]
    return correlation.means(np.stack(values), config, family)


def _of_levels(asked: Sequence[NumberOfRuns], found: Sequence[Mapping], holm: bool) -> dict[str, tuple]:
    """Variables over x and level."""
    made: dict[str, tuple] = {
        "x": ("x", [each.name for each in asked], "number of the runs"),
        "x_label": ("x", [each.label for each in asked], "meaning of x"),
        "x_units": ("x", [each.units for each in asked], "units of x"),
        "level": ("level", list(correlation.LEVELS), "level: what varies"),
    }
    for name, about in ASSOCIATION_LABELS.items():
        cells = [[getattr(each, name) for each in levels.values()] for levels in found]
        if name == "without":
            cells = [["\n".join(map(": ".join, each)) for each in row] for row in cells]
        made[name] = (("x", "level"), np.array(cells), *about)
    p = np.array([levels["settings"].p for levels in found])
    label = "p-value between settings" + ", adjusted for the number of x (Holm)" * holm
    made["p_holm"] = ("x", adjusted(p) if holm else p, label, "1")
    return made


def _parabolas(asked: Sequence[NumberOfRuns], y: NumberOfRuns, owners: dict, drawing: dict) -> dict[str, tuple]:
    """Variables over x of the parabolas over settings, in the log of x where x is above 0."""
    found = []
    for x in asked:
        (one, other), blocks = _at_settings((x, y), **owners)
        log = bool((one[np.isfinite(one)] > 0).all())
        names = f"log {x.name}" if log else x.name, y.name
        made = vars(correlation.quadratic(np.log(one) if log else one, other, blocks, names=names, **drawing))
        r2 = dict(zip(("r2_blocks", "r2_linear", "r2_quadratic"), made["r2"], strict=True))
        found.append(made | r2 | {"log": log})
    return {
        f"quadratic_{name}": ("x", np.array([each[name] for each in found]), *about)
        for name, about in QUADRATIC_LABELS.items()
    }


def _grid(table: xr.Dataset, order: str | None, family: np.ndarray, config: np.ndarray) -> NumberOfRuns | None:
    """Values of the coordinate that orders the settings; None where none is named and the settings have no `value`."""
    name = order or DEFAULT_ORDER
    there = [str(key) for key in table.coords if table[key].dims == ("run",) and table[key].dtype.kind in "fiu"]
    if name not in there:
        if order is None:
            return None
        raise InputError(f"--order: {nearest('coordinate of the runs with numbers', name, there)}")
    values = table[name].values.astype(np.float64)
    differ = any(len(np.unique(values[family == each])) > 1 for each in np.unique(family))
    if not differ:
        if order is None:
            return None
        raise InputError(f"--order {name}: it is the same for all runs of each family, expected the grid of a family")
    for each in np.unique(config):
        if len(found := np.unique(values[config == each])) > 1:
            said = ", ".join(f"{one:g}" for one in found[:MOST_FILES])
            raise InputError(f"--order {name}: the setting {each} has the values {said}; expected one for its seeds")
    return NumberOfRuns(name, values, name, "")


def _along_grid(
    asked: Sequence[NumberOfRuns], y: NumberOfRuns, grid: NumberOfRuns | None, owners: dict, tests: dict, holm: bool
) -> dict[str, tuple]:
    """Variables over x of the tests against smooth curves; none without a grid."""
    if grid is None:
        return {}
    ((places,), _), found = correlation.means(grid.values[None], owners["config"], owners["family"]), []
    for x in asked:
        (one, other), blocks = _at_settings((x, y), **owners)
        found.append(vars(correlation.ordered(one, other, places, blocks, names=(x.name, y.name, grid.name), **tests)))
    p = np.array([each["p"] for each in found])
    adjusted_too = [each | {"p_holm": value} for each, value in zip(found, adjusted(p) if holm else p, strict=True)]
    return {
        f"ordered_{name}": ("x", np.array([each[name] for each in adjusted_too]), *about)
        for name, about in ORDERED_LABELS.items()
    }


def _beyond(
    asked: Sequence[NumberOfRuns], bases: Sequence[NumberOfRuns], y: NumberOfRuns, owners: dict, tests: dict
) -> dict[str, tuple]:
    """Variables over x and baseline; none without a baseline."""
    if not bases:
        return {}
    found = []
    for x, base in ((x, base) for x in asked for base in bases):
        columns, blocks = _at_settings((x, base, y), **owners)
        found.append(correlation.beyond(*columns, blocks, names=(x.name, base.name, y.name), **tests))
    made: dict[str, tuple] = {"baseline": ("baseline", [each.name for each in bases], "number that x is to surpass")}
    for name, (place, *about) in BEYOND_LABELS.items():
        cells = np.array(list(map(attrgetter(place), found))).reshape(len(asked), len(bases))
        made[f"beyond_{name}"] = (("x", "baseline"), cells, *about)
    return made


def _points(asked: Sequence[NumberOfRuns], target: NumberOfRuns, table: xr.Dataset) -> dict[str, tuple]:
    """The numbers of all runs, (x, run, step) and (run, step); a number without steps is at the last one."""
    steps = table["step"].values if "step" in table.dims else np.zeros(1, dtype=np.int64)

    def spread(values: np.ndarray) -> np.ndarray:
        if values.ndim == 2:
            return values
        made = np.full((len(values), len(steps)), np.nan)
        made[:, -1] = values
        return made

    return {
        "step": ("step", steps, "training step", "steps"),
        "x_value": (("x", "run", "step"), np.stack([spread(each.values) for each in asked]), "value of x"),
        "y_value": (("run", "step"), spread(target.values), target.label, target.units),
    }


def _table_of_files(files: Sequence[Path | str]) -> tuple[xr.Dataset, list[str]]:
    """Read results, stores and tables of runs into one table, and say in notes how they were put together.

    Results that are no table get their coordinates from their names: files whose names differ only in a part like
    `seed3` are seeds of one setting, those that differ in one like `epoch_3` are checkpoints of one run, all others are
    settings of their own; the family is the loss that is counted, and `folder` the folder. An evaluation joins the
    count of the same checkpoint (sha256). A count of several losses is one run with the dim `ruler`, and the variables
    are called `ruler_contributing` and so on.
    """
    paths = [Path(each) for each in files]
    tables, rows, notes = [], [], []
    for path, name in zip(paths, _names(paths), strict=True):
        data = results.open(path)
        if "run" in data.dims:
            for key in TABLE_COORDINATES:
                if key not in data.coords or data[key].dims != ("run",):
                    raise InputError(
                        f"{path}: a table of runs without the coordinate {key!r} along run; concat(..., {key}=[...])"
                    )
            tables.append(data)
            continue
        try:
            one = _run_of_result(data)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        one = one.assign_coords(file=name, folder=path.resolve().parent.name, bare=_name_without(name, SEED_IN_NAME))
        seed = SEED_IN_NAME.search(name)
        rows.append(one.assign_coords(seed=int(seed[1])) if seed else one)
    counts, joined = _evaluated(rows)
    if joined:
        notes.append(f"{joined} evaluations belong to the counts of the same checkpoints")
    counts, checkpoints = _checkpoints_joined(counts)
    if checkpoints:
        notes.append(f"{checkpoints} files are checkpoints of the same runs, by the numbers in their names")
    if counts:
        tables.append(_settings(counts))
        several_seeds = sum(number > 1 for number in Counter(tables[-1]["config"].values.tolist()).values())
        if several_seeds:
            notes.append(f"{several_seeds} settings have several seeds, by the names of their files")
    if not tables:
        raise InputError(
            f"{paths[0]}: recall alone, expected counts as well: cocos count --metrics --out, or cocos run"
        )
    return results.concat(tables), notes


def _coordinate(row: xr.Dataset, name: str) -> str:
    """Text of a coordinate of one run; empty without it."""
    return str(row.coords[name].values) if name in row.coords else ""


def _run_of_result(data: xr.Dataset) -> xr.Dataset:
    """Make one run of a result; a count of several losses is one with the dim `ruler`."""
    if "loss" not in data.dims:
        return results.row(data)
    losses = several.each(data)
    parts = {label: results.row(one) for label, one in losses.items()}
    first, single = next(iter(parts.values())), next(iter(losses.values()))
    metrics = ("r1", *(str(key) for key, each in single.data_vars.items() if set(each.dims) <= {"direction"}))
    alike = [key for key in first if all(each[key].variable.equals(first[key].variable) for each in parts.values())]
    shared = [key for key in alike if str(key).startswith(metrics)]
    own = [each.drop_vars([*shared, "family", "config"]) for each in parts.values()]
    ruled = xr.concat(own, xr.Variable("ruler", list(parts)), coords="different", compat="equals", join="outer")
    made = ruled.rename({key: f"ruler_{key}" for key in ruled.data_vars}).assign(first[shared].data_vars)
    return made.assign_coords(family="all losses", config="")


def _names(paths: Sequence[Path]) -> list[str]:
    """Name paths by their shortest last parts, without suffixes, that tell all of them apart."""
    whole = [each.resolve().with_suffix("") for each in paths]
    for path, number in Counter(each.resolve() for each in paths).items():
        if number > 1:
            raise InputError(f"{path.name} is named {number} times; name each file once")
    for number in range(1, max(len(each.parts) for each in whole) + 1):
        names = ["/".join(each.parts[-number:]) for each in whole]
        if len(set(names)) == len(names):
            return names
    return [str(each) for each in paths]  # they differ in their suffixes alone


def _name_without(name: str, part: re.Pattern[str]) -> str:
    """A name without a part of it, such as the seed; the same where nothing else is in it."""
    made = re.sub(r"([\W_])[\W_]+", r"\1", part.sub("", name))
    return made.strip("/_-. ,=") or ("run" if part.search(name) else name)


def _checkpoints_joined(rows: Sequence[xr.Dataset]) -> tuple[list[xr.Dataset], int]:
    """Join counts whose names differ only in a step into runs with checkpoints, and tell how many were joined."""
    groups: dict[tuple[str, ...], dict[int, xr.Dataset]] = {}
    for place, each in enumerate(rows):
        found = STEP_IN_NAME.search(_coordinate(each, "file"))
        step, key = 0, (str(place),)
        if found and "step" not in each.dims:
            step = int(found[1])
            bare = _name_without(_coordinate(each, "bare"), STEP_IN_NAME)
            same = bare, _coordinate(each, "config"), _coordinate(each, "seed")
            key = key if step in groups.get(same, {}) else same
        groups.setdefault(key, {})[step] = each
    made, joined = [], 0
    for key, steps in groups.items():
        if len(steps) == 1:
            made += steps.values()
            continue
        joined += len(steps)
        parts = [steps[step].drop_vars(["sha256", "file", "bare"], errors="ignore") for step in sorted(steps)]
        axis = xr.Variable("step", sorted(steps))
        whole_run = xr.concat(parts, axis, data_vars="all", coords="different", compat="equals", join="outer")
        made.append(whole_run.assign_coords(file=key[0], bare=key[0]))
    return made, joined


def _evaluated(rows: Sequence[xr.Dataset]) -> tuple[list[xr.Dataset], int]:
    """Runs with the metrics of evaluations of the same checkpoint, and the number of evaluations."""
    counts = [each for each in rows if "family" in each.coords]
    others = [each for each in rows if "family" not in each.coords] if counts else []
    places: dict[str, int] = {}
    for place, each in enumerate(counts):
        if (sha := _coordinate(each, "sha256")) in places:
            first, second = (_coordinate(one, "file") for one in (counts[places[sha]], each))
            raise InputError(
                f"{first} and {second} count the same checkpoint: one model is one unit, with one recall; give one "
                "count of each model, or count several losses in one file (cocos count --loss A --loss B)"
            )
        if sha:
            places[sha] = place
    if lost := [_coordinate(each, "file") for each in others if _coordinate(each, "sha256") not in places]:
        more = f" and {len(lost) - MOST_FILES} more" if len(lost) > MOST_FILES else ""
        raise InputError(f"{', '.join(lost[:MOST_FILES])}{more}: no count of the same checkpoint (sha256) is given")
    for each in others:
        place = places[_coordinate(each, "sha256")]
        new = {key: values for key, values in each.data_vars.items() if key not in counts[place]}
        own = xr.Dataset(new).drop_vars(list(each.coords.keys() - {"direction"}), errors="ignore")
        counts[place] = counts[place].assign(own.data_vars)
    return counts, len(others)


def _settings(rows: Sequence[xr.Dataset]) -> xr.Dataset:
    """A table of results, whose settings are their names without the seed, and with the loss where this is needed."""
    owners: dict[str, set[str]] = {}
    for each in rows:
        owners.setdefault(_coordinate(each, "bare"), set()).add(_coordinate(each, "config"))
    bare = [_coordinate(each, "bare") for each in rows]
    config = [
        name if len(owners[name]) == 1 else f"{name}: {_coordinate(each, 'config')}"
        for name, each in zip(bare, rows, strict=True)
    ]
    made = results.concat([each.drop_vars("bare") for each in rows], config=config)
    seeds = made["seed"].values if "seed" in made.coords else np.full(len(rows), np.nan)
    return made.drop_vars("seed", errors="ignore") if np.isnan(seeds.astype(float)).any() else made


def document(data: xr.Dataset) -> dict[str, Any]:
    """The correlations as the JSON document of `cocos correlate --json`; a number that is not defined is null."""
    attrs, found = data.attrs, {}
    for name in data["x"].values:
        one = data.sel(x=name)
        levels = entries(one, ASSOCIATION_LABELS, "level")
        for level, (varies, unit) in correlation.LEVELS.items():
            levels[level] |= {"varies": varies, "unit": unit, "without": levels[level]["without"].splitlines()}
        entry = {"label": str(one["x_label"].item()), "levels": levels, "p_holm": plain(one["p_holm"])}
        if attrs["order"]:
            entry["ordered"] = {key: plain(one[f"ordered_{key}"]) for key in ORDERED_LABELS}
        entry["quadratic"] = {key: plain(one[f"quadratic_{key}"]) for key in QUADRATIC_LABELS}
        if "baseline" in data.dims:
            entry["beyond"] = {
                str(base): {key: plain(one[f"beyond_{key}"].sel(baseline=base)) for key in BEYOND_LABELS}
                for base in data["baseline"].values
            }
        found[str(name)] = entry
    families = data["family"].values
    return {
        "cocos": attrs["cocos"],
        "y": attrs["y"],
        "runs": data.sizes["run"],
        "settings": len(set(zip(families.tolist(), data["config"].values.tolist(), strict=True))),
        "families": {str(name): int((families == name).sum()) for name in dict.fromkeys(families)},
        **chosen(attrs, "permutations", "resamples", "level", "seed"),
        "holm": bool(attrs["holm"]),
        "order": attrs["order"] or None,
        "notes": results.lines(attrs),
        "x": found,
    }


def tables(data: xr.Dataset) -> list[Table]:
    """The levels, the parabolas over settings, and where there is a baseline, the comparison with it."""
    return [table(data), _curves(data), *([_baselines(data)] if "baseline" in data.dims else [])]


def table(data: xr.Dataset) -> Table:
    """Write a row for every level of every x; the level of the settings has the adjusted p-value."""
    rows, reasons = [], {}
    for name in data["x"].values:
        for level in LEVELS:
            one = data.sel(x=name, level=level)
            rows += [(str(name), "", "", "", "")] if level == next(iter(LEVELS)) else []
            rows.append(_cells(one, level, float(one["p_holm"])))
            rows += [_along(data.sel(x=name))] if level == "settings" and data.attrs.get("order") else []
            for reason in _reasons(one, level):
                reasons.setdefault(reason, []).append(str(name))
    head = [f"{data.attrs['y']} of {_counted(data)}", *(_sentence(data.sel(x=name)) for name in data["x"].values)]
    several = [str(each) for each in data["x"].values]
    told = [f"{reason}" if names == several else f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]
    columns = ("between", "rho", f"{100 * data.attrs['level']:g} %", "p", "n")
    return Table(columns, tuple(rows), tuple(head), (*told, *results.lines(data.attrs), _line(data)))


def _counted(data: xr.Dataset) -> str:
    families, configs = data["family"].values.tolist(), data["config"].values.tolist()
    names = dict.fromkeys(families)
    settings = len(set(zip(families, configs, strict=True)))
    listed = ", ".join(f"{terminal.clean(name)} {families.count(name)}" for name in names)
    runs = f"{data.sizes['run']} runs, {settings} settings, "
    return runs + (f"{len(names)} families ({listed})" if len(names) > 1 else f"one family ({listed})")


def _cells(one: xr.Dataset, level: str, holm: float) -> tuple[str, ...]:
    """Cells of a level: what varies, correlation, interval, p and n."""
    varies, number = f"  {LEVELS[level][0]}", f"{int(one['number'])}"
    if str(one["undefined"].item()):
        return varies, "undefined", "", "", ""
    p = holm if level == "settings" and math.isfinite(holm) else float(one["p"])
    return varies, _signed(float(one["rho"])), _interval(float(one["low"]), float(one["high"])), _p(p), number


def _along(one: xr.Dataset) -> tuple[str, ...]:
    """Cells of the test against smooth curves along the grid of the settings."""
    varies = f"    along {terminal.clean(one.attrs['order'])}"
    if str(one["ordered_undefined"].item()):
        return varies, "undefined", "", "", ""
    return varies, "", "", _p(float(one["ordered_p_holm"])), f"{int(one['ordered_number'])}"


def _signed(value: float) -> str:
    return f"{value:+.2f}" if math.isfinite(value) else "none"


def _interval(low: float, high: float) -> str:
    return f"[{low:+.2f}, {high:+.2f}]" if math.isfinite(low) else "none"


def _p(value: float) -> str:
    return "none" if not math.isfinite(value) else "<0.0001" if value < LEAST_P else f"{value:.4f}"


def _reasons(one: xr.Dataset, level: str) -> list[str]:
    """Say why a level has no correlation, or what it leaves out."""
    (varies, unit), said = LEVELS[level], []
    if reason := str(one["undefined"].item()):
        return [f"{varies}: undefined, {reason}"]
    if number := int(one["left_out"]):
        said.append(f"left out, {unit} without a finite number: {number}")
    blocks = str(one["without"].item()).splitlines()
    if blocks:
        more = f" and {len(blocks) - MOST_BLOCKS_NAMED} more" if len(blocks) > MOST_BLOCKS_NAMED else ""
        said.append(f"left out, {'; '.join(blocks[:MOST_BLOCKS_NAMED])}{more}")
    if float(one["p"]) > 0 and float(one["smallest"]) > 1 - float(one.attrs["level"]):
        said.append(f"no p-value of {int(one['number'])} {unit} can be below {float(one['smallest']):.2g}")
    return [f"{varies}: {each}" for each in said]


def _sentence(one: xr.Dataset) -> str:
    """State what the settings of a family say; nothing is claimed where it is not resolved."""
    name, y, level = str(one["x"].item()), one.attrs["y"], one.sel(level="settings")
    reason = str(level["undefined"].item())
    if reason:
        return f"{name}: no correlation between the settings of a family is defined."
    rho, number, grid = float(level["rho"]), int(level["number"]), one.attrs.get("order", "")
    against = f" against smooth curves along {terminal.clean(grid)}" if grid else ""
    p = float(one["ordered_p_holm"] if grid else one["p_holm"])
    said = f"{_signed(rho)} {_interval(float(level['low']), float(level['high']))}, "
    said += f"p = {p:.2g}{against}, n = {number} settings"
    if not p <= 1 - float(one.attrs["level"]):
        return f"{name}: no evidence that it goes with {y} between the settings of a family ({said})."
    return f"{name}: settings of a family with more of it have {'higher' if rho > 0 else 'lower'} {y} ({said})."


def _line(data: xr.Dataset) -> str:
    tests = int(np.isfinite(data["p_holm"]).sum()) if data.attrs["holm"] else 0
    adjusted = f"; between settings adjusted for {tests} tests (Holm)" if tests > 1 else ""
    return (
        f"rho: rank correlation; n: settings, runs for their seeds; intervals: {data.attrs['resamples']:,} resamples "
        f"of settings; p: two-sided, orders within each family or setting{adjusted}. {_assumption(data)} The levels "
        "answer different questions, and points that are pooled answer none."
    )


def _assumption(data: xr.Dataset) -> str:
    """Say what the exchange of settings assumes, and how wrong it is on a grid."""
    least, most = REJECTED_SMOOTH
    said = (
        "Exchanging settings assumes that each was drawn by itself; for those on a grid it takes smooth curves that "
        f"ignore x for a finding in {least} to {most} % of simulations"
    )
    if grid := data.attrs.get("order"):
        lengths = sorted(
            {f"{float(each):g}" for each in data["ordered_length"] if math.isfinite(float(each))}, key=float
        )
        steps = f" (length scale {', '.join(lengths)} steps)" if lengths else ""
        return f"{said}: the row along {terminal.clean(grid)} is against such curves{steps}."
    return f"{said}; name their coordinate with --order."


def _curves(data: xr.Dataset) -> Table:
    """Write the parabola of every x over the settings."""
    rows, reasons = [], []
    for name in data["x"].values:
        one = data.sel(x=name)
        log = bool(one["quadratic_log"])
        label = f"log {name}" if log else str(name)
        if reason := str(one["quadratic_undefined"].item()):
            rows.append((label, "undefined", "", "", "", ""))
            reasons.append(f"{label}: undefined, {reason}")
            continue
        parts = ", ".join(f"{float(one[f'quadratic_{key}']):.2f}" for key in ("r2_blocks", "r2_linear", "r2_quadratic"))
        down, number = f"{100 * float(one['quadratic_bent_down']):.0f} %", f"{int(one['quadratic_number'])}"
        rows.append((label, down, _p(float(one["quadratic_p"])), _optimum(one, log), parts, number))
    notes = (
        *reasons,
        "bent down: resamples with a curvature below 0; p: of the curvature, not adjusted; optimum: of x itself, with "
        "its interval over these resamples; R2: of families alone, with x, and with its square.",
    )
    columns, head = ("parabola", "bent down", "p", "optimum", "R2", "n"), ("Is there an optimum between settings?",)
    return Table(columns, tuple(rows), head, notes)


def _optimum(one: xr.Dataset, log: bool) -> str:
    """Where the parabola is largest; none where it is bent up, or beyond the range of x."""
    best, *ends = (float(one[f"quadratic_{key}"]) for key in ("optimum", "optimum_low", "optimum_high"))
    if math.isnan(best):
        return "none"
    if not bool(one["quadratic_inside"]):
        return "outside"
    low, high = map(math.exp, ends) if log else ends
    return f"{math.exp(best) if log else best:.3g} [{low:.3g}, {high:.3g}]"


def _baselines(data: xr.Dataset) -> Table:
    """Write what every x says beyond every baseline."""
    rows, reasons = [], []
    for name in data["x"].values:
        rows.append((str(name), "", "", "", "", ""))
        for base in data["baseline"].values:
            one = data.sel(x=name, baseline=base)
            get = lambda key, one=one: float(one[f"beyond_{key}"])  # noqa: E731
            label, number = f"  beyond {base}", f"{int(one['beyond_number'])}"
            if reason := str(one["beyond_undefined"].item()):
                rows.append((label, "undefined", "", "", "", ""))
                reasons.append(f"{name} beyond {base}: undefined, {reason}")
                continue
            partial = f"{_signed(get('partial'))} {_interval(get('partial_low'), get('partial_high'))}"
            both = f"{_signed(get('x_alone'))}, {_signed(get('baseline_alone'))}"
            apart = f"{_signed(get('difference'))} {_interval(get('difference_low'), get('difference_high'))}"
            rows.append((label, partial, _p(get("partial_p")), both, apart, number))
    columns = ("x", "rho given it", "p", "rho of each", "difference", "n")
    head = (f"Does x predict {data.attrs['y']} beyond a baseline? Settings within families",)
    notes = (
        *reasons,
        "difference: |rho| of x less |rho| of the baseline, paired bootstrap over the settings.",
    )
    return Table(columns, tuple(rows), head, notes, least=("rho of each",))
