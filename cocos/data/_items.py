"""The rows of a split as people know them: texts and pictures beside the embeddings."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from cocos import annotations
from cocos.annotations import Picture, Pictures
from cocos.embeddings import Embeddings
from cocos.errors import InputError

__all__ = ["AnnotatedRows", "ImageCaptions", "Items", "PictureOf", "TextOf"]

TextOf = Callable[[int], str]  # row -> its text
PictureOf = Callable[[int], Picture | None]  # row -> its picture (height, width, 3), or None


class Images(Protocol):
    """Rows of images: a tensor, an array, or rows that stay on disk."""

    @property
    def shape(self) -> Sequence[int]:
        """Number of images, and the shape of one."""

    @property
    def ndim(self) -> int:
        """Number of dimensions."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: int | slice, /) -> Any: ...


class Items(Protocol):
    """Texts and pictures of the rows of embeddings, in the order of the rows."""

    def texts(self, direction: str) -> tuple[TextOf, TextOf]:
        """Return functions of a row that give the text of a query and of a candidate."""

    def pictures(self, direction: str) -> tuple[PictureOf | None, PictureOf | None]:
        """Return functions of a row that give the picture of a query and of a candidate, read when they are called.

        A side without pictures has None instead of a function.
        """


@dataclass(frozen=True, eq=False)
class ImageCaptions:
    """Images and captions of one split, and which belong together.

    Args:
        images: (N, ...) input of the image tower; rows may stay on disk.
        captions: M captions, as text.
        image_group: (N,) id of each image.
        caption_group: (M,) id of the image that each caption describes.
        name: of the data, for provenance.
        split: of the data.

    Raises:
        InputError: images or captions without one int64 id each.
    """

    images: Images
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

    def texts(self, direction: str) -> tuple[TextOf, TextOf]:
        """Return functions of a row that give the text of a query and of a candidate.

        The text of an image is its first caption.

        Args:
            direction: which side asks, `i2t` or `t2i`.
        """
        first: dict[int, str] = {}
        for group, caption in zip(self.caption_group.tolist(), self.captions, strict=True):
            first.setdefault(group, caption)
        groups = self.image_group.tolist()

        def image(row: int) -> str:
            return f"image of: {first.get(groups[row], 'nothing that is said')}"

        text: TextOf = self.captions.__getitem__
        return (text, image) if direction == "t2i" else (image, text)

    def pictures(self, direction: str) -> tuple[PictureOf | None, PictureOf | None]:
        """Return functions of a row that give the picture of a query and of a candidate.

        None where a side has no pictures: captions, and images that are precomputed features.

        Args:
            direction: which side asks, `i2t` or `t2i`.
        """
        drawable = self.images.ndim == 4 and self.images.shape[1] in {1, 3}

        def picture(row: int) -> Picture:
            return np.moveaxis(np.asarray(self.images[row]), 0, -1).squeeze()

        image = picture if drawable else None
        return (None, image) if direction == "t2i" else (image, None)


@dataclass(frozen=True, eq=False)
class AnnotatedRows:
    """Embeddings whose rows have names or pictures.

    Args:
        embeddings: of both sides.
        folder: that the files of the pictures must lie in; None: anywhere.
    """

    embeddings: Embeddings
    folder: Path | None = None

    def _asking(self, direction: str) -> Embeddings:
        """The embeddings from the side that asks."""
        return self.embeddings if direction == self.embeddings.directions[0] else self.embeddings.flip()

    def texts(self, direction: str) -> tuple[TextOf, TextOf]:
        """Return functions of a row that give the name of a query and of a candidate.

        A row without a name is named by its number and its group.

        Args:
            direction: which side asks.
        """
        side = self._asking(direction)
        query, candidate = side.names or (None, None)
        return _named(query, side.query_group.tolist()), _named(candidate, side.candidate_group.tolist())

    def pictures(self, direction: str) -> tuple[PictureOf | None, PictureOf | None]:
        """Return functions of a row that give the picture of a query and of a candidate, read when they are called.

        None instead of a function where a side has no pictures; None from a function where a row has none.

        Args:
            direction: which side asks.
        """
        query, candidate = self._asking(direction).pictures or (None, None)
        return self._picture(query), self._picture(candidate)

    def _picture(self, pictures: Pictures | None) -> PictureOf | None:
        return None if pictures is None else partial(annotations.picture, pictures, folder=self.folder)


def _named(names: Sequence[str] | None, groups: list[int]) -> TextOf:
    return lambda row: (names[row] if names else "") or f"row {row}, group {groups[row]}"
