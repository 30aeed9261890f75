"""Series: the checkpoints of one training run, files or folders with the number of the step in their names."""

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from cocos.base.errors import InputError, UnsafeFile, unreachable
from cocos.checkpoints.checkpoint import Checkpoint
from cocos.checkpoints.files import File, Folder, file_or_folder
from cocos.checkpoints.formats import format_of, name_of
from cocos.embeddings import Embeddings

CHECKPOINT_SUFFIXES = (".npz", ".safetensors", ".pt", ".pth", ".tar", ".ckpt", ".bin")
# Digits from which on a number in a name is an identifier, not a step.
MIN_IDENTIFIER = 16
STEP_NUMBER = re.compile(r"\d+")
# A number labelled as a step, as Lightning writes it, comes before the last number of a name, and before an epoch.
NAMED_STEP = re.compile(r"(?:step|iter|iteration|checkpoint|ckpt)s?[=_-]?(\d+)", re.IGNORECASE)
NAMED_EPOCH = re.compile(r"epochs?[=_-]?(\d+)", re.IGNORECASE)
# A number that is no part of a decimal, no rank and no version: of `Proxy_12_0.812Recall@1` it is 12.
WHOLE_NUMBER = re.compile(r"(?<!\d\.)(?<![\d@vV])(\d+)(?!\.?\d)")
# Files of a model in a folder of its own, beside its weights.
OF_A_MODEL = ("modules.json", "config.json")
# Other parts of a model of pytorch-metric-learning, whose trunk is opened with them.
BESIDE_A_TRUNK = re.compile(r"(?P<around>(?:.*/)?)(?P<part>embedder|metric_loss|classifier)(?P<rest>_[^/]*)")
# Files of a training that hold no model.
NO_MODEL = re.compile(r"(^|[/_.-])(optimi[sz]er|scheduler|scaler|rng_state\w*|training_args)([_.-]|$)", re.IGNORECASE)
MAX_LISTED = 1000  # checkpoints of one run that are listed
# Bytes of checkpoints that are read to tell their formats; the others are listed by name and size.
MAX_READ = 2**32
NAMES_SHOWN = 8  # names of files in a note
RUNS_SHOWN = 4  # folders of runs in a sentence
READ_BY_THEMSELVES = (".jsonl", ".nc")  # suffixes of stores and results, which are no checkpoints


def natural(name: str) -> list:
    """Sort key that puts epoch_2 before epoch_10."""
    parts = STEP_NUMBER.split(name), [int(number) for number in STEP_NUMBER.findall(name)]
    return [part for pair in zip(parts[0], [*parts[1], -1], strict=True) for part in pair]


@dataclass(frozen=True)
class Member:
    """A checkpoint of a run: a file, or the folder of a model.

    Its name is relative to the folder of the run, with `/`; its step is the one in the name, None where there is none.
    """

    path: Path
    name: str
    step: int | None

    @classmethod
    def of(cls, path: Path) -> "Member":
        """A checkpoint that is given by its path alone."""
        return cls(path, path.name, step(path.name, folder=path.is_dir()))

    @property
    def run(self) -> str:
        """Folder of its run within the given folder: the parts of the path without a step."""
        return "/".join(part for part in self.name.split("/")[:-1] if not _said(part))


def _bare(name: str) -> str:
    """Take the suffixes of checkpoints off a name."""
    while name.endswith(CHECKPOINT_SUFFIXES):
        name = name.rpartition(".")[0]
    return name


def _around(name: str) -> list[str]:
    """Folders around a name, the outermost first."""
    parts = name.split("/")
    return ["/".join(parts[:k]) for k in range(1, len(parts))]


def _members(folder: Folder) -> Iterator[str]:
    """Yield the names of the checkpoints in a folder: folders of models, and files that lie in none of them."""
    inner = {name.rpartition("/")[0] for name in folder.names if name.rpartition("/")[2] in OF_A_MODEL}
    holding = {place for name in folder.names if name.endswith(CHECKPOINT_SUFFIXES) for place in _around(name)}
    models: dict[str, None] = {}
    for place in sorted(inner & holding, key=len):
        if models.keys().isdisjoint(_around(place)):
            models[place] = None
    yield from models
    for name in folder.names:
        beside = not models.keys().isdisjoint(_around(name))
        part = BESIDE_A_TRUNK.fullmatch(name)
        beside = beside or (part is not None and f"{part['around']}trunk{part['rest']}" in folder)
        if name.endswith(CHECKPOINT_SUFFIXES) and not beside and not NO_MODEL.search(name):
            yield name


def step(name: str, *, folder: bool = False) -> int | None:
    """Read the step of a checkpoint from its name, or from that of a folder around it that says so; None without one.

    The name is relative to the folder of the run; `folder` says that it is the folder of a model.

    Examples:
        >>> from cocos.checkpoints.series import step
        >>> step("epoch=9-step=30.ckpt"), step("checkpoint-500/model.safetensors"), step("best.pt")
        (30, 500, None)
    """
    *around, last = name.split("/")
    said = _said(last) or ([] if folder else WHOLE_NUMBER.findall(_bare(last)))
    said = said or [number for part in around for number in _said(part)]
    return int(said[-1]) if said and len(said[-1]) < MIN_IDENTIFIER else None


def _said(part: str) -> list[str]:
    """Numbers in a part of a name that are labelled as steps, or else as epochs."""
    return NAMED_STEP.findall(part) or NAMED_EPOCH.findall(part)


def members(folder: Folder) -> list[Member]:
    """List the checkpoints in a folder in the order of their steps; those without one come last, by their names."""
    found = [Member(folder.path / name, name, step(name, folder=name not in folder)) for name in _members(folder)]
    return sorted(found, key=lambda each: (each.step is None, each.step or 0, natural(each.name)))


def latest(folder: Folder) -> str | None:
    """Name the checkpoint of the last step, by its name alone; None where the folder holds none."""
    found = members(folder)
    numbered = [each for each in found if each.step is not None]
    return (numbered or found)[-1].name if found else None


def listed(folder: Folder) -> list[dict]:
    """List the checkpoints in a folder, those without a step last: name, step, bytes, format, and why it is refused."""
    found, left = [], MAX_READ
    shown = members(folder)[:MAX_LISTED]
    sizes = dict.fromkeys((each.name for each in shown), 0)
    for name in folder.names:
        for place in sizes.keys() & {*_around(name), name}:
            sizes[place] += folder.size(name)
    for each in shown:
        size = sizes[each.name]
        about = {
            "name": each.name,
            "step": each.step,
            "size": size,
            "format": None,
            "container": None,
            "advice": None,
        }
        if size > left:
            about["advice"] = "not read: the run is large"
        else:
            left -= size
            about |= _format(folder, each.name)
        found.append(about)
    return found


def _format(folder: Folder, name: str) -> dict:
    """Tell the format of a checkpoint, or why it is refused."""
    try:
        file: File | Folder = folder.file(name) if name in folder else file_or_folder(folder.path / name)
        format = format_of(file)
        return {"format": format and name_of(format), "container": file.kind}
    except UnsafeFile as error:
        return {"container": "refused", "advice": str(error)}
    except InputError as error:
        return {"container": "unreadable", "advice": str(error)}


def files(paths: Sequence[Path]) -> dict[str, list[Member]]:
    """Find the checkpoints of each training run, by its name, in the order of their steps.

    Files make one run: sorted if each has a number in its name, and in the order given otherwise. Each folder is a
    run, whose checkpoints are files, folders of models, or the folder itself where it is a model without any step.
    """
    for path in paths:
        try:
            there = path.exists()
        except OSError as error:
            raise InputError(f"{path}: {unreachable(error)}") from None
        if not there:
            raise InputError(f"{path}: there is no such file or folder")
    folders = [path for path in paths if path.is_dir()]
    if not folders:
        given = [Member.of(path) for path in paths]
        in_order = all(each.step is not None for each in given)
        name = paths[0].resolve().parent.name or "run"
        return {name: sorted(given, key=lambda each: (each.step, natural(each.name))) if in_order else given}
    if len(folders) < len(paths):
        other = next(path for path in paths if not path.is_dir())
        raise InputError(f"{folders[0]} is a folder and {other} is a file: give files of one run, or a folder for each")
    runs = {}
    for folder in folders:
        name = folder.resolve().name
        if name in runs:
            raise InputError(f"{folder}: there are two folders of the name {name!r}; rename one, for their lines")
        runs[name] = _inside(folder)
    return runs


def is_run(path: Path) -> bool:
    """Whether a folder holds checkpoints of a training, rather than one model or data."""
    try:
        found = next(iter(files([path]).values()))
    except InputError:
        return False
    return len(found) > 1 or found[0].step is not None


def _inside(path: Path) -> list[Member]:
    """List the checkpoints of one run."""
    folder = file_or_folder(path)
    found = members(folder)
    if not any(each.step is not None for each in found):
        with suppress(InputError):
            if format_of(folder) is not None:
                return [Member(path, path.resolve().name, None)]
    if not found:
        others = sorted(name for name in folder.names if name.endswith(READ_BY_THEMSELVES))
        hint = f"; give {shlex.quote(str(path / others[0]))} itself" if others else ""
        raise InputError(
            f"{path}: there is no file with one of the suffixes {', '.join(CHECKPOINT_SUFFIXES)} in it, and no folder "
            f"of a model{hint}"
        )
    within = sorted({each.run for each in found if each.step is not None}, key=natural)
    if "" in within:  # folders beside the checkpoints hold other things
        found, within = [each for each in found if not each.run], [""]
    if len(within) > 1:
        some = " ".join(shlex.quote(str(path / each)) for each in within[:RUNS_SHOWN])
        raise InputError(f"{path} holds the checkpoints of {len(within)} runs; name the folder of each: {some}")
    whole = all(each.step is not None for each in found)
    return found if whole else sorted(found, key=lambda each: natural(each.name))


def steps(runs: dict[str, list[Member]]) -> list[int] | None:
    """Read the steps from the names of the files; None unless they ascend and all runs have the same."""
    found = [[each.step for each in inside] for inside in runs.values()]
    first = found[0]
    if not _ascend(first):
        return None
    return first if all(one == first for one in found) else None


def _ascend(found: Sequence[int | None]) -> bool:
    """Whether each has a step, and each but the first a larger one than the one before."""
    return None not in found and all(a < b for a, b in zip(found, found[1:], strict=False))


def unnumbered(runs: dict[str, list[Member]]) -> str:
    """Say why the numbers in the names are no steps, and which steps are used, where `steps` gives None."""
    order, why = "of the names", "the numbers in the names differ between runs"
    for inside in runs.values():
        missing = [each.name for each in inside if each.step is None]
        if not _ascend([each.step for each in inside]):
            why = f"no number in the name of {missing[0]}" if missing else "the numbers in the names do not ascend"
            names = [each.name for each in inside]
            order = ", ".join(names if len(names) <= NAMES_SHOWN else [*names[: NAMES_SHOWN - 2], "...", names[-1]])
            break
    last = max(map(len, runs.values())) - 1
    return f"{why}: " + (f"steps are 0 to {last}, in the order {order}" if last else "the step is 0")


def recorded_alpha(checkpoint: Checkpoint) -> float | None:
    """Return the boundary of the warp that a checkpoint was trained with; None if it does not say."""
    recorded = checkpoint.recorded.get("warped_softmax", {}) if checkpoint.trained_with == "warped_softmax" else {}
    return float(recorded["alpha"]) if "alpha" in recorded else None


@dataclass(frozen=True)
class Series:
    """The checkpoints of one training run, opened one after the other, so that only one is in memory.

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
        for done, path in enumerate((each.path for each in self.members), start=1):
            checkpoint = self.opener(path)
            embeddings = checkpoint.embed(self.split, self.device)
            if not embeddings.proxies:
                sides = ", ".join(embeddings.directions)
                raise InputError(
                    f"{path} has no proxies of classes (its directions: {sides}); save embeddings, labels, proxies and "
                    "proxy_labels of each checkpoint: numpy.savez(FILE, embeddings=..., labels=..., proxies=...)"
                )
            self.seen.append((str(path), checkpoint.sha256))
            if self.report:
                self.report(done, len(self.members))
            yield embeddings
