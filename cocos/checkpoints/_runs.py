"""The checkpoints in the folder of a training run, in the order of their steps: files, and folders of models."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cocos.base.errors import InputError, UnsafeFile
from cocos.checkpoints.files import File, Folder, file_or_folder
from cocos.checkpoints.formats import format_of, name_of

__all__ = ["CHECKPOINT_SUFFIXES", "Member", "latest", "listed", "members", "natural", "step"]

CHECKPOINT_SUFFIXES = (".npz", ".safetensors", ".pt", ".pth", ".tar", ".ckpt", ".bin")
# Digits from which on a number in a name is an identifier, not a step.
MIN_IDENTIFIER = 16
STEP_NUMBER = re.compile(r"\d+")
# A step that is said to be one, as Lightning writes it, is taken before the last number of a name, and before an epoch.
NAMED_STEP = re.compile(r"(?:step|iter|iteration|checkpoint|ckpt)s?[=_-]?(\d+)", re.IGNORECASE)
NAMED_EPOCH = re.compile(r"epochs?[=_-]?(\d+)", re.IGNORECASE)
# A number that is no part of a decimal, no rank and no version: of `Proxy_12_0.812Recall@1` it is 12.
WHOLE_NUMBER = re.compile(r"(?<!\d\.)(?<![\d@vV])(\d+)(?!\.?\d)")
# Files of a model in a folder of its own, beside its weights.
OF_A_MODEL = ("modules.json", "config.json")
# Files of a training that hold no model.
# Other parts of a model of pytorch-metric-learning, whose trunk is opened with them.
BESIDE_A_TRUNK = re.compile(r"(?P<around>(?:.*/)?)(?P<part>embedder|metric_loss|classifier)(?P<rest>_[^/]*)")
NO_MODEL = re.compile(r"(^|[/_.-])(optimi[sz]er|scheduler|scaler|rng_state\w*|training_args)([_.-]|$)", re.IGNORECASE)
MAX_LISTED = 1000  # checkpoints of one run that are listed
# Bytes of checkpoints that are read to tell their formats; the others are listed by name and size.
MAX_READ = 2**32


def natural(name: str) -> list:
    """Sort key that puts epoch_2 before epoch_10.

    Args:
        name: of a file.
    """
    parts = STEP_NUMBER.split(name), [int(number) for number in STEP_NUMBER.findall(name)]
    return [part for pair in zip(parts[0], [*parts[1], -1], strict=True) for part in pair]


@dataclass(frozen=True)
class Member:
    """A checkpoint of a run.

    Args:
        path: of the file, or of the folder of a model.
        name: relative to the folder of the run, with `/`.
        step: in the name; None where there is none.
    """

    path: Path
    name: str
    step: int | None

    @classmethod
    def of(cls, path: Path) -> "Member":
        """A checkpoint that is given by its path alone.

        Args:
            path: of the file, or of the folder of a model.
        """
        return cls(path, path.name, step(path.name, folder=path.is_dir()))

    @property
    def run(self) -> str:
        """Folder of its run within the folder that was given: what is around its name and says no step."""
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

    Args:
        name: of the checkpoint, relative to the folder of the run.
        folder: it is the folder of a model.

    Examples:
        >>> from cocos.checkpoints import _runs
        >>> _runs.step("epoch=9-step=30.ckpt"), _runs.step("checkpoint-500/model.safetensors"), _runs.step("best.pt")
        (30, 500, None)
    """
    *around, last = name.split("/")
    said = _said(last) or ([] if folder else WHOLE_NUMBER.findall(_bare(last)))
    said = said or [number for part in around for number in _said(part)]
    return int(said[-1]) if said and len(said[-1]) < MIN_IDENTIFIER else None


def _said(part: str) -> list[str]:
    """Numbers in a part of a name that are said to be steps, or else epochs."""
    return NAMED_STEP.findall(part) or NAMED_EPOCH.findall(part)


def members(folder: Folder) -> list[Member]:
    """List the checkpoints in a folder in the order of their steps; those without one come last, by their names.

    Args:
        folder: of a training run.
    """
    found = [Member(folder.path / name, name, step(name, folder=name not in folder)) for name in _members(folder)]
    return sorted(found, key=lambda each: (each.step is None, each.step or 0, natural(each.name)))


def latest(folder: Folder) -> str | None:
    """Name the checkpoint of the last step, by its name alone; None where the folder holds none.

    Args:
        folder: of a training run.
    """
    found = members(folder)
    numbered = [each for each in found if each.step is not None]
    return (numbered or found)[-1].name if found else None


def listed(folder: Folder) -> list[dict]:
    """List the checkpoints in a folder, those without a step last: name, step, bytes, format, and why it is refused.

    Args:
        folder: of a training run.
    """
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
