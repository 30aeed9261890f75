"""Images in one folder per class, with optional subfolders; splits are folders above the classes."""

import os
from pathlib import Path

import torch

from cocos.base.errors import InputError
from cocos.data.images import IMAGE_SUFFIXES, ImageFiles
from cocos.data.training_set import Side, TrainingSet

SPLIT_FOLDERS = ("train", "training", "val", "valid", "validation", "dev", "test", "testing")


def subfolders(path: Path) -> list[Path]:
    """Return the visible folders in a folder, by name."""
    folders = path.iterdir() if path.is_dir() else ()
    return sorted(folder for folder in folders if folder.is_dir() and not folder.name.startswith("."))


def split_folders(path: Path) -> dict[str, Path]:
    """Return the folder with the classes of each split; the folder itself is `train` if it has no splits."""
    folders = subfolders(path)
    are_splits = all(folder.name.lower() in SPLIT_FOLDERS and subfolders(folder) for folder in folders)
    return {folder.name: folder for folder in folders} if folders and are_splits else {"train": path}


def list_images(folder: Path) -> list[Path]:
    """Return the visible images in a folder and its visible subfolders, by name; links to folders are skipped."""
    images = []
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        visible = (name for name in sorted(names) if not name.startswith("."))
        images += [Path(parent, name) for name in visible if name.lower().endswith(IMAGE_SUFFIXES)]
    return images


def splits(path: Path) -> tuple[str, ...]:
    """Return the splits of a folder, if at least two folders of a split contain images."""
    folders = split_folders(path)
    labels = [[label for label in subfolders(folder)[:10] if list_images(label)] for folder in folders.values()]
    return tuple(folders) if max(map(len, labels)) >= 2 else ()


def load(split: str, path: Path) -> TrainingSet:
    """List the images of one split as a labelled set; an image is read when it is encoded or drawn."""
    folder = split_folders(path)[split]
    images = [(number, image) for number, label in enumerate(subfolders(folder)) for image in list_images(label)]
    if len(images) < 2:
        raise InputError(f"{folder}: {len(images)} images in its folders, expected one folder per class")
    paths = tuple(str(image) for _, image in images)
    names = tuple(image.relative_to(folder).as_posix() for _, image in images)
    side = Side(ImageFiles(paths), "image", torch.tensor([number for number, _ in images]), names, paths)
    return TrainingSet(side, None, path.name, split)
