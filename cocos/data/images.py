"""Image files, read when they are encoded or drawn, and lists of images with their captions."""

import hashlib
import io
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from cocos.base.errors import InputError
from cocos.data.training_set import TrainingSet, image_captions
from cocos.embeddings.annotations import PICTURE_FORMATS

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp")


class ImagesElsewhere(InputError):
    """Images that are not in the expected folders."""


@dataclass(frozen=True)
class ImageFiles:
    """Images in files, or in the bytes of files; a slice is another such sequence."""

    paths: tuple[str | bytes, ...]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: Any) -> Any:
        """Return one image, (3, height, width) uint8, or a slice of the sequence."""
        return ImageFiles(self.paths[index]) if isinstance(index, slice) else read_image(self.paths[index])

    def __iter__(self) -> Iterator[Tensor]:
        return map(read_image, self.paths)

    def digest(self) -> bytes:
        """Hash the bytes of all files."""
        digest = hashlib.sha256()
        for path in self.paths:
            try:
                with open_image(path) as stream:
                    content = stream.read()
            except OSError as error:
                raise InputError(f"{describe_image(path)}: cannot be read ({error.strerror})") from None
            digest.update(hashlib.sha256(len(content).to_bytes(8, "little") + content).digest())
        return digest.digest()


def open_image(path: str | bytes) -> IO[bytes]:
    """Open an image file."""
    return io.BytesIO(path) if isinstance(path, bytes) else open(path, "rb")


def describe_image(path: str | bytes) -> str:
    """Name an image in a message."""
    return f"an image of {len(path)} bytes" if isinstance(path, bytes) else f"image {path}"


def read_image(path: str | bytes) -> Tensor:
    """Read an image, (3, height, width) uint8."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with open_image(path) as stream, Image.open(stream, formats=PICTURE_FORMATS) as image:
                pixels = np.asarray(image.convert("RGB"))
    except Exception as error:  # Pillow raises many types for a damaged file
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{describe_image(path)}: cannot be read ({type(error).__name__}: {reason})") from None
    return torch.from_numpy(np.moveaxis(pixels, -1, 0).copy())


def join_inside(folder: Path, name: Any, where: str) -> str:
    """Return the path of an image in a list, which must be inside `folder`."""
    parts = PureWindowsPath(name) if isinstance(name, str) else None  # recognises both separators, and drives
    if parts is None or not name or not name.isprintable() or parts.anchor or ".." in parts.parts:
        raise InputError(f"{where}: {str(name)[:60]!r}, expected the name of an image inside {folder}")
    return str(folder / name)


def locate(names: Sequence[str], folders: Sequence[Path], where: str, *, complete: bool = True) -> list[str]:
    """Return the paths of images, in the first folder that contains the first image.

    Args:
        names: of the images, relative to the folder.
        folders: candidates.
        where: the list of the names, for messages.
        complete: refuse a missing image; otherwise its path is empty, and any image identifies the folder.
    """
    probes = names[:1] if complete else names
    for folder in folders:
        if any(os.path.isfile(join_inside(folder, name, where)) for name in probes):
            break
    else:
        searched = ", ".join(map(str, folders[:6]))
        raise ImagesElsewhere(
            f"{where}: {names[0]} is not in {searched}; name the folder of the images: --images FOLDER"
        )
    paths = [join_inside(folder, name, where) for name in names]
    missing = [path for path in paths if not os.path.isfile(path)]
    if missing and complete:
        raise ImagesElsewhere(f"{where}: {len(missing)} of {len(paths)} images are missing (the first: {missing[0]})")
    return [path if os.path.isfile(path) else "" for path in paths] if missing else paths


def captioned_images(
    rows: Sequence[tuple[str, Sequence[str]]], folders: Sequence[Path], *, name: str, split: str
) -> TrainingSet:
    """Build a training set from the file name and the captions of each image; images without captions are skipped."""
    rows = [row for row in rows if row[1]]
    if not rows:
        raise InputError(f"{name}, {split}: no image with a caption")
    paths = locate([image for image, _ in rows], folders, f"{name}, {split}")
    return image_captions(
        images=ImageFiles(tuple(paths)),
        captions=tuple(text for _, texts in rows for text in texts),
        image_group=torch.arange(len(rows)),
        caption_group=torch.tensor([number for number, (_, texts) in enumerate(rows) for _ in texts]),
        name=name,
        split=split,
        pictures=tuple(paths),
    )
