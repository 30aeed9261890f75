"""Checkpoints of the VSE++ training code (`model_best.pth.tar`), on raw images or on precomputed features."""

from cocos.checkpoints import Checkpoint, encoders
from cocos.checkpoints.files import File
from cocos.checkpoints.formats._two_towers import arguments, checkpoint, network, towers

__all__ = ["read", "recognises"]

LINEAR_TOWER = {"fc.weight", "fc.bias"}


def recognises(file: File) -> bool:
    """Two towers; the image tower is one linear layer, with or without a convolutional network before it."""
    found = towers(file)
    return found is not None and all(key in LINEAR_TOWER or key.startswith("cnn.") for key in found[0])


def read(file: File, data=None) -> Checkpoint:
    """Read a VSE++ checkpoint.

    Args:
        file: the file.
        data: folder of the features, captions and vocabulary (see `cocos.data.precomp`), or of images with captions and
            the vocabulary, instead of the one recorded.
    """
    image, text = towers(file)
    cnn = network(image)
    reads = {} if cnn is None else {"cnn": cnn[0]}
    return checkpoint(
        file,
        data,
        format="vsepp",
        image_tower="VSE++",
        build=lambda training, vocabulary: encoders.build(
            "vsepp", arguments(image, text, training) | reads | {"vocabulary": vocabulary}
        ),
    )
