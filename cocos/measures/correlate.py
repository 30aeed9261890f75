"""Do runs with more contributing negatives retrieve better, and does it hold at every level?"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from cocos import results
from cocos.base.errors import InputError
from cocos.counting import statistics
from cocos.measures import _columns, _gathered
from cocos.measures._columns import RunColumn
from cocos.results import correlation, records
from cocos.results.correlation import Association, Beyond, Quadratic

# Numbers that are correlated, and the one that they are correlated with, unless others are named.
DEFAULT_X = ("contributing", "effective", "idle", "hardest_share")  # or, where the unit is unknown, `records.BY_PUSH`
DEFAULT_Y = ("rsum", "r1", "rsum_val", "r1_val", "rsum_train", "r1_train")
# Endings of numbers that were not measured on the test split.
NOT_TEST = ("_val", "_train", "_dev")
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
QUADRATIC_LABELS = {
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
BEYOND_LABELS = {
    "partial": ("rank correlation given the baseline", "1"),
    "partial_low": ("lower end of its interval", "1"),
    "partial_high": ("upper end of its interval", "1"),
    "partial_p": ("its p-value", "1"),
    "x_alone": ("rank correlation of x, same settings", "1"),
    "baseline_alone": ("rank correlation of the baseline", "1"),
    "difference": ("size of that of x less that of the baseline", "1"),
    "difference_low": ("lower end of its interval", "1"),
    "difference_high": ("upper end of its interval", "1"),
    "difference_p": ("its p-value", "1"),
    "number": ("settings", "settings"),
    "undefined": ("why there is no comparison", ""),
}


def correlate(
    runs: xr.Dataset | Sequence[Path | str],
    x: Sequence[str] | str | None = None,
    y: str | None = None,
    *,
    family: str = "family",
    config: str = "config",
    where: Sequence[str] = (),
    baseline: Sequence[str] | str = (),
    holm: bool = True,
    permutations: int = 10_000,
    resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> xr.Dataset:
    """Correlate numbers of many runs with their recall, at every level side by side.

    The sign depends on what varies, so that no level stands for another: see `cocos.correlation.levels`. The finding is
    the level `settings`, adjusted by Holm's method for the number of x; a pooled correlation is none. Beside it are a
    parabola over the settings, in the log of x where x is above 0, and what x says beyond a baseline.

    Args:
        runs: a table of runs (`cocos.results.concat`), or files: results of count, evaluate and run, stores of a
            monitor, tables.
        x: numbers of the runs; None: `contributing`, `effective`, `idle` and `hardest_share`, those that the runs have;
            `relative` and `unpushed` in place of the first and third where the unit of a loss is unknown.
        y: what they are correlated with; None: `rsum`, or R@1 where there is one direction.
        family: coordinate of the runs within which settings are compared; several are joined by commas.
        config: coordinate that is the same for the seeds of a setting, and differs between settings.
        where: only runs in which a coordinate has a value, like `batch_size=128`.
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
    table, notes = _gathered.table(runs) if not isinstance(runs, xr.Dataset) else (runs, [])
    for name in _gathered.TABLE_COORDINATES:
        if name not in table.coords:
            raise InputError(
                f"a table of runs without the coordinate {name!r}; cocos.results.concat(..., {name}=[...])"
            )
    table = _columns.chosen(table, where)
    if table.sizes["run"] < 2:
        raise InputError(f"{table.sizes['run']} run, expected several: its checkpoints are shown by cocos run")
    target = _target(table, y, notes)
    asked = _asked(table, x, target)
    bases = [
        _columns.column(table, each, "--baseline") for each in ([baseline] if isinstance(baseline, str) else baseline)
    ]
    families = _columns.names_along_run(table, family, "--family")
    configs = _columns.names_along_run(table, config, "--config")
    drawing = {"permutations": permutations, "resamples": resamples, "level": level, "seed": seed}
    found = [_levels(each, target, families, configs, drawing) for each in asked]
    _refuse_undefined(asked, found, target)
    curved = [_curve(each, target, families, configs, drawing) for each in asked]
    above = [[_beyond(each, base, target, families, configs, drawing) for base in bases] for each in asked]
    variables = _variables(asked, found, curved, holm) | _baselines(bases, above) | _points(asked, target, table)
    variables |= {"family": ("run", families), "config": ("run", configs)}
    variables |= {"seed": ("run", table["seed"].values)} if "seed" in table.coords else {}
    attrs = results.versions() | {
        "title": f"{target.name} of {table.sizes['run']} runs",
        **{"y": target.name, "y_label": target.label, "y_units": target.units},
        **{"family_name": family, "config_name": config, "baselines": "\n".join(each.name for each in bases)},
        **drawing,
        "holm": int(holm),
        "notes": "\n".join(notes),
    }
    made = results.labelled(variables, attrs)
    return made.set_coords([name for name in ("family", "config", "seed") if name in made])


def _target(table: xr.Dataset, y: str | None, notes: list[str]) -> RunColumn:
    """The number that is predicted; a note says where it is not of the test split."""
    names = _columns.known(table)
    there = [name for name in DEFAULT_Y if name in names and _columns.column(table, name, "--y").known]
    if y is None and not there:
        raise InputError(
            f"none of the {table.sizes['run']} runs has recall: count with --metrics, give the results of cocos "
            "evaluate of the same checkpoints as well, or name another number with --y"
        )
    made = _columns.column(table, y or there[0], "--y")
    if y is None and made.name.endswith(NOT_TEST):
        notes.append(f"{made.name} is not of the test split: no run has that")
    return made


def _asked(table: xr.Dataset, x: Sequence[str] | str | None, target: RunColumn) -> list[RunColumn]:
    """The numbers that are correlated."""
    names = [x] if isinstance(x, str) else list(x or ())
    if not names:
        every = (column for name in DEFAULT_X for column in _columns.expanded(table, name))
        named = ((name, records.BY_PUSH.get(name)) for name in every)
        names = [found for each in named if (found := next((name for name in each if _there(table, name)), None))]
        names = names or [name for key in DEFAULT_X[:2] for name in _columns.expanded(table, f"ruler_{key}")]
    names = [each for name in dict.fromkeys(names) for each in _columns.expanded(table, name)]
    if target.name in names:
        raise InputError(f"--x {target.name}: it is y as well; name another number of the runs")
    return [_columns.column(table, name, "--x") for name in names]


def _there(table: xr.Dataset, name: str | None) -> bool:
    """Whether any run has a number."""
    return name in _columns.known(table) and _columns.column(table, str(name), "--x").known > 0


def _aligned(one: RunColumn, other: RunColumn) -> tuple[np.ndarray, np.ndarray]:
    """Both over the checkpoints; at the last one of each run where only one of them has checkpoints."""
    if one.values.ndim == other.values.ndim:
        return one.values, other.values
    return _last(one.values), _last(other.values)


def _last(values: np.ndarray) -> np.ndarray:
    """The last finite number of each run."""
    if values.ndim == 1:
        return values
    at = values.shape[1] - 1 - np.argmax(np.isfinite(values)[:, ::-1], axis=1)
    return values[np.arange(len(values)), at]


def _levels(
    x: RunColumn, y: RunColumn, families: np.ndarray, configs: np.ndarray, drawing: dict[str, Any]
) -> dict[str, Association]:
    one, other = _aligned(x, y)
    return correlation.levels(one, other, family=families, config=configs, names=(x.name, y.name), **drawing)


def _refuse_undefined(asked: Sequence[RunColumn], found: Sequence[dict[str, Association]], target: RunColumn) -> None:
    """Refuse numbers of which none has a correlation at any level."""
    if all(each.undefined for levels in found for each in levels.values()):
        reason = found[0]["pooled"].undefined
        raise InputError(f"no correlation of {', '.join(each.name for each in asked)} with {target.name}: {reason}")


def _at_settings(
    columns: Sequence[RunColumn], families: np.ndarray, configs: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Means over seeds at the last checkpoint that the first or second number has, and the family of each setting."""
    values = [each.values for each in columns]
    if all(each.ndim == 2 for each in values):
        there = np.isfinite(values[0]) | np.isfinite(values[1])
        at = there.shape[1] - 1 - np.argmax(there[:, ::-1], axis=1)
        values = [each[np.arange(len(each)), at] for each in values]
    return correlation.means(np.stack([_last(each) for each in values]), configs, families)


def _curve(
    x: RunColumn, y: RunColumn, families: np.ndarray, configs: np.ndarray, drawing: dict[str, Any]
) -> tuple[Quadratic, bool]:
    """The parabola over settings, and whether it is in the log of x."""
    (one, other), owners = _at_settings((x, y), families, configs)
    log = bool((one[np.isfinite(one)] > 0).all())
    options = {key: value for key, value in drawing.items() if key != "permutations"}
    names = (f"log {x.name}" if log else x.name, y.name)
    return correlation.quadratic(np.log(one) if log else one, other, owners, names=names, **options), log


def _beyond(
    x: RunColumn, base: RunColumn, y: RunColumn, families: np.ndarray, configs: np.ndarray, drawing: dict[str, Any]
) -> Beyond:
    (one, other, target), owners = _at_settings((x, base, y), families, configs)
    return correlation.beyond(one, other, target, owners, names=(x.name, base.name, y.name), **drawing)


def _said(pairs: Sequence[tuple[str, str]]) -> str:
    return "\n".join(f"{name}: {reason}" for name, reason in pairs)


def _variables(
    asked: Sequence[RunColumn],
    found: Sequence[dict[str, Association]],
    curved: Sequence[tuple[Quadratic, bool]],
    holm: bool,
) -> dict[str, tuple]:
    """Variables over x and level, and those of the parabolas over x."""
    made: dict[str, tuple] = {
        "x": ("x", [each.name for each in asked], "number of the runs"),
        "x_label": ("x", [each.label for each in asked], "meaning of x"),
        "x_units": ("x", [each.units for each in asked], "units of x"),
        "level": ("level", list(correlation.LEVELS), "level: what varies"),
    }
    for name, about in ASSOCIATION_LABELS.items():
        cells = [[getattr(each, name) for each in levels.values()] for levels in found]
        cells = [[_said(each) for each in row] for row in cells] if name == "without" else cells
        made[name] = (("x", "level"), np.array(cells), *about)
    p = [levels["settings"].p for levels in found]
    known = [place for place, value in enumerate(p) if math.isfinite(value)]
    adjusted = dict(zip(known, (statistics.holm if holm else list)([p[place] for place in known]), strict=True))
    values = [adjusted.get(place, math.nan) for place in range(len(p))]
    made["p_holm"] = ("x", values, "p-value between settings" + ", adjusted for the number of x (Holm)" * holm, "1")
    made["quadratic_log"] = ("x", [log for _, log in curved], "whether the parabola is in log x", "")
    for name, about in QUADRATIC_LABELS.items():
        place = {"r2_blocks": 0, "r2_linear": 1, "r2_quadratic": 2}.get(name)
        cells = [each.r2[place] if place is not None else getattr(each, name) for each, _ in curved]
        made[f"quadratic_{name}"] = ("x", np.array(cells), *about)
    return made


def _baselines(bases: Sequence[RunColumn], above: Sequence[Sequence[Beyond]]) -> dict[str, tuple]:
    """Variables over x and baseline; none without a baseline."""
    if not bases:
        return {}
    made: dict[str, tuple] = {"baseline": ("baseline", [each.name for each in bases], "number that x is to surpass")}
    kinds = {
        "partial": lambda each: each.partial.rho,
        "partial_low": lambda each: each.partial.low,
        "partial_high": lambda each: each.partial.high,
        "partial_p": lambda each: each.partial.p,
        "x_alone": lambda each: each.x,
        "baseline_alone": lambda each: each.baseline,
        "difference": lambda each: each.difference,
        "difference_low": lambda each: each.low,
        "difference_high": lambda each: each.high,
        "difference_p": lambda each: each.p,
        "number": lambda each: each.partial.number,
        "undefined": lambda each: each.partial.undefined,
    }
    for name, about in BEYOND_LABELS.items():
        made[f"beyond_{name}"] = (("x", "baseline"), np.array([[kinds[name](e) for e in row] for row in above]), *about)
    return made


def _points(asked: Sequence[RunColumn], target: RunColumn, table: xr.Dataset) -> dict[str, tuple]:
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


def document(data: xr.Dataset) -> dict[str, Any]:
    """The correlations as the JSON document of `cocos correlate --json`; a number that is not defined is null."""
    attrs, found = data.attrs, {}
    for name in data["x"].values:
        one = data.sel(x=name)
        levels = {}
        for level, (varies, unit) in correlation.LEVELS.items():
            each = one.sel(level=level)
            levels[level] = {"varies": varies, "unit": unit} | {
                key: _plain(each[key]) for key in ASSOCIATION_LABELS if key != "without"
            }
            levels[level]["without"] = [line for line in str(each["without"].item()).splitlines() if line]
        entry = {"label": str(one["x_label"].item()), "levels": levels, "p_holm": _plain(one["p_holm"])}
        entry["quadratic"] = {key: _plain(one[f"quadratic_{key}"]) for key in ("log", *QUADRATIC_LABELS)}
        if "baseline" in data.dims:
            entry["beyond"] = {
                str(base): {key: _plain(one[f"beyond_{key}"].sel(baseline=base)) for key in BEYOND_LABELS}
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
        **{key: attrs[key] for key in ("permutations", "resamples", "level", "seed")},
        "holm": bool(attrs["holm"]),
        "notes": [line for line in attrs["notes"].splitlines() if line],
        "x": found,
    }


def _plain(value: xr.DataArray) -> float | int | bool | str | None:
    """A value as JSON represents it."""
    one = value.item()
    if isinstance(one, float):
        return one if math.isfinite(one) else None
    return one
