"""WarpNet of the warped softmax (`WarpNet_{epoch}_{R@1}Recall@1.pth`), with its file of proxies beside it."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn
from torch.nn.functional import layer_norm

from cocos.base.errors import InputError
from cocos.checkpoints import Checkpoint
from cocos.checkpoints.files import File
from cocos.checkpoints.formats import _networks
from cocos.checkpoints.formats._trunks import ResNet
from cocos.checkpoints.pictures import ImageEncoder, Preparation

BACKBONE = "Backbone."
PROXIES = "Proxies"  # of the one tensor in a file of proxies


class _Backbone(ResNet):
    """A ResNet that holds the last layer of WarpNet."""

    Embedding: nn.Linear


class WarpNet(ImageEncoder):
    """A ResNet, maximum plus mean over places, layer normalisation, a linear layer; embeddings of any length.

    The loss reads Euclidean distances to proxies. The last layer `fc` of the ResNet is in the files and is not used.
    Its sizes are as `ResNet.sizes_of` reads them.

    Source: DeMoor & Prevost 2024, Realigned softmax warping, arXiv:2408.15656; keys are named as in its code.
    """

    def __init__(self, *, dimensions: int, **sizes):
        super().__init__(Preparation())
        self.Backbone = _Backbone(**sizes)
        self.Backbone.Embedding = nn.Linear(self.Backbone.width, dimensions)

    def forward(self, images: Tensor) -> Tensor:
        """Encode prepared images, (N, 3, 224, 224), to (N, dimensions)."""
        maps = self.Backbone.maps(images)
        pooled = maps.amax(dim=(2, 3)) + maps.mean(dim=(2, 3))
        return self.Backbone.Embedding(layer_norm(pooled, pooled.shape[1:]))


build = WarpNet


def arguments(state: Mapping[str, Tensor]) -> dict | None:
    """Read the sizes of a WarpNet off its weights; None unless it has the layers of one."""
    last = state.get(f"{BACKBONE}Embedding.weight")
    inside = {key.removeprefix(BACKBONE): each for key, each in state.items() if key.startswith(BACKBONE)}
    found = ResNet.sizes_of(inside)
    if found is None or last is None or last.ndim != 2:
        return None
    return {"dimensions": last.shape[0]} | found


def describe(arguments: dict) -> str:
    """Name a network in the words of its field."""
    return f"WarpNet, {ResNet.named(arguments)}"


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
        return (None, f"no proxies: there is no {name} beside it or in {PROXIES}/; samples are counted against samples")
    held = File(there).record.get(PROXIES)
    if not isinstance(held, Tensor) or held.ndim != 2 or held.shape[1] != dimensions:
        shown = tuple(held.shape) if isinstance(held, Tensor) else type(held).__name__
        raise InputError(f"{there}: {PROXIES} {shown}, expected (classes, {dimensions}): proxies of another network")
    return held, f"{len(held)} proxies of {there}"


def read(file: File, data=None) -> Checkpoint:
    """Read a WarpNet; nothing in its files records α, k1, k2 and the scale, which change in the last phase.

    Its data are images with labels 0 to C - 1.
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
