"""Tensors, class weights and hyper-parameters of a file of any architecture."""

import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from cocos.checkpoints.files import NAMESPACES, File, plain
from cocos.checkpoints.recorded import SETTINGS_KEYS
from cocos.checkpoints.state_dicts import NOT_OF_THE_MODEL, weight_files, whole_state_dicts
from cocos.embeddings.matrices import npy_header

MAX_LISTED = 10_000  # tensors that are listed
MAX_TOWER_PARTS = 64  # parts of a state dict that are counted apart
MAX_SEARCHED = 2**26  # bytes of a file beside the weights that is looked into
MAX_TRAINER_STATE = 2**24  # bytes; a training of a million steps that writes every tenth has ten million
TRAINER_STATE = "trainer_state.json"  # written by the trainer of Hugging Face
# Tensors that no training changes: counters, statistics of batches, positions.
NO_PARAMETER = re.compile(r"(^|\.)(num_batches_tracked|running_(mean|var)|position_ids|token_type_ids|inv_freq)$")
MAX_CONTAINERS = 8  # containers that a tensor may be in


@dataclass(frozen=True)
class Found:
    """A tensor of a file, by the keys that lead to it, with dots; its dtype has no `torch.`."""

    name: str
    shape: tuple[int, ...]
    dtype: str


def _walk(value, prefix: str = "", deep: int = 0) -> Iterator[tuple[str, Tensor | np.ndarray]]:
    if isinstance(value, Tensor | np.ndarray):
        yield prefix, value
    elif deep < MAX_CONTAINERS and isinstance(value, dict | list | tuple):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if not (deep == 0 and isinstance(key, str) and key.lower().startswith(NOT_OF_THE_MODEL)):
                yield from _walk(item, f"{prefix}.{key}" if prefix else str(key), deep + 1)


def _arrays(file: File) -> Iterator[Found]:
    """Read the headers of the arrays of an npz."""
    with zipfile.ZipFile(file.path) as archive:
        for name in [each for each in archive.namelist() if each.endswith(".npy")]:
            with archive.open(name) as stream:
                shape, _, dtype = npy_header(stream)
                yield Found(name.removesuffix(".npy"), shape, str(dtype))


def tensors(file: File) -> list[Found]:
    """List the tensors of the model, in the order of the file, without those of optimizers and schedulers."""
    if file.kind == "npz":
        return list(_arrays(file))
    if file.kind == "folder":
        places = ((name, name.rpartition("/")[0]) for name in weight_files(file))
        every = (pair for name, place in places for pair in _walk(file.file(name).content, place))
    else:
        every = _walk(file.content) if file.content is not None else ()
    return [Found(name, tuple(each.shape), str(each.dtype).removeprefix("torch.")) for name, each in every]


def towers(file: File) -> list[dict]:
    """Count the parameters of each state dict of a file or folder, and of the parts that its names begin with."""
    if file.kind == "folder":
        held = [(name, each) for name in weight_files(file) for each in whole_state_dicts(file.file(name).content)]
    else:
        held = [("", each) for each in whole_state_dicts(file.content)]
    found = []
    for place, state in held:
        parts: dict[str, int] = {}
        for name, tensor in state.tensors.items():
            head = name.partition(".")[0]
            parts[head] = parts.get(head, 0) + (0 if NO_PARAMETER.search(name) else tensor.numel())
        found.append({
            "name": state.place or place,
            "stripped": list(state.stripped),
            "tensors": len(state.tensors),
            "parameters": sum(parts.values()),
            "dtypes": sorted({str(tensor.dtype).removeprefix("torch.") for tensor in state.tensors.values()}),
            "parts": dict(list(parts.items())[:MAX_TOWER_PARTS]),
        })
    return found


def progress(file: File) -> dict:
    """Read how far the training was, and its best score: numbers and text of a torch file, and of its trainer."""
    found = values(file)
    callbacks = file.record.get("callbacks")  # of PyTorch Lightning
    for each in callbacks.values() if isinstance(callbacks, dict) else ():
        if isinstance(each, dict):
            found |= {key: plain(each[key]) for key in ("monitor", "best_model_score") if each.get(key) is not None}
    if TRAINER_STATE in file if file.kind == "folder" else False:
        state = file.json(TRAINER_STATE)
        keys = ("epoch", "global_step", "best_metric", "best_model_checkpoint")
        found |= {key: plain(state[key]) for key in keys if isinstance(state, dict) and state.get(key) is not None}
    return found


def _settings(file: File) -> Iterator[tuple[str, object]]:
    for key in SETTINGS_KEYS:
        held = file.record.get(key)
        held = vars(held) if isinstance(held, NAMESPACES) else held
        if isinstance(held, dict):
            yield key, held


def values(file: File) -> dict:
    """Read numbers and text at the top level of a torch file, such as `epoch`."""
    return {str(key): plain(each) for key, each in file.record.items() if isinstance(each, bool | int | float | str)}


def hyperparameters(file: File) -> dict:
    """Read the settings of the training in a file, as plain data, by the keys of the file."""
    return {key: plain(held) for key, held in _settings(file)}
