"""Training runs: the checkpoints of a run in the order of their steps."""

import re
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from cocos.base.errors import InputError
from cocos.checkpoints import formats
from cocos.checkpoints.checkpoint import EXAMPLE
from cocos.checkpoints.files import File

SUFFIXES = (".npz", ".safetensors", ".pt", ".pth", ".tar", ".ckpt", ".bin")
MODEL_FILES = ("config.json", "modules.json")  # a folder with one of these is one Hugging Face model
TRAINING_STATE = re.compile(
    r"(^|[/_.-])(optimi[sz]er|scheduler|scaler|rng_state\w*|training_args)([_.-]|$)", re.IGNORECASE
)
# Lightning writes epoch=9-step=30: a step precedes an epoch, and both precede an unlabelled number.
STEP = re.compile(r"(?:step|iter|iteration|checkpoint|ckpt)s?[=_-]?(\d+)", re.IGNORECASE)
EPOCH = re.compile(r"epochs?[=_-]?(\d+)", re.IGNORECASE)
LABEL = re.compile(f"{STEP.pattern}|{EPOCH.pattern}", re.IGNORECASE)
# Skips decimals, metrics and versions: only 12 matches in Proxy_12_0.812Recall@1_v2.
INTEGER = re.compile(r"(?<!\d\.)(?<![\d@vV])(\d+)(?!\.?\d)")
MAX_STEP_DIGITS = 15  # longer numbers are timestamps or hashes
NO_ORDER = "no ascending numbers in the names: steps are 0, 1, 2, ..."


def read_step(path: Path) -> int | None:
    """Return the training step: a labelled number in the name, else any in a file name, else a folder's; or None."""
    stem = path.name
    while stem.endswith(SUFFIXES):
        stem = stem.rpartition(".")[0]
    *folders, digits = (STEP.findall(part) or EPOCH.findall(part) for part in path.parts)
    if not digits:
        digits = (INTEGER.findall(stem) if stem != path.name else []) or list(chain(*folders))
    return int(digits[-1]) if digits and len(digits[-1]) <= MAX_STEP_DIGITS else None


def list_checkpoints(folder: Path) -> dict[Path, int | None]:
    """Return the checkpoints of a run with their steps, in ascending order, unnumbered checkpoints last.

    A checkpoint is a file with one of `SUFFIXES`, or the folder of a Hugging Face model; optimizer states are skipped.
    A folder that is one model is a run of one checkpoint.
    """
    paths = [Path(name) for name in File(folder).names]
    weights = {path for path in paths if path.name.endswith(SUFFIXES) and not TRAINING_STATE.search(path.as_posix())}
    parents = {parent for path in weights for parent in path.parents} - {Path()}
    models = {path.parent for path in paths if path.name in MODEL_FILES} & parents
    checkpoints = {path for path in models | weights if models.isdisjoint(path.parents)}
    # The folders of runs: `a` for a/checkpoint-500/model.bin.
    run_folders = {path: Path(*(part for part in path.parts[:-1] if not LABEL.search(part))) for path in checkpoints}
    runs = {run_folders[path] for path in checkpoints if read_step(path) is not None}
    if not runs and formats.find(File(folder)) is not None:
        return {folder: None}
    if not checkpoints:
        raise InputError(f"{folder}: no checkpoint, expected a model folder or a file ({', '.join(SUFFIXES)})")
    if Path() in runs:  # subfolders next to numbered checkpoints contain logs and exports
        checkpoints = {path for path in checkpoints if run_folders[path] == Path()}
    elif len(runs) > 1:
        raise InputError(f"{folder}: {len(runs)} runs, expected one; choose a subfolder, such as {folder / min(runs)}")
    ordered = sorted(checkpoints, key=lambda path: (len(path.name), path))
    return sort_by_step({folder / path: read_step(path) for path in ordered})


def sort_by_step(steps: dict[Path, int | None]) -> dict[Path, int | None]:
    """Sort checkpoints by their steps; those without one are last, in the given order."""
    return dict(sorted(steps.items(), key=lambda item: (item[1] is None, item[1] or 0)))


def find_runs(paths: Sequence[Path]) -> dict[str, dict[Path, int | None]]:
    """Return the checkpoints of each training run with their steps, by the name of the run.

    Files are one run, sorted by their numbers, or else in the given order. Each folder is a run.
    """
    if missing := [path for path in paths if path != EXAMPLE and not path.exists()]:
        raise InputError(f"{missing[0]}: not found, expected the checkpoints of a run or its folder")
    folders = [path for path in paths if path.is_dir()]
    if not folders:
        return {paths[0].resolve().parent.name: sort_by_step({path: read_step(Path(path.name)) for path in paths})}
    runs = {folder.resolve().name: list_checkpoints(folder) for folder in folders}
    if len(runs) < len(paths):
        raise InputError(f"{', '.join(map(str, paths))}: expected the files of one run, or folders of different names")
    return runs


def is_run(folder: Path) -> bool:
    """Return whether a folder contains the checkpoints of a training run, rather than one model, set or data."""
    try:
        steps = list_checkpoints(folder).values()
    except InputError:
        return False
    return (len(steps) > 1 or None not in steps) and not formats.shards.sniff(File(folder))


def common_steps(runs: Sequence[dict[Path, int | None]]) -> list[int] | None:
    """Return the steps of all runs, or None if they differ, are absent, or do not strictly ascend."""
    steps = [list(run.values()) for run in runs]
    if any(None in run or run != sorted(set(run)) or run != steps[0] for run in steps):
        return None
    return steps[0]
