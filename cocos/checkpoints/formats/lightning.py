"""Checkpoints of Lightning (`.ckpt`): a known network under any attribute, and `hyper_parameters` read as data."""

from cocos.checkpoints import Checkpoint, class_vectors, inventory
from cocos.checkpoints.files import File
from cocos.checkpoints.formats import _networks

VERSION = "pytorch-lightning_version"


def recognises(file: File) -> bool:
    """A torch file in which Lightning recorded its version, with a known network among its weights."""
    return VERSION in file.record and _networks.trunk_in(file) is not None


def read(file: File, data=None) -> Checkpoint:
    """Read a checkpoint of Lightning; its hyperparameters are data, and name nothing that is imported."""
    found = _networks.without_imagenet(_networks.trunk_in(file))
    settings = inventory.hyperparameters(file).get("hyper_parameters") or "none recorded"
    contents = {"lightning": str(file.record[VERSION]), "hyperparameters": settings}
    return _networks.checkpoint(
        file, found, format="lightning", contents=contents, classes=class_vectors.found(found.rest)
    )
