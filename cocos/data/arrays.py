"""Arrays in .npz, one file per split: `images` or `features`, with `labels` or `captions`."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cocos.base.errors import InputError, prefixed
from cocos.data import tables
from cocos.data.training_set import TrainingSet
from cocos.data.user_data import training_set

SPLITS = ("train", "val", "valid", "validation", "dev", "test")


def split_files(path: Path) -> dict[str, Path]:
    """Return the file of each split in a folder; a single file is `train`."""
    if path.suffix == ".npz" and path.is_file():
        return {"train": path}
    return {split: path / f"{split}.npz" for split in SPLITS if (path / f"{split}.npz").is_file()}


def splits(path: Path) -> tuple[str, ...]:
    """Return the splits, if all files have `images` or `features`, and `labels` or `captions`."""
    files = split_files(path)
    for file in files.values():
        try:
            names = set(np.load(file).files)
        except Exception:  # numpy raises many types for a damaged file
            return ()
        if not names & {"images", "features"} or not names & {"labels", "captions"}:
            return ()
    return tuple(files)


def load(split: str, path: Path) -> TrainingSet:
    """Load images or features with their labels or captions.

    Args:
        split: one of `splits`.
        path: of the file, or of a folder with one file per split: `images` (N, height, width), (N, height, width, 3)
            or (N, 3, height, width) uint8, or `features` (N, ...) of floats; `labels` (N,), integers or text, or
            `captions`, (N,) or (N, K) texts.
    """
    file = split_files(path)[split]
    names = ("images", "features", "labels", "captions")
    with tables.readable(file), np.load(file) as archive:
        arrays = {name: archive[name] for name in names if name in archive}
    with prefixed(str(file)):
        if "images" in arrays:
            rows = check_images(arrays["images"])
        else:
            rows = torch.from_numpy(check_features(arrays["features"], "features"))
        if "labels" in arrays:
            return training_set({"items": rows, "labels": arrays["labels"]}, file.stem, split)
        captions = arrays["captions"]
        if captions.dtype.kind not in "US" or len(captions) != len(rows):
            raise InputError(f"captions: {captions.dtype} {captions.shape}, expected text, one row per image")
        group = np.arange(len(rows))
        groups = {"query_group": group, "candidate_group": group.repeat(captions.size // len(rows))}
        texts = captions.reshape(-1)
        sides = {"query": rows, "candidate": texts, "directions": ("i2t", "t2i")}
        return training_set(sides | groups, file.stem, split)


def check_features(values: np.ndarray, name: str) -> np.ndarray:
    """Return features, (N, width) or (N, regions, width) of floats, in the byte order of this machine."""
    if values.dtype.kind != "f" or values.dtype.itemsize > 8 or values.ndim not in {2, 3} or 0 in values.shape:
        raise InputError(f"{name}: {values.dtype} {values.shape}, expected floats, (N, width) or (N, regions, width)")
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def check_images(values: np.ndarray) -> Tensor:
    """Return images (N, channels, height, width) uint8."""
    pixels = values[:, None] if values.ndim == 3 else values
    if pixels.ndim == 4 and pixels.shape[3] in {1, 3} and pixels.shape[1] not in {1, 3}:
        pixels = np.moveaxis(pixels, 3, 1)
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[1] not in {1, 3} or 0 in pixels.shape:
        expected = "expected uint8, (N, height, width) or (N, height, width, 3)"
        raise InputError(f"images: {values.dtype} {values.shape}, {expected}")
    return torch.from_numpy(np.ascontiguousarray(pixels))
