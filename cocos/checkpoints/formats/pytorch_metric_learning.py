"""Models of pytorch-metric-learning: `trunk_*.pth` of a known network, with the embedder and the loss beside it."""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path, PurePosixPath

from cocos.base.errors import InputError
from cocos.checkpoints import Checkpoint
from cocos.checkpoints.files import File, Folder
from cocos.checkpoints.formats import _networks, _trunks, pml_losses

TRUNK = re.compile(r"trunk(?P<suffix>(_(?!optimizer|scheduler)\w+)?)\.pth?")
FORMAT = "pytorch_metric_learning"
OF_THE_TRAINING = ("optimizer", "scheduler", "sampler")


def recognises(file: File | Folder) -> bool:
    """A file `trunk_*.pth`, alone or directly in a folder, of a network with the names of torchvision."""
    trunk = _trunk(file)
    return trunk is not None and _networks.trunk_in(trunk, any_family=False) is not None


def _trunk(file: File | Folder) -> File | None:
    """Find the file of the trunk: the best one, else that of the last epoch; a folder around it may hold other runs."""
    if isinstance(file, File):
        return file if TRUNK.fullmatch(Path(file.path).name) and file.content is not None else None
    names = [name for name in file.names if TRUNK.fullmatch(name)]
    return file.file(max(names, key=_order)) if names else None


def _order(name: str) -> tuple[bool, int, str]:
    suffix = TRUNK.fullmatch(PurePosixPath(name).name)["suffix"]
    number = re.search(r"(?<!\d)\d+$", suffix)
    return "best" in suffix, int(number[0]) if number else 0, name


def _beside(file: File | Folder, trunk: File) -> Iterable[tuple[str, File]]:
    """Yield the other files of the same epoch, by the names of their parts, such as `embedder` and `metric_loss`."""
    path = Path(trunk.path)
    ending = TRUNK.fullmatch(path.name)["suffix"] + path.suffix
    if isinstance(file, Folder):
        within = path.relative_to(file.path).parent
        there = [PurePosixPath(name).name for name in file.names if PurePosixPath(name).parent == within]
    else:
        there = [each.name for each in path.parent.iterdir() if each.is_file()]
    for name in sorted(there):
        part = name.removesuffix(ending)
        if name.endswith(ending) and part != "trunk" and not any(word in part for word in OF_THE_TRAINING):
            yield (
                part,
                file.file((within / name).as_posix()) if isinstance(file, Folder) else File(path.with_name(name)),
            )


def _embedded(found: _networks.Network, embedder: File) -> _networks.Network:
    """Add the layers of the embedder."""
    states = _networks.whole(embedder)
    if not states:  # an Identity has no weights
        return found
    layers = _trunks.head(states[0].tensors)
    if layers is None:
        names = ", ".join(list(states[0].tensors)[:4])
        raise InputError(
            f"{embedder.path}: layers that cocos cannot read off their names ({names}); build trunk and embedder "
            "yourself: --model FILE.py:build"
        )
    state = found.state | {f"embedder.{key}": each for key, each in layers[1].items()}
    notes = (f"{embedder.path}: ReLU where a layer has no weights",) if ["relu"] in layers[0] else ()
    return replace(found, arguments=found.arguments | {"layers": layers[0]}, state=state, notes=notes)


def read(file: File | Folder, data=None) -> Checkpoint:
    """Read the models of one epoch, from the file of the trunk or the folder; their data are images with labels."""
    trunk = _trunk(file)
    found = _networks.trunk_in(trunk, any_family=False)
    used, classes, depends = [Path(trunk.path).name], None, []
    for part, other in _beside(file, trunk):
        if part == "embedder":
            found = _embedded(found, other)
            depends.append(other.sha256)
            used.append(Path(other.path).name)
        elif classes is None and (classes := pml_losses.vectors(other)) is not None:
            used.append(Path(other.path).name)
    contents = {"files": ", ".join(used)}
    note = f"{file.path}: read {', '.join(used)}"
    return _networks.checkpoint(
        file, found, format=FORMAT, contents=contents, classes=classes, notes=(note,), depends=depends
    )
