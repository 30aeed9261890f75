"""Compute every number of the second study from its trainings: two tests, regret, and the parts of the factorial."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

from analysis.hold_study.plan import BATCH_SIZES, DATA, FACTORS, GRID, LOSSES, RATES, START, WIDTHS
from analysis.hold_study.runner import RESULTS
from cocos import results
from cocos.base.errors import InputError
from cocos.counting.statistics import holm, paired
from cocos.monitor.hold import usual

__all__ = ["FILE", "MARGIN", "chosen", "computed", "factorial", "table", "tests", "write"]

FILE = RESULTS / "findings.json"
Found = dict[str, Any]
# Points of rsum by which holding may be worse than a search, level of both tests together, and of each interval.
MARGIN, LEVEL, BETWEEN = 3.0, 0.05, 0.95
# Bootstrap samples of the seeds, and the generator that draws them.
SAMPLES, DRAWN = 10_000, 34
# Constants that stand beside the arms in the table of regret.
CONSTANTS = (0.05, 0.1, START)
ARMS = {"late": "late", "once": "once", "early": "early"}
SPLITS = {"data": DATA, "width": WIDTHS, "batch_size": BATCH_SIZES, "loss": LOSSES}
CELL = ["cell", "data", "loss", "width", "batch_size"]


def table(runs: xr.Dataset) -> tuple[pd.DataFrame, list[str]]:
    """Means over the seeds of each cell, arm and rate, in the order of the plan, and trainings that are not finite.

    A training whose weights are not finite has a recall of 0.
    """
    names = [
        *CELL,
        "kind",
        "start",
        "weight",
        "rate",
        "seed",
        "rsum",
        "rsum_val",
        "effective",
        "temperature",
        "seconds",
    ]
    frame = pd.DataFrame({name: runs[name].values for name in names})
    broken = ~np.isfinite(frame["effective"])
    frame.loc[broken, ["rsum", "rsum_val"]] = 0.0
    said = [f"{row.cell} {row.kind} {row.start:g} rate={row.rate:g} seed={row.seed}"
            for row in frame[broken].itertuples()]  # fmt: skip
    by = [*CELL, "kind", "start", "weight", "rate"]
    means = frame.drop(columns="seed").groupby(by, sort=False, as_index=False).mean()
    seeds = frame.groupby(by, sort=False)["rsum"].apply(list)
    return means.assign(seeds=seeds.tolist()), said


def chosen(rows: pd.DataFrame) -> pd.Series:
    """The row with the highest mean validation rsum, the first of equal ones."""
    return rows.loc[rows["rsum_val"].idxmax()]


def _of_cell(rows: pd.DataFrame) -> Found:
    """What is chosen in a cell, with its recall: the grid, the best of the grid, constants and arms that are held."""
    constants, first = rows[rows["kind"] == "constant"], rows.iloc[0]
    picked = {"grid": chosen(constants)}
    picked |= {f"{value:g}": chosen(constants[constants["start"] == value]) for value in GRID}
    picked |= {name: chosen(rows[rows["kind"] == name]) for name in ARMS}
    best = constants.loc[constants["rsum"].idxmax()]
    made: Found = {name: first[name].item() if hasattr(first[name], "item") else first[name] for name in CELL}
    made["best"] = {"rsum": best["rsum"], "temperature": best["start"], "rate": best["rate"]}
    keep = ("rsum", "rsum_val", "rate", "start", "effective", "temperature", "seeds")
    made["arms"] = {name: {key: one[key] for key in keep} for name, one in picked.items()}
    made["target"] = usual(int(first["batch_size"]))
    return made


def interval(values: Sequence[float]) -> Found:
    """Mean of paired differences with its two-sided interval by t, and their standard deviation."""
    found = paired(values, np.zeros(len(values)), level=BETWEEN)
    return {key: getattr(found, key) for key in ("mean", "low", "high", "number")} | {
        "sd": float(np.std(values, ddof=1))
    }


def minus(cells: Sequence[Found], first: str, second: str) -> list[float]:
    """Difference in test rsum of two choices in each cell."""
    return [cell["arms"][first]["rsum"] - cell["arms"][second]["rsum"] for cell in cells]


def tests(cells: Sequence[Found]) -> Found:
    """H1 and H2: one-sided paired t-tests over the cells, corrected by Holm's method."""
    made = {}
    for name, other, least in (("h1", "grid", -MARGIN), ("h2", f"{START:g}", 0.0)):
        values = minus(cells, "late", other)
        found = stats.ttest_1samp(values, least, alternative="greater")
        bound = found.confidence_interval(1 - LEVEL).low
        made[name] = interval(values) | {"p": float(found.pvalue), "bound": float(bound), "margin": least}
        made[name]["lower"] = sum(value < 0 for value in values)
    for name, value in zip(made, holm([each["p"] for each in made.values()]), strict=True):
        made[name] |= {"holm": value, "holds": value < LEVEL}
    return made


def _regret(cells: Sequence[Found]) -> Found:
    """Test rsum of the best of the grid minus that of each choice: mean, largest and where; trainings for a seed."""
    rates = len(next(iter(RATES.values())))
    made = {}
    for name in ("grid", *ARMS, *(f"{value:g}" for value in CONSTANTS)):
        lost = [cell["best"]["rsum"] - cell["arms"][name]["rsum"] for cell in cells]
        worst = int(np.argmax(lost))
        made[name] = {"mean": float(np.mean(lost)), "worst": lost[worst], "where": cells[worst]["cell"],
                      "trainings": rates * (len(GRID) if name == "grid" else 1)}  # fmt: skip
    return made


def _split(cells: Sequence[Found], first: str, second: str) -> Found:
    """A difference by data, loss, width and batch size."""
    made: Found = {}
    for name, values in SPLITS.items():
        own = {str(value): [cell for cell in cells if cell[name] == value] for value in values}
        made[name] = {value: interval(minus(some, first, second)) for value, some in own.items() if len(some) > 1}
    return made


def _clustered(cells: Sequence[Found], first: str, second: str) -> Found:
    """The mean difference with an interval that takes the cells of a data set to depend on each other."""
    values = minus(cells, first, second)
    groups = [DATA.index(cell["data"]) for cell in cells]
    found = paired(values, np.zeros(len(values)), level=BETWEEN, groups=groups)
    return {key: getattr(found, key) for key in ("mean", "low", "high", "groups")}


def _edges(cells: Sequence[Found]) -> Found:
    """How often the smallest or the largest candidate was chosen: rates of each arm, temperatures of the grid."""
    made = {}
    for name in ("grid", "late", f"{START:g}"):
        ends = [cell["arms"][name]["rate"] in (RATES[cell["data"]][0], RATES[cell["data"]][-1]) for cell in cells]
        made[name] = sum(ends)
    made["temperature"] = sum(cell["arms"]["grid"]["start"] in (GRID[0], GRID[-1]) for cell in cells)
    made["temperatures"] = {f"{v:g}": sum(cell["arms"]["grid"]["start"] == v for cell in cells) for v in GRID}
    return made


def _parts(means: np.ndarray) -> np.ndarray:
    """Parts of the sum of squares of tables (..., first, second): first, second, interaction, (3, ...)."""
    whole = means.mean(axis=(-2, -1), keepdims=True)
    first = means.mean(axis=-1, keepdims=True) - whole
    second = means.mean(axis=-2, keepdims=True) - whole
    rest = means - whole - first - second
    shape = np.broadcast_shapes(means.shape)
    sums = np.stack([np.square(np.broadcast_to(each, shape)).sum(axis=(-2, -1)) for each in (first, second, rest)])
    return sums / sums.sum(axis=0)


def factorial(rows: pd.DataFrame) -> Found:
    """The table of one data set, parts of its sum of squares with intervals over seeds, and the best of it."""
    picked = {pair: chosen(own) for pair, own in rows.groupby(["start", "weight"], sort=False)}
    seeds = np.array([[picked[first, second]["seeds"] for second in FACTORS] for first in FACTORS])
    seeds = np.moveaxis(seeds, -1, 0)  # (seed, first, second)

    def parts_of(places: np.ndarray, axis: int = -1) -> np.ndarray:
        return _parts(seeds[places].mean(axis=np.ndim(places) - 1))

    found = stats.bootstrap((np.arange(len(seeds)),), parts_of, n_resamples=SAMPLES, confidence_level=BETWEEN,
                            method="percentile", vectorized=True, rng=np.random.default_rng(DRAWN))  # fmt: skip
    names = ("negatives", "weight", "interaction")
    ends = found.confidence_interval
    parts = {
        name: {"value": float(value), "low": float(low), "high": float(high)}
        for name, value, low, high in zip(names, _parts(seeds.mean(axis=0)), ends.low, ends.high, strict=True)
    }
    cooler = _parts(seeds[:, :-1, :-1].mean(axis=0))
    best = max(picked, key=lambda pair: picked[pair]["rsum_val"])
    plain = max((pair for pair in picked if pair[0] == pair[1]), key=lambda pair: picked[pair]["rsum_val"])
    gain = np.subtract(picked[best]["seeds"], picked[plain]["seeds"])
    by_first = [max(FACTORS, key=lambda f: picked[f, second]["rsum"]) for second in FACTORS]
    ratio = [picked[first, FACTORS[-1]]["rsum"] - picked[first, FACTORS[0]]["rsum"] for first in FACTORS]
    return {
        "rsum": [[picked[first, second]["rsum"] for second in FACTORS] for first in FACTORS],
        "effective": [[picked[first, second]["effective"] for second in FACTORS] for first in FACTORS],
        "rate": [[picked[first, second]["rate"] for second in FACTORS] for first in FACTORS],
        "seeds": seeds.tolist(),
        "parts": parts,
        "cooler": dict(zip(names, cooler.tolist(), strict=True)),
        "best": {"negatives": best[0], "weight": best[1], "rsum": picked[best]["rsum"]},
        "plain": {"temperature": plain[0], "rsum": picked[plain]["rsum"]},
        "gain": interval(gain),
        "best_negatives": by_first,
        "rise": {f"{first:g}": value for first, value in zip(FACTORS, ratio, strict=True)},
        "range": float(np.ptp([one["rsum"] for one in picked.values()])),
    }


def _held(cells: Sequence[Found]) -> Found:
    """Effective numbers at the end against the target, and temperatures, of held late, the constant and the search."""
    made: Found = {}
    for name in ("late", f"{START:g}", "grid"):
        ratio = [cell["arms"][name]["effective"] / cell["target"] for cell in cells]
        heat = [cell["arms"][name]["temperature"] for cell in cells]
        made[name] = {"least": min(ratio), "most": max(ratio), "coldest": min(heat), "warmest": max(heat)}
    return made


def _furthest(cells: Sequence[Found], first: str, second: str) -> Found:
    """The cells with the smallest and the largest difference of two choices."""
    values = minus(cells, first, second)
    return {name: {"value": values[place], "cell": cells[place]["cell"]}
            for name, place in (("least", int(np.argmin(values))), ("most", int(np.argmax(values))))}  # fmt: skip


def computed(cells: xr.Dataset, crossed: xr.Dataset) -> Found:
    """All numbers of the study.

    Args:
        cells: trainings of the 24 cells.
        crossed: trainings of the factorial.
    """
    rows, broken = table(cells)
    made = [_of_cell(own) for _, own in rows.groupby("cell", sort=False)]
    other, more = table(crossed)
    pairs = {"late_grid": ("late", "grid"), "late_constant": ("late", f"{START:g}"), "late_once": ("late", "once"),
             "late_early": ("late", "early"), "constant_grid": (f"{START:g}", "grid"),
             "once_constant": ("once", f"{START:g}")}  # fmt: skip
    return {
        "cells": made,
        "tests": tests(made),
        "differences": {name: interval(minus(made, *pair)) for name, pair in pairs.items()},
        "clustered": {name: _clustered(made, *pairs[name]) for name in ("late_grid", "late_constant")},
        "furthest": {name: _furthest(made, *pair) for name, pair in pairs.items()},
        "by": {name: _split(made, *pairs[name]) for name in ("late_grid", "late_constant")},
        "regret": _regret(made),
        "edges": _edges(made),
        "held": _held(made),
        "factorial": {data: factorial(own) for data, own in other.groupby("data", sort=False)},
        "broken": broken + more,
        "runs": {"cells": cells.sizes["run"], "factorial": crossed.sizes["run"]},
        "hours": float(cells["seconds"].sum() + crossed["seconds"].sum()) / 3600,
    }


def write() -> Path:
    """Compute and write `findings.json`."""
    parts = [RESULTS / f"{name}.nc" for name in ("cells", "factorial")]
    for part in parts:
        if not part.is_file():
            raise InputError(f"{part.name} is not there; run python -m analysis.hold_study run")
    found = computed(*map(results.open, parts))
    FILE.write_text(json.dumps(found, indent=1, default=lambda value: value.item()) + "\n", "utf-8")
    return FILE
