"""Images as image networks read them: resized, cropped and normalised as at the validation of their training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from cocos.base.errors import InputError

# Images in one batch of a network: at 224 x 224 pixels, ResNet-50 needs about 50 MB for each.
IMAGES_AT_ONCE = 32


@dataclass(frozen=True)
class Preparation:
    """How an image is prepared for a network."""

    resize: int | tuple[int, int] | None = 256  # pixels of the shorter side, or (height, width); None leaves the size
    # (height, width) of the centre, padded with zeros if the image is smaller; None leaves the size.
    crop: tuple[int, int] | None = (224, 224)
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)  # of each channel, where white is 1
    std: tuple[float, ...] = (0.229, 0.224, 0.225)  # of each channel
    resampling: str = "bilinear"  # `bilinear` or `bicubic`, both as Pillow does it (a smaller image is averaged)

    @classmethod
    def read(cls, settings: Mapping[str, Any]) -> "Preparation":
        """Read any of these settings, of a file or a user, and try them on a blank image."""
        defaults = {"resize": None, "crop": None, "mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
        values = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
        try:
            preparation = cls(**defaults | values)
            preparation([np.zeros((3, 8, 8), np.uint8)])
        except (TypeError, ValueError, RuntimeError, AttributeError, KeyError) as error:
            expected = "resize, crop, mean, std of three channels, resampling: bilinear or bicubic"
            raise InputError(f"images: {dict(settings)} ({str(error)[:80]}), expected {expected}") from None
        return preparation

    def __call__(self, images: Sequence[Any]) -> Tensor:
        """Prepare N images (1 or 3, height, width) uint8 as one batch (N, channels, height, width) float32."""
        prepared = [self.prepare(torch.as_tensor(image)) for image in images]
        if len(sizes := {tuple(image.shape[1:]) for image in prepared}) > 1:
            raise InputError(f"images: sizes {sorted(sizes)} in one batch, expected one; name a crop")
        return torch.stack(prepared)

    def prepare(self, image: Tensor) -> Tensor:
        """Resize, crop and normalise one image; a grey channel is repeated."""
        if image.ndim != 3 or image.shape[0] not in {1, 3} or image.dtype != torch.uint8:
            raise InputError(f"image {tuple(image.shape)} {image.dtype}, expected (3, height, width) or (1, ...) uint8")
        image = image.expand(len(self.mean), -1, -1) if image.shape[0] == 1 else image
        (height, width), size = image.shape[1:], self.resize
        if isinstance(size, int):  # of the shorter side; the longer one is rounded down
            size = (size, size * width // height) if height <= width else (size * height // width, size)
        if size is not None and size != (height, width):
            from PIL import Image

            resampling = Image.Resampling[self.resampling.upper()]
            planes = [Image.fromarray(plane.contiguous().numpy()).resize(size[::-1], resampling) for plane in image]
            image = torch.from_numpy(np.stack([np.array(plane) for plane in planes]))
        if self.crop is not None:
            edges: list[int] = []  # left, right, top, bottom; a negative edge is cropped, a positive one padded
            for target, length in zip(self.crop[::-1], image.shape[:0:-1], strict=True):
                begin = -round((length - target) / 2) if length > target else (target - length) // 2
                edges += [begin, target - length - begin]
            image = pad(image, edges)
        mean, std = (torch.tensor(numbers, dtype=torch.float32).view(-1, 1, 1) for numbers in (self.mean, self.std))
        return (image.float() / 255 - mean) / std


class ImageEncoder(nn.Module):
    """A network of images, which are prepared as at the validation of its training."""

    kinds, items_at_once = ("image",), IMAGES_AT_ONCE

    def __init__(self, network: nn.Module, preparation: Preparation):
        super().__init__()
        self.network, self.preparation, self.name = network, preparation, type(network).__name__

    def encode(self, items: Sequence[Any], kind: str, side: str) -> Tensor:
        """Encode images, as `Preparation` takes them, to (n, D)."""
        return self.network(self.preparation(items).to(next(self.parameters())))
