"""The shelf of training data: one file per kind, each with `SPLITS` and `load(split, **arguments) -> ImageCaptions`."""

import importlib
import pkgutil
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cocos.errors import InputError, nearest

__all__ = ["ImageCaptions", "load", "names", "splits"]


@dataclass(frozen=True, eq=False)
class ImageCaptions:
    """Images and captions of one split, and which belong together.

    Args:
        images: (N, ...) what the image tower reads; a memory-mapped array may stay on disk.
        captions: M captions, as text.
        image_group: (N,) id of each image.
        caption_group: (M,) id of the image that each caption describes.
        name: of the data, for provenance.
        split: of the data.
    """

    images: Tensor | np.ndarray
    captions: tuple[str, ...]
    image_group: Tensor
    caption_group: Tensor
    name: str
    split: str

    def __post_init__(self):
        for what, items, group in (
            ("images", self.images, self.image_group),
            ("captions", self.captions, self.caption_group),
        ):
            if len(items) != len(group) or group.dtype != torch.int64:
                raise InputError(f"{self.name}, {self.split}: {len(items)} {what} and {len(group)} {group.dtype} ids")


def names() -> list[str]:
    """Names of all kinds of data on the shelf."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


def _module(name: str):
    if name not in names():
        raise InputError(nearest("data", name, names()))
    return importlib.import_module(f"{__name__}.{name}")


def splits(name: str) -> tuple[str, ...]:
    """Splits that a kind of data has."""
    return _module(name).SPLITS


def load(name: str, split: str = "train", **arguments) -> ImageCaptions:
    """Load one split of a kind of data.

    Raises:
        InputError: no such data or split (the nearest one is named), or its files cannot be read.
    """
    module = _module(name)
    if split not in module.SPLITS:
        raise InputError(nearest(f"split of {name}", split, module.SPLITS))
    return module.load(split, **arguments)
