"""Arrays in one .npz: `images` or `features`, with `labels` or `captions`."""

from pathlib import Path

import numpy as np
import torch

from cocos.base.errors import InputError, prefixed
from cocos.data import tables
from cocos.data.training_set import TrainingSet, image_captions
from cocos.data.user_data import training_set


def splits(path: Path) -> tuple[str, ...]:
    """Return `train` for a file with `images` or `features`, and `labels` or `captions`."""
    if path.suffix != ".npz" or not path.is_file():
        return ()
    try:
        names = set(np.load(path).files)
    except Exception:  # numpy raises many types for a damaged file
        return ()
    return ("train",) if names & {"images", "features"} and names & {"labels", "captions"} else ()


def load(split: str, path: Path) -> TrainingSet:
    """Load images or features with their labels or captions.

    `images` are (N, height, width), (N, height, width, 3) or (N, 3, height, width) uint8, `features` (N, ...) floats,
    `labels` (N,) integers or text, `captions` (N,) or (N, K) texts.
    """
    with tables.readable(path), np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files if name in {"images", "features", "labels", "captions"}}
    with prefixed(str(path)):
        is_images = "images" in arrays
        rows = check_images(arrays["images"]) if is_images else check_features(arrays["features"], "features")
        rows = torch.from_numpy(rows)
        if "labels" in arrays:
            return training_set({"items": rows, "labels": arrays["labels"]}, path.stem, split)
        captions = arrays["captions"]
        if captions.dtype.kind != "U" or len(captions) != len(rows):
            raise InputError(f"captions: {captions.dtype} {captions.shape}, expected text, one row per image")
    texts = captions.reshape(-1).tolist()
    group = torch.arange(len(texts)) // (len(texts) // len(rows))
    return image_captions(rows, texts, group, name=path.stem, split=split, kind="image" if is_images else "features")


def check_features(values: np.ndarray, name: str) -> np.ndarray:
    """Return features, (N, width) or (N, regions, width) of floats, in the byte order of this machine."""
    if values.dtype.kind != "f" or values.dtype.itemsize > 8 or values.ndim not in {2, 3} or 0 in values.shape:
        raise InputError(f"{name}: {values.dtype} {values.shape}, expected floats, (N, width) or (N, regions, width)")
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def check_images(values: np.ndarray) -> np.ndarray:
    """Return images (N, channels, height, width) uint8."""
    pixels = values[:, None] if values.ndim == 3 else values
    if pixels.ndim == 4 and pixels.shape[3] in {1, 3} and pixels.shape[1] not in {1, 3}:
        pixels = np.moveaxis(pixels, 3, 1)
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[1] not in {1, 3} or 0 in pixels.shape:
        expected = "expected uint8, (N, height, width) or (N, height, width, 3)"
        raise InputError(f"images: {values.dtype} {values.shape}, {expected}")
    return np.ascontiguousarray(pixels)
