"""Image files, which are read when they are encoded or drawn."""

import hashlib
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cocos.base.errors import InputError
from cocos.data import tables
from cocos.embeddings.annotations import PICTURE_FORMATS

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp")


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


def locate(names: Sequence[str], folders: Sequence[Path], where: str) -> tuple[str, ...]:
    """Return the paths of the images in a list, in the first folder that contains the first image.

    Raises:
        InputError: an image is missing, or a path leaves the folder.
    """
    folder = next((folder for folder in folders if (folder / names[0]).is_file()), folders[0])
    for name in names:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise InputError(f"{where}: {name[:60]!r}, expected the name of an image inside {folder}")
    paths = tuple(str(folder / name) for name in names)
    if missing := [path for path in paths if not os.path.isfile(path)]:
        count = f"{len(missing)} of {len(paths)} images are missing (the first: {missing[0]})"
        raise InputError(f"{where}: {count}; name the folder of the images: --images FOLDER")
    return paths
