"""Precomputed image features and their captions in one folder: `{split}_ims.npy` and `{split}_caps.txt`."""

from pathlib import Path

import numpy as np
import torch

from cocos.base.errors import InputError
from cocos.data import tables
from cocos.data.arrays import check_features
from cocos.data.training_set import TrainingSet, image_captions

SPLITS = ("train", "dev", "test", "testall")
CAPTIONS_PER_IMAGE = 5  # in VSE++, which stores an image once per caption


def splits(path: Path) -> tuple[str, ...]:
    """Return the splits of a folder with both files."""
    names = ("ims.npy", "caps.txt")
    return tuple(split for split in SPLITS if all((path / f"{split}_{name}").is_file() for name in names))


def load(split: str, path: Path) -> TrainingSet:
    """Load the features and captions of one split; the features stay on disk until they are encoded.

    The captions of an image are consecutive lines, the same number for every image (five in the published files). Files
    with as many rows as lines store every image five times, if their first five rows are equal: one row in five is
    kept, so that an image is one query. Otherwise every image has one caption.
    """
    images_path, captions_path = path / f"{split}_ims.npy", path / f"{split}_caps.txt"
    with tables.readable(images_path):
        images = np.load(images_path, mmap_mode="c")  # copy-on-write, since torch warns about read-only arrays
    images = check_features(images, str(images_path))
    captions = [line.strip() for line in tables.read_text(captions_path).removesuffix("\n").split("\n")]
    is_multiple = len(captions) == len(images) and len(images) % CAPTIONS_PER_IMAGE == 0
    if is_multiple and (images[:CAPTIONS_PER_IMAGE] == images[0]).all():
        images = images[::CAPTIONS_PER_IMAGE]
    per_image, rest = divmod(len(captions), len(images))
    if rest or not per_image:
        sizes = f"{captions_path.name} has {len(captions)} lines and {images_path.name} has {len(images)} rows"
        raise InputError(f"data folder {path}: {sizes}, expected the same number of captions for each image")
    group = torch.arange(len(captions)) // per_image
    return image_captions(images, captions, group, name=path.name, split=split, kind="features")
