"""The embedded example: emoji as Noto draws them, each with five captions in four languages from CLDR."""

import gzip
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from cocos.base.errors import InputError
from cocos.base.untrusted import parsed
from cocos.data import TrainingSet, image_captions

SPLITS = ("train", "val", "test")
IMAGE_SIDE = 32  # pixels
IMAGES_ACROSS = 57  # images in a row of the sheet


def _file(folder, name: str) -> Path:
    folder = Path(str(files("cocos") / "example" if folder is None else folder))
    if not (folder / name).is_file():
        raise InputError(f"emoji_captions: there is no {name} in {folder}; name the folder that holds it")
    return folder / name


def records(folder=None) -> list[dict]:
    """Read the record of each image, in the order of the sheet: image_id, split, concept, captions, languages.

    They are in `captions.jsonl.gz` of the folder; None is the one inside the package.
    """
    path = _file(folder, "captions.jsonl.gz")
    try:
        with open(path, "rb") as packed, gzip.open(packed) as stream:
            lines = stream.read().split(b"\n")
        return [parsed(line) for line in lines if line]
    except (OSError, EOFError, ValueError) as error:
        raise InputError(f"{path} is damaged ({error}); copy it again") from None


def _sheet(folder, images: int) -> np.ndarray:
    """Read the sheet of all images, (height, width, 3), uint8."""
    path, size = _file(folder, "images.webp"), (IMAGES_ACROSS * IMAGE_SIDE, -(-images // IMAGES_ACROSS) * IMAGE_SIDE)
    try:
        with open(path, "rb") as stream, Image.open(stream) as image:
            if image.size == size:
                return np.asarray(image.convert("RGB"))
    except OSError as error:
        raise InputError(f"{path} is damaged ({error}); copy it again") from None
    raise InputError(
        f"{path}: {image.size[0]} x {image.size[1]} pixels, expected {size[0]} x {size[1]} for the {images} images of "
        "captions.jsonl.gz"
    )


def recognises(path: Path) -> bool:
    """A folder with the two files of the example."""
    return (path / "captions.jsonl.gz").is_file() and (path / "images.webp").is_file()


def load(split: str, folder=None) -> TrainingSet:
    """Load one split, whole: 2497 images to train, 376 to validate, 358 to test.

    Args:
        split: `train`, `val` or `test`.
        folder: with `images.webp` and `captions.jsonl.gz`; None is the one inside the package.

    Returns:
        Images (N, 3, 32, 32), uint8, on white. Captions, 5 N: those of an image one after the other (name and
        keywords in English, name in German, French and Spanish). A group is an image's place in its split.
    """
    rows = records(folder)
    sheet, down = _sheet(folder, len(rows)), -(-len(rows) // IMAGES_ACROSS)
    tiles = (
        sheet
        .reshape(down, IMAGE_SIDE, IMAGES_ACROSS, IMAGE_SIDE, 3)
        .transpose(0, 2, 4, 1, 3)
        .reshape(-1, 3, IMAGE_SIDE, IMAGE_SIDE)
    )
    chosen = [place for place, row in enumerate(rows) if row["split"] == split]
    captions = [rows[place]["captions"] for place in chosen]
    return image_captions(
        images=torch.from_numpy(tiles[chosen]),
        captions=tuple(caption for own in captions for caption in own),
        image_group=torch.arange(len(chosen)),
        caption_group=torch.tensor([place for place, own in enumerate(captions) for _ in own]),
        name="emoji_captions",
        split=split,
    )
