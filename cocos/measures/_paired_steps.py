"""Two training runs at the steps that both have: their numbers, paired, and from which step on they differ."""

import json
from collections.abc import Iterator, Sequence

import numpy as np
import xarray as xr

from cocos.base.errors import InputError
from cocos.counting import statistics
from cocos.measures import _history
from cocos.monitor import detectors as shelf
from cocos.results import records

# Name of the direction of numbers that have none.
WHOLE = "run"
# Numbers of a run that are compared: what a monitor records, save how it was recorded, and some of retrieval.
HOW_RECORDED = ("alarm", "overhead", "queries", "candidates", "positives")
RETRIEVAL = ("R@1", "R@5", "R@10", "MRR", "mAP@R", "median_rank", "rsum", "dtp")
# Smallest number of common steps with an interval, and largest number of blocks that they are cut into.
FEWEST_STEPS, MOST_BLOCKS = 20, 20
STEP_LABELS = {
    "mean": ("mean over the common steps", ""),
    "last": ("value at the last common step", ""),
    "difference": ("mean of the differences at the same steps, second less first", ""),
    "low": ("lower end of its confidence interval", ""),
    "high": ("upper end of its confidence interval", ""),
    "p": ("p-value of the t-test over blocks of steps", "1"),
    "p_holm": ("p-value adjusted for the number of tests (Holm)", "1"),
    "pairs": ("steps at which both have a value", "steps"),
    "groups": ("blocks of consecutive steps", "blocks"),
    "since": ("first step from which on the difference keeps its sign", "steps"),
    "value": ("value at a step", ""),
}


def axis(data: xr.Dataset) -> str | None:
    """Name of the dimension of steps of a run; None of any other Dataset."""
    return next((name for name in ("checkpoint", "step") if name in data.dims and name in data.coords), None)


def at_step(data: xr.Dataset, step: int, name: str) -> xr.Dataset:
    """The queries of a run at one of its checkpoints."""
    if "query_index" not in data:
        raise InputError(
            f"--step: {name} has records of batches and no queries; give runs of cocos run --out, or files"
        )
    found = data["checkpoint"].values
    if step not in found:
        raise InputError(f"--step {step}: {name} has checkpoints at the steps {', '.join(map(str, found.tolist()))}")
    one = data.sel(checkpoint=step)
    own = {"checkpoint_sha256": str(one["sha256"].item()), "loss_repr": str(one["loss_repr"].item())}
    own["checkpoint_path"] = str(one["file"].item())
    return one.drop_vars("checkpoint").assign_attrs(own)


def _plain(data: xr.Dataset) -> xr.Dataset:
    """Numbers of a run over (step, direction), those without a direction in one of their own; steps once each."""
    name = axis(data)
    assert name is not None
    if "width" in data.dims:
        data = data.isel(width=int(data["width"].values.argmax()))
    shapes = ({name}, {name, "direction"})
    kept = [key for key in data.data_vars if set(data[key].dims) in shapes and data[key].dtype.kind in "fiu"]
    names = [*records.DIRECTION_METRICS, *RETRIEVAL, *records.STEP_METRICS]
    found = {key: data[key].astype(np.float64) for key in names if key in kept and key not in HOW_RECORDED}
    sides = [*map(str, data["direction"].values), WHOLE] if "direction" in data.dims else [WHOLE]
    found = {
        key: each.reindex(direction=sides)
        if "direction" in each.dims
        else each.expand_dims(direction=[WHOLE]).reindex(direction=sides)
        for key, each in found.items()
    }
    made = xr.Dataset(found).rename({name: "step"} if name != "step" else {})
    return made.groupby("step").mean() if len(set(made["step"].values.tolist())) < made.sizes["step"] else made


def compared(pair: Sequence[xr.Dataset], names: Sequence[str], level: float) -> tuple[dict[str, tuple], list[str]]:
    """Variables of the comparison of two runs, as `results.labelled` takes them, and notes."""
    one, other = (_plain(data) for data in pair)
    steps = np.intersect1d(one["step"].values, other["step"].values)
    metrics = [key for key in one if key in other]
    sides = [side for side in one["direction"].values.tolist() if side in other["direction"].values.tolist()]
    if not len(steps) or not metrics:
        some = [f"{name} has {each.sizes['step']} steps from {each['step'].values[0]} to {each['step'].values[-1]}"
                for name, each in zip(names, (one, other), strict=True) if each.sizes["step"]]  # fmt: skip
        raise InputError(
            f"no step is in both runs: {' and '.join(some) or 'one has none'}; give runs with common steps"
        )
    seen = [each[metrics].sel(step=steps, direction=sides).to_array("metric") for each in (one, other)]
    first, second = (each.transpose("direction", "metric", "step").values for each in seen)
    found = {key: np.full(first.shape[:2], np.nan) for key in STEP_LABELS if key not in {"mean", "last", "value"}}
    found |= {key: np.full((*first.shape[:2], 2), np.nan) for key in ("mean", "last")}
    found["value"] = np.stack([first, second], axis=2)
    for place in np.ndindex(first.shape[:2]):
        for key, value in _one(steps, first[place], second[place], level).items():
            found[key][place] = value
    tested = np.isfinite(found["p"])
    found["p_holm"][tested] = statistics.holm(found["p"][tested].tolist())
    dims = {key: ("direction", "metric", "version") for key in ("mean", "last")}
    dims["value"] = ("direction", "metric", "version", "step")
    variables = {key: (dims.get(key, ("direction", "metric")), each, *STEP_LABELS[key]) for key, each in found.items()}
    variables |= {"metric": ("metric", [str(key) for key in metrics]), "direction": ("direction", sides)}
    variables["step"] = ("step", steps, "training step", "steps")
    return variables, list(_notes(pair, (one, other), len(steps), names))


def _one(steps: np.ndarray, one: np.ndarray, other: np.ndarray, level: float) -> dict:
    """The entries of one number of one direction."""
    there = np.isfinite(one) & np.isfinite(other)
    steps, one, other = steps[there], one[there], other[there]
    entry: dict = {"pairs": len(steps)}
    if not len(steps):
        return entry
    away = other - one
    entry |= {"mean": [one.mean(), other.mean()], "last": [one[-1], other[-1]], "difference": away.mean()}
    if away[-1] != 0:
        entry["since"] = steps[np.flatnonzero(np.sign(away) != np.sign(away[-1])).max(initial=-1) + 1]
    if len(steps) < FEWEST_STEPS or np.ptp(away) == 0:
        return entry
    blocks = min(MOST_BLOCKS, round(len(steps) ** 0.5))
    test = statistics.paired(other, one, level, groups=np.arange(len(steps)) * blocks // len(steps))
    return entry | {"low": test.low, "high": test.high, "p": test.p, "groups": blocks}


def _notes(pair: Sequence[xr.Dataset], plain: Sequence[xr.Dataset], common: int, names: Sequence[str]) -> Iterator[str]:
    """Notes on steps that one run alone has, on few steps, and on what the detectors say of each run."""
    for each, name in zip(plain, names, strict=True):
        if alone := each.sizes["step"] - common:
            yield f"{alone} of the {each.sizes['step']} steps of {name} are not in the other run and left out"
    if common < FEWEST_STEPS:
        yield f"no intervals: {common} common steps, fewer than {FEWEST_STEPS}; --step compares queries at one of them"
    for data, name in zip(pair, names, strict=True):
        fired = _history.episodes(data)
        for each in fired:
            when = (
                f"step {each['first']}"
                if each["times"] == 1
                else f"steps {each['first']} to {each['last']}, {each['times']} times"
            )
            yield f"{name}, {when}: {each['sentence']}"
        if not fired and "alarms" in data.attrs:
            watched = json.loads(data.attrs.get("watching", "{}"))
            yield f"{name}: no detector fires" + (f": {shelf.summary(watched)}" if watched else "")
