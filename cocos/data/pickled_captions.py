"""Pickled images and captions: `train_set.p`, `val_set.p`, `test_set.p`, of Bleeker & de Rijke."""

import re
from pathlib import Path
from typing import Any

import torch

from cocos.base.errors import InputError, unreachable
from cocos.data import TrainingSet, image_captions
from cocos.data.images import ImageFiles, begin
from cocos.data.plain_pickles import Plain

SPLIT_PICKLE = re.compile(r"(?P<split>[a-z]+)_set\.p(kl|ickle)?")
# Bytes at the beginning of a pickle that name its first entry.
FIRST_ENTRY = 200
# Operations of a pickle; that of the training images of COCO takes 3e7, most of them for tokens.
MAX_OPERATIONS_OF_CAPTIONS = 100_000_000
# Classes that the pickles name; in their place is put what makes an empty dictionary, whatever it is called with.
DICTIONARIES = ("collections.defaultdict", "builtins.dict", "__builtin__.dict")
REMEDY = "write the captions as JSON, and the images as files (dataset_NAME.json, images)"


def _files(path: Path) -> dict[str, Path]:
    """Find the file of each split; a file of another name is `train`."""
    if not path.is_dir():
        name = SPLIT_PICKLE.fullmatch(path.name)
        return {name["split"] if name else "train": path}
    named = ((SPLIT_PICKLE.fullmatch(each.name), each) for each in sorted(path.glob("*_set.p*")))
    found = {name["split"]: each for name, each in named if name and _pickled(each)}
    return {split: found[split] for split in sorted(found, key=lambda each: (each != "train", each))}


def _pickled(path: Path) -> bool:
    """Whether a file begins like a pickle of images."""
    head = begin(path)[:FIRST_ENTRY] if path.is_file() else b""
    return head[:1] == b"\x80" and b"images" in head


def recognises(path: Path) -> bool:
    """A pickle of a dictionary that begins with `images`, or a folder with such files, one a split."""
    return bool(_files(path)) if path.is_dir() else _pickled(path)


def splits(path: Path) -> tuple[str, ...]:
    """List the splits, as the names of the files have them."""
    return tuple(_files(Path(path)))


def load(split: str, path: Path) -> TrainingSet:
    """Load the images of one split, as the bytes of their files, and their captions.

    Args:
        split: one of `splits`.
        path: of the folder, or of one file: a pickle of `images`, id -> `image` (bytes), and `captions`, id ->
            `caption` and `imgid`. Nothing else is read of it, and it is never unpickled freely.

    Source: the data of Bleeker & de Rijke 2022, arXiv:2202.07474.
    """
    file = _files(Path(path))[split]
    stand_ins: dict[str, Any] = dict.fromkeys(DICTIONARIES, lambda *_: {})
    plain = Plain("a set of images", "bytes and text", MAX_OPERATIONS_OF_CAPTIONS, stand_ins, REMEDY)
    try:
        with open(file, "rb") as stream:
            found = plain.load(file, stream)
    except OSError as error:
        raise InputError(f"{file}: {unreachable(error)}") from None
    images = {
        key: _entry(each, "image", bytes, f"{file}, image {str(key)[:40]}")
        for key, each in _held(found, "images", file)
    }
    place = {key: k for k, key in enumerate(images)}
    captions, groups = [], []
    for key, each in _held(found, "captions", file):
        where = f"{file}, caption {str(key)[:40]}"
        image = each.get("imgid") if isinstance(each, dict) else None
        if not isinstance(image, int | str) or image not in place:
            said = str(image)[:40] if isinstance(image, int | str) else type(image).__name__
            raise InputError(f"{where}: imgid {said}, expected the id of one of its images")
        captions.append(" ".join(_entry(each, "caption", str, where).split()))
        groups.append(place[image])
    if not captions:
        raise InputError(f"{file}: {len(images)} images and no captions")
    return image_captions(
        images=ImageFiles(tuple(images.values())),
        captions=tuple(captions),
        image_group=torch.arange(len(images)),
        caption_group=torch.tensor(groups),
        name=file.parent.name,
        split=split,
    )


def _held(found: Any, key: str, file: Path) -> list[tuple[Any, Any]]:
    """Entries of a dictionary in the pickle."""
    entries = found.get(key) if isinstance(found, dict) else None
    if not isinstance(entries, dict) or not all(isinstance(each, int | str) for each in entries):
        raise InputError(
            f"{file}: {key} is {type(entries).__name__}, expected a dictionary of images or captions by id"
        )
    return list(entries.items())


def _entry(entry: Any, key: str, kind: type, where: str) -> Any:
    value = entry.get(key) if isinstance(entry, dict) else None
    if not isinstance(value, kind):
        raise InputError(f"{where}: {key} is {type(value).__name__}, expected {kind.__name__}")
    return value
