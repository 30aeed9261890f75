"""TFeat and HardTFeat: descriptors of grey patches, trained with triplets."""

from cocos.checkpoints import Checkpoint
from cocos.checkpoints.files import File
from cocos.checkpoints.formats import _networks

__all__ = ["read", "recognises"]


def recognises(file: File) -> bool:
    """Two convolutions, and a layer over all of their places."""
    return _networks.find(file, "tfeat") is not None


def read(file: File, data=None) -> Checkpoint:
    """Read a descriptor.

    Args:
        file: the file.
        data: images with labels; each is made grey and resized to 32 x 32 pixels.
    """
    found = _networks.find(file, "tfeat")
    hard = found.arguments["hard"]
    return _networks.checkpoint(
        file,
        found,
        format="tfeat",
        contents={"descriptor": "HardTFeat, unit vectors" if hard else "TFeat, compared by Euclidean distance"},
    )
