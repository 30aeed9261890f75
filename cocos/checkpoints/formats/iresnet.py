"""Face networks of insightface (`backbone.pth`, `model.pt`), with the shards of their class weights beside them."""

from pathlib import Path

from cocos.base.errors import InputError
from cocos.checkpoints import Checkpoint
from cocos.checkpoints.files import File
from cocos.checkpoints.formats import _networks, partial_fc

__all__ = ["read", "recognises"]

WARPED_KERNEL = 7  # of the first convolution in the code of the warped softmax


def recognises(file: File) -> bool:
    """Residual blocks with PReLU that begin with batch normalisation, and a linear layer over all places."""
    return _networks.find(file, "iresnet") is not None


def read(file: File, data=None) -> Checkpoint:
    """Read a face network.

    Args:
        file: the file.
        data: aligned faces with labels 0 to C - 1.

    Raises:
        InputError: shards of class weights are beside it, and one is missing or does not fit.
    """
    found = _networks.find(file, "iresnet")
    weights, width = partial_fc.shards(Path(file.path)), found.arguments["dimensions"]
    if weights is not None and weights.shape[1] != width:
        raise InputError(f"{file.path}: class weights beside it {tuple(weights.shape)}, expected (classes, {width})")
    said = "no class weights beside it: samples are counted against samples"
    if weights is not None:
        said = f"{len(weights)} class weights beside it, joined in the order of the ranks"
    warped = found.arguments["kernel"] == WARPED_KERNEL
    return _networks.checkpoint(
        file,
        found,
        format="iresnet",
        contents={"class weights": said},
        proxies=None if weights is None else weights.float(),
        notes=(f"{file.path}: {said}; the margin and the scale of its loss are not recorded",),
        **({"trained_with": "warped_softmax"} if warped else {}),
    )
