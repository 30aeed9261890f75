"""WarpNet of the warped softmax (`WarpNet_{epoch}_{R@1}Recall@1.pth`), with its file of proxies beside it."""

from pathlib import Path

from torch import Tensor

from cocos.base.errors import InputError
from cocos.checkpoints import Checkpoint
from cocos.checkpoints.files import File
from cocos.checkpoints.formats import _networks

__all__ = ["read", "recognises"]

PROXIES = "Proxies"  # of the one tensor in a file of proxies


def recognises(file: File) -> bool:
    """A ResNet with the names of torchvision under `Backbone.`, and the layer `Backbone.Embedding`."""
    return _networks.find(file, "warpnet") is not None


def _proxies(file: File, dimensions: int) -> tuple[Tensor | None, str]:
    """Read the proxies of the same epoch, from beside the network or from the folder `Proxies`; say where they were."""
    path = Path(file.path)
    name = path.name.replace("WarpNet", "Proxy", 1)
    places = [path.parent / name, path.parent.parent / PROXIES / name, path.parent / PROXIES / name]
    there = next((each for each in places if each != path and each.is_file()), None)
    if there is None:
        return (
            None,
            f"no proxies: there is no {name} beside it or in {PROXIES}/; samples are counted against samples",
        )
    held = File(there).record.get(PROXIES)
    if not isinstance(held, Tensor) or held.ndim != 2 or held.shape[1] != dimensions:
        shown = tuple(held.shape) if isinstance(held, Tensor) else type(held).__name__
        raise InputError(f"{there}: {PROXIES} {shown}, expected (classes, {dimensions}): proxies of another network")
    return held, f"{len(held)} proxies of {there}"


def read(file: File, data=None) -> Checkpoint:
    """Read a WarpNet; nothing in its files records α, k1, k2 and the scale, which change in the last phase.

    Args:
        file: the file.
        data: images with labels 0 to C - 1.

    Raises:
        InputError: proxies of another network are beside it.
    """
    found = _networks.find(file, "warpnet")
    proxies, said = _proxies(file, found.arguments["dimensions"])
    note = f"{file.path}: {said}; alpha, k1, k2 and scale of its loss are not recorded: give them with -p"
    return _networks.checkpoint(
        file,
        found,
        format="warpnet",
        contents={"proxies": said},
        trained_with="warped_softmax",
        proxies=proxies,
        notes=(note,),
    )
