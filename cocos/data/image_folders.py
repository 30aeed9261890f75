"""Images in one folder per class, with optional subfolders; splits are folders above the classes."""

import os
from pathlib import Path

import torch

from cocos.base.errors import InputError
from cocos.data.images import IMAGE_SUFFIXES, ImageFiles
from cocos.data.training_set import Side, TrainingSet

SPLIT_FOLDERS = ("train", "training", "val", "valid", "validation", "dev", "test", "testing")


def subfolders(path: Path) -> list[Path]:
    """Return the visible folders in a folder, by name, except links to itself or above."""
    if not path.is_dir():
        return []
    here = path.resolve()
    folders = [folder for folder in path.iterdir() if folder.is_dir() and not folder.name.startswith(".")]
    return sorted(folder for folder in folders if not here.is_relative_to(folder.resolve()))


def is_image(name: str) -> bool:
    """Return whether a file name is that of a visible image."""
    return name.lower().endswith(IMAGE_SUFFIXES) and not name.startswith(".")


def split_folders(path: Path) -> dict[str, Path]:
    """Return the folder with the classes of each split; the folder itself is `train` if it has no splits."""
    folders = subfolders(path)
    are_splits = all(folder.name.lower() in SPLIT_FOLDERS and subfolders(folder) for folder in folders)
    return {folder.name: folder for folder in folders} if folders and are_splits else {"train": path}


def list_images(folder: Path) -> list[Path]:
    """Return the images in a folder and its visible subfolders, by name; links to folders are skipped."""
    images = []
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        images += [path for name in sorted(names) if is_image(name) and (path := Path(parent, name)).is_file()]
    return images


def sniff(path: Path) -> bool:
    """Return whether at least two folders of a folder contain images, and the folder itself does not."""
    if not path.is_dir():
        return False
    for folder in split_folders(path).values():
        has_own_images = any(is_image(file.name) for file in folder.iterdir())
        if not has_own_images and sum(bool(list_images(each)) for each in subfolders(folder)[:10]) >= 2:
            return True
    return False


def splits(path: Path) -> tuple[str, ...]:
    """Return the splits."""
    return tuple(split_folders(path))


def load(split: str, path: Path) -> TrainingSet:
    """List the images of one split as a labelled set; an image is read when it is encoded or drawn."""
    folder = split_folders(path)[split]
    images = [(label, image) for label, each in enumerate(subfolders(folder)) for image in list_images(each)]
    if len(images) < 2:
        raise InputError(f"{folder}: {len(images)} images in its folders, expected one folder per class")
    paths = tuple(str(image) for _, image in images)
    names = tuple(image.relative_to(folder).as_posix() for _, image in images)
    side = Side(ImageFiles(paths), "image", torch.tensor([label for label, _ in images]), names, paths)
    return TrainingSet(side, None, path.name, split)
