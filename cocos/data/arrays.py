"""Arrays in .npz or .safetensors: `images` or `features`, with `labels` or with `captions`; a file a split."""

import math
import os
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cocos.base import annotations, tensor_files
from cocos.base.errors import InputError
from cocos.base.matrices import npy_header
from cocos.data import Rows, Side, TrainingSet, image_captions

ROWS = ("images", "features")
BESIDE = ("labels", "captions")
# Splits that a file of a folder can be named for.
SPLIT_FILE = re.compile(r"(train|val|valid|validation|dev|test)\.(npz|safetensors)")
USED = (*ROWS, *BESIDE, "class_names", "ids", "image_group", "caption_group")


def _names(path: Path) -> list[str]:
    """List the names of the arrays of a file; none where it is of another kind."""
    try:
        return _members(path) if _is_zip(path) else _tensors(path)
    except Exception:  # zipfile has many of its own for a damaged file
        return []


def _is_zip(path: Path) -> bool:
    with open(path, "rb") as stream:
        return zipfile.is_zipfile(stream)


def _members(path: Path) -> list[str]:
    with open(path, "rb") as stream, zipfile.ZipFile(stream) as archive:
        names = archive.namelist()
    return [name.removesuffix(".npy") for name in names if name.endswith(".npy")]


def _tensors(path: Path) -> list[str]:
    with open(path, "rb") as stream:
        if stream.read(9)[8:] != b"{":
            return []
        stream.seek(0)
        return list(tensor_files.header(stream, os.fstat(stream.fileno()).st_size).places)


def _files(path: Path) -> dict[str, Path]:
    """Find the file of each split in a folder; one file is `train`."""
    if not path.is_dir():
        return {"train": path}
    named = ((SPLIT_FILE.fullmatch(each.name), each) for each in sorted(path.iterdir()))
    return {name[1]: each for name, each in named if name and each.is_file()}


def recognises(path: Path) -> bool:
    """Files with `images` or `features`, and with `labels` or `captions`."""
    held = [set(_names(each)) if each.is_file() else set() for each in _files(path).values()]
    return bool(held) and all(names.intersection(ROWS) and names.intersection(BESIDE) for names in held)


def splits(path: Path) -> tuple[str, ...]:
    """List the splits: files of a folder; `train` for one file."""
    return tuple(_files(path))


def _npz(path: Path, names: list[str]) -> dict[str, np.ndarray]:
    """Read arrays; nothing is allocated before its header agrees with its bytes."""
    found = {}
    with open(path, "rb") as packed, zipfile.ZipFile(packed) as archive:
        members = {name: archive.getinfo(f"{name}.npy") for name in names}
        for name, info in members.items():
            with archive.open(info) as stream:
                shape, fortran, dtype = npy_header(stream)
                if dtype.hasobject:
                    raise ValueError(f"{name} holds Python objects, which only a pickle can load")
                size = math.prod(shape) * dtype.itemsize
                if size > info.file_size:
                    raise ValueError(f"{name} has shape {shape} in {info.file_size} bytes")
                content = bytearray(stream.read(size))
            found[name] = np.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C")
    return found


def _arrays(path: Path) -> dict[str, Any]:
    there = _names(path)
    wanted = [name for name in USED if name in there]
    if not set(ROWS) & set(wanted) or not set(BESIDE) & set(wanted):
        held = ", ".join(there[:8]) or "no arrays"
        raise InputError(f"{path} holds {held}, expected images or features, and labels or captions")
    try:
        if _is_zip(path):
            return _npz(path, wanted)
        with open(path, "rb") as stream:
            return tensor_files.tensors(stream, os.fstat(stream.fileno()).st_size, wanted)
    except Exception as error:  # zipfile, zlib and numpy each have their own for a damaged file
        raise InputError(f"{path} is damaged ({' '.join(str(error).split())[:120]}); write it again") from None


def _rows(path: Path, name: str, values: Any) -> Tensor:
    """Make rows as encoders read them: images (N, channels, height, width) of uint8, features (N, ...) of floats."""
    if isinstance(values, np.ndarray) and (values.dtype.kind not in "fiub" or values.dtype.itemsize > 8):
        raise InputError(f"{path}, {name}: dtype {values.dtype}, expected numbers")
    found = values if isinstance(values, Tensor) else torch.from_numpy(values.astype(values.dtype.newbyteorder("=")))
    shape, dtype = tuple(found.shape), str(found.dtype).removeprefix("torch.")
    if name == "features":
        if not found.is_floating_point() or found.ndim not in {2, 3} or 0 in shape:
            raise InputError(f"{path}, features: {dtype} {shape}, expected floats, (N, width) or (N, regions, width)")
        return found
    if found.ndim == 4 and shape[3] in {1, 3} and shape[1] not in {1, 3}:
        found = found.movedim(3, 1)
    found = found[:, None] if found.ndim == 3 else found
    if found.dtype != torch.uint8 or found.ndim != 4 or found.shape[1] not in {1, 3} or 0 in shape:
        expected = "uint8 from 0 to 255, (N, height, width) or (N, height, width, 3)"
        raise InputError(f"{path}, images: {dtype} {shape}, expected {expected}")
    return found.contiguous()


def load(split: str, path: Path) -> TrainingSet:
    """Load images or features with their labels, or with their captions.

    Args:
        split: one of `splits`.
        path: of the file, or of a folder with a file for each split. A file has `images` (N, height, width),
            (N, height, width, 3) or (N, 3, height, width) of uint8, or `features` (N, ...) of floats; `labels` (N,),
            whole numbers or text, and optionally `class_names`; or `captions`, (N,) or (N, K) texts, or (M,) with
            `image_group` and `caption_group`; optionally `ids`, (N,).
    """
    path = _files(Path(path))[split]
    arrays = _arrays(path)
    name = next(each for each in ROWS if each in arrays)
    rows, kind = _rows(path, name, arrays[name]), {"images": "image", "features": "features"}[name]
    try:
        if "captions" in arrays:
            return _captioned(rows, kind, arrays, path.stem, split)
        ids = annotations.numbered({"labels": arrays["labels"]})["labels"]
        group = annotations.groups("labels", ids, name, len(rows))
        return TrainingSet(Side(rows, kind, group, _named(arrays, group)), None, path.stem, split)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _named(arrays: dict[str, Any], group: Tensor) -> tuple[str, ...] | None:
    """Names of the rows: their ids, or their classes; None where neither is known."""
    ids, classes = annotations.texts(arrays.get("ids")), annotations.texts(arrays.get("class_names"))
    if ids is not None:
        return tuple(annotations.spelled("ids", ids))
    if classes is None or int(group.min()) < 0 or int(group.max()) >= len(classes):
        return None
    said = annotations.spelled("class_names", classes)
    return tuple(said[each] for each in group.tolist())


def _captioned(rows: Rows, kind: str, arrays: dict[str, Any], name: str, split: str) -> TrainingSet:
    captions = np.asarray(arrays["captions"])
    if captions.dtype.kind not in "US":
        raise InputError(f"captions: dtype {captions.dtype}, expected text")
    if captions.ndim == 2 and len(captions) == len(rows):
        groups = torch.arange(len(rows)), torch.arange(len(rows)).repeat_interleave(captions.shape[1])
    else:
        groups = annotations.both_groups(
            arrays.get("image_group"), arrays.get("caption_group"), len(rows), captions.size
        )
    said = annotations.spelled("captions", captions.reshape(-1).tolist())
    return image_captions(rows, said, *groups, name=name, split=split, kind=kind)
