"""Arrays in .npz or .safetensors, one file per split: `images` or `features`, with `labels` or `captions`."""

import re
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cocos.base.errors import InputError, prefixed
from cocos.data import tables
from cocos.data.training_set import Side, TrainingSet, image_captions
from cocos.embeddings import annotations

ROWS = {"images": "image", "features": "features"}  # array -> kind of rows
SPLIT_FILE = re.compile(r"(train|val|valid|validation|dev|test)\.(npz|safetensors)")


def split_files(path: Path) -> dict[str, Path]:
    """Return the file of each split in a folder; a single file is `train`."""
    if not path.is_dir():
        return {"train": path}
    return {file.stem: file for file in sorted(path.iterdir()) if SPLIT_FILE.fullmatch(file.name)}


def read_arrays(path: Path, names: tuple[str, ...] = ()) -> dict[str, np.ndarray | None]:
    """Return the arrays in a file by name, of which only those in `names` are read; empty for another type of file."""
    if path.suffix == ".npz":
        with np.load(path) as archive:
            return {name: archive[name] if name in names else None for name in archive.files}
    if path.suffix == ".safetensors":
        from safetensors import safe_open

        with safe_open(path, "np") as file:
            return {name: file.get_tensor(name) if name in names else None for name in file.keys()}  # noqa: SIM118
    return {}


def sniff(path: Path) -> bool:
    """Return whether files have `images` or `features`, and `labels` or `captions`."""
    files = split_files(path).values()
    try:
        names = [read_arrays(file).keys() for file in files]
    except Exception:  # numpy and safetensors raise many types for a damaged file
        return False
    return bool(files) and all(group & ROWS.keys() and group & {"labels", "captions"} for group in names)


def splits(path: Path) -> tuple[str, ...]:
    """Return the splits: files of a folder, or `train`."""
    return tuple(split_files(path))


def load(split: str, path: Path) -> TrainingSet:
    """Load images or features with their labels or captions.

    Args:
        split: one of `splits`.
        path: of the file, or of a folder with one file per split: `images` (N, height, width), (N, height, width, 3)
            or (N, 3, height, width) uint8, or `features` (N, ...) of floats; `labels` (N,), integers or text, or
            `captions`, (N,) or (N, K) texts.
    """
    file = split_files(path)[split]
    with tables.readable(file):
        arrays = read_arrays(file, (*ROWS, "labels", "captions"))
    name = next(name for name in ROWS if name in arrays)
    with prefixed(str(file)):
        rows = (read_images if name == "images" else read_features)(arrays[name])
        if "labels" in arrays:
            labels = annotations.number_texts({"labels": arrays["labels"]})["labels"]
            group = annotations.groups("labels", labels, name, len(rows))
            return TrainingSet(Side(rows, ROWS[name], group), None, file.stem, split)
        captions = arrays["captions"]
        if captions.dtype.kind not in "US" or len(captions) != len(rows):
            raise InputError(f"captions: {captions.dtype} {captions.shape}, expected text, one row per image")
        texts = annotations.decode_texts("captions", captions.reshape(-1).tolist())
    group = torch.arange(len(rows))
    caption_group = group.repeat_interleave(len(texts) // len(rows))
    return image_captions(rows, texts, group, caption_group, name=file.stem, split=split, kind=ROWS[name])


def read_features(values: np.ndarray) -> Tensor:
    """Return features (N, width) or (N, regions, width) of floats in the byte order of this machine."""
    if values.dtype.kind != "f" or values.dtype.itemsize > 8 or values.ndim not in {2, 3} or 0 in values.shape:
        raise InputError(f"features: {values.dtype} {values.shape}, expected floats, (N, width) or (N, regions, width)")
    return torch.from_numpy(values.astype(values.dtype.newbyteorder("=")))


def read_images(values: np.ndarray) -> Tensor:
    """Return images (N, channels, height, width) uint8."""
    pixels = values[:, None] if values.ndim == 3 else values
    if pixels.ndim == 4 and pixels.shape[3] in {1, 3} and pixels.shape[1] not in {1, 3}:
        pixels = np.moveaxis(pixels, 3, 1)
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[1] not in {1, 3} or 0 in pixels.shape:
        raise InputError(
            f"images: {values.dtype} {values.shape}, expected uint8, (N, height, width) or (N, height, width, 3)"
        )
    return torch.from_numpy(np.ascontiguousarray(pixels))
