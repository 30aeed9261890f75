"""Training runs: the checkpoints of a run in the order of their steps."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from cocos.base.errors import InputError, UnsafeFile
from cocos.checkpoints import formats
from cocos.checkpoints.checkpoint import EXAMPLE, Checkpoint
from cocos.checkpoints.files import File
from cocos.embeddings import Embeddings

SUFFIXES = (".npz", ".safetensors", ".pt", ".pth", ".tar", ".ckpt", ".bin")
MODEL_FILES = ("config.json", "modules.json")  # a folder with one of these is one Hugging Face model
TRAINING_STATE = re.compile(
    r"(^|[/_.-])(optimi[sz]er|scheduler|scaler|rng_state\w*|training_args)([_.-]|$)", re.IGNORECASE
)
# pytorch-metric-learning saves one model as several files, all loaded with the trunk.
TRUNK_PART = re.compile(r"^(embedder|metric_loss|classifier)(?=_)")
# Lightning writes epoch=9-step=30: a step precedes an epoch, and both precede an unlabelled number.
STEP = re.compile(r"(?:step|iter|iteration|checkpoint|ckpt)s?[=_-]?(\d+)", re.IGNORECASE)
EPOCH = re.compile(r"epochs?[=_-]?(\d+)", re.IGNORECASE)
# Skips decimals, metrics and versions: only 12 matches in Proxy_12_0.812Recall@1_v2.
INTEGER = re.compile(r"(?<!\d\.)(?<![\d@vV])(\d+)(?!\.?\d)")
MAX_STEP_DIGITS = 15  # longer numbers are timestamps or hashes
STORES = (".jsonl", ".nc")  # suffixes of stores and results, which are read without a run


@dataclass(frozen=True)
class Member:
    """A checkpoint of a run: a file, or the folder of a model.

    Args:
        path: of the checkpoint.
        name: its path within the folder of the run, with `/`.
        step: in its name, or None.
    """

    path: Path
    name: str
    step: int | None

    @classmethod
    def of(cls, path: Path) -> "Member":
        """Return the checkpoint of a path that is not within the folder of a run."""
        return cls(path, path.name, read_step(path.name))


def natural_key(name: str) -> list[str | int]:
    """Return a sort key that puts epoch_2 before epoch_10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]


def read_step(name: str) -> int | None:
    """Return the training step in a path relative to the folder of the run, or None if absent.

    Order of precedence: a labelled number in the name, any integer in a file name, a labelled number in a folder.

    Examples:
        >>> from cocos.checkpoints.runs import read_step
        >>> [read_step(name) for name in ("epoch=9-step=30.ckpt", "checkpoint-500/model.bin", "best.pt")]
        [30, 500, None]
    """
    *folders, last = name.split("/")
    digits = labelled_digits(last)
    if not digits and last.endswith(SUFFIXES):
        while last.endswith(SUFFIXES):
            last = last.rpartition(".")[0]
        digits = INTEGER.findall(last)
    digits = digits or [number for folder in folders for number in labelled_digits(folder)]
    return int(digits[-1]) if digits and len(digits[-1]) <= MAX_STEP_DIGITS else None


def labelled_digits(part: str) -> list[str]:
    """Return the numbers labelled as steps in a path component, or else as epochs."""
    return STEP.findall(part) or EPOCH.findall(part)


def list_checkpoints(folder: Path) -> list[Member]:
    """List the checkpoints in a folder by their steps, those without a step last.

    A checkpoint is a file with one of `SUFFIXES`, or the folder of a Hugging Face model. Hidden files, optimizer states
    and the other parts of a pytorch-metric-learning model are skipped.
    """
    paths = [Path(name) for name in File(folder).names]
    weights = {path for path in paths if path.name.endswith(SUFFIXES)}
    parents = {parent for path in weights for parent in path.parents} - {Path()}
    models = {path.parent for path in paths if path.name in MODEL_FILES} & parents
    checkpoints = {model for model in models if models.isdisjoint(model.parents)}
    for path in weights:
        trunk = path.with_name(TRUNK_PART.sub("trunk", path.name))
        is_part = not models.isdisjoint(path.parents) or (trunk != path and trunk in weights)
        if not is_part and not TRAINING_STATE.search(path.as_posix()):
            checkpoints.add(path)
    members = [Member(folder / path, path.as_posix(), read_step(path.as_posix())) for path in checkpoints]
    return sorted(members, key=lambda member: (member.step is None, member.step or 0, natural_key(member.name)))


def latest(folder: Path) -> str | None:
    """Return the name of the checkpoint with the last step, or None if the folder has no checkpoint."""
    members = list_checkpoints(folder)
    numbered = [member for member in members if member.step is not None]
    return (numbered or members)[-1].name if members else None


def describe(folder: Path) -> list[dict]:
    """Return the checkpoints in a folder as plain data: name, step, bytes, format, or why it is refused."""
    described = []
    for member in list_checkpoints(folder):
        files = [member.path] if member.path.is_file() else [path for path in member.path.rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files)
        entry = {"name": member.name, "step": member.step, "size": size, "format": None, "advice": None}
        try:
            file = File(member.path)
            format = formats.find(file)
            entry |= {"format": format and formats.name_of(format), "container": file.kind}
        except InputError as error:
            entry |= {"container": "refused" if isinstance(error, UnsafeFile) else "unreadable", "advice": str(error)}
        described.append(entry)
    return described


def find_runs(paths: Sequence[Path]) -> dict[str, list[Member]]:
    """Find the checkpoints of each training run, by its name, in the order of their steps.

    Files are one run, sorted if each has a number in its name. Each folder is a run.

    Raises:
        InputError: a path is missing, or a folder contains no checkpoint or several runs.
    """
    if missing := [path for path in paths if path != EXAMPLE and not path.exists()]:
        raise InputError(f"{missing[0]}: not found, expected the checkpoints of a run or its folder")
    folders = [path for path in paths if path.is_dir()]
    if not folders:
        members = [Member.of(path) for path in paths]
        if all(member.step is not None for member in members):
            members.sort(key=lambda member: (member.step, natural_key(member.name)))
        return {paths[0].resolve().parent.name or "run": members}
    if len(folders) < len(paths):
        file = next(path for path in paths if not path.is_dir())
        raise InputError(f"{folders[0]} is a folder and {file} a file, expected the files of one run, or folders only")
    runs: dict[str, list[Member]] = {}
    for folder in folders:
        name = folder.resolve().name
        if name in runs:
            raise InputError(f"{folder}: a second folder named {name!r}; rename one to distinguish their lines")
        runs[name] = members_of_run(folder)
    return runs


def members_of_run(folder: Path) -> list[Member]:
    """Return the checkpoints of the one run in a folder; a folder that is one model is a run of one checkpoint."""
    members = list_checkpoints(folder)
    if all(member.step is None for member in members) and formats.find(File(folder)) is not None:
        return [Member(folder, folder.resolve().name, None)]
    if not members:
        stores = sorted(name for name in File(folder).names if name.endswith(STORES))
        hint = f"; give {folder / stores[0]} itself" if stores else ""
        raise InputError(f"{folder}: no checkpoint, expected a model folder or a file ({', '.join(SUFFIXES)}){hint}")
    inner = {run_folder(member.name) for member in members if member.step is not None}
    if "" in inner:  # subfolders next to numbered checkpoints contain logs and exports
        members = [member for member in members if not run_folder(member.name)]
    elif len(inner) > 1:
        names = " ".join(str(folder / name) for name in sorted(inner, key=natural_key)[:4])
        raise InputError(f"{folder}: {len(inner)} runs, expected one; name the folder of each: {names}")
    return members if all(member.step is not None for member in members) else sorted(members, key=by_name)


def by_name(member: Member) -> list[str | int]:
    """Return a sort key by name alone."""
    return natural_key(member.name)


def run_folder(name: str) -> str:
    """Return the parent folder without step folders: `a` for a/checkpoint-500/model.bin."""
    return "/".join(part for part in name.split("/")[:-1] if not labelled_digits(part))


def is_run(path: Path) -> bool:
    """Return whether a folder contains the checkpoints of a training, rather than one model or data."""
    try:
        members = members_of_run(path)
    except InputError:
        return False
    return len(members) > 1 or members[0].step is not None


def ascends(steps: Sequence[int | None]) -> bool:
    """Return whether all steps are known and each is larger than the one before."""
    return None not in steps and all(before < after for before, after in pairwise(steps))


def common_steps(runs: dict[str, list[Member]]) -> list[int] | None:
    """Return the steps of all runs, or None if they differ, are absent, or do not strictly ascend."""
    first, *others = ([member.step for member in members] for members in runs.values())
    return first if ascends(first) and all(steps == first for steps in others) else None


def explain_order(runs: dict[str, list[Member]]) -> str:
    """Return why the numbers in the names are not the steps, for runs without `common_steps`."""
    order, reason = "of the names", "the numbers in the names differ between runs"
    for members in runs.values():
        if not ascends([member.step for member in members]):
            missing = [member.name for member in members if member.step is None]
            reason = f"no number in the name of {missing[0]}" if missing else "the numbers in the names do not ascend"
            names = [member.name for member in members]
            order = ", ".join(names if len(names) <= 8 else [*names[:7], "...", names[-1]])
            break
    last = max(map(len, runs.values())) - 1
    return f"{reason}: " + (f"steps are 0 to {last}, in the order {order}" if last else "the step is 0")


def recorded_alpha(checkpoint: Checkpoint) -> float | None:
    """Return the boundary of the warp that a checkpoint was trained with, or None."""
    recorded = checkpoint.recorded.get("warped_softmax", {}) if checkpoint.trained_with == "warped_softmax" else {}
    return float(recorded["alpha"]) if "alpha" in recorded else None


@dataclass(frozen=True)
class Series:
    """The embeddings of a run, one checkpoint after the other, so that only one is in memory.

    Args:
        members: the checkpoints.
        opener: path -> checkpoint.
        split: of its data.
        device: `auto`, `cpu` or `cuda`.
        report: called after each with (files done, files in all), or None.
        seen: path and sha256 of each checkpoint that was opened.
    """

    members: Sequence[Member]
    opener: Callable[[Path], Checkpoint]
    split: str = "train"
    device: str = "auto"
    report: Callable[[int, int], None] | None = None
    seen: list[tuple[str, str]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Embeddings]:
        """Yield the samples and proxies of one checkpoint after the other."""
        for done, member in enumerate(self.members, start=1):
            checkpoint = self.opener(member.path)
            embeddings = checkpoint.embed(self.split, self.device)
            if not embeddings.proxies:
                raise InputError(
                    f"{member.path}: no class proxies (directions {', '.join(embeddings.directions)}); save them for "
                    "each checkpoint: numpy.savez(FILE, embeddings=..., labels=..., proxies=...)"
                )
            self.seen.append((str(member.path), checkpoint.sha256))
            if self.report:
                self.report(done, len(self.members))
            yield embeddings
