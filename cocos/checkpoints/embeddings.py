"""A file of embeddings: .npz, .safetensors or a torch file of tensors, recognised by the names of its arrays."""

import json
import zipfile

import numpy as np
import torch

from cocos.checkpoints import Checkpoint
from cocos.checkpoints._content import File
from cocos.embeddings import Embeddings
from cocos.encoders import device_of
from cocos.errors import InputError

__all__ = ["read", "recognises"]

TWO_SIDED = ("query", "candidate")
GROUPS = ("query_group", "candidate_group", "labels", "proxy_labels")
KNOWN = (*TWO_SIDED, "embeddings", "proxies", *GROUPS, "directions")


def recognises(file: File) -> bool:
    """An npz, or named tensors of which some have the names that embeddings have."""
    if file.kind == "npz":
        return True
    if file.kind not in {"torch", "torch legacy", "safetensors"}:
        return False
    content = file.content
    return isinstance(content, dict) and bool({"query", "candidate", "embeddings"} & content.keys())


def _npz(file: File) -> dict:
    try:
        with np.load(file.path, allow_pickle=False) as archive:
            names = archive.files
            return {name: archive[name] for name in names if name in KNOWN or not set(names) & set(KNOWN)}
    except ValueError as error:
        if "allow_pickle" in str(error) or "Object arrays" in str(error):
            raise InputError(
                f"{file.path} holds an array of Python objects, which only a pickle can load; save numbers: "
                "numpy.savez(FILE, query=numpy.asarray(..., dtype='float32'), ...)"
            ) from None
        raise InputError(f"{file.path} is a damaged npz file ({error}); write it again") from None
    except (zipfile.BadZipFile, EOFError, OSError, KeyError) as error:
        raise InputError(f"{file.path} is a damaged npz file ({error}); write it again") from None


def _ids(arrays: dict, names: tuple[str, ...]) -> None:
    """Text ids become numbers, the same text the same number on both sides."""
    texts = [n for n in names if n in arrays and isinstance(arrays[n], np.ndarray) and arrays[n].dtype.kind in "US"]
    if texts:
        _, numbers = np.unique(np.concatenate([arrays[n].ravel() for n in texts]), return_inverse=True)
        for name, part in zip(texts, np.split(numbers, np.cumsum([arrays[n].size for n in texts])[:-1]), strict=True):
            arrays[name] = part.reshape(arrays[name].shape)


def _tensor(file: File, name: str, value):
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "fiub":
            raise InputError(f"{file.path}, {name}: dtype {value.dtype}, expected numbers")
        value = value.astype(value.dtype.newbyteorder("=")) if not value.dtype.isnative else value
        value = value.astype(np.int64) if value.dtype.kind == "u" else value
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{file.path}, {name}: {type(value).__name__}, expected an array of numbers") from None


def read(file: File, data=None) -> Checkpoint:
    """Read a file of embeddings.

    Raises:
        InputError: arrays that are missing, unknown together, damaged, or do not fit.
    """
    if data is not None:
        raise InputError(f"data {data}: {file.path} holds embeddings already and needs no data")
    arrays = _npz(file) if file.kind == "npz" else dict(file.content)
    names = ", ".join(map(str, list(arrays)[:8])) or "nothing"
    labelled = "embeddings" in arrays
    need = ("embeddings", "labels") if labelled else TWO_SIDED
    missing = [name for name in need if name not in arrays]
    if missing:
        raise InputError(
            f"{file.path} has no array {missing[0]!r} (it holds {names}); cocos reads query, candidate, query_group "
            "and candidate_group, or embeddings, labels and optionally proxies, proxy_labels"
        )
    _ids(arrays, ("labels", "proxy_labels") if labelled else ("query_group", "candidate_group"))
    directions = arrays.pop("directions", file.metadata.get("directions"))
    if isinstance(directions, str):
        directions = json.loads(directions) if directions.startswith("[") else directions.split(",")
    tensors = {name: _tensor(file, name, arrays[name]) for name in KNOWN if name in arrays}
    try:
        if labelled:
            found = Embeddings.labelled(
                *(tensors.get(name) for name in ("embeddings", "labels", "proxies", "proxy_labels"))
            )
        else:
            more = {} if directions is None else {"directions": tuple(str(name) for name in directions)}
            found = Embeddings(
                *(tensors.get(name) for name in ("query", "candidate", "query_group", "candidate_group")),
                **more,
            )
    except InputError as error:
        raise InputError(f"{file.path}: {error}") from None
    contents = {name: f"{tuple(t.shape)} {str(t.dtype).removeprefix('torch.')}" for name, t in tensors.items()}
    contents["directions"] = ", ".join(found.directions)
    return Checkpoint(
        path=file.path,
        sha256=file.sha256,
        format="embeddings",
        contents=contents,
        embedder=lambda split, device, progress: found.to(device_of(device)),
    )
