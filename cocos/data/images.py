"""Image files, which are read when they are encoded or drawn."""

import hashlib
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cocos.base.errors import InputError
from cocos.data import tables
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

    def digest(self) -> bytes:
        """Hash the bytes of all files."""
        digest = hashlib.sha256()
        for content in map(read_bytes, self.paths):
            digest.update(hashlib.sha256(len(content).to_bytes(8, "little") + content).digest())
        return digest.digest()


def read_bytes(path: str | bytes) -> bytes:
    """Return the bytes of an image file, or the same bytes."""
    if isinstance(path, bytes):
        return path
    with tables.readable(f"image {path}"):
        return Path(path).read_bytes()


def read_image(path: str | bytes) -> Tensor:
    """Read an image, (3, height, width) uint8."""
    from PIL import Image

    content = read_bytes(path)
    with tables.readable(f"an image of {len(path)} bytes" if isinstance(path, bytes) else f"image {path}"):
        pixels = np.asarray(Image.open(io.BytesIO(content), formats=PICTURE_FORMATS).convert("RGB"))
    return torch.from_numpy(np.moveaxis(pixels, -1, 0).copy())


def join_inside(folder: Path, name: Any, where: str) -> str:
    """Return the path of an image in a list, which must be inside `folder`."""
    parts = PureWindowsPath(name) if isinstance(name, str) else None  # recognises both separators, and drives
    if parts is None or not name or not name.isprintable() or parts.anchor or ".." in parts.parts:
        raise InputError(f"{where}: {str(name)[:60]!r}, expected the name of an image inside {folder}")
    return str(folder / name)


def locate(names: Sequence[str], folders: Sequence[Path], where: str) -> tuple[str, ...]:
    """Return the paths of images, in the first folder that contains the first image.

    Args:
        names: of the images, relative to the folder.
        folders: candidates.
        where: the list of the names, for messages.
    """
    first = [folder for folder in folders if os.path.isfile(join_inside(folder, names[0], where))]
    paths = tuple(join_inside((first or folders)[0], name, where) for name in names)
    if missing := [path for path in paths if not os.path.isfile(path)]:
        raise ImagesElsewhere(
            f"{where}: {len(missing)} of {len(paths)} images are missing (the first: {missing[0]}); name the folder of "
            "the images: --images FOLDER"
        )
    return paths
