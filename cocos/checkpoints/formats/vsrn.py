"""Checkpoints of the VSRN training code (`model_best.pth.tar`)."""

from cocos.checkpoints import Checkpoint, encoders
from cocos.checkpoints.files import File
from cocos.checkpoints.formats._two_towers import arguments, checkpoint, towers

__all__ = ["read", "recognises"]


def recognises(file: File) -> bool:
    """Two towers, of which the image tower has graph layers over regions."""
    found = towers(file)
    return found is not None and any(key.startswith("Rs_GCN_") for key in found[0])


def read(file: File, data=None) -> Checkpoint:
    """Read a VSRN checkpoint.

    The code for Flickr30k has batch normalisation at the end of the image tower, and no normalisation of the
    regions before the graph layers. The first code had neither variant, so both are decided by the weights:
    batch normalisation where its weights are in the file, the variant for Flickr30k only together with it.

    Args:
        file: the file.
        data: folder of the features, captions and vocabulary (see `cocos.data.precomp`), instead of the one
            recorded.
    """
    image, text = towers(file)
    batch_norm = "bn.weight" in image

    def build(training, vocabulary):
        variant = {
            "batch_norm": batch_norm,
            "region_norm": not (batch_norm and training.options.get("data_name") == "f30k_precomp"),
        }
        return encoders.build("vsrn", arguments(image, text, training) | variant | {"vocabulary": vocabulary})

    return checkpoint(
        file, data, format="vsrn", image_tower="VSRN, graph reasoning over regions and a GRU", build=build
    )
