"""Arrays in .npz or .safetensors, one file per split: `images` or `features`, with `labels` or `captions`."""

import re
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cocos.base.errors import InputError, prefixed
from cocos.data.training_set import Side, TrainingSet, image_captions
from cocos.embeddings import annotations

ROWS = {"images": "image", "features": "features"}  # array -> kind of rows
TARGETS = ("labels", "captions")
SPLIT_FILE = re.compile(r"(train|val|valid|validation|dev|test)\.(npz|safetensors)")


def split_files(path: Path) -> dict[str, Path]:
    """Return the file of each split in a folder; a single file is `train`."""
    if not path.is_dir():
        return {"train": path}
    matches = {file: SPLIT_FILE.fullmatch(file.name) for file in sorted(path.iterdir())}
    return {match[1]: file for file, match in matches.items() if match}


def array_names(path: Path) -> set[str]:
    """Return the names of the arrays in a file; empty if it is another file."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                return {name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")}
        if path.suffix == ".safetensors":
            from safetensors import safe_open

            with safe_open(path, "np") as file:
                return set(file.keys())
    except Exception:  # zipfile and safetensors raise many types for a damaged file
        return set()
    return set()


def sniff(path: Path) -> bool:
    """Return whether files have `images` or `features`, and `labels` or `captions`."""
    names = [array_names(file) if file.is_file() else set() for file in split_files(path).values()]
    return bool(names) and all(group.intersection(ROWS) and group.intersection(TARGETS) for group in names)


def splits(path: Path) -> tuple[str, ...]:
    """Return the splits: files of a folder, or `train`."""
    return tuple(split_files(path))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays that are used."""
    names = [name for name in (*ROWS, *TARGETS) if name in array_names(path)]
    if not set(ROWS) & set(names) or not set(TARGETS) & set(names):
        present = ", ".join(sorted(array_names(path))[:8]) or "no arrays"
        raise InputError(f"{path}: contains {present}, expected images or features, and labels or captions")
    try:
        if zipfile.is_zipfile(path):
            with np.load(path) as archive:
                return {name: archive[name] for name in names}
        from safetensors import safe_open

        with safe_open(path, "np") as file:
            return {name: file.get_tensor(name) for name in names}
    except Exception as error:
        raise InputError(f"{path} is damaged ({' '.join(str(error).split())[:120]}); write it again") from None


def read_rows(path: Path, name: str, values: np.ndarray) -> Tensor:
    """Return images (N, channels, height, width) uint8, or features (N, ...) of floats."""
    if values.dtype.kind not in "fiub" or values.dtype.itemsize > 8:
        raise InputError(f"{path}, {name}: dtype {values.dtype}, expected numbers")
    rows = torch.from_numpy(values.astype(values.dtype.newbyteorder("=")))
    shape = tuple(rows.shape)
    if name == "features":
        if not rows.is_floating_point() or rows.ndim not in {2, 3} or 0 in shape:
            raise InputError(
                f"{path}, features: {values.dtype} {shape}, expected floats, (N, width) or (N, regions, width)"
            )
        return rows
    if rows.ndim == 4 and shape[3] in {1, 3} and shape[1] not in {1, 3}:
        rows = rows.movedim(3, 1)
    rows = rows[:, None] if rows.ndim == 3 else rows
    if rows.dtype != torch.uint8 or rows.ndim != 4 or rows.shape[1] not in {1, 3} or 0 in shape:
        raise InputError(
            f"{path}, images: {values.dtype} {shape}, expected uint8, (N, height, width) or (N, height, width, 3)"
        )
    return rows.contiguous()


def load(split: str, path: Path) -> TrainingSet:
    """Load images or features with their labels or captions.

    Args:
        split: one of `splits`.
        path: of the file, or of a folder with one file per split: `images` (N, height, width), (N, height, width, 3)
            or (N, 3, height, width) uint8, or `features` (N, ...) of floats; `labels` (N,), integers or text, or
            `captions`, (N,) or (N, K) texts.
    """
    file = split_files(path)[split]
    arrays = read_arrays(file)
    name = next(name for name in ROWS if name in arrays)
    rows = read_rows(file, name, arrays[name])
    with prefixed(str(file)):
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
