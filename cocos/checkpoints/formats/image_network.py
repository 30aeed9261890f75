"""ResNet, VGG and MobileNetV2 with the names of torchvision: alone, or in a model with a head."""

from dataclasses import replace

from cocos.checkpoints import Checkpoint
from cocos.checkpoints.files import File
from cocos.checkpoints.formats import _networks, lightning, pytorch_metric_learning
from cocos.checkpoints.formats._two_towers import towers

__all__ = ["read", "recognises"]

# Preparation of the trackers of Deep SORT: OpenCV's plain resizing, without a crop.
TRACKED = (
    "how its images were prepared: they are resized to 224 x 224 pixels, as the trackers of Deep SORT do, with the "
    "mean and the standard deviation of ImageNet; a recipe can say otherwise ([model] images)"
)
STRETCHED = {"resize": (224, 224), "crop": None, "resampling": "plain"}


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

    Args:
        file: the file.
        data: images, with labels or captions.
    """
    found = _networks.without_imagenet(_networks.trunk_in(file, any_family=False))
    if found.arguments["sizes"].get("nested") is False:
        notes = (*found.notes, f"{file.path} does not record {TRACKED}")
        found = replace(found, arguments=found.arguments | {"preparation": STRETCHED}, notes=notes)
    return _networks.checkpoint(file, found, format="image_network")
