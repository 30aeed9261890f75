"""VSE++: images through a ResNet or a VGG, or precomputed features of them, and a GRU for captions."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import normalize

from cocos.base.errors import InputError
from cocos.checkpoints.encoders import image_network
from cocos.checkpoints.encoders._pictures import IMAGES_AT_ONCE, Preparation
from cocos.checkpoints.encoders._two_towers import GRUText, TwoTowers

__all__ = ["build"]


class FeatureTower(nn.Module):
    """Linear layer on precomputed features; the keys of its state dict are those of the published code."""

    kind = "features"

    def __init__(self, img_dim: int, embed_size: int, use_abs: bool, no_imgnorm: bool):
        super().__init__()
        self.use_abs, self.no_imgnorm = use_abs, no_imgnorm
        self.fc = nn.Linear(img_dim, embed_size)

    def forward(self, features: Tensor) -> Tensor:
        """Encode features, (N, img_dim), to (N, D).

        Raises:
            InputError: features of another shape.
        """
        width = self.fc.in_features
        if features.ndim != 2 or features.shape[1] != width:
            raise InputError(
                f"image features {tuple(features.shape)}: this VSE++ image tower reads one vector of "
                f"{width} for each image, (n, {width})"
            )
        image = self.fc(features)
        image = image if self.no_imgnorm else normalize(image, dim=1, eps=0.0)
        return image.abs() if self.use_abs else image


class ImageTower(FeatureTower):
    """Linear layer on the unit vectors of a network of images, prepared as at validation."""

    kind = "image"
    items_at_once = IMAGES_AT_ONCE
    preparation = Preparation()

    def __init__(self, cnn: nn.Module, img_dim: int, embed_size: int, use_abs: bool, no_imgnorm: bool):
        super().__init__(img_dim, embed_size, use_abs, no_imgnorm)
        self.cnn = cnn

    def forward(self, images: Tensor) -> Tensor:
        """Encode prepared images, (N, 3, 224, 224), to (N, D)."""
        return super().forward(normalize(self.cnn(images), dim=1, eps=0.0))


def build(
    *,
    vocabulary: Mapping[str, int],
    img_dim: int,
    embed_size: int = 1024,
    word_dim: int = 300,
    num_layers: int = 1,
    use_abs: bool = False,
    no_imgnorm: bool = False,
    cnn: dict[str, Any] | None = None,
) -> TwoTowers:
    """Build VSE++.

    Args:
        vocabulary: word -> id, 0..V-1.
        img_dim: width of the features.
        embed_size: width of the joint space.
        word_dim: width of a word.
        num_layers: of the GRU.
        use_abs: absolute values of both embeddings, as for order embeddings.
        no_imgnorm: leave the image embeddings as long as they are.
        cnn: `trunk` and `sizes` of the network that reads images (`cocos.encoders.image_network`); None: the features
            are precomputed.

    Source: Faghri et al. 2018, VSE++, arXiv:1707.05612; sizes are the defaults of its code.
    """
    how = (img_dim, embed_size, use_abs, no_imgnorm)
    return TwoTowers(
        "VSE++",
        FeatureTower(*how) if cnn is None else ImageTower(image_network.network(**cnn), *how),
        GRUText(vocabulary, word_dim, embed_size, num_layers, use_abs),
    )
