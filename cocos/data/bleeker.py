"""Pickled images and captions of Bleeker & de Rijke: `train_set.p`, `val_set.p`, `test_set.p`."""

from pathlib import Path

import torch

from cocos.base.errors import InputError
from cocos.data import tables
from cocos.data.images import ImageFiles
from cocos.data.plain_pickles import load_plain
from cocos.data.training_set import TrainingSet, image_captions

SPLITS = ("train", "val", "test")
REMEDY = "write the captions as JSON, and the images as files (dataset_NAME.json, images)"


def splits(path: Path) -> tuple[str, ...]:
    """Return the splits of a folder, or of one of its files."""
    folder = path if path.is_dir() else path.parent
    files = {split: folder / f"{split}_set.p" for split in SPLITS}
    return tuple(split for split, file in files.items() if file.is_file() and path in {file, folder})


def load(split: str, path: Path) -> TrainingSet:
    """Load the images of one split, as the bytes of their files, and their captions.

    A file is a pickle of `images`, id -> `image` (bytes), and `captions`, id -> `caption` and `imgid`.

    Source: the data of Bleeker & de Rijke 2022, arXiv:2202.07474.
    """
    file = path / f"{split}_set.p" if path.is_dir() else path
    content = load_plain(file, REMEDY)
    with tables.readable(file):
        images = {key: bytes(entry["image"]) for key, entry in content["images"].items()}
        numbers = {key: number for number, key in enumerate(images)}
        captions = [" ".join(entry["caption"].split()) for entry in content["captions"].values()]
        groups = [numbers[entry["imgid"]] for entry in content["captions"].values()]
    if not captions:
        raise InputError(f"{file}: {len(images)} images and no captions")
    return image_captions(
        ImageFiles(tuple(images.values())), captions, torch.tensor(groups), name=file.parent.name, split=split
    )
