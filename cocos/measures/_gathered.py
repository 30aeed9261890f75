"""Results of many trainings become one table of runs: which are seeds of a setting, and which belong to one model."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import xarray as xr

from cocos import results
from cocos.base.errors import InputError
from cocos.results import several

# The part of a name that says the seed, like `seed3`, `seed=3` or `seed_3`.
SEED_IN_NAME = re.compile(r"(?:^|(?<=[\W_]))seed[=_-]?(\d+)(?=$|[\W_])", re.IGNORECASE)
# The part of a name that says the checkpoint, like `epoch_3` or `step=100`.
STEP_IN_NAME = re.compile(r"(?:^|(?<=[\W_]))(?:epoch|step|iter|checkpoint|ckpt)[=_-]?(\d+)(?=$|[\W_])", re.IGNORECASE)
# Files that a message names.
MOST_FILES = 3
# Coordinates along the runs that a table has at least.
TABLE_COORDINATES = ("family", "config")


def table(files: Sequence[Path | str]) -> tuple[xr.Dataset, list[str]]:
    """Read results, stores and tables of runs into one table, and say in notes how they were put together.

    Results that are no table get their coordinates from their names: files whose names differ only in a part like
    `seed3` are seeds of one setting, those that differ in one like `epoch_3` are checkpoints of one run, all others are
    settings of their own; the family is the loss that is counted, and
    `folder` the folder. An evaluation joins the count of the same checkpoint (sha256). A count of several losses is one
    run with the dim `ruler`, and the variables are called `ruler_contributing` and so on.
    """
    paths = [Path(each) for each in files]
    names = _named(paths)
    tables, rows, notes = [], [], []
    for path, name in zip(paths, names, strict=True):
        data = results.open(path)
        if "run" in data.dims:
            tables.append(_checked(path, data))
            continue
        try:
            one = _row(data)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        found = SEED_IN_NAME.search(name)
        rows.append(one.assign_coords(file=name, folder=path.resolve().parent.name, bare=_without(name, SEED_IN_NAME)))
        if found:
            rows[-1] = rows[-1].assign_coords(seed=int(found[1]))
    counts, joined = _joined(rows)
    if joined:
        notes.append(f"{joined} evaluations belong to the counts of the same checkpoints")
    counts, checkpoints = _of_runs(counts)
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


def _row(data: xr.Dataset) -> xr.Dataset:
    """One run of a result; a count of several losses is one with the dim `ruler`."""
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


def _checked(path: Path, data: xr.Dataset) -> xr.Dataset:
    """A table of runs as it is in a file."""
    for name in TABLE_COORDINATES:
        if name not in data.coords or data[name].dims != ("run",):
            raise InputError(
                f"{path}: a table of runs without the coordinate {name!r} along run; concat(..., {name}=[...])"
            )
    return data


def _named(paths: Sequence[Path]) -> list[str]:
    """The shortest last parts of the paths, without suffixes, that tell all of them apart."""
    whole = [each.resolve().with_suffix("") for each in paths]
    for path, number in Counter(each.resolve() for each in paths).items():
        if number > 1:
            raise InputError(f"{path.name} is named {number} times; name each file once")
    for number in range(1, max(len(each.parts) for each in whole) + 1):
        names = ["/".join(each.parts[-number:]) for each in whole]
        if len(set(names)) == len(names):
            return names
    return [str(each) for each in paths]  # they differ in their suffixes alone


def _without(name: str, part: re.Pattern[str]) -> str:
    """A name without a part of it, such as the seed; the same where nothing else is in it."""
    made = re.sub(r"([\W_])[\W_]+", r"\1", part.sub("", name))
    return made.strip("/_-. ,=") or ("run" if part.search(name) else name)


def _of_runs(rows: Sequence[xr.Dataset]) -> tuple[list[xr.Dataset], int]:
    """Join counts whose names differ only in a step into runs with checkpoints, and tell how many were joined."""
    groups: dict[tuple[str, ...], dict[int, xr.Dataset]] = {}
    for place, each in enumerate(rows):
        found = STEP_IN_NAME.search(str(each["file"].values))
        about = (str(each["config"].values), str(each["seed"].values) if "seed" in each.coords else "")
        whole = found is None or "step" in each.dims
        key = (str(place),) if whole else (_without(str(each["bare"].values), STEP_IN_NAME), *about)
        step = 0 if found is None else int(found[1])
        if step in groups.setdefault(key, {}):
            key = (str(place),)
        groups.setdefault(key, {})[step] = each
    made, joined = [], 0
    for key, steps in groups.items():
        if len(steps) == 1:
            made.append(next(iter(steps.values())))
            continue
        joined += len(steps)
        parts = [steps[step].drop_vars(["sha256", "file", "bare"], errors="ignore") for step in sorted(steps)]
        axis = xr.Variable("step", sorted(steps))
        whole_run = xr.concat(parts, axis, data_vars="all", coords="different", compat="equals", join="outer")
        made.append(whole_run.assign_coords(file=key[0], bare=key[0]))
    return made, joined


def _joined(rows: Sequence[xr.Dataset]) -> tuple[list[xr.Dataset], int]:
    """Runs with the metrics of evaluations of the same checkpoint, and the number of evaluations."""
    counts = [each for each in rows if "family" in each.coords]
    places: dict[str, int] = {}
    for place, each in enumerate(counts):
        if (sha := str(each.coords["sha256"].values) if "sha256" in each.coords else "") in places:
            first, second = (str(one["file"].values) for one in (counts[places[sha]], each))
            raise InputError(
                f"{first} and {second} count the same checkpoint: one model is one unit, with one recall; give one "
                "count of each model, or count several losses in one file (cocos count --loss A --loss B)"
            )
        if sha:
            places[sha] = place
    others = [each for each in rows if "family" not in each.coords]
    lost = [
        str(each["file"].values)
        for each in others
        if str(each.coords.get("sha256", xr.DataArray("")).values) not in places
    ]
    if lost and counts:
        more = f" and {len(lost) - MOST_FILES} more" if len(lost) > MOST_FILES else ""
        raise InputError(f"{', '.join(lost[:MOST_FILES])}{more}: no count of the same checkpoint (sha256) is given")
    for each in others if counts else ():
        place = places[str(each["sha256"].values)]
        own = each.drop_vars(list(each.coords.keys() - {"direction"}))
        counts[place] = counts[place].assign({
            key: values for key, values in own.data_vars.items() if key not in counts[place]
        })
    return counts, len(others) if counts else 0


def _settings(rows: Sequence[xr.Dataset]) -> xr.Dataset:
    """A table of results, whose settings are their names without the seed, and with the loss where this is needed."""
    owners: dict[str, set[str]] = {}
    for each in rows:
        owners.setdefault(str(each["bare"].values), set()).add(str(each["config"].values))
    config = []
    for each in rows:
        bare = str(each["bare"].values)
        config.append(bare if len(owners[bare]) == 1 else f"{bare}: {each['config'].values}")
    made = results.concat([each.drop_vars("bare") for each in rows], config=config)
    seeds = made["seed"].values if "seed" in made.coords else np.full(len(rows), np.nan)
    if np.isnan(seeds.astype(float)).any():
        made = made.drop_vars("seed", errors="ignore")
    return made
