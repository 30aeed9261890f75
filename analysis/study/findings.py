"""Compute every number of the study from the results of its runs: the same code for both data sets."""

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from analysis.study.plan import EVERY, HELD, KEPT, PUBLISHED, RULERS, TREATED
from analysis.study.runner import RESULTS
from cocos import results
from cocos.counting.statistics import Difference, holm, paired
from cocos.results.correlation import beyond, levels, quadratic, within

__all__ = ["FILE", "chosen", "computed", "differences", "of_data", "write"]

FILE = RESULTS / "findings.json"
DATA = ("captions", "emoji")
BATCH_SIZE = 128  # of the three tests
EARLY, LAST = 2, -1  # checkpoints: a sixth or an eighth of the training, and its end
VALUE = "rsum"
PREDICTORS = {  # variable of the runs, and the ruler where another loss counts
    "contributing": ("contributing", None),
    "effective": ("effective", None),
    "idle": ("idle", None),
    **{f"idle by {ruler}": ("ruler_idle", ruler) for ruler in RULERS},
    "share of positives by ntxent": ("ruler_weight_positive", "ntxent"),
}
BASELINES = ("rsum_val", "rsum_train", "loss")


def chosen(grid: xr.Dataset, batch_size: int) -> xr.Dataset:
    """Runs of a batch size at the learning rate with the highest mean validation rsum of each loss and value.

    Args:
        grid: runs of several rates and seeds.
        batch_size: of the runs.
    """
    runs = grid.isel(run=np.flatnonzero(grid["batch_size"].values == batch_size))
    score, config = runs["rsum_val"].isel(step=LAST).values, runs["config"].values
    mean = {name: score[config == name].mean() for name in dict.fromkeys(config)}
    settings = list(zip(runs["family"].values, runs["value"].values, strict=True))
    best = {each: max((mean[c], c) for c, s in zip(config, settings, strict=True) if s == each)[1] for each in settings}
    return runs.isel(run=[place for place, each in enumerate(settings) if config[place] == best[each]])


def _column(runs: xr.Dataset, name: str, step: int) -> np.ndarray:
    """A variable or a predictor at a checkpoint, (runs,)."""
    variable, ruler = PREDICTORS.get(name, (name, None))
    array = runs[variable] if ruler is None else runs[variable].sel(ruler=ruler)
    return array.isel(step=step).values


def _settings(runs: xr.Dataset, *columns: tuple[str, int]) -> tuple[np.ndarray, ...]:
    """The loss of each configuration, and means over its seeds of columns at a checkpoint, (configurations,) each."""
    config = runs["config"].values
    places = [np.flatnonzero(config == name) for name in dict.fromkeys(config)]
    family = np.array([runs["family"].values[each[0]] for each in places])
    # Means of equal numbers are equal: digits beyond the twelfth are rounding.
    means = [np.array([_column(runs, name, step)[each].mean() for each in places]) for name, step in columns]
    return family, *(np.array([float(f"{value:.12g}") for value in mean]) for mean in means)


def _rates(grid: xr.Dataset, batch_size: int) -> dict[str, Any]:
    """How often each learning rate was chosen, by loss."""
    runs = chosen(grid, batch_size)
    pairs = {(f, v, r) for f, v, r in zip(*(runs[n].values for n in ("family", "value", "rate")), strict=True)}
    return {
        str(family): {
            f"{rate:g}": sum(1 for f, _, r in pairs if (f, r) == (family, rate)) for rate in np.unique(grid["rate"])
        }
        for family in dict.fromkeys(runs["family"].values)
    }


def _p1(grid: xr.Dataset, batch_size: int) -> Any:
    family, count, score = _settings(chosen(grid, batch_size), ("contributing", LAST), (VALUE, LAST))
    return within(count, score, family, names=("contributing", VALUE))


def _p2(grid: xr.Dataset, batch_size: int) -> dict[str, Any]:
    """Curvature in the log of the effective number, and the optimum as a number of negatives."""
    family, number, score = _settings(chosen(grid, batch_size), ("effective", LAST), (VALUE, LAST))
    with np.errstate(invalid="ignore"):
        found = quadratic(np.log(number), score, family, names=("log effective", VALUE))
    away = {name: math.exp(getattr(found, name)) for name in ("optimum", "optimum_low", "optimum_high")}
    return {"fit": found, "number": away, "candidates": batch_size - 1}


def differences(
    runs: xr.Dataset, first: dict[str, Any], second: dict[str, Any], value: str = VALUE
) -> list[np.ndarray]:
    """One number a seed of either arm at the end, mean over all that varies besides; the arms by their coordinates.

    Args:
        runs: with a coordinate for each name in the arms.
        first: coordinate -> value, or the values over which the mean is taken.
        second: of the other arm.
        value: a variable of the runs.
    """
    seeds, made = np.unique(runs["seed"].values), []
    for arm in (first, second):
        own = np.ones(runs.sizes["run"], dtype=bool)
        for name, values in arm.items():
            own &= np.isin(runs[name].values, np.atleast_1d(values))
        column = runs[value].isel(step=LAST).values
        made.append(np.array([column[own & (runs["seed"].values == seed)].mean() for seed in seeds]))
    return made


def _difference(*args: Any, **options: Any) -> Difference:
    return paired(*differences(*args, **options))


def _p3(runs: xr.Dataset) -> Difference:
    return _difference(runs, {"arm": "hard", "k": KEPT}, {"arm": "random", "k": KEPT})


def _interventions(runs: xr.Dataset) -> dict[str, Any]:
    """Hard against random at each k, and against all negatives; means by k."""
    made: dict[str, Any] = {}
    for loss in TREATED:
        own = runs.isel(run=np.flatnonzero(runs["family"].values == loss))
        every = {"arm": "hard", "k": EVERY}
        made[loss] = {
            "hard_minus_random": {
                k: _difference(own, {"arm": "hard", "k": k}, {"arm": "random", "k": k}) for k in KEPT
            },
            **{
                f"{arm}_minus_all": {k: _difference(own, {"arm": arm, "k": k}, every) for k in KEPT}
                for arm in ("hard", "random")
            },
            "mean": {
                arm: {k: _mean(own, arm, k) for k in (*KEPT, *((EVERY,) if arm == "hard" else ()))}
                for arm in ("hard", "random")
            },
        }
        best = max((*KEPT, EVERY), key=lambda k: _mean(own, "hard", k, "rsum_val"))
        made[loss] |= {"best_hard_k": best, "slope_over_hard_k": _trend(own)}
    return made


def _mean(runs: xr.Dataset, arm: str, k: int, value: str = VALUE) -> float:
    own = (runs["arm"].values == arm) & (runs["k"].values == k)
    return float(runs[value].isel(step=LAST).values[own].mean())


def _trend(runs: xr.Dataset) -> dict[str, Any]:
    """Spearman of rsum over k of the hardest, mean over seeds of the mean over rates."""
    ks, seeds = (*KEPT, EVERY), np.unique(runs["seed"].values)
    rows = {k: differences(runs, {"arm": "hard", "k": k}, {"arm": "hard", "k": k})[0] for k in ks}
    k, score = np.repeat(np.array(ks), len(seeds)), np.concatenate([rows[each] for each in ks])
    return {"over_k": within(k, score, np.tile(seeds, len(ks)), names=("k", VALUE), permutations=1000, resamples=1000)}


def _held(runs: xr.Dataset, optimum: float) -> dict[str, Any]:
    """Effective numbers that were held: means, the best on validation items, and the one nearest to an optimum."""
    own = runs.isel(run=np.flatnonzero(runs["arm"].values == "held"))
    best = max(HELD, key=lambda k: _mean(own, "held", k, "rsum_val"))
    nearest = min(HELD, key=lambda k: abs(math.log(k / optimum))) if math.isfinite(optimum) else best
    return {
        "mean": {k: _mean(own, "held", k) for k in HELD},
        "reached": {k: _mean(own, "held", k, "effective") for k in HELD},
        "temperature": {k: _mean(own, "held", k, "temperature") for k in HELD},
        "best": best,
        "nearest": nearest,
        "cost": _difference(own, {"k": best}, {"k": nearest}) if best != nearest else None,
        "best_minus": {k: _difference(own, {"k": best}, {"k": k}) for k in HELD if k != best},
    }


def _gap(runs: xr.Dataset, grid: xr.Dataset) -> dict[str, Any]:
    """Triplet with the hardest negative less triplet with all, margin 0.2, at each learning rate; best against best."""
    own = runs.isel(run=np.flatnonzero(runs["family"].values == "triplet"))
    rates = np.unique(own["rate"].values)
    hardest, every = ({"arm": "hard", "k": k} for k in (1, EVERY))
    by_rate = {f"{rate:g}": _difference(own, hardest | {"rate": rate}, every | {"rate": rate}) for rate in rates}
    margin = PUBLISHED["triplet"]["margin"]
    at = grid.isel(run=np.flatnonzero((grid["batch_size"].values == BATCH_SIZE) & (grid["value"].values == margin)))
    sh, all_of = ({"family": name} for name in ("triplet_sh", "triplet"))
    gaps = [np.subtract(*differences(own, hardest | {"rate": rate}, every | {"rate": rate})) for rate in rates]
    best = chosen(grid, BATCH_SIZE)
    return {
        "by_rate": by_rate,
        "grid": {
            f"{rate:g}": _difference(at, sh | {"rate": rate}, all_of | {"rate": rate}) for rate in np.unique(at["rate"])
        },
        "change": paired(gaps[0], gaps[-1]),
        "best_against_best": _best_of(best, "triplet_sh", "triplet"),
    }


def _best_of(runs: xr.Dataset, first: str, second: str) -> dict[str, Any]:
    """Two losses, each at the value with the highest validation rsum."""
    values = {}
    for name in (first, second):
        own = runs.isel(run=np.flatnonzero(runs["family"].values == name))
        score = own["rsum_val"].isel(step=LAST).values
        known = dict.fromkeys(own["value"].values)
        values[name] = max(known, key=lambda value: score[own["value"].values == value].mean())
    arms = [{"family": name, "value": value} for name, value in values.items()]
    return {"values": values, "difference": _difference(runs, *arms)}


def _levels(grid: xr.Dataset) -> dict[str, Any]:
    """Count, effective number and idle queries with rsum at every level."""
    runs = chosen(grid, BATCH_SIZE)
    about = {"family": runs["family"].values, "config": runs["config"].values}
    made = {}
    for name, (variable, ruler) in PREDICTORS.items():
        column = runs[variable] if ruler is None else runs[variable].sel(ruler=ruler)
        made[name] = levels(
            column.values, runs[VALUE].values, **about, names=(name, VALUE), permutations=2000, resamples=2000
        )
    return made


def _predictions(grid: xr.Dataset) -> dict[str, Any]:
    """Each count, early and at the end, as a predictor of the final rsum of the settings, beside baselines."""
    runs, made = chosen(grid, BATCH_SIZE), {}
    for when, step in (("early", EARLY), ("end", LAST)):
        family, score, *based = _settings(runs, (VALUE, LAST), *((name, step) for name in BASELINES))
        alone = {
            name: within(each, score, names=(name, VALUE), permutations=2000, resamples=2000)
            for name, each in zip(BASELINES, based, strict=True)
        }
        made[when] = {"step": int(runs["step"].values[step]), "baselines": alone, "counts": {}}
        for name in PREDICTORS:
            (_, column) = _settings(runs, (name, step))
            made[when]["counts"][name] = {
                "alone": within(column, score, names=(name, VALUE), permutations=2000, resamples=2000),
                "within": within(column, score, family, names=(name, VALUE), permutations=2000, resamples=2000),
                "beyond": {
                    base: beyond(column, other, score, names=(name, base, VALUE), permutations=2000, resamples=2000)
                    for base, other in zip(BASELINES, based, strict=True)
                },
            }
    return made


def _interval(values: Sequence[float] | np.ndarray) -> Difference:
    """Mean over seeds with its interval."""
    return paired(np.asarray(values), np.zeros(len(values)))


def _masking(runs: xr.Dataset) -> dict[str, Any]:
    """Look-alikes' part of negatives and push with the placebo, and the effect of masking, by loss and sharpness."""
    made = {}
    for family, value in dict.fromkeys(zip(runs["family"].values, runs["value"].values, strict=True)):
        where = (runs["family"].values == family) & (runs["value"].values == value)
        own = runs.isel(run=np.flatnonzero(where))
        plain = own.isel(run=np.flatnonzero(own["mask"].values == "none"))
        shares = ("look_alike_negatives", "look_alike_push", "random_push")
        made[f"{family} {value:g}"] = {
            **{name: _interval(plain[name].isel(step=LAST).values) for name in shares},
            **{score: _masked(own, score) for score in (VALUE, "rsum_concept") if score in own},
        }
    return made


def _masked(runs: xr.Dataset, score: str) -> dict[str, Difference]:
    arms = (("look_alikes", "none"), ("random", "none"), ("look_alikes", "random"))
    return {f"{a}_minus_{b}": _difference(runs, {"mask": a}, {"mask": b}, value=score) for a, b in arms}


def of_data(data: str, opened: Callable[[str], xr.Dataset]) -> dict[str, Any]:
    """All numbers of a data set.

    Args:
        data: `captions` or `emoji`.
        opened: gives the runs of a part by its name.
    """
    grid, runs, masking = (opened(f"{data}_{part}") for part in ("grid", "interventions", "masking"))
    sizes = [int(size) for size in np.unique(grid["batch_size"].values)]
    p2 = _p2(grid, BATCH_SIZE)
    return {
        "runs": {"grid": grid.sizes["run"], "interventions": runs.sizes["run"], "masking": masking.sizes["run"]},
        "hours": sum(float(each["seconds"].sum()) for each in (grid, runs, masking)) / 3600,
        "rates": _rates(grid, BATCH_SIZE),
        "p1": _p1(grid, BATCH_SIZE),
        "p2": p2,
        "p3": _p3(runs),
        "by_batch_size": {size: {"p1": _p1(grid, size), "p2": _p2(grid, size)} for size in sizes},
        "best": _best(grid),
        "levels": _levels(grid),
        "interventions": _interventions(runs),
        "held": _held(runs, p2["number"]["optimum"]),
        "gap": _gap(runs, grid),
        "predictions": _predictions(grid),
        "masking": _masking(masking),
    }


def _best(grid: xr.Dataset) -> dict[str, Any]:
    """The best setting of each loss on validation items, by batch size, with its test rsum and counts."""
    made: dict[str, Any] = {}
    for size in np.unique(grid["batch_size"].values):
        runs = chosen(grid, int(size))
        for family in dict.fromkeys(runs["family"].values):
            own = runs.isel(run=np.flatnonzero(runs["family"].values == family))
            configs = list(dict.fromkeys(own["config"].values))
            _, val, score, count, number = _settings(
                own, *((n, LAST) for n in ("rsum_val", VALUE, "contributing", "effective"))
            )
            at = int(val.argmax())
            value = float(own["value"].values[own["config"].values == configs[at]][0])
            made.setdefault(str(size), {})[str(family)] = {
                "value": value,
                "rsum": score[at],
                "contributing": count[at],
                "effective": number[at],
            }
    return made


def computed(opened: Callable[[str], xr.Dataset]) -> dict[str, Any]:
    """All numbers of both data sets, and the three p-values corrected together."""
    made = {data: of_data(data, opened) for data in DATA}
    first = made[DATA[0]]
    raw = {"p1": first["p1"].p, "p2": first["p2"]["fit"].p, "p3": first["p3"].p}
    optimum = first["p2"]["number"]
    inside = {
        "best_held": first["held"]["best"],
        "best_held_inside": optimum["optimum_low"] <= first["held"]["best"] <= optimum["optimum_high"],
        "emoji": made[DATA[1]]["p2"]["number"]["optimum"],
        "emoji_inside": optimum["optimum_low"] <= made[DATA[1]]["p2"]["number"]["optimum"] <= optimum["optimum_high"],
    }
    corrected = dict(zip(raw, holm(list(raw.values())), strict=True))
    return {"tests": {"p": raw, "holm": corrected, "predicted": inside}} | made


def _plain(value: Any) -> Any:
    """Values of JSON: dataclasses as dictionaries, numbers that are not finite as null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain(dataclasses.asdict(value))
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write(folder: Path = RESULTS) -> Path:
    """Compute all numbers from the results in a folder, and write them beside."""
    found = _plain(computed(lambda name: results.open(folder / f"{name}.nc")))
    path = folder / FILE.name
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return path
