"""What the rows of a checkpoint's data say, for people."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from cocos import data as shelf
from cocos.checkpoints import Checkpoint
from cocos.data import ImageCaptions, precomp

__all__ = ["items", "pictures", "said", "texts"]

PRECOMPUTED = ("vsepp", "vsrn")
Text = Callable[[int], str]


def items(checkpoint: Checkpoint, split: str = "train", data=None) -> ImageCaptions | None:
    """The images and captions that a checkpoint embeds, in the order of its embeddings; None where it has none.

    Args:
        checkpoint: that was opened.
        split: of its data.
        data: folder of the data, as it was opened with.
    """
    about = checkpoint.contents.get("data")
    if checkpoint.format == "native":
        folder = {"folder": str(data)} if data is not None else {}
        return shelf.load(about["name"], split, **(about["arguments"] | folder))
    if checkpoint.format in PRECOMPUTED and isinstance(about, dict):
        return precomp.load(split, Path(about["folder"]))
    return None


def texts(
    checkpoint: Checkpoint, direction: str, *, split: str = "train", data=None
) -> tuple[Text, Text] | tuple[None, None]:
    """Functions of a row that give the text of a query and of a candidate; of an image, its first caption.

    Args:
        checkpoint: that was opened.
        direction: which side asks: `i2t`, where images do, or `t2i`.
        split: of its data.
        data: folder of the data, as it was opened with.
    """
    found = items(checkpoint, split, data)
    return (None, None) if found is None else said(found, direction)


def said(found: ImageCaptions, direction: str) -> tuple[Text, Text]:
    """The same of images and captions that were loaded."""
    first = {}
    for group, caption in zip(found.caption_group.tolist(), found.captions, strict=True):
        first.setdefault(group, caption)
    groups = found.image_group.tolist()

    def image(row: int) -> str:
        return f"image of: {first.get(groups[row], 'nothing that is said')}"

    both = (image, found.captions.__getitem__)
    return both[::-1] if direction == "t2i" else both


def pictures(found: ImageCaptions) -> Callable[[int], np.ndarray] | None:
    """Function of a row that gives an image, (height, width, colours); None where the images are no pictures."""
    if found.images.ndim != 4 or found.images.shape[1] not in {1, 3}:
        return None
    return lambda row: np.moveaxis(np.asarray(found.images[row]), 0, -1).squeeze()
