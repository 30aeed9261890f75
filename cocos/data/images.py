"""Images in files and the captions beside them: read when they are encoded or drawn, hashed by their bytes."""

import hashlib
import io
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from cocos.base import reading
from cocos.base.annotations import PICTURE_FORMATS
from cocos.base.errors import InputError, unreachable
from cocos.base.untrusted import parsed
from cocos.data import TrainingSet, image_captions

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp")
# Bytes and pixels of one image: 64 MiB, and as many pixels, which are 192 MiB unpacked.
MAX_IMAGE = 2**26
HASHED_AT_ONCE = 2**20
HEAD = 2**16


class ImagesElsewhere(InputError):
    """Images that are not where a list of them was found."""


@dataclass(frozen=True)
class ImageFiles:
    """Images that stay in files, or as bytes of files, until they are indexed; a slice is another such sequence."""

    paths: tuple[str | bytes, ...]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, place: Any) -> Any:
        """One image, (3, height, width) of uint8, or a part of the sequence."""
        return ImageFiles(self.paths[place]) if isinstance(place, slice) else _read(self.paths[place])

    def __iter__(self) -> Iterator[Tensor]:
        return map(_read, self.paths)

    def digest(self) -> bytes:
        """Hash the bytes of all files."""
        found = hashlib.sha256()
        for path in self.paths:
            try:
                with _stream(path) as stream:
                    own = hashlib.sha256(_size(path).to_bytes(8, "little"))
                    while part := stream.read(HASHED_AT_ONCE):
                        own.update(part)
            except OSError as error:
                raise InputError(f"{_shown(path)}: it cannot be read ({error.strerror})") from None
            found.update(own.digest())
        return found.digest()


def _stream(path: str | bytes) -> IO[bytes]:
    return io.BytesIO(path) if isinstance(path, bytes) else open(path, "rb")


def _size(path: str | bytes) -> int:
    return len(path) if isinstance(path, bytes) else os.path.getsize(path)


def _shown(path: str | bytes) -> str:
    """Name an image in a message."""
    return f"an image of {len(path)} bytes" if isinstance(path, bytes) else f"image {path}"


def _read(path: str | bytes) -> Tensor:
    """Read an image, (3, height, width) of uint8."""
    from PIL import Image  # only where an image is read

    try:
        if (size := _size(path)) > MAX_IMAGE:
            raise InputError(f"{_shown(path)}: {size} bytes, expected at most {MAX_IMAGE}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of large images, which are refused here, and of odd palettes
            values = _decoded(Image, path)
    except InputError:
        raise
    except Exception as error:  # Pillow has many for a damaged or hostile file
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{_shown(path)}: it cannot be read ({type(error).__name__}: {reason})") from None
    return torch.from_numpy(np.moveaxis(values, -1, 0).copy())


def _decoded(library: Any, path: str | bytes) -> np.ndarray:
    with _stream(path) as stream, library.open(stream, formats=PICTURE_FORMATS) as image:
        if image.width * image.height > MAX_IMAGE:
            raise InputError(f"{_shown(path)}: {image.width} x {image.height} pixels, expected at most {MAX_IMAGE}")
        return np.asarray(image.convert("RGB"))


def inside(folder: Path, name: Any, where: str) -> str:
    """Return the path of a file that an index names, which must lie in a folder."""
    parts = PureWindowsPath(name) if isinstance(name, str) else None  # knows both kinds of separators, and drives
    right = parts is not None and name.isprintable() and name and not parts.anchor and ".." not in parts.parts
    if parts is None or not right or any(len(each.encode()) > reading.NAME_BYTES for each in parts.parts):
        raise InputError(f"{where}: {str(name)[:60]!r}, expected the name of an image inside {folder}")
    return str(folder / name)


def located(
    names: Sequence[str], places: Sequence[Path], what: str, option: str = "--images FOLDER", *, whole: bool = True
) -> list[str]:
    """Find the paths of images by their names, in the first of the places that has the first image.

    Args:
        names: of the images, as a list has them.
        places: folders.
        what: lists them, for messages.
        option: that the user types to name another folder.
        whole: all must be there; otherwise the path of a missing one is empty, and any image finds the place.
    """
    asked = names[:1] if whole else names
    folder = next((place for place in places if any(os.path.isfile(inside(place, each, what)) for each in asked)), None)
    if folder is None:
        looked = ", ".join(map(str, places[:6]))
        raise ImagesElsewhere(f"{what}: {names[0]} is not in {looked}; name the folder of the images: {option}")
    paths = [inside(folder, each, what) for each in names]
    gone = [place for place, each in enumerate(paths) if not os.path.isfile(each)]
    if gone and whole:
        first = paths[gone[0]]
        raise ImagesElsewhere(f"{what}: {len(gone)} of {len(paths)} images are not there (the first: {first})")
    for place in gone:
        paths[place] = ""
    return paths


def captioned(
    rows: Sequence[tuple[str, Sequence[str]]], places: Sequence[Path], *, name: str, split: str, option: str
) -> TrainingSet:
    """Make a training set of images in files and their captions, from the name of each file and its captions.

    The images lie in the first of the places that has the first image; `option` is what the user types to name another.
    """
    rows = [row for row in rows if row[1]]
    if not rows:
        raise InputError(f"{name}, {split}: no image with a caption")
    paths = located([each for each, _ in rows], places, f"{name}, {split}", option)
    return image_captions(
        images=ImageFiles(tuple(paths)),
        captions=tuple(text for _, texts in rows for text in texts),
        image_group=torch.arange(len(rows)),
        caption_group=torch.tensor([place for place, (_, texts) in enumerate(rows) for _ in texts]),
        name=name,
        split=split,
        pictures=tuple(paths),
    )


def begin(path: Path) -> bytes:
    """Read the first bytes of a file, without the blanks before them; nothing where it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return stream.read(HEAD).lstrip()
    except OSError:
        return b""


def read(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        with open(path, "rb") as stream:
            found = parsed(stream.read())
    except OSError as error:
        raise InputError(f"{path}: {unreachable(error)}") from None
    except ValueError as error:
        raise InputError(f"{path} is not readable as JSON ({str(error)[:120]}); copy it again") from None
    if not isinstance(found, dict):
        raise InputError(f"{path}: a JSON {type(found).__name__}, expected an object")
    return found


def places(path: Path, images: str | None) -> list[Path]:
    """List the folders in which the images of a file of captions may lie."""
    if images is not None:
        return [Path(images)]
    part = re.sub(r"^(captions|dataset)_", "", path.stem)
    names = (part, "images", f"images/{part}", f"{part}_images", f"{part}-images", ".")
    return [folder / name for folder in (path.parent, path.parent.parent) for name in names]
