"""Precomputed image features and their captions: `{split}_ims.npy` and `{split}_caps.txt` in one folder."""

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from cocos.base.errors import InputError
from cocos.base.matrices import npy_header
from cocos.data import TrainingSet, image_captions

SPLITS = ("train", "dev", "test", "testall")
# Consecutive rows that store one image, in files with one row for each caption.
IMAGE_REPEATS = 5
REPEAT_PROBES = 16  # places at which a file is searched for repeated images


def splits(folder: Path) -> tuple[str, ...]:
    """List the splits whose files are in a folder."""
    return tuple(
        split
        for split in SPLITS
        if (folder / f"{split}_ims.npy").is_file() and (folder / f"{split}_caps.txt").is_file()
    )


def recognises(path: Path) -> bool:
    """A folder with the features and the captions of a split."""
    return bool(splits(path))


@dataclass(frozen=True)
class StoredRows:
    """Rows of a .npy file that stay on disk until they are indexed, and are then read, not mapped.

    A mapped file that shrinks ends the process, and one that is written to changes what was checked.

    Args:
        path: of the file.
        whole: (rows, ...) shape of the array in the file.
        dtype: of its numbers, in its order of bytes.
        offset: bytes before the first row.
        step: one row in `step` is used.
    """

    path: Path
    whole: tuple[int, ...]
    dtype: np.dtype
    offset: int
    step: int = 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of rows that are used, and the shape of one."""
        return (-(-self.whole[0] // self.step), *self.whole[1:])

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.whole)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, place: int | slice) -> np.ndarray:
        if not isinstance(place, slice):
            return self._read(range(len(self))[place], 1)[0]
        start, stop, step = place.indices(len(self))
        return self._read(start, max(stop - start, 0))[::step] if step > 0 else self[:][place]

    def _read(self, start: int, number: int) -> np.ndarray:
        """Read consecutive rows, (number, ...), in the order of bytes of this machine."""
        row = math.prod(self.whole[1:]) * self.dtype.itemsize
        found = np.empty((number, *self.whole[1:]), self.dtype)
        into = found.reshape(-1).view(np.uint8).data
        with open(self.path, "rb") as stream:
            if self.step == 1:
                stream.seek(self.offset + start * row)
                read = stream.readinto(into) if number else 0
            else:
                read = 0
                for place in range(number):
                    stream.seek(self.offset + (start + place) * self.step * row)
                    read += stream.readinto(into[place * row : (place + 1) * row])
        if read != number * row:
            raise InputError(f"{self.path} is shorter than it was; copy it again")
        return found.astype(self.dtype.newbyteorder("="), copy=False)


def _header(path: Path) -> tuple[StoredRows, bool]:
    """Read the header of a .npy file: its rows, and whether columns come first."""
    with open(path, "rb") as stream:
        shape, fortran, dtype = npy_header(stream)
        images = StoredRows(path, shape, dtype, stream.tell())
    missing = images.offset + math.prod(shape) * dtype.itemsize - os.path.getsize(path)
    if missing > 0 or dtype.hasobject:
        raise ValueError(f"{missing} bytes are missing" if missing > 0 else "Python objects")
    return images, fortran and len(shape) > 1


def _features(path: Path) -> StoredRows | np.ndarray:
    """Open features; they stay on disk unless columns come first."""
    try:
        images, fortran = _header(path)
    except (ValueError, OSError, EOFError, TypeError) as error:
        raise InputError(f"{path} is not readable as an array of numbers ({str(error)[:120]}); copy it again") from None
    shape, dtype = images.whole, images.dtype
    if images.ndim not in {2, 3} or dtype.kind != "f" or dtype.itemsize > 8:
        raise InputError(
            f"{path} holds {dtype} {shape}, expected floats, (images, features) or (images, regions, features)"
        )
    if fortran:  # columns come first, so that all rows are read at once
        with open(path, "rb") as stream:
            whole = np.fromfile(stream, dtype, math.prod(shape), offset=images.offset).reshape(shape, order="F")
        return whole.astype(dtype.newbyteorder("="), copy=False)
    return images


def _captions(path: Path) -> list[str]:
    """Read the lines of a text file."""
    try:
        with open(path, encoding="utf-8") as stream:
            return [line.strip() for line in stream]
    except (UnicodeDecodeError, OSError) as error:
        raise InputError(f"{path} is not readable as UTF-8 text ({error})") from None


def _one_each(images: StoredRows | np.ndarray, path: Path) -> StoredRows | np.ndarray:
    """Keep one row for each image, if the file has one row for each caption."""
    groups, rest = divmod(len(images), IMAGE_REPEATS)
    starts = IMAGE_REPEATS * np.unique(np.linspace(0, max(groups - 1, 0), REPEAT_PROBES).astype(int))
    same = [not rest and bool((images[s : s + IMAGE_REPEATS] == images[s]).all()) for s in starts]
    if any(same) and not all(same):
        row = starts[same.index(False)]
        raise InputError(
            f"{path} has one row for each caption, but rows {row} to {row + IMAGE_REPEATS - 1} are not one image "
            f"stored {IMAGE_REPEATS} times, as others are"
        )
    if not all(same):
        return images
    return replace(images, step=IMAGE_REPEATS) if isinstance(images, StoredRows) else images[::IMAGE_REPEATS]


def load(split: str, folder=None) -> TrainingSet:
    """Load the features and captions of one split; the features stay on disk until they are encoded.

    The captions of an image stand in consecutive lines, the same number for every image (five in the
    published files). Files with as many rows as lines store every image five times in a row: of these only
    every fifth row is kept, so that an image is one query and not five. If their rows differ, every image
    has one caption.
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
                f"there is {', '.join(splits(folder)) or 'no split at all'}" if folder.is_dir() else "no such folder"
            )
            raise InputError(
                f"data folder {folder} has no {path.name} ({there}); split {split} is "
                f"{images_path.name} and {captions_path.name}"
            )
    images = _features(images_path)
    captions = _captions(captions_path)
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
    return image_captions(
        images=images,
        captions=tuple(captions),
        image_group=torch.arange(len(images)),
        caption_group=torch.arange(len(captions)) // each,
        name=folder.name,
        split=split,
        kind="features",
    )
