"""An image tower on precomputed features beside a text tower, as in VSE++ and VSRN."""

from torch import Tensor, nn

from cocos.encoders._gru_text import GRUText

__all__ = ["TwoTowers"]


class TwoTowers(nn.Module):
    """Both towers; the keys of its state dict are those of the published files under `image.` and `text.`.

    Args:
        name: of the architecture, for sentences.
        image: tower with a first layer `fc`; it refuses features of another shape.
        text: tower of the captions.
    """

    def __init__(self, name: str, image: nn.Module, text: GRUText):
        super().__init__()
        self.name, self.image, self.text = name, image, text

    def encode_images(self, features: Tensor) -> Tensor:
        """Encode features, as the image tower reads them, to (N, D)."""
        return self.image(features.to(self.image.fc.weight))

    def encode_captions(self, captions: list[str]) -> Tensor:
        """Encode M captions, to (M, D)."""
        return self.text(captions)
