"""Precomputed image features and their captions in one folder: `{split}_ims.npy` and `{split}_caps.txt`."""

from pathlib import Path

import numpy as np
import torch

from cocos.base.errors import InputError
from cocos.data import tables
from cocos.data.training_set import TrainingSet, image_captions

SPLITS = ("train", "dev", "test", "testall")
CAPTIONS_PER_IMAGE = 5  # in VSE++, which stores an image once per caption
PROBES = 16  # images compared with their copies


def splits(path: Path) -> tuple[str, ...]:
    """Return the splits with both files."""
    pairs = {split: (path / f"{split}_ims.npy", path / f"{split}_caps.txt") for split in SPLITS}
    return tuple(split for split, files in pairs.items() if all(file.is_file() for file in files))


def sniff(path: Path) -> bool:
    """Return whether a folder has the features and the captions of a split."""
    return bool(splits(path))


def are_repeated(images: np.ndarray) -> list[bool]:
    """Return for several images whether they are stored five times in a row."""
    number, rest = divmod(len(images), CAPTIONS_PER_IMAGE)
    starts = CAPTIONS_PER_IMAGE * np.unique(np.linspace(0, max(number - 1, 0), PROBES).astype(int))
    return [not rest and bool((images[start : start + CAPTIONS_PER_IMAGE] == images[start]).all()) for start in starts]


def load(split: str, path: Path | None = None) -> TrainingSet:
    """Load the features and captions of one split; the features stay on disk until they are encoded.

    The captions of an image are consecutive lines, the same number for every image (five in the published files). Files
    with as many rows as lines store every image five times: one row in five is kept, so that an image is one query. If
    their rows differ, every image has one caption.
    """
    if path is None:
        raise InputError("precomputed features: no folder, expected one with train_ims.npy: --data FOLDER")
    images_path, captions_path = path / f"{split}_ims.npy", path / f"{split}_caps.txt"
    for file in (images_path, captions_path):
        if not file.is_file():
            available = f"it has {', '.join(splits(path)) or 'no split'}" if path.is_dir() else "no such folder"
            raise InputError(f"data folder {path}: no {file.name} for split {split} ({available})")
    try:
        images = np.load(images_path, mmap_mode="c")  # copy-on-write, since torch warns about read-only arrays
    except (ValueError, OSError, EOFError, TypeError, SyntaxError) as error:
        raise InputError(
            f"{images_path}: cannot be read as an array of numbers ({str(error)[:120]}); copy it again"
        ) from None
    if images.ndim not in {2, 3} or images.dtype.kind != "f" or images.dtype.itemsize > 8:
        raise InputError(
            f"{images_path}: {images.dtype} {images.shape}, expected floats, (images, features) or "
            "(images, regions, features)"
        )
    images = images.astype(images.dtype.newbyteorder("="), copy=False)
    lines = tables.read_text(captions_path).removesuffix("\n").split("\n")
    captions = [line.strip() for line in lines] if lines != [""] else []
    if not len(images) or not captions:
        raise InputError(f"data folder {path}, {split}: {len(images)} images and {len(captions)} captions")
    if len(captions) == len(images):
        repeated = are_repeated(images)
        if all(repeated):
            images = images[::CAPTIONS_PER_IMAGE]
        elif any(repeated):
            raise InputError(
                f"{images_path}: one row per caption, but only some images are stored {CAPTIONS_PER_IMAGE} times"
            )
    per_image, rest = divmod(len(captions), len(images))
    if rest or not per_image:
        raise InputError(
            f"data folder {path}: {captions_path.name} has {len(captions)} lines and {images_path.name} has "
            f"{len(images)} rows, expected the same number of captions for each image (five in the published files)"
        )
    return image_captions(
        images=images,
        captions=tuple(captions),
        image_group=torch.arange(len(images)),
        caption_group=torch.arange(len(captions)) // per_image,
        name=path.name,
        split=split,
        kind="features",
    )
