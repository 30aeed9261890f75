"""The history of a run, from its checkpoints or the records of a store, and what the detectors say of it."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import xarray as xr

from cocos.monitor import detectors as shelf
from cocos.results import records

# Entries of a record that are text.
RECORD_TEXTS = ("kind",)


def of_checkpoints(data: xr.Dataset) -> list[dict[str, Any]]:
    """Records of a run, one for each checkpoint, from its Dataset; numbers that are not known are left out.

    A checkpoint that was left out since it is not finite has a record of this alone.
    """
    found = [{"step": step, "source": "checkpoint", "finite": False} for step in not_finite(data)]
    for k, step in enumerate(data["checkpoint"].values):
        one = data.isel(checkpoint=k)
        record: dict[str, Any] = {"step": int(step), "source": "checkpoint", "finite": True}
        record |= {name: str(one[name].item()) for name in RECORD_TEXTS if name in one and str(one[name].item())}
        names = [name for name in records.STEP_METRICS if name != "alarm" and name in one]
        record |= _known({name: float(one[name]) for name in names})
        record["directions"] = {
            str(side): _known({
                name: float(one[name].sel(direction=side)) for name in records.DIRECTION_METRICS if name in one
            })
            for side in one["direction"].values
        }
        found.append(record)
    return sorted(found, key=lambda each: each["step"])


def not_finite(data: xr.Dataset) -> list[int]:
    """Steps of the checkpoints that were left out because they have NaN or infinity."""
    return [each["step"] for each in json.loads(data.attrs.get("left_out", "[]")) if not each.get("finite", True)]


def _known(numbers: Mapping[str, float]) -> dict[str, float | int]:
    """Numbers that are finite; whole ones as integers."""
    finite = {name: value for name, value in numbers.items() if math.isfinite(value)}
    return {name: int(value) if value == int(value) else value for name, value in finite.items()}


def every(history: Sequence[Mapping[str, Any]], detectors: Iterable[shelf.Detector]) -> list[dict[str, Any]]:
    """Every alarm of a history, in the order of the steps, each with the width of its records.

    Args:
        history: records, oldest first.
        detectors: that are on.
    """
    made, apart = tuple(detectors), by_width(history)
    said = [asdict(each) | {"width": width} for width, own in apart.items() for each in shelf.replay(own, made)]
    return sorted(said, key=lambda each: each["step"])


def by_width(history: Sequence[Mapping[str, Any]]) -> dict[Any, list[Mapping[str, Any]]]:
    """The records of each width; one that is not finite has none, and goes to those before it."""
    apart: dict[Any, list[Mapping[str, Any]]] = {}
    for record in history:
        apart.setdefault(record.get("width", next(iter(apart), None)), []).append(record)
    return apart


def axis(data: xr.Dataset) -> str:
    """Name of the axis of steps: of checkpoints, or of the records of a store."""
    return "checkpoint" if "checkpoint" in data.dims else "step"


def widest(data: xr.Dataset) -> xr.Dataset:
    """The numbers of the largest width, where a store has several."""
    return data.sel(width=data["width"].max(), drop=True) if "width" in data.dims else data


def episodes(data: xr.Dataset) -> list[dict[str, Any]]:
    """The episodes of a Dataset in which detectors fired, in the order of their first steps.

    Returns:
        Entries as `cocos.detectors.episodes` has them, with `width`, `of` how many records, and `now`: whether it fires
        at the last one.
    """
    steps = sorted([*data[axis(data)].values.tolist(), *not_finite(data)])
    said: dict[Any, dict[Any, list[dict[str, Any]]]] = {}
    for each in json.loads(data.attrs.get("alarms", "[]")):
        said.setdefault(each.get("width"), {}).setdefault(each["step"], []).append(each)
    made = []
    for width, own in said.items():
        history = [{"step": step, "alarms": own.get(step, [])} for step in sorted({*steps, *own})]
        for entry in shelf.episodes(history):
            now = len(steps) > 0 and entry["last"] == steps[-1]
            made.append(entry | {"width": width, "now": now, "of": len(steps)})
    return sorted(made, key=lambda each: each["first"])
