"""A known image network and the layers after it: what the fine-tuning of a network with names of torchvision saves."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from cocos.base.errors import InputError, nearest
from cocos.checkpoints.encoders import _mobilenet_v2, _resnet, _vgg
from cocos.checkpoints.encoders._pictures import ImageEncoder, Preparation
from cocos.checkpoints.encoders._weights import fits

__all__ = ["build", "head", "network", "trunk"]

TRUNKS = {"mobilenet_v2": _mobilenet_v2, "resnet": _resnet, "vgg": _vgg}
BUILD = {"mobilenet_v2": _mobilenet_v2.MobileNetV2, "resnet": _resnet.ResNet, "vgg": _vgg.VGG}
# Layers after the trunk: the numbers that each takes.
LAYERS: dict[str, tuple[Any, int]] = {
    "linear": (nn.Linear, 2),
    "batch_norm": (nn.BatchNorm1d, 1),
    "layer_norm": (nn.LayerNorm, 1),
    "relu": (nn.ReLU, 0),
}
MAX_HEAD = 64  # layers after the trunk
NUMBERED = re.compile(r"(?:(?P<before>.+)\.)?(?P<place>\d{1,3})\.(?P<name>[a-z_]+)")


class ImageNetwork(ImageEncoder):
    """A trunk, and layers after it.

    Args:
        trunk: name of the trunk.
        sizes: arguments of the trunk.
        layers: after the trunk, each a name and its sizes.
        unit: divide each embedding by its length.
        preparation: of each image.
    """

    def __init__(self, trunk: str, sizes: dict, layers: Sequence[Sequence], unit: bool, preparation: Preparation):
        super().__init__(preparation)
        self.unit, self.trunk = unit, network(trunk, sizes)
        self.embedder = nn.Sequential(*(_layer(*each) for each in layers))

    def forward(self, images: Tensor) -> Tensor:
        """Encode prepared images, (N, 3, h, w), to (N, D)."""
        found = self.embedder(self.trunk(images))
        return normalize(found, dim=1, eps=0.0) if self.unit else found


def _layer(name: str, *sizes: int) -> nn.Module:
    """Build one layer after the trunk."""
    layer, number = LAYERS.get(name, (None, 0))
    if layer is None:
        raise InputError(nearest("layer", name, list(LAYERS)))
    if len(sizes) not in {number, number + (name == "linear")}:
        raise InputError(f"layer {name}: sizes {list(sizes)}, expected {number}")
    return layer(*sizes)


def build(
    *,
    trunk: str,
    sizes: dict[str, Any],
    layers: Sequence[Sequence] = (),
    unit: bool = False,
    preparation: dict[str, Any] | None = None,
) -> ImageNetwork:
    """Build a network of images.

    Args:
        trunk: `resnet`, `vgg` or `mobilenet_v2`.
        sizes: arguments of the trunk.
        layers: after the trunk: `linear` (inputs, outputs, and False where it has no bias), `batch_norm`, `layer_norm`,
            `relu`.
        unit: divide each embedding by its length.
        preparation: arguments of the preparation of each image; None: resized to 256 pixels, of which the middle 224,
            with the mean and standard deviation of ImageNet.

    Raises:
        InputError: an unknown trunk or layer.
    """
    if len(layers) > MAX_HEAD:
        raise InputError(f"image_network: {len(layers)} layers after the trunk, expected at most {MAX_HEAD}")
    return ImageNetwork(trunk, sizes, layers, unit, Preparation(**(preparation or {})))


def network(trunk: str, sizes: dict[str, Any]) -> nn.Module:
    """Build a trunk alone.

    Args:
        trunk: `resnet`, `vgg` or `mobilenet_v2`.
        sizes: its arguments.

    Raises:
        InputError: an unknown trunk.
    """
    if trunk not in TRUNKS:
        raise InputError(nearest("trunk", trunk, sorted(TRUNKS)))
    return BUILD[trunk](**sizes)


def trunk(state: Mapping[str, Tensor]) -> tuple[str, dict] | None:
    """Find the trunk whose names and shapes are exactly those of a state dict, and its sizes; None if there is none."""
    for name, module in TRUNKS.items():
        sizes = module.arguments(state)
        if sizes is not None and fits(partial(BUILD[name], **sizes), state):
            return name, sizes
    return None


def head(state: Mapping[str, Tensor]) -> tuple[list[list], dict[str, Tensor]] | None:
    """Read the layers after a trunk off their weights.

    They are one linear layer, or layers numbered in a sequence; a number without weights is taken as ReLU. A tensor
    that stands under a second name as well is read once.

    Args:
        state: weights of these layers alone.

    Returns:
        The layers, as `build` takes them, and their weights, numbered from 0; None unless all weights belong to them.
    """
    found: dict[int, dict[str, Tensor]] = {}
    named = {f"0.{key}": each for key, each in state.items()} if state.keys() <= {"weight", "bias"} else dict(state)
    parsed = {key: match for key in named if (match := NUMBERED.fullmatch(key))}
    if not parsed or len({match["before"] for match in parsed.values()}) > 1:
        return None
    for key, match in parsed.items():
        found.setdefault(int(match["place"]), {})[match["name"]] = named[key]
    inside = [named[key] for key in parsed]
    if not all(any(_same(named[key], each) for each in inside) for key in named.keys() - parsed.keys()):
        return None
    if max(found) >= MAX_HEAD:
        return None
    layers = [_described(found.get(place)) for place in range(max(found) + 1)]
    known = [each for each in layers if each is not None]
    if len(known) < len(layers):
        return None
    return known, {f"{place}.{name}": each for place, layer in found.items() for name, each in layer.items()}


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one, other)


def _described(weights: dict[str, Tensor] | None) -> list | None:
    """Describe a layer by its weights; None for one that is not among `LAYERS`."""
    if weights is None:
        return ["relu"]
    weight = weights.get("weight")
    if weight is not None and weight.ndim == 2 and weights.keys() <= {"weight", "bias"}:
        return ["linear", weight.shape[1], weight.shape[0], *([] if "bias" in weights else [False])]
    if weight is None or weight.ndim != 1:
        return None
    return ["batch_norm" if "running_mean" in weights else "layer_norm", weight.shape[0]]
