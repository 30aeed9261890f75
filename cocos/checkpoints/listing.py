"""The tensors and plain values of a file of any architecture."""

import zipfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from cocos.checkpoints.files import File, plain
from cocos.checkpoints.state_dicts import NOT_OF_THE_MODEL, weight_files
from cocos.embeddings.matrices import npy_header

MAX_DEPTH = 8  # nested containers that are read


class ListedTensor(NamedTuple):
    """A tensor: the keys that lead to it, with dots, its shape, and its dtype without `torch.`."""

    name: str
    shape: tuple[int, ...]
    dtype: str


def list_tensors(file: File) -> list[ListedTensor]:
    """List the model tensors or npz arrays of a file, without optimizer and scheduler state."""
    if file.kind == "npz":
        return list(list_arrays(file))
    if file.kind == "folder":
        roots = [(name.rpartition("/")[0], file.file(name).content) for name in weight_files(file)]
    else:
        roots = [("", file.content)]
    tensors = (entry for prefix, content in roots for entry in walk(content, prefix))
    return [
        ListedTensor(name, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")) for name, tensor in tensors
    ]


def list_arrays(file: File) -> Iterator[ListedTensor]:
    """List the arrays of an npz file from their headers."""
    with zipfile.ZipFile(file.path) as archive:
        for member in archive.namelist():
            if member.endswith(".npy"):
                with archive.open(member) as stream:
                    shape, _, dtype = npy_header(stream)
                yield ListedTensor(member.removesuffix(".npy"), shape, str(dtype))


def walk(value: Any, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Tensor | np.ndarray]]:
    """Yield the tensors in nested containers with the keys that lead to them."""
    if isinstance(value, Tensor | np.ndarray):
        yield prefix, value
    elif depth < MAX_DEPTH and isinstance(value, dict | list | tuple):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if depth or not str(key).lower().startswith(NOT_OF_THE_MODEL):
                yield from walk(item, f"{prefix}.{key}" if prefix else str(key), depth + 1)


def top_values(file: File) -> dict:
    """Return the numbers and text at the top level of a torch file, such as `epoch`."""
    return {str(key): plain(item) for key, item in file.record.items() if isinstance(item, bool | int | float | str)}
