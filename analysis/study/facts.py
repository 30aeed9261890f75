"""Numbers of the page beside `findings.json`: data, runs, losses against each other, figures of the other papers."""

import gzip
import json
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import xarray as xr

import cocos
from analysis.runs.kept import RESULTS as RUNS
from analysis.study import by_the_table, details, findings, items, null_rates, plan, reanalysis
from analysis.study.runner import RESULTS
from analysis.study.tasks import CAPTIONS, SPLITS
from cocos import results
from cocos.base.errors import InputError
from cocos.counting.statistics import Difference, paired
from cocos.reports import figures
from cocos.results.correlation import within

__all__ = ["figure", "gathered", "kept"]

ROOT = Path(__file__).parent.parent.parent
EMOJI = Path(cocos.__file__).parent / "example" / "captions.jsonl.gz"
PERCENT = 100.0  # of one candidate in as many items
ENCODER_SCALE = 20  # of the softmax that all-MiniLM-L6-v2 was trained with, by its model card
NEAR = 0.1  # a distance or a number is near another one if it differs by less than this part of it
RIVALS = ("triplet", "ntxent", "smoothap", "ce_softmax")  # losses that triplet SH is compared with


def _items() -> dict[str, dict[str, int]]:
    """Items of each split of both data sets."""
    with np.load(CAPTIONS) as held:
        sizes = {name: int((held["split"] == place).sum()) for place, name in enumerate(SPLITS)}
    with gzip.open(EMOJI, "rt", encoding="utf-8") as lines:
        found = Counter(json.loads(line)["split"] for line in lines)
    return {"captions": sizes, "emoji": {name: found[name] for name in SPLITS}}


def _of_parts(opened: dict[str, xr.Dataset]) -> dict[str, Any]:
    """Seeds, learning rates, settings, steps and processor time of each part."""
    return {
        name: {
            "runs": runs.sizes["run"],
            "seeds": len(np.unique(runs["seed"].values)),
            "rates": ", ".join(f"{rate:g}" for rate in np.unique(runs["rate"].values)),
            "steps": int(runs["step"].values[-1]),
            "checkpoints": runs.sizes["step"],
            "hours": float(runs["seconds"].sum()) / 3600,
        }
        for name, runs in opened.items()
    }


def _at_edges(rates: dict[str, dict[str, int]]) -> str:
    """Settings whose best learning rate is the smallest or the largest one, of all."""
    edges = [list(one.values())[place] for one in rates.values() for place in (0, -1)]
    return f"{sum(edges)} of {sum(sum(one.values()) for one in rates.values())}"


def _against(grid: xr.Dataset) -> dict[str, Any]:
    """Triplet SH less the others, cross-example softmax less NT-Xent: with printed parameters, and at best settings."""
    runs = findings.chosen(grid, findings.BATCH_SIZE)
    published = {loss: next(iter(given.values())) for loss, given in plan.PUBLISHED.items()}
    pairs = [("triplet_sh", rival) for rival in RIVALS] + [("ce_softmax", "ntxent")]
    made = {}
    for pair in pairs:
        arms = [{"family": loss, "value": published[loss]} for loss in pair]
        made[" ".join(pair)] = {
            "published": paired(*findings.differences(runs, *arms)),
            "best": findings._best_of(runs, *pair),
        }
    return made


def _distinct(grid: xr.Dataset) -> dict[str, Any]:
    """P1 without repeats: settings of a loss that give the same models, as margins that no query can satisfy."""
    runs = findings.chosen(grid, findings.BATCH_SIZE)
    columns = findings._settings(runs, ("contributing", findings.LAST), (findings.VALUE, findings.LAST))
    rows = list(dict.fromkeys(zip(*(each.tolist() for each in columns), strict=True)))
    family, count, score = zip(*rows, strict=True)
    return {"p1": within(count, score, family), "repeats": len(columns[0]) - len(rows)}


def _look_alikes(masking: dict[str, Any]) -> dict[str, Any]:
    """How many times the placebo's part of the push look-alikes take; effects of masking that are resolved."""
    ratios = [one["look_alike_push"]["mean"] / one["random_push"]["mean"] for one in masking.values()]
    made: dict[str, Any] = {"random_push": f"{min(ratios):.0f} to {max(ratios):.0f}"}
    for score in (findings.VALUE, "rsum_concept"):
        effects = [one[score]["look_alikes_minus_random"] for one in masking.values() if score in one]
        above, below = (sum(sign * one[end] > 0 for one in effects) for sign, end in ((1, "low"), (-1, "high")))
        made[score] = {"above": above, "below": below, "of": len(effects)}
    return made


def _ahead(found: dict[str, Any]) -> dict[str, int]:
    """Early counts whose correlation with final recall is larger than that of validation recall of the same step."""
    early = {data: found[data]["predictions"]["early"]["counts"] for data in findings.DATA}
    return {
        data: sum(one["beyond"]["rsum_val"]["low"] > 0 for one in counts.values()) for data, counts in early.items()
    }


def _missed(found: dict[str, Any], again: dict[str, Any]) -> dict[str, str]:
    """Effective numbers that were to be held and were not reached, or whose temperature ended at the floor."""
    made = {}
    for data in findings.DATA:
        told, floor = [], again[data]["held"]["floor"]
        for k, at in found[data]["held"]["reached"].items():
            if abs(at / float(k) - 1) > NEAR or k in floor:
                cold = f", temperature {floor[k]:.4f}" if k in floor else ""
                told.append(f"{k} (ends at {at:.1f}{cold})")
        made[data] = ", ".join(told)
    return made


def kept() -> dict[str, Any]:
    """Numbers of the second edition: computed again from the results, over items, and simulated."""
    files = {"again": reanalysis.FILE, "items": items.FILE, "null": null_rates.FILE}
    return {name: json.loads(file.read_text("utf-8")) for name, file in files.items()}


def _stranger(found: dict[str, Any]) -> dict[str, Any]:
    """Scores of the loop that was written from the table, beside those of the study: mean and deviation over seeds."""
    made, best = {}, found["captions"]["best"][str(findings.BATCH_SIZE)]
    for loss, one in json.loads(by_the_table.FILE.read_text("utf-8")).items():
        scores = np.array(one["rsum"])
        made[loss] = {
            "value": one["value"],
            "rate": one["rate"],
            "mean": float(scores.mean()),
            "deviation": float(scores.std(ddof=1)),
            "seeds": len(scores),
            "study": best[loss]["rsum"],
        }
    away = [abs(one["mean"] - one["study"]) / one["deviation"] for one in made.values()]
    return {"losses": made, "farthest": max(away)}


def _inside(numbers: list[float], top: dict[str, float]) -> int:
    """Numbers that lie in the interval of the top of the parabola."""
    return sum(top["optimum_low"] <= each <= top["optimum_high"] for each in numbers)


def _second(found: dict[str, Any], again: dict[str, Any]) -> dict[str, Any]:
    """Words and sums of the second edition."""
    names = {name: f"{value:+.2f}" for name, value in again["captions"]["correlations"]["by_loss"].items()}
    effects = [one[findings.VALUE]["look_alikes_minus_random"]
               for data in findings.DATA for one in found[data]["masking"].values()]  # fmt: skip
    best = {
        data: [one["effective"] for loss, one in found[data]["best"][str(findings.BATCH_SIZE)].items()
               if loss != reanalysis.CONSTANT]
        for data in findings.DATA
    }  # fmt: skip
    return {
        "one": plan.KEPT[0],
        "most": plan.KEPT[-1],
        "bests": {data: f"{min(each):.1f} to {max(each):.1f}" for data, each in best.items()},
        "by_loss": {"captions": names},
        "inside": {data: _inside(best[data], found[data]["p2"]["number"]) for data in findings.DATA},
        "resolved": sum(one["low"] > 0 or one["high"] < 0 for one in effects),
        "corrected": sum(again["masking"][data] for data in findings.DATA),
    }


def figure(name: str) -> tuple[ModuleType, dict[str, xr.Dataset]]:
    """The script of a figure and its data."""
    parts = figures._kept(ROOT / "figures" / f"{name}.nc")
    if parts is None:
        raise InputError(f"figures/{name}.nc cannot be read; run cocos figures {name}")
    return figures._loaded(ROOT / "analysis" / f"{name}.py")[0], parts


def _cross_example() -> dict[str, Difference]:
    """Cross-example softmax less sampled softmax: PR-AUC, R@1 of captions and of images."""
    module, parts = figure("cross_example")
    recalls = {way: module._gain(parts, "ce_softmax", "recall", direction=way) for way in ("t2i", "i2t")}
    return {"pr_auc": module._gain(parts, "ce_softmax", "pr_auc"), **recalls}


def _slope(part: xr.Dataset, name: str) -> dict[str, Any]:
    """The best value of a slope but 1, less 1."""
    means = dict(zip(part[name].values.tolist(), part["recall"].mean("seed").values.tolist(), strict=True))
    best = max((value for value in means if value != 1), key=means.__getitem__)
    return {"value": best, "difference": paired(*(part["recall"].sel({name: each}).values for each in (best, 1.0)))}


def _warp() -> dict[str, Any]:
    """Warp less t: the slopes, the range of α, corruptions; distances at rest."""
    module, parts = figure("hyperparameters")
    every = module._differences(parts)
    alphas = parts["alpha"]["alpha"].values.tolist()
    recall = parts["alpha"]["recall"]
    best = max(alphas, key=lambda value: every["alpha", value].mean)
    noise, noisy = figure("noise_robustness")
    kinds = noisy["noise"]["corruption"].values.tolist()
    corrupted = [noise._gain(noisy, kind) for kind in kinds if kind != "uncorrupted"]
    resting, rested = figure("dtp_functions")
    ours = rested["table"]["ours"].sel(column="AvgDTP").mean("seed")
    return {
        "near": NEAR,
        "rests": [{"alpha": a, "at": float(ours.sel(function=f"warp, α = {a:g}"))} for a in resting.WARPS],
        "accuracy": _accuracy(),
        "slopes": {name: _slope(parts[name], name) for name in ("k1", "k2")},
        "rise": paired(recall.sel(alpha=best).values, recall.sel(alpha=alphas[0]).values),
        "drop": paired(recall.sel(alpha=alphas[-1]).values, recall.sel(alpha=best).values),
        "alphas": [alphas[0], best, alphas[-1]],
        "corrupted": corrupted,
    }


def _accuracy() -> list[dict[str, Any]]:
    """R@1 of the warp less t at settings that a search chose, on seeds that chose nothing; the claim comes first."""
    runs, made = results.open(RUNS / "proxies.nc"), []
    for arms in json.loads(runs.attrs["comparisons"]):
        both = []
        for name in arms:
            own = runs.isel(run=np.flatnonzero((runs["config"].values == name) & (runs["table"].values == "ablations")))
            both.append(own.sortby("seed"))
        if not np.array_equal(*(own["seed"].values for own in both)):
            raise InputError(f"proxies.nc: the seeds of {arms[0]} and {arms[1]} differ")
        made.append({"arms": arms, "difference": paired(*(own["R@1"].values for own in both))})
    return made


def gathered() -> dict[str, Any]:
    """All of them, with plain values: dataclasses as dictionaries."""
    opened = {name: results.open(RESULTS / f"{name}.nc") for name in plan.PARTS}
    parts, found = _of_parts(opened), json.loads(findings.FILE.read_text("utf-8"))
    again, counted = kept()["again"], _items()
    more = _second(found, again)
    made = {
        **{name: more[name] for name in ("one", "most", "bests", "by_loss", "inside")},
        "items": counted,
        "details": details.rows(counted),
        "by_the_table": _stranger(found),
        "scale": ENCODER_SCALE,
        "chance": PERCENT / counted["emoji"]["test"],
        "parts": parts,
        "runs": sum(each["runs"] for each in parts.values()),
        "hours": sum(each["hours"] for each in parts.values()),
        "losses": len(plan.VALUES),
        "values": len(plan.VALUES["ntxent"]),
        "batch_sizes": ", ".join(map(str, plan.BATCH_SIZES)),
        "kept": ", ".join(map(str, plan.KEPT)),
        "held": ", ".join(map(str, plan.HELD)),
        "negatives": plan.EVERY,
        "batch_size": findings.BATCH_SIZE,
        "against": {data: _against(opened[f"{data}_grid"]) for data in findings.DATA},
        "sh": {data: found[data]["best"][str(findings.BATCH_SIZE)]["triplet_sh"] for data in findings.DATA},
        "look_alikes": {data: _look_alikes(found[data]["masking"]) for data in findings.DATA}
        | {name: more[name] for name in ("resolved", "corrected")},
        "ahead": _ahead(found),
        "missed": _missed(found, again),
        "edges": {data: _at_edges(found[data]["rates"]) for data in findings.DATA},
        "distinct": {data: _distinct(opened[f"{data}_grid"]) for data in findings.DATA},
        "cross_example": _cross_example(),
        "warp": _warp(),
    }
    return findings._plain(made)
