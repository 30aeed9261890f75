"""Images in a folder for each class, which may have folders of its own; splits are folders above the classes."""

import os
from collections.abc import Iterator
from pathlib import Path

import torch

from cocos.base.errors import InputError
from cocos.data import Side, TrainingSet, image_lists
from cocos.data.images import IMAGE_SUFFIXES, ImageFiles

SPLIT_FOLDERS = ("train", "training", "val", "valid", "validation", "dev", "test", "testing")
MAX_LOOKED = 10_000  # files and folders that are looked at to recognise a class


def _folders(path: Path) -> list[Path]:
    """List the folders in a folder, by name; hidden ones are left out, and links to a folder around this one."""
    if not path.is_dir():
        return []
    place = path.resolve()
    return sorted(
        each
        for each in path.iterdir()
        if each.is_dir()
        and not each.name.startswith(".")
        and not (each.is_symlink() and place.is_relative_to(each.resolve()))
    )


def _images(folder: Path) -> Iterator[Path]:
    """Yield the files of images in a folder and those below, by name; links to folders and devices are left out."""
    for place, below, names in os.walk(folder):
        below[:] = sorted(each for each in below if not each.startswith("."))
        yield from (
            Path(place, each)
            for each in sorted(names)
            if each.lower().endswith(IMAGE_SUFFIXES) and not each.startswith(".") and Path(place, each).is_file()
        )


def _holds_images(folder: Path) -> bool:
    """Whether an image is among the first files below a folder."""
    looked = 0
    for _, below, names in os.walk(folder):
        if any(each.lower().endswith(IMAGE_SUFFIXES) for each in names):
            return True
        looked += len(names) + len(below)
        if looked > MAX_LOOKED:
            return False
    return False


def _parts(path: Path) -> dict[str, Path]:
    """Find the folder with the classes of each split; `train` is the folder itself where it has no splits."""
    folders = _folders(path)
    named = [each for each in folders if each.name.lower() in SPLIT_FOLDERS]
    if named and len(named) == len(folders) and all(_folders(each) for each in named):
        return {each.name: each for each in named}
    return {"train": path}


def recognises(path: Path) -> bool:
    """A folder in which at least two folders hold images, and no image lies beside them.

    The classes of a data set that has lists are in these, not in its folders.
    """
    if path.is_dir() and image_lists.recognises(path):
        return False
    for folder in _parts(path).values() if path.is_dir() else ():
        beside = any(each.name.lower().endswith(IMAGE_SUFFIXES) for each in os.scandir(folder))
        if not beside and sum(map(_holds_images, _folders(folder)[:10])) >= 2:
            return True
    return False


def splits(path: Path) -> tuple[str, ...]:
    """List the splits."""
    return tuple(_parts(path))


def load(split: str, path: Path) -> TrainingSet:
    """List the images of one split; a file is read when it is encoded or drawn.

    A class of the labelled set is a folder, and an image has its path below the folder of the split as its name.
    """
    parts = _parts(Path(path))
    found = [(place, file) for place, folder in enumerate(_folders(parts[split])) for file in _images(folder)]
    if len(found) < 2:
        raise InputError(f"{parts[split]}: {len(found)} images in its folders, expected one folder for each class")
    paths = tuple(str(file) for _, file in found)
    names = tuple(file.relative_to(parts[split]).as_posix() for _, file in found)
    side = Side(ImageFiles(paths), "image", torch.tensor([place for place, _ in found]), names, paths)
    return TrainingSet(side, None, Path(path).name, split)
