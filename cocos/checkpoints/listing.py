"""The tensors and plain values of a file of any architecture."""

import re
import zipfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from cocos.checkpoints.files import NAMESPACES, File, plain
from cocos.checkpoints.model_card import trainer_state
from cocos.checkpoints.recorded import SETTINGS_KEYS
from cocos.checkpoints.state_dicts import NOT_OF_THE_MODEL, weight_files, whole_state_dicts
from cocos.embeddings.matrices import npy_header

# Tensors that no training changes: counters, statistics of batches, positions.
BUFFER = re.compile(r"(^|\.)(num_batches_tracked|running_(mean|var)|position_ids|token_type_ids|inv_freq)$")
MAX_DEPTH = 8  # nested containers that are read


class ListedTensor(NamedTuple):
    """A tensor: the keys that lead to it, with dots, its shape, and its dtype without `torch.`."""

    name: str
    shape: tuple[int, ...]
    dtype: str


def list_tensors(file: File) -> list[ListedTensor]:
    """List the tensors of a model or the arrays of an npz file, without those of optimizers and schedulers."""
    if file.kind == "npz":
        return list(list_arrays(file))
    if file.kind == "folder":
        roots = [(name.rpartition("/")[0], file.file(name).content) for name in weight_files(file)]
    else:
        roots = [("", file.content)]
    tensors = (entry for prefix, content in roots for entry in walk(content, prefix))
    return [ListedTensor(name, tuple(each.shape), str(each.dtype).removeprefix("torch.")) for name, each in tensors]


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


def list_towers(file: File) -> list[dict]:
    """Count the parameters of each state dict of a file or folder, and of each first part of their names."""
    if file.kind == "folder":
        states = [(name, state) for name in weight_files(file) for state in whole_state_dicts(file.file(name).content)]
    else:
        states = [("", state) for state in whole_state_dicts(file.content)]
    towers = []
    for path, state in states:
        parts: dict[str, int] = {}
        for name, tensor in state.tensors.items():
            part = name.partition(".")[0]
            parts[part] = parts.get(part, 0) + (0 if BUFFER.search(name) else tensor.numel())
        towers.append({
            "name": state.place or path,
            "stripped": list(state.stripped),
            "tensors": len(state.tensors),
            "parameters": sum(parts.values()),
            "dtypes": sorted({str(tensor.dtype).removeprefix("torch.") for tensor in state.tensors.values()}),
            "parts": parts,
        })
    return towers


def top_values(file: File) -> dict:
    """Return the numbers and text at the top level of a torch file, such as `epoch`."""
    return {str(key): plain(item) for key, item in file.record.items() if isinstance(item, bool | int | float | str)}


def training_progress(file: File) -> dict:
    """Return how far a training was and its best score, from the file, Lightning's callbacks or the trainer."""
    progress = top_values(file)
    callbacks = file.record.get("callbacks")
    for state in callbacks.values() if isinstance(callbacks, dict) else ():
        if isinstance(state, dict):
            keys = ("monitor", "best_model_score")
            progress |= {key: plain(state[key]) for key in keys if state.get(key) is not None}
    if file.kind == "folder":
        state = trainer_state(file.path)
        keys = ("epoch", "global_step", "best_metric", "best_model_checkpoint")
        progress |= {key: plain(state[key]) for key in keys if state.get(key) is not None}
    return progress


def hyper_parameters(file: File) -> dict:
    """Return the settings of the training, by the keys of the file."""
    settings = {key: file.record.get(key) for key in SETTINGS_KEYS}
    return {key: plain(item) for key, item in settings.items() if isinstance(item, (dict, *NAMESPACES))}
