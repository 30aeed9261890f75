"""What the rows of a checkpoint's data say, for people."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from cocos import carried
from cocos import data as shelf
from cocos.checkpoints import Checkpoint
from cocos.data import ImageCaptions, precomp
from cocos.embeddings import Embeddings

__all__ = ["Rows", "items", "pictures", "said", "shown", "texts"]

PRECOMPUTED = ("vsepp", "vsrn")
Text = Callable[[int], str]
Picture = Callable[[int], np.ndarray | None]


@dataclass(frozen=True, eq=False)
class Rows:
    """Embeddings whose rows carry names or pictures.

    Args:
        embeddings: of both sides.
        folder: that the files of the pictures must lie in; None: anywhere.
    """

    embeddings: Embeddings
    folder: Path | None = None

    def seen(self, direction: str) -> Embeddings:
        """The embeddings from the side that asks."""
        return self.embeddings if direction == self.embeddings.directions[0] else self.embeddings.flip()


def items(checkpoint: Checkpoint, split: str = "train", data=None) -> ImageCaptions | Rows | None:
    """What the rows of a checkpoint are, in the order of its embeddings: images and captions, or names and pictures.

    None where nothing is known of them.

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
    if checkpoint.format == "embeddings":
        found = checkpoint.embed(split, "cpu")
        if isinstance(found, Embeddings) and (found.names or found.pictures):
            return Rows(found, Path(checkpoint.path).parent if data is None else Path(data))
    return None


def texts(
    checkpoint: Checkpoint, direction: str, *, split: str = "train", data=None
) -> tuple[Text, Text] | tuple[None, None]:
    """Functions of a row that give the text of a query and of a candidate: its name, or the first caption of an image.

    Args:
        checkpoint: that was opened.
        direction: which side asks.
        split: of its data.
        data: folder of the data, as it was opened with.
    """
    found = items(checkpoint, split, data)
    return (None, None) if found is None else said(found, direction)


def said(found: ImageCaptions | Rows, direction: str) -> tuple[Text, Text]:
    """The same of what `items` found; a row without a name is named by its number and its group."""
    if isinstance(found, Rows):
        side = found.seen(direction)
        groups = side.query_group.tolist(), side.candidate_group.tolist()
        return tuple(_named(*each) for each in zip(side.names or (None, None), groups, strict=True))
    first = {}
    for group, caption in zip(found.caption_group.tolist(), found.captions, strict=True):
        first.setdefault(group, caption)
    groups = found.image_group.tolist()

    def image(row: int) -> str:
        return f"image of: {first.get(groups[row], 'nothing that is said')}"

    both = (image, found.captions.__getitem__)
    return both[::-1] if direction == "t2i" else both


def _named(names: Sequence[str] | None, groups: list[int]) -> Text:
    return lambda row: (names and names[row]) or f"row {row}, group {groups[row]}"


def shown(found: ImageCaptions | Rows, direction: str) -> tuple[Picture | None, Picture | None]:
    """Functions of a row that give the picture of a query and of a candidate, read when they are called.

    None instead of a function where a side has no pictures, and from it where a row has none.

    Args:
        found: of `items`.
        direction: which side asks.
    """
    if isinstance(found, Rows):
        both = found.seen(direction).pictures or (None, None)
        return tuple(
            None if each is None else partial(lambda each, row: carried.shown(each, row, found.folder), each)
            for each in both
        )
    both = (pictures(found), None)
    return both[::-1] if direction == "t2i" else both


def pictures(found: ImageCaptions) -> Callable[[int], np.ndarray] | None:
    """Function of a row that gives an image, (height, width, colours); None where the images are no pictures."""
    if found.images.ndim != 4 or found.images.shape[1] not in {1, 3}:
        return None
    return lambda row: np.moveaxis(np.asarray(found.images[row]), 0, -1).squeeze()
