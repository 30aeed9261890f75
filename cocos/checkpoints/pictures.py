"""Images as image networks read them: resized, cropped and normalised as at the validation of their training."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from cocos.base.errors import InputError

# Images in one batch of a network: at 224 x 224 pixels, ResNet-50 needs about 50 MB for each.
IMAGES_AT_ONCE = 32
FILTERS = {"bilinear": 2, "bicubic": 3}  # numbers of Pillow
LARGEST_SIDE = 4096  # pixels that a configuration may ask for


@dataclass(frozen=True)
class Preparation:
    """How an image is prepared for a network.

    Args:
        resize: pixels of the shorter side, or (height, width); None leaves the size.
        crop: (height, width) of the centre, padded with zeros if the image is smaller; None leaves the size.
        mean: of each channel, where white is 1.
        std: of each channel.
        resampling: `bilinear` or `bicubic`, both as Pillow does it (a smaller image is averaged).
    """

    resize: int | tuple[int, int] | None = 256
    crop: tuple[int, int] | None = (224, 224)
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    resampling: str = "bilinear"

    def __post_init__(self):
        for name, size in (("resize", self.resize), ("crop", self.crop)):
            if size is not None and not (
                isinstance(size, tuple) and len(size) == 2 or name == "resize" and isinstance(size, int)
            ):
                raise InputError(
                    f"image size: {name} {size}, expected {'a number or ' * (name == 'resize')}[height, width]"
                )
        sides = [*((self.resize,) if isinstance(self.resize, int) else self.resize or ()), *(self.crop or ())]
        if not all(isinstance(side, int) and 0 < side <= LARGEST_SIDE for side in sides):
            raise InputError(f"image size: resize {self.resize}, crop {self.crop}, expected 1 to {LARGEST_SIDE} pixels")
        numbers = [*self.mean, *self.std] if isinstance(self.mean, tuple) and isinstance(self.std, tuple) else [None]
        if len(self.mean) != len(self.std) or not all(isinstance(n, int | float) for n in numbers) or not all(self.std):
            raise InputError(f"images: mean {self.mean}, std {self.std}, expected a number a channel each, std not 0")
        if self.resampling not in FILTERS:
            raise InputError(f"resampling: {self.resampling!r}, expected bilinear or bicubic")

    def __call__(self, images: Sequence[Any]) -> Tensor:
        """Prepare N images (1 or 3, height, width) uint8 as one batch (N, channels, height, width) float32."""
        prepared = [self.prepare(torch.as_tensor(image)) for image in images]
        sizes = list(dict.fromkeys(f"{image.shape[1]} x {image.shape[2]}" for image in prepared))
        if len(sizes) > 1:
            raise InputError(f"images: {sizes[0]} and {sizes[1]} pixels in one batch, expected one size; name a crop")
        return torch.stack(prepared)

    def prepare(self, image: Tensor) -> Tensor:
        """Resize, crop and normalise one image; a grey channel is repeated."""
        if image.ndim != 3 or image.shape[0] not in {1, 3} or image.dtype != torch.uint8:
            raise InputError(
                f"image {tuple(image.shape)} {str(image.dtype).removeprefix('torch.')}: expected (3, height, width) or "
                "(1, height, width) uint8, 0 to 255"
            )
        image = self.resize_image(image.expand(len(self.mean), -1, -1) if image.shape[0] == 1 else image)
        if self.crop is not None:
            image = crop_centre(image, self.crop)
        mean, std = (torch.tensor(numbers, dtype=torch.float32).view(-1, 1, 1) for numbers in (self.mean, self.std))
        return (image.float() / 255 - mean) / std

    def resize_image(self, image: Tensor) -> Tensor:
        """Resize an image with Pillow, channel by channel."""
        if self.resize is None:
            return image
        height, width = image.shape[1:]
        size = self.resize
        if isinstance(size, int):  # of the shorter side; the longer one is rounded down
            size = (size, size * width // height) if height <= width else (size * height // width, size)
        if (height, width) == size:
            return image
        from PIL import Image

        resampling = Image.Resampling(FILTERS[self.resampling])
        planes = [Image.fromarray(plane.contiguous().numpy()).resize(size[::-1], resampling) for plane in image]
        return torch.from_numpy(np.stack([np.array(plane) for plane in planes]))


def crop_centre(image: Tensor, size: tuple[int, int]) -> Tensor:
    """Crop the centre, half a pixel rounded to the even one; a smaller image is padded with zeros."""
    missing = [max(0, target - length) for target, length in zip(size, image.shape[1:], strict=True)]
    if any(missing):
        (top, left), (bottom, right) = [n // 2 for n in missing], [(n + 1) // 2 for n in missing]
        image = pad(image, (left, right, top, bottom))
    y, x = (round((length - target) / 2) for target, length in zip(size, image.shape[1:], strict=True))
    return image[:, y : y + size[0], x : x + size[1]]


class ImageEncoder(nn.Module):
    """A network that reads images of one side or both; prepared as at the validation of its training."""

    kinds = ("image",)
    items_at_once = IMAGES_AT_ONCE

    def __init__(self, preparation: Preparation):
        super().__init__()
        self.preparation = preparation

    @property
    def identity(self) -> str:
        """Settings that the embeddings depend on, in addition to the weights."""
        return repr(self.preparation)

    def encode(self, items: Sequence[Any], kind: str, side: str) -> Tensor:
        """Encode images, as `Preparation` takes them, to (n, D)."""
        return self(self.preparation(items).to(next(self.parameters())))
