"""What the second edition computes from the same results, after a review of the first: nothing here was registered.

Every number describes the committed runs. The tests that were fixed beforehand stay in `findings.py`.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from scipy import stats

from analysis.runs.kept import RESULTS as RUNS
from analysis.study import findings, plan
from analysis.study.findings import BATCH_SIZE, DATA, LAST, VALUE
from analysis.study.runner import RESULTS
from analysis.study.training import TEMPERATURES
from cocos import results
from cocos.base import writing
from cocos.counting.statistics import holm, paired
from cocos.results import correlation

__all__ = ["FILE", "computed", "write"]

FILE = RESULTS / "reanalysis.json"
Found = dict[str, Any]
CONSTANT = "triplet_sh"  # its effective number is always 1: no part in a curve over it
APEX = 16  # effective number at the top of the registered parabola, rounded: where the two lines meet
MEETS = tuple(range(4, 65))  # effective numbers at which the lines may meet where that is estimated
RESAMPLES = 500  # bootstrap samples of where the lines meet
SIDES = (16, 20)  # effective numbers at which the settings are split
END = 5  # settings at either end of a grid
SOFTMAX = ("ntxent", "ce_softmax")  # losses with a temperature, or its inverse
FIXED = 0.15  # temperature that is compared with numbers that are held
NEAR_FLOOR = 2  # a temperature is at the floor of the search below this many times of it
NUMBERS = {"count": "contributing", "effective": "effective", "relative": "relative"}


def _table(grid: xr.Dataset, batch_size: int = BATCH_SIZE) -> dict[str, np.ndarray]:
    """Columns of the settings at the end, at the learning rate chosen on validation items: (settings,) each."""
    runs = findings.chosen(grid, batch_size)
    names = (VALUE, "contributing", "effective", "relative", "idle")
    family, *columns = findings._settings(runs, *((name, LAST) for name in names))
    places = [int(np.flatnonzero(runs["config"].values == each)[0]) for each in dict.fromkeys(runs["config"].values)]
    about = {name: runs[name].values[places] for name in ("value", "rate", "config")}
    rulers = {
        f"ruler {ruler}": np.array([
            runs["ruler_contributing"].sel(ruler=ruler).isel(step=LAST).values[runs["config"].values == config].mean()
            for config in about["config"]
        ])
        for ruler in plan.RULERS
    }
    return {"family": family, **dict(zip(names, columns, strict=True)), **about, **rulers}


def _only(table: dict[str, np.ndarray], own: np.ndarray) -> dict[str, np.ndarray]:
    return {name: values[own] for name, values in table.items()}


def _within(table: dict[str, np.ndarray], x: str) -> Found:
    """Rank correlation of x and recall within losses, with both of its tests."""
    with np.errstate(invalid="ignore"):
        plain = correlation.within(table[x], table[VALUE], table["family"], names=(x, VALUE))
        kept = correlation.ordered(table[x], table[VALUE], table["value"], table["family"], names=(x, VALUE, "value"))
    return findings._plain(plain) | {"ordered": findings._plain(kept)}


def _correlations(grid: xr.Dataset) -> Found:
    """P1 again: against smooth curves, without two losses, by other numbers, by the side of the arch, by loss."""
    whole = _table(grid)
    bent = _only(whole, whole["family"] != CONSTANT)
    made: Found = {"all": _within(whole, "contributing")}
    others = ~np.isin(whole["family"], ("smoothap", CONSTANT))
    made["without"] = {
        "smoothap": _within(_only(whole, whole["family"] != "smoothap"), "contributing"),
        CONSTANT: _within(_only(whole, whole["family"] != CONSTANT), "contributing"),
        "both": _within(_only(whole, others), "contributing"),
    }
    made["numbers"] = {
        "relative": _within(whole, "relative"),
        "effective": _within(whole, "effective"),
        **{name: _within(whole, name) for name in whole if name.startswith("ruler ")},
    }
    made["sides"] = {
        str(at): {
            side: {name: _side(_only(bent, own), x) for name, x in NUMBERS.items() if name != "relative"}
            for side, own in (("below", bent["effective"] <= at), ("above", bent["effective"] > at))
        }
        for at in SIDES
    }
    order = {name: np.argsort(whole["value"][whole["family"] == name]) for name in np.unique(whole["family"])}
    made["ends"] = {}
    for end, part in (("lowest", slice(None, END)), ("highest", slice(-END, None))):
        own = np.concatenate([np.flatnonzero(whole["family"] == name)[rank][part] for name, rank in order.items()])
        made["ends"][end] = _within(_only(whole, own), "contributing")
    by_loss = {}
    for name in dict.fromkeys(whole["family"]):
        own = whole["family"] == name
        by_loss[str(name)] = correlation.spearman(whole["contributing"][own], whole[VALUE][own])
    made["by_loss"] = by_loss
    made["losses"] = findings._plain(paired(np.array(list(by_loss.values())), np.zeros(len(by_loss))))
    last = {}
    for name, rank in order.items():
        rsum = whole[VALUE][whole["family"] == name][rank]
        away = rsum - rsum.mean()
        last[str(name)] = float((away[1:] * away[:-1]).sum() / (away**2).sum())
    made["neighbours"] = {"least": min(last.values()), "most": max(last.values())}
    return made


def _side(table: dict[str, np.ndarray], x: str) -> Found:
    """Rank correlation within losses on one side of the arch; a loss with fewer than three settings has no part."""
    found = correlation.within(table[x], table[VALUE], table["family"], permutations=2000, resamples=1000)
    return findings._plain(found)


def _fit(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Least squares: coefficients, their robust covariance (HC3), and the sum of squares left.

    Source: MacKinnon & White 1985, Some heteroskedasticity-consistent covariance matrix estimators.
    """
    inverse = np.linalg.inv(x.T @ x)
    found = inverse @ x.T @ y
    rest = y - x @ found
    leverage = np.einsum("ij,jk,ik->i", x, inverse, x)
    covariance = inverse @ (x.T * (rest / (1 - leverage)) ** 2) @ x @ inverse
    return found, covariance, float(rest @ rest)


def _robust(x: np.ndarray, y: np.ndarray, place: int) -> Found:
    """A coefficient with its interval and p-value by HC3."""
    found, covariance, _ = _fit(x, y)
    freedom = len(y) - x.shape[1]
    wide = math.sqrt(covariance[place, place])
    ends = found[place] + np.array([-1, 1]) * stats.t.ppf(0.975, freedom) * wide
    p = 2 * stats.t.sf(abs(found[place]) / wide, freedom)
    return {"mean": float(found[place]), "low": float(ends[0]), "high": float(ends[1]), "p": float(p), "number": len(y)}


def _better(small: np.ndarray, large: np.ndarray, y: np.ndarray) -> float:
    """P-value of the F test that the columns which the larger design has more explain nothing."""
    left, rest = (_fit(x, y)[2] for x in (small, large))
    more, freedom = large.shape[1] - small.shape[1], len(y) - large.shape[1]
    return float(stats.f.sf((left - rest) / more / (rest / freedom), more, freedom))


def _levels(family: np.ndarray) -> np.ndarray:
    return np.stack([(family == name) * 1.0 for name in np.unique(family)], axis=1)


def _bent(level: np.ndarray, number: np.ndarray, meet: float) -> np.ndarray:
    """Columns of two lines that meet at a number, beside a level for each loss: (settings, losses + 2)."""
    at = number - math.log(meet)
    return np.column_stack([level, np.minimum(at, 0), np.maximum(at, 0)])


def _meeting(level: np.ndarray, number: np.ndarray, score: np.ndarray) -> Found:
    """Where the two lines meet by least squares, with a percentile interval: settings drawn again within each loss."""
    designs, random = np.stack([_bent(level, number, each) for each in MEETS]), np.random.default_rng(0)
    groups = [np.flatnonzero(each) for each in level.T]

    def best(times: np.ndarray) -> int:
        weighed = np.swapaxes(designs * times[:, None], 1, 2)
        right = weighed @ score
        found = (np.linalg.pinv(weighed @ designs) @ right[:, :, None])[:, :, 0]
        return MEETS[int(np.argmax((found * right).sum(axis=1)))]  # the most that lines explain

    drawn = [np.bincount(np.concatenate([random.choice(each, len(each)) for each in groups]), minlength=len(score))
             for _ in range(RESAMPLES)]  # fmt: skip
    low, high = np.quantile([best(each * 1.0) for each in drawn], (0.025, 0.975), method="nearest")
    return {"mean": best(np.ones(len(score))), "low": float(low), "high": float(high)}


def _arch(grid: xr.Dataset) -> Found:
    """P2 again: two lines, robust errors, whether one parabola serves all losses, and each loss by itself."""
    table = _table(grid)
    table = _only(table, table["family"] != CONSTANT)
    number, score, family = np.log(table["effective"]), table[VALUE], table["family"]
    level = _levels(family)
    common = np.column_stack([level, number, number**2])
    first, meeting = level.shape[1], _meeting(level, number, score)
    lines, freed = (_bent(level, number, each) for each in (APEX, meeting["mean"]))
    sloped = np.column_stack([common, (level[:, 1:].T * number).T])
    free = np.column_stack([level] + [(level.T * part).T for part in (number, number**2)])
    found, _, rest = _fit(common, score)
    away = np.abs(score - common @ found)
    best, vertices = {}, {}
    for name in np.unique(family):
        own = family == name
        top = int(np.argmax(np.where(own, score, -np.inf)))
        best[str(name)] = float(table["effective"][top])
        bend, slope, _ = np.polyfit(number[own], score[own], 2)
        vertices[str(name)] = math.exp(-slope / (2 * bend)) if bend < 0 else None
    rates = [float(each) for each in np.unique(grid["rate"].values)]
    return {
        "hc3": _robust(common, score, common.shape[1] - 1),
        "two_lines": {side: _robust(lines, score, first + k) for k, side in enumerate(("below", "above"))},
        "meeting": meeting | {side: _robust(freed, score, first + k) for k, side in enumerate(("below", "above"))},
        "cubic": _better(common, np.column_stack([common, number**3]), score),
        "slopes": _better(common, sloped, score),
        "each": _better(common, free, score),
        "farthest": float(away.max()),
        "spread": math.sqrt(rest / (len(score) - common.shape[1])),
        "best": best,
        "validated": _best_numbers(grid),
        "vertices": vertices,
        "by_rate": {f"{rate:g}": _at_rate(grid, rate) for rate in rates},
        "bent_up": [name for name, each in vertices.items() if each is None],
    }


def _best_numbers(grid: xr.Dataset) -> Found:
    """Effective number of the setting of each loss that is best on validation items, and their geometric mean."""
    best = findings._best(grid)[str(BATCH_SIZE)]
    logs = np.array([math.log(one["effective"]) for name, one in best.items() if name != CONSTANT])
    one = paired(logs, np.zeros(len(logs)))
    return {"mean": math.exp(one.mean), "low": math.exp(one.low), "high": math.exp(one.high), "number": len(logs)}


def _at_rate(grid: xr.Dataset, rate: float) -> Found:
    """The curvature where all settings have one learning rate."""
    own = (grid["rate"].values == rate) & (grid["batch_size"].values == BATCH_SIZE)
    runs = grid.isel(run=np.flatnonzero(own & (grid["family"].values != CONSTANT)))
    family, number, score = findings._settings(runs, ("effective", LAST), (VALUE, LAST))
    return findings._plain(correlation.quadratic(np.log(number), score, family, resamples=2000))


def _temperature(grid: xr.Dataset) -> Found:
    """Parabola of recall in the log of the temperature, and in that of the number, over all batch sizes."""
    sizes, made = [int(each) for each in np.unique(grid["batch_size"].values)], {}
    for name, losses in (("ntxent", SOFTMAX[:1]), ("ce_softmax", SOFTMAX[1:]), ("both", SOFTMAX)):
        parts = []
        for size in sizes:
            table = _table(grid, size)
            own = np.isin(table["family"], losses)
            parts.append(_only(table, own) | {"size": np.full(int(own.sum()), size)})
        whole = {key: np.concatenate([each[key] for each in parts]) for key in (*parts[0],)}
        temperature = np.where(whole["family"] == "ntxent", whole["value"], 1 / whole["value"])
        blocks = np.array([f"{a} {b}" for a, b in zip(whole["family"], whole["size"], strict=True)])
        score, level = whole[VALUE], _levels(blocks)
        total, fits = _fit(level, score)[2], {}
        for what, x in (
            ("temperature", np.log(temperature)),
            ("part", np.log(whole["effective"] / (whole["size"] - 1))),
            ("number", np.log(whole["effective"])),
        ):
            rest = _fit(np.column_stack([level, x, x**2]), score)[2]
            fits[what] = {"r2": 1 - rest / total, "aic": len(score) * math.log(rest)}
        made[name] = {
            "r2": {what: one["r2"] for what, one in fits.items()},
            "aic": {what: one["aic"] - fits["temperature"]["aic"] for what, one in fits.items()},
            "settings": len(score),
        }
    for name in SOFTMAX:
        tops = {str(size): findings._best(grid)[str(size)][name] for size in sizes}
        made[name]["best"] = {
            size: {"temperature": one["value"] if name == "ntxent" else 1 / one["value"], "number": one["effective"]}
            for size, one in tops.items()
        }
    return made


def _pushing(runs: xr.Dataset) -> Found:
    """Contributing negatives, effective number and idle queries of each arm at the end."""
    made: Found = {}
    for loss in plan.TREATED:
        own = runs.isel(run=np.flatnonzero(runs["family"].values == loss))
        for arm in ("hard", "random"):
            ks = (*plan.KEPT, *((plan.EVERY,) if arm == "hard" else ()))
            made.setdefault(loss, {})[arm] = {
                str(k): {name: findings._mean(own, arm, k, name) for name in ("contributing", "effective", "idle")}
                for k in ks
            }
    return made


def _equal(runs: xr.Dataset) -> Found:
    """Hard minus random negatives where as many contribute, and at the same effective number, paired by seed.

    Each seed, mean over its learning rates, has a curve of recall over the log of the number of its hard arms; it is
    read, by linear interpolation, at the number of the random arm. None where that number is outside of the curve.
    """
    made: Found = {}
    for loss in plan.TREATED:
        own = runs.isel(run=np.flatnonzero(runs["family"].values == loss))
        for name in ("contributing", "effective"):
            for k in plan.KEPT:
                made.setdefault(loss, {}).setdefault(name, {})[str(k)] = _matched(own, name, k)
    return made


def _matched(runs: xr.Dataset, name: str, k: int) -> Found | None:
    found = []
    hard = [{"arm": "hard", "k": each} for each in (*plan.KEPT, plan.EVERY)]
    curves = {
        what: np.stack([findings.differences(runs, each, each, what)[0] for each in hard]) for what in (name, VALUE)
    }
    random = {what: findings.differences(runs, *2 * ({"arm": "random", "k": k},), what)[0] for what in (name, VALUE)}
    for seed, at in enumerate(random[name]):
        order = np.argsort(curves[name][:, seed])
        number, score = (curves[what][order, seed] for what in (name, VALUE))
        if not number[0] <= at <= number[-1]:
            return None
        found.append(np.interp(math.log(at), np.log(number), score) - random[VALUE][seed])
    return findings._plain(paired(np.array(found), np.zeros(len(found)))) | {"at": float(random[name].mean())}


def _held(runs: xr.Dataset, grid: xr.Dataset, best: int) -> Found:
    """The best number that is held less a fixed temperature, by learning rate; numbers whose temperature is a floor."""
    made: Found = {"against": {}, "best": best, "fixed": FIXED}
    for rate in np.unique(runs["rate"].values):
        arms = []
        for each, wanted in ((runs, {"arm": "held", "k": best}), (grid, {"family": "ntxent", "value": FIXED})):
            own = np.ones(each.sizes["run"], dtype=bool)
            for name, value in (wanted | {"rate": rate, "batch_size": BATCH_SIZE}).items():
                own &= each[name].values == value
            column, seeds = each[VALUE].isel(step=LAST).values[own], each["seed"].values[own]
            arms.append({int(seed): value for seed, value in zip(seeds, column, strict=True)})
        shared = sorted(set(arms[0]) & set(arms[1]))
        made["against"][f"{rate:g}"] = findings._plain(paired(*(np.array([arm[s] for s in shared]) for arm in arms)))
    floor = NEAR_FLOOR * TEMPERATURES[0]
    own = runs.isel(run=np.flatnonzero(runs["arm"].values == "held"))
    at = {k: findings._mean(own, "held", k, "temperature") for k in plan.HELD}
    made["floor"] = {str(k): value for k, value in at.items() if value < floor}
    return made


def _best_rates(grid: xr.Dataset) -> Found:
    """Learning rate of the best setting of each loss, and whether it is the smallest or the largest one tried."""
    runs, rates = findings.chosen(grid, BATCH_SIZE), np.unique(grid["rate"].values)
    made, best = {}, findings._best(grid)[str(BATCH_SIZE)]
    for name, one in best.items():
        own = (runs["family"].values == name) & (runs["value"].values == one["value"])
        rate, counted = float(runs["rate"].values[own][0]), runs["ruler_contributing"].isel(step=LAST)
        made[name] = {
            "rate": rate,
            "edge": rate in (rates[0], rates[-1]),
            "rulers": {ruler: float(counted.sel(ruler=ruler).values[own].mean()) for ruler in plan.RULERS},
        }
    by_loss = {}
    for name in best:
        own = runs["family"].values == name
        pairs = set(zip(runs["value"].values[own], runs["rate"].values[own], strict=True))
        by_loss[name] = f"{sum(rate in (rates[0], rates[-1]) for _, rate in pairs)} of {len(pairs)}"
    return {"best": made, "by_loss": by_loss}


def _masking(found: Found) -> Found:
    """Effects of masking that are left once all of both data sets are corrected together."""
    p = [one[VALUE]["look_alikes_minus_random"]["p"] for data in DATA for one in found[data]["masking"].values()]
    kept = np.array(holm(p)) < 0.05
    sizes = [len(found[data]["masking"]) for data in DATA]
    parts = np.split(kept, np.cumsum(sizes)[:-1])
    return {"tests": len(p)} | {data: int(part.sum()) for data, part in zip(DATA, parts, strict=True)}


def _towers() -> Found:
    """R@1 of the losses that were trained end to end on convolution towers, by learning rate."""
    runs, made = results.open(RUNS / "towers.nc"), {}
    for name in (CONSTANT, "triplet"):
        own = runs["family"].values == name
        for rate in np.unique(runs["learning_rate"].values[own]):
            mine = own & (runs["learning_rate"].values == rate)
            made.setdefault(name, {})[f"{rate:g}"] = float(runs["r1"].values[mine].mean())
    return made | {
        "most": max(made[CONSTANT].values()),
        "rates": len(made[CONSTANT]),
        "plain": max(made["triplet"].values()),
    }


def _ruled(grid: xr.Dataset) -> Found:
    """The correlation of recall with the count by each ruler, at every level that the table of levels has."""
    runs = findings.chosen(grid, BATCH_SIZE)
    about = {"family": runs["family"].values, "config": runs["config"].values}
    return {
        ruler: correlation.levels(
            runs["ruler_contributing"].sel(ruler=ruler).values, runs[VALUE].values, **about,
            names=(f"count by {ruler}", VALUE), permutations=2000, resamples=2000,
        )
        for ruler in plan.RULERS
    }  # fmt: skip


def _of_data(opened: Callable[[str], xr.Dataset], data: str, best: int) -> Found:
    grid, runs = opened(f"{data}_grid"), opened(f"{data}_interventions")
    made = {
        "correlations": _correlations(grid),
        "arch": _arch(grid),
        "pushing": _pushing(runs),
        "equal": _equal(runs),
        "held": _held(runs, grid, best),
        "rates": _best_rates(grid),
        "ruled": _ruled(grid),
    }
    return made | ({"temperature": _temperature(grid)} if data == DATA[0] else {})


def computed(folder: Path = RESULTS) -> Found:
    """Every number of the second edition, from the runs and the findings in a folder."""
    found = json.loads((folder / findings.FILE.name).read_text("utf-8"))

    def opened(name: str) -> xr.Dataset:
        return results.open(folder / f"{name}.nc")

    made: Found = {data: _of_data(opened, data, found[data]["held"]["best"]) for data in DATA}
    made |= {"apex": APEX, "masking": _masking(found), "towers": _towers()}
    return findings._plain(made)


def write(folder: Path = RESULTS) -> Path:
    """Compute the numbers and write them beside the results."""
    text = json.dumps(computed(folder), indent=1) + "\n"
    return writing.write(folder / FILE.name, text.encode(), "numbers")
