"""WarpNet of the warped softmax: a ResNet, maximum plus mean over places, layer normalisation, a linear layer."""

from collections.abc import Mapping

from torch import Tensor, nn
from torch.nn.functional import layer_norm

from cocos.checkpoints.encoders import _resnet
from cocos.checkpoints.encoders._pictures import ImageEncoder, Preparation

__all__ = ["arguments", "build"]

BACKBONE = "Backbone."


class _Backbone(_resnet.ResNet):
    """A ResNet that holds the last layer of WarpNet."""

    Embedding: nn.Linear


class WarpNet(ImageEncoder):
    """Embeddings of any length: the loss reads Euclidean distances to its proxies.

    Args:
        dimensions: of the embeddings.
        resnet: arguments of the ResNet; its last layer `fc` is in the files and is not used.
    """

    def __init__(self, dimensions: int, resnet: dict):
        super().__init__(Preparation())
        self.Backbone = _Backbone(**resnet)
        self.Backbone.Embedding = nn.Linear(self.Backbone.width, dimensions)

    def forward(self, images: Tensor) -> Tensor:
        """Encode prepared images, (N, 3, 224, 224), to (N, dimensions)."""
        maps = self.Backbone.maps(images)
        pooled = maps.amax(dim=(2, 3)) + maps.mean(dim=(2, 3))
        return self.Backbone.Embedding(layer_norm(pooled, pooled.shape[1:]))


def build(*, dimensions: int, **resnet) -> WarpNet:
    """Build WarpNet.

    Args:
        dimensions: of the embeddings.
        **resnet: sizes of the ResNet (`cocos.encoders._resnet.ResNet`).

    Source: DeMoor & Prevost 2024, Realigned softmax warping, arXiv:2408.15656; names are those of its code.
    """
    return WarpNet(dimensions, resnet)


def arguments(state: Mapping[str, Tensor]) -> dict | None:
    """Read the sizes of a WarpNet off its weights; None unless it has the layers of one."""
    last = state.get(f"{BACKBONE}Embedding.weight")
    inside = {key.removeprefix(BACKBONE): each for key, each in state.items() if key.startswith(BACKBONE)}
    found = _resnet.arguments(inside)
    if found is None or last is None or last.ndim != 2:
        return None
    return {"dimensions": last.shape[0]} | found
