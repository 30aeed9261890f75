"""Runs and findings of the study as its figures need them, with the names and colours of the losses."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import seaborn as sns
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from analysis.study.findings import differences
from cocos import results
from cocos.counting.statistics import Difference
from cocos.plots.replay import UNRESOLVED_GREY, forest

STUDY = Path(__file__).parent / "study"
SETS = ("captions", "emoji")
BATCH_SIZE = 128  # of the three tests, as fixed before the runs
LOSSES = {
    "ntxent": "NT-Xent",
    "triplet": "triplet",
    "triplet_sh": "triplet SH",
    "smoothap": "SmoothAP",
    "ce_softmax": "cross-example softmax",
}
MARKERS = dict(zip(LOSSES, "os^Dv", strict=True))
LEVEL = 0.05
KEPT = ("rho", "mean", "low", "high", "p", "number")


def inputs(*parts: str) -> tuple[Path, ...]:
    """Files that a figure depends on: the findings, the code that computes them, and tables of runs."""
    tables = [STUDY / "results" / f"{name}_{part}.nc" for part in parts for name in SETS]
    computed = [STUDY / "results" / name for name in ("findings.json", "reanalysis.json")]
    return (STUDY / "findings.py", STUDY / "reanalysis.py", STUDY / "plan.py", *computed, *tables)


def table(name: str) -> xr.Dataset:
    """A table of runs, such as `captions_grid`: dims run, step and ruler."""
    return results.open(STUDY / "results" / f"{name}.nc")


def findings() -> dict[str, Any]:
    """Every number of the study, as `python -m analysis.study findings` computes it."""
    return json.loads((STUDY / "results" / "findings.json").read_text("utf-8"))


def again() -> dict[str, Any]:
    """Numbers of the second edition, computed from the same results."""
    return json.loads((STUDY / "results" / "reanalysis.json").read_text("utf-8"))


def where(runs: xr.Dataset, **wanted: Any) -> xr.Dataset:
    """Runs whose coordinates have these values, or one of several."""
    own = np.ones(runs.sizes["run"], dtype=bool)
    for name, value in wanted.items():
        own &= np.isin(runs[name].values, np.atleast_1d(value))
    return runs.isel(run=np.flatnonzero(own))


def numbers(found: Mapping[str, Mapping[str, Any] | None]) -> xr.Dataset:
    """Coefficients or differences with their intervals, a row for each name; NaN where one is undefined."""
    rows = {name: each for name, each in found.items() if each is not None}
    kept = [key for key in KEPT if any(key in each for each in rows.values())]
    values = {key: [np.nan if each.get(key) is None else float(each[key]) for each in rows.values()] for key in kept}
    return xr.Dataset({key: ("row", value) for key, value in values.items()}, coords={"row": list(rows)})


def row(part: xr.Dataset, name: str) -> dict[str, float]:
    """One row of `numbers`."""
    return {key: float(part[key].sel(row=name)) for key in part.data_vars if part[key].dims == ("row",)}


def keys(part: xr.Dataset, begin: str = "") -> list[str]:
    """Names of the rows that begin with some text."""
    return [name for name in part["row"].values.tolist() if name.startswith(begin)]


def resolved(one: Mapping[str, float]) -> bool:
    """Whether an interval excludes 0; for a rank correlation also its permutation test, as few units have no more."""
    return (one["low"] > 0 or one["high"] < 0) and ("rho" not in one or one["p"] < LEVEL)


def difference(part: xr.Dataset, name: str) -> Difference:
    """A row of `numbers` as a paired difference."""
    one = row(part, name)
    return Difference(one["mean"], one["low"], one["high"], one["p"], int(one["number"]), 0.95)


def seeds_of(runs: xr.Dataset, first: dict[str, Any], second: dict[str, Any], value: str = "rsum") -> list[float]:
    """Differences of two arms at the end of training, a number for each seed: see `analysis.study.findings`."""
    return np.subtract(*differences(runs, first, second, value)).tolist()


def rows_of(found: Mapping[str, tuple[Mapping[str, Any], Sequence[float]]]) -> xr.Dataset:
    """Paired differences, a row for each name, and the difference of each seed, (row, seed); NaN where it has fewer."""
    most = max(len(each) for _, each in found.values())
    padded = [[*each, *[np.nan] * (most - len(each))] for _, each in found.values()]
    return numbers({name: one for name, (one, _) in found.items()}).assign(seeds=(("row", "seed"), np.array(padded)))


def forest_of(part: xr.Dataset, names: Sequence[str], ax: Axes, **options: Any) -> None:
    """Draw rows of `rows_of` against a line at zero."""
    seeds = [part["seeds"].sel(row=name).values for name in names]
    forest([difference(part, name) for name in names], [each[np.isfinite(each)] for each in seeds], ax=ax, **options)


def colours() -> dict[str, tuple[float, float, float]]:
    """A colour for each loss; markers tell them apart without colour."""
    palette = sns.color_palette("colorblind")
    return {name: palette[place] for name, place in zip(LOSSES, (0, 1, 3, 2, 4), strict=True)}


def plain_ticks(ax: Axes, places: Sequence[float], axis: str = "x") -> None:
    """Label these places of a logarithmic axis as plain numbers, without minor ticks."""
    own = ax.xaxis if axis == "x" else ax.yaxis
    own.set_major_locator(FixedLocator(list(places)))
    own.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    own.set_minor_locator(NullLocator())


def resolution_entries() -> list[Line2D]:
    """Entries of a legend: resolved, not resolved, a seed."""
    blue = sns.color_palette("colorblind")[0]
    return [
        Line2D([], [], color=blue, marker="o", linewidth=2.4, label="the 95 % interval excludes 0"),
        Line2D([], [], color=UNRESOLVED_GREY, marker="o", linewidth=2.4, label="the interval includes 0"),
        Line2D([], [], color="0.4", marker="o", markersize=3.2, linestyle="", label="a seed"),
    ]
