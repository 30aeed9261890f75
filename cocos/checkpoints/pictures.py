"""Images as image networks read them: resized, cropped and normalised as at the validation of their training."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from cocos.base.errors import InputError

# Images that go through a network at once: of 224 x 224 pixels, ResNet-50 holds about 50 MB for each.
IMAGES_AT_ONCE = 32
FILTERS = {"bilinear": 2, "bicubic": 3}  # numbers of Pillow
LARGEST_SIDE = 4096  # pixels that a configuration may ask for


@dataclass(frozen=True)
class Preparation:
    """How an image is prepared for a network.

    Args:
        resize: pixels of the shorter side, or (height, width); None leaves the size.
        crop: (height, width) that is cut from the centre, zeros where the image is smaller; None leaves the size.
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
        """Prepare N images, each (1 or 3, height, width) of uint8: float32, (N, channels, height, width)."""
        made = [self._one(torch.as_tensor(image)) for image in images]
        if odd := next((each.shape for each in made if each.shape != made[0].shape), None):
            sizes = " and ".join(f"{height} x {width}" for _, height, width in (made[0].shape, odd))
            raise InputError(f"images: {sizes} pixels in one batch; name a crop, or both sides of resize, for all")
        return torch.stack(made)

    def _one(self, image: Tensor) -> Tensor:
        if image.ndim != 3 or image.shape[0] not in {1, 3} or image.dtype != torch.uint8:
            raise InputError(
                f"image {tuple(image.shape)} {str(image.dtype).removeprefix('torch.')}: expected (3, height, width) or "
                "(1, height, width) uint8, 0 to 255"
            )
        image = self._resized(self._channels(image))
        if self.crop is not None:
            image = _centre(image, self.crop)
        mean, std = (torch.tensor(each, dtype=torch.float32).view(-1, 1, 1) for each in (self.mean, self.std))
        return (image.float() / 255 - mean) / std

    def _channels(self, image: Tensor) -> Tensor:
        """Repeat a grey channel."""
        return image.expand(len(self.mean), -1, -1) if image.shape[0] == 1 else image

    def _resized(self, image: Tensor) -> Tensor:
        if self.resize is None:
            return image
        before = tuple(image.shape[1:])
        after = _shorter_side(before, self.resize) if isinstance(self.resize, int) else self.resize
        if before == after:
            return image
        from PIL import Image

        size, filter = (after[1], after[0]), FILTERS[self.resampling]
        planes = [Image.fromarray(plane.contiguous().numpy()).resize(size, Image.Resampling(filter)) for plane in image]
        return torch.from_numpy(np.stack([np.array(plane) for plane in planes]))


def _shorter_side(size: tuple[int, ...], side: int) -> tuple[int, int]:
    """Return the height and width whose shorter side is `side`; the longer one is rounded down."""
    height, width = size
    return (side, side * width // height) if height <= width else (side * height // width, side)


def _centre(image: Tensor, size: tuple[int, int]) -> Tensor:
    """Cut the centre out, half a pixel rounded to the even one; zeros where the image is smaller."""
    short = [max(0, want - have) for want, have in zip(size, image.shape[1:], strict=True)]
    if any(short):
        (top, left), (down, right) = [n // 2 for n in short], [(n + 1) // 2 for n in short]
        image = pad(image, (left, right, top, down))
    y, x = (round((have - want) / 2) for want, have in zip(size, image.shape[1:], strict=True))
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
        """Settings that the embeddings depend on beside the weights."""
        return repr(self.preparation)

    def encode(self, items: Sequence[Any], kind: str, side: str) -> Tensor:
        """Encode images, as `Preparation` takes them, to (n, D)."""
        return self(self.preparation(items).to(next(self.parameters())))
