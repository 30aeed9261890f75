"""Arrays in .npz or .safetensors, one file per split: `images` or `features`, with `labels` or `captions`."""

import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cocos.base.errors import InputError, prefixed
from cocos.data.training_set import Side, TrainingSet, image_captions
from cocos.embeddings import annotations

ROWS = {"images": "image", "features": "features"}  # array -> kind of rows
TARGETS = ("labels", "captions")
OPTIONAL = ("class_names", "ids", "image_group", "caption_group")
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
    names = [name for name in (*ROWS, *TARGETS, *OPTIONAL) if name in array_names(path)]
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
            or (N, 3, height, width) uint8, or `features` (N, ...) of floats; `labels` (N,), integers or text, and
            optionally `class_names`; or `captions`, (N,) or (N, K) texts, or (M,) with `image_group` and
            `caption_group`; optionally `ids`, (N,).
    """
    file = split_files(path)[split]
    arrays = read_arrays(file)
    name = next(name for name in ROWS if name in arrays)
    rows = read_rows(file, name, arrays[name])
    with prefixed(str(file)):
        if "captions" in arrays:
            captions, groups = read_captions(arrays, len(rows))
            return image_captions(rows, captions, *groups, name=file.stem, split=split, kind=ROWS[name])
        labels = annotations.numbered({"labels": arrays["labels"]})["labels"]
        group = annotations.groups("labels", labels, name, len(rows))
        return TrainingSet(Side(rows, ROWS[name], group, row_names(arrays, group)), None, file.stem, split)


def row_names(arrays: dict[str, Any], group: Tensor) -> tuple[str, ...] | None:
    """Return the ids of the rows, or the names of their classes, or None."""
    ids, classes = (annotations.texts(arrays.get(name)) for name in ("ids", "class_names"))
    if ids is not None:
        return tuple(annotations.spelled("ids", ids))
    if classes is None or int(group.min()) < 0 or int(group.max()) >= len(classes):
        return None
    names = annotations.spelled("class_names", classes)
    return tuple(names[label] for label in group.tolist())


def read_captions(arrays: dict[str, Any], images: int) -> tuple[list[str], tuple[Tensor, Tensor]]:
    """Return the captions, and the groups of images and captions."""
    captions = arrays["captions"]
    if captions.dtype.kind not in "US":
        raise InputError(f"captions: dtype {captions.dtype}, expected text")
    if captions.ndim == 2 and len(captions) == images:
        groups = torch.arange(images), torch.arange(images).repeat_interleave(captions.shape[1])
    else:
        groups = annotations.both_groups(arrays.get("image_group"), arrays.get("caption_group"), images, captions.size)
    return annotations.spelled("captions", captions.reshape(-1).tolist()), groups
