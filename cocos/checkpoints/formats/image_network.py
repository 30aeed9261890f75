"""ResNet, VGG and MobileNetV2 with the names of torchvision: alone, or in a model with a head."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import normalize

from cocos.base.errors import InputError
from cocos.checkpoints import Checkpoint
from cocos.checkpoints.files import File
from cocos.checkpoints.formats import _networks, _trunks, lightning, pytorch_metric_learning
from cocos.checkpoints.formats.vsepp import towers
from cocos.checkpoints.pictures import ImageEncoder, Preparation

# Preparation of the trackers of Deep SORT: OpenCV's plain resizing, without a crop.
TRACKED = (
    "how its images were prepared: they are resized to 224 x 224 pixels, as the trackers of Deep SORT do, with the "
    "mean and the standard deviation of ImageNet"
)
STRETCHED = {"resize": (224, 224), "crop": None, "resampling": "plain"}


class ImageNetwork(ImageEncoder):
    """A trunk, and layers after it.

    Args:
        trunk: `resnet`, `vgg` or `mobilenet_v2`.
        sizes: arguments of the trunk.
        layers: after the trunk: `linear` (inputs, outputs, and False where it has no bias), `batch_norm`, `layer_norm`,
            `relu`.
        unit: divide each embedding by its length.
        preparation: arguments of the preparation of each image; None: resized to 256 pixels, of which the middle 224,
            with the mean and standard deviation of ImageNet.
    """

    def __init__(
        self,
        *,
        trunk: str,
        sizes: dict[str, Any],
        layers: Sequence[Sequence] = (),
        unit: bool = False,
        preparation: dict[str, Any] | None = None,
    ):
        most = _trunks.MAX_HEAD
        if len(layers) > most:
            raise InputError(f"image_network: {len(layers)} layers after the trunk, expected at most {most}")
        super().__init__(Preparation(**(preparation or {})))
        self.unit, self.trunk = unit, _trunks.network(trunk, sizes)
        self.embedder = nn.Sequential(*(_trunks.layer(*each) for each in layers))

    def forward(self, images: Tensor) -> Tensor:
        """Encode prepared images, (N, 3, h, w), to (N, D)."""
        found = self.embedder(self.trunk(images))
        return normalize(found, dim=1, eps=0.0) if self.unit else found


build = ImageNetwork


def describe(arguments: dict) -> str:
    """Name a network in the words of its field."""
    layers = "".join(f", {' '.join(map(str, each))}" for each in arguments.get("layers", ()))
    return _trunks.trunk_class(arguments["trunk"]).named(arguments["sizes"]) + layers


def width(arguments: dict) -> int:
    """Width of the embeddings."""
    linear = [each for each in arguments.get("layers", ()) if each[0] == "linear"]
    trunk, sizes = _trunks.trunk_class(arguments["trunk"]), arguments["sizes"]
    return linear[-1][2] if linear else sizes.get("classes") or trunk.width_of(sizes)


def recognises(file: File) -> bool:
    """A ResNet, VGG or MobileNetV2 with the names of torchvision, alone or as a part of a model."""
    if not isinstance(file, File) or file.content is None or "cocos" in file.record or towers(file) is not None:
        return False
    if lightning.recognises(file) or pytorch_metric_learning.recognises(file):
        return False
    return _networks.trunk_in(file, any_family=False) is not None


def read(file: File, data=None) -> Checkpoint:
    """Read a network of images.

    A last layer `fc` or `classifier` is the embedding, unless it has the 1000 classes of ImageNet. A MobileNetV2 whose
    layers are counted one by one comes from code of re-identification, which resizes a whole image to 224 x 224
    pixels; the others read the middle of an image.
    """
    found = _networks.without_imagenet(_networks.trunk_in(file, any_family=False))
    if found.arguments["sizes"].get("nested") is False:
        notes = (*found.notes, f"{file.path} does not record {TRACKED}")
        found = replace(found, arguments=found.arguments | {"preparation": STRETCHED}, notes=notes)
    return _networks.checkpoint(file, found, format="image_network")
