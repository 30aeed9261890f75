"""Compute the numbers of the third part: what each arm reaches where the scale of the scores moves, as description."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from analysis.hold_study import scale_plan
from analysis.hold_study.findings import interval
from analysis.hold_study.plan import AFTER, START
from analysis.hold_study.runner import RESULTS
from cocos import results
from cocos.base.errors import InputError
from cocos.monitor.hold import usual

__all__ = ["CHOICES", "DIFFERENCES", "FILE", "computed", "write"]

FILE = RESULTS / "scale.json"
Found = dict[str, Any]
# What stands beside the search in each cell, constants by their value, and which differences have an interval.
CONSTANTS = (0.05, START)
CHOICES = ("grid", *(f"{value:g}" for value in CONSTANTS), *AFTER)
DIFFERENCES = {"late_grid": ("late", "grid"), "late_constant": ("late", f"{START:g}"), "late_once": ("late", "once"),
               "early_late": ("early", "late")}  # fmt: skip
MIDDLE = round(AFTER["late"] * scale_plan.TENTHS)  # the tenth at whose beginning holding late begins


def _arm(runs: xr.Dataset) -> Found:
    """Means over the seeds of an arm of a cell."""
    recall = {name: runs[name].where(np.isfinite(runs["effective"]), 0.0).values for name in ("rsum", "rsum_val")}
    path = {name: runs[f"{name}_path"].mean("run").values.tolist() for name in ("spread", "size", "temperature")}
    target = usual(scale_plan.BATCH_SIZE[str(runs["part"].values[0])])
    return {
        "rsum": float(recall["rsum"].mean()),
        "rsum_val": float(recall["rsum_val"].mean()),
        "seeds": recall["rsum"].tolist(),
        "start": float(runs["start"][0]),
        "temperature": float(runs["temperature"].mean()),
        "effective": float(runs["effective"].mean()),
        "over": float(runs["effective"].mean() / target),
        "spread": {"first": path["spread"][0], "middle": path["spread"][MIDDLE], "last": path["spread"][-1],
                   "rise": path["spread"][-1] / path["spread"][0],
                   "late_rise": path["spread"][-1] / path["spread"][MIDDLE]},
        "size": path["size"][-1],
        "path": path,
    }  # fmt: skip


def _cell(runs: xr.Dataset) -> Found:
    """What is chosen in a cell, with its recall, regret and differences."""
    constants = {value: _arm(runs.sel(run=(runs["kind"] == "constant") & (runs["start"] == value)))
                 for value in scale_plan.GRID}  # fmt: skip
    arms = {"grid": max(constants.values(), key=lambda one: one["rsum_val"])}
    arms |= {f"{value:g}": constants[value] for value in CONSTANTS}
    arms |= {kind: _arm(runs.sel(run=runs["kind"] == kind)) for kind in AFTER}
    best = max(constants.values(), key=lambda one: one["rsum"])
    differences = {name: np.subtract(*(arms[each]["seeds"] for each in pair)) for name, pair in DIFFERENCES.items()}
    warm, cold = constants[max(scale_plan.GRID)], constants[min(scale_plan.GRID)]
    return {
        **{name: str(runs[name].values[0]) for name in ("cell", "part", "score", "loss")},
        "target": usual(scale_plan.BATCH_SIZE[str(runs["part"].values[0])]),
        "arms": arms,
        "constants": {f"{value:g}": one["rsum"] for value, one in constants.items()},
        "range": float(np.ptp([one["rsum"] for one in constants.values()])),
        "follows": warm["spread"]["last"] / cold["spread"]["last"],
        "best": {"rsum": best["rsum"], "temperature": best["start"]},
        "regret": {name: best["rsum"] - arms[name]["rsum"] for name in CHOICES},
        "differences": {name: interval(values.tolist()) for name, values in differences.items()},
    }


def _control(runs: xr.Dataset) -> Found:
    """Effective numbers at the settings over the target, of the arms that are held, and where there was none."""
    held = runs.sel(run=np.isin(runs["kind"].values, list(AFTER)))
    reached = held["reached_path"].values
    return {
        "least": float(np.nanmin(reached)),
        "most": float(np.nanmax(reached)),
        "settings": int(np.isfinite(reached).sum()),
        "alarms": int(held["alarms"].sum()),
        "held": held.sizes["run"],
        "unheld": int((held["alarms"] > 0).sum()),
        "unheld_early": int((held["alarms"] > 0).where(held["kind"] == "early", 0).sum()),
    }


def _regret(cells: Mapping[str, Found]) -> Found:
    """Mean and largest regret of each choice over the cells, and where the largest is."""
    made = {}
    for name in CHOICES:
        lost = {cell: one["regret"][name] for cell, one in cells.items()}
        worst = max(lost, key=lambda cell: lost[cell])
        made[name] = {"mean": float(np.mean(list(lost.values()))), "worst": lost[worst], "where": worst}
    return made


def _ends(values: Mapping[str, float]) -> Found:
    """The smallest and the largest of some numbers of the cells, and where they are."""
    low, high = min(values, key=lambda cell: values[cell]), max(values, key=lambda cell: values[cell])
    return {"least": values[low], "least_cell": low, "most": values[high], "most_cell": high}


def _ranges(cells: Mapping[str, Found]) -> Found:
    """Over the cells: differences, how often their interval excludes 0 on a side, and how far the scale moves."""
    made: Found = {}
    for name in DIFFERENCES:
        every = {cell: one["differences"][name] for cell, one in cells.items()}
        made[name] = _ends({cell: one["mean"] for cell, one in every.items()}) | {
            "below": sum(one["high"] < 0 for one in every.values()),
            "above": sum(one["low"] > 0 for one in every.values()),
            "undecided": sum(one["low"] <= 0 <= one["high"] for one in every.values()),
        }
    for name in (f"{START:g}", *AFTER):
        made[f"rise_{name}"] = _ends({cell: one["arms"][name]["spread"]["rise"] for cell, one in cells.items()})
    for score in dict.fromkeys(one["score"] for one in cells.values()):
        made[f"follows_{score}"] = _ends({cell: one["follows"] for cell, one in cells.items() if one["score"] == score})
    for part in dict.fromkeys(one["part"] for one in cells.values()):
        made[f"early_{part}"] = _ends({
            cell: one["differences"]["early_late"]["mean"] for cell, one in cells.items() if one["part"] == part
        })
    made["late_over"] = _ends({cell: one["arms"]["late"]["over"] for cell, one in cells.items()})
    made["search_over"] = _ends({cell: one["arms"]["grid"]["over"] for cell, one in cells.items()})
    return made


def computed(*parts: xr.Dataset) -> Found:
    """All numbers of the third part.

    Args:
        parts: the trainings of each of `scale_plan.PARTS`.
    """
    cells: Found = {}
    for runs in parts:
        for name in dict.fromkeys(runs["cell"].values.tolist()):
            cells[name.replace(" ", "_")] = _cell(runs.sel(run=runs["cell"] == name))
    broken = [f"{run['cell'].item()} {run['kind'].item()} {run['start'].item():g} seed={run['seed'].item()}"
              for runs in parts for run in (runs.isel(run=place) for place in range(runs.sizes["run"]))
              if not np.isfinite(run["effective"].item())]  # fmt: skip
    return {
        "cells": cells,
        "regret": _regret(cells),
        "ranges": _ranges(cells),
        "control": {str(runs["part"].values[0]): _control(runs) for runs in parts},
        "broken": broken,
        "runs": sum(runs.sizes["run"] for runs in parts),
        "minutes": float(sum(runs["seconds"].sum().item() for runs in parts)) / 60,
    }


def write() -> Path:
    """Compute and write `scale.json`."""
    parts = [RESULTS / f"{name}.nc" for name in scale_plan.PARTS]
    for part in parts:
        if not part.is_file():
            raise InputError(f"{part.name} is not there; run python -m analysis.hold_study run")
    FILE.write_text(json.dumps(computed(*map(results.open, parts)), indent=1) + "\n", "utf-8")
    return FILE
