"""Precomputed image features and their captions: `{split}_ims.npy` and `{split}_caps.txt` in one folder."""

from pathlib import Path

import numpy as np
import torch

from cocos.data import ImageCaptions
from cocos.errors import InputError

__all__ = ["SPLITS", "load", "present"]

SPLITS = ("train", "dev", "test", "testall")
STORED = 5  # times that an image is stored in a row in files with one row for each caption
PROBES = 16  # places at which such files are looked into


def present(folder: Path) -> tuple[str, ...]:
    """Splits whose files are in a folder."""
    return tuple(
        split
        for split in SPLITS
        if (folder / f"{split}_ims.npy").is_file() and (folder / f"{split}_caps.txt").is_file()
    )


def _features(path: Path) -> np.ndarray:
    try:
        images = np.lib.format.open_memmap(path, mode="c")  # "c": torch warns of read-only memory
    except (ValueError, OSError, EOFError) as error:
        raise InputError(f"{path} is not readable as an array of numbers ({str(error)[:120]}); copy it again") from None
    if images.ndim not in {2, 3} or images.dtype.kind != "f" or images.dtype.itemsize > 8:
        raise InputError(
            f"{path} holds {images.dtype} {images.shape}, expected floats, (images, features) or (images, "
            "regions, features)"
        )
    return images if images.dtype.isnative else images.astype(images.dtype.newbyteorder("="))


def _captions(path: Path) -> list[str]:
    try:
        with open(path, encoding="utf-8") as stream:
            return [line.strip() for line in stream]
    except (UnicodeDecodeError, OSError) as error:
        raise InputError(f"{path} is not readable as UTF-8 text ({error})") from None


def _one_each(images: np.ndarray, path: Path) -> np.ndarray:
    """One row for each image, where the file has one row for each caption.

    Raises:
        InputError: some images are stored five times in a row, and some are not.
    """
    groups, rest = divmod(len(images), STORED)
    starts = STORED * np.unique(np.linspace(0, max(groups - 1, 0), PROBES).astype(int))
    same = [not rest and bool((images[s : s + STORED] == images[s]).all()) for s in starts]
    if any(same) and not all(same):
        row = starts[same.index(False)]
        raise InputError(
            f"{path} has one row for each caption, but rows {row} to {row + STORED - 1} are not one image "
            f"stored {STORED} times, as others are"
        )
    return images[::STORED] if all(same) else images


def load(split: str, folder=None) -> ImageCaptions:
    """Load the features and captions of one split; the features stay on disk until they are encoded.

    The captions of an image stand in consecutive lines, the same number for every image (five in the
    published files). Files with as many rows as lines store every image five times in a row: of these only
    every fifth row is kept, so that an image is one query and not five. Where their rows do differ, every
    image has one caption.

    Args:
        split: one of `SPLITS`.
        folder: of the two files.

    Raises:
        InputError: no folder, a file that is missing or damaged, or captions that do not go evenly into the
            images.
    """
    if folder is None:
        raise InputError(
            "precomputed features: no folder is known; name the one that holds train_ims.npy: --data FOLDER"
        )
    folder = Path(folder)
    images_path, captions_path = folder / f"{split}_ims.npy", folder / f"{split}_caps.txt"
    for path in (images_path, captions_path):
        if not path.is_file():
            there = (
                f"there is {', '.join(present(folder)) or 'no split at all'}" if folder.is_dir() else "no such folder"
            )
            raise InputError(
                f"data folder {folder} has no {path.name} ({there}); split {split} is "
                f"{images_path.name} and {captions_path.name}"
            )
    images, captions = _features(images_path), _captions(captions_path)
    if not len(images) or not captions:
        raise InputError(f"data folder {folder}, {split}: {len(images)} images and {len(captions)} captions")
    if len(captions) == len(images):
        images = _one_each(images, images_path)
    each, rest = divmod(len(captions), len(images))
    if rest or not each:
        raise InputError(
            f"data folder {folder}: {captions_path.name} has {len(captions)} lines and {images_path.name} "
            f"has {len(images)} rows; expected a whole number of captions for each image (five in the "
            "published files)"
        )
    return ImageCaptions(
        images=images,
        captions=tuple(captions),
        image_group=torch.arange(len(images)),
        caption_group=torch.arange(len(captions)) // each,
        name=folder.name,
        split=split,
    )
