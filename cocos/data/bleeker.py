"""Pickled images and captions of Bleeker & de Rijke: `train_set.p`, `val_set.p`, `test_set.p`."""

import re
from pathlib import Path

import torch

from cocos.base.errors import InputError
from cocos.data import tables
from cocos.data.images import ImageFiles
from cocos.data.plain_pickles import load_plain
from cocos.data.training_set import TrainingSet, image_captions

SPLIT_FILE = re.compile(r"(?P<split>[a-z]+)_set\.p(kl|ickle)?")
REMEDY = "write the captions as JSON, and the images as files (dataset_NAME.json, images)"


def split_files(path: Path) -> dict[str, Path]:
    """Return the file of each split, `train` first; a file with another name is `train`."""
    if not path.is_dir():
        match = SPLIT_FILE.fullmatch(path.name)
        return {match["split"] if match else "train": path}
    files = {}
    for file in sorted(path.glob("*_set.p*")):
        if (match := SPLIT_FILE.fullmatch(file.name)) and is_pickle(file):
            files[match["split"]] = file
    return dict(sorted(files.items(), key=lambda entry: (entry[0] != "train", entry[0])))


def is_pickle(file: Path) -> bool:
    """Return whether a file begins like a pickle of images."""
    if not file.is_file():
        return False
    with open(file, "rb") as stream:
        head = stream.read(200)
    return head[:1] == b"\x80" and b"images" in head


def sniff(path: Path) -> bool:
    """Return whether a path is a pickle that begins with `images`, or a folder with such files."""
    return bool(split_files(path)) if path.is_dir() else is_pickle(path)


def splits(path: Path) -> tuple[str, ...]:
    """Return the splits in the names of the files."""
    return tuple(split_files(path))


def load(split: str, path: Path) -> TrainingSet:
    """Load the images of one split, as the bytes of their files, and their captions.

    Args:
        split: one of `splits`.
        path: of the folder, or of one file: a pickle of `images`, id -> `image` (bytes), and `captions`, id ->
            `caption` and `imgid`.

    Source: the data of Bleeker & de Rijke 2022, arXiv:2202.07474.
    """
    file = split_files(path)[split]
    content = load_plain(file, REMEDY)
    with tables.readable(file):
        images = {key: entry["image"] for key, entry in content["images"].items()}
        index = {key: number for number, key in enumerate(images)}
        captions, groups = [], []
        for key, entry in content["captions"].items():
            if entry["imgid"] not in index:
                raise InputError(
                    f"{file}, caption {str(key)[:40]}: imgid {str(entry['imgid'])[:40]}, expected the id of an image"
                )
            captions.append(" ".join(entry["caption"].split()))
            groups.append(index[entry["imgid"]])
    if not captions or not all(isinstance(image, bytes) for image in images.values()):
        raise InputError(f"{file}: {len(images)} images and {len(captions)} captions, expected bytes of images, texts")
    return image_captions(
        images=ImageFiles(tuple(images.values())),
        captions=tuple(captions),
        image_group=torch.arange(len(images)),
        caption_group=torch.tensor(groups),
        name=file.parent.name,
        split=split,
    )
