"""State dicts in the content of a file, under the keys of training scripts and without the prefixes of wrappers."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from cocos.base.errors import InputError
from cocos.checkpoints.files import File, read_json

# Keys of the weights in training scripts, in the order of the search.
KNOWN_KEYS = ("state_dict", "model", "model_state_dict", "net", "state_dict_backbone", "model_state", "network")
# Beginnings of keys that contain the state of the training.
NOT_OF_THE_MODEL = ("optimizer", "optim", "lr_scheduler", "scheduler", "loops", "callbacks", "amp", "scaler")
# Prefixes of DataParallel, torch.compile, FSDP and activation checkpointing, anywhere in a name.
WRAPPERS = re.compile(r"(?:^|(?<=\.))(module|_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
MAX_DEPTH = 4  # nested containers that are searched
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")
WEIGHT_FILE = re.compile(r"(model(-\d+-of-\d+)?\.safetensors|pytorch_model(-\d+-of-\d+)?\.bin)$")


@dataclass(frozen=True)
class StateDict:
    """A state dict.

    Args:
        place: keys that lead to it, with dots; empty at the top.
        tensors: tensors by name, without the removed prefixes.
        stripped: removed prefixes, such as `module.`.
    """

    place: str
    tensors: dict[str, Tensor]
    stripped: tuple[str, ...] = ()


def state_dicts(content: Any) -> list[StateDict]:
    """Return the state dicts in the content of a file, those under known keys first, without prefixes of wrappers.

    Examples:
        >>> from cocos.checkpoints.state_dicts import state_dicts
        >>> content = {"epoch": 3, "state_dict": {"module.weight": torch.ones(2, 2)}}
        >>> [(state.place, list(state.tensors), state.stripped) for state in state_dicts(content)]
        [('state_dict', ['weight'], ('module.',))]
    """
    return [remove_wrappers(StateDict(place, tensors)) for place, tensors in find(content)]


def find(
    value: Any, place: str = "", depth: int = 0, seen: set[int] | None = None
) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield the dictionaries of tensors in a value and their places, each once: content may refer to itself."""
    seen = set() if seen is None else seen
    if id(value) in seen or not isinstance(value, dict | list | tuple):
        return
    seen.add(id(value))
    if isinstance(value, dict):
        tensors = {key: item for key, item in value.items() if isinstance(key, str) and isinstance(item, Tensor)}
        if any(tensor.ndim for tensor in tensors.values()):
            yield place, tensors
        order = {key: number for number, key in enumerate(KNOWN_KEYS)}
        items = sorted(value.items(), key=lambda item: order.get(item[0], len(order)))
    else:
        items = [(number, item) for number, item in enumerate(value) if isinstance(item, dict)]
    for key, item in items if depth < MAX_DEPTH else ():
        if not str(key).lower().startswith(NOT_OF_THE_MODEL):
            yield from find(item, f"{place}.{key}" if place else str(key), depth + 1, seen)


def remove_wrappers(state: StateDict) -> StateDict:
    """Remove the prefixes of wrappers from all names, unless two names would become one."""
    bare = {WRAPPERS.sub("", name): tensor for name, tensor in state.tensors.items()}
    if len(bare) < len(state.tensors) or bare.keys() == state.tensors.keys():
        return state
    prefixes = dict.fromkeys(f"{match[1]}." for name in state.tensors for match in WRAPPERS.finditer(name))
    return StateDict(state.place, bare, tuple(prefixes))


def weight_files(folder: File) -> list[str]:
    """Return the names of the weight files in a folder and its subfolders; only the safetensors files if both exist."""
    files: dict[str, list[str]] = {}
    for name in folder.names:
        if match := WEIGHT_FILE.search(name):
            files.setdefault(name[: match.start()], []).append(name)
    safe = {place: [name for name in names if name.endswith(".safetensors")] for place, names in files.items()}
    return [name for place, names in files.items() for name in safe[place] or names]


def weights(folder: File, within: str = "") -> dict[str, Tensor] | None:
    """Read the weights in a Hugging Face folder or its subfolder `within`; None if absent."""
    for name in WEIGHT_FILES:
        shards = [f"{within}{name}"]
        index = folder.path / f"{within}{name}.index.json"
        if shards[0] not in folder and index.is_file():
            places = read_json(index).get("weight_map", {})
            shards = sorted({f"{within}{shard}" for shard in places.values()})
        tensors: dict[str, Tensor] = {}
        if all(shard in folder for shard in shards):
            for shard in shards:
                tensors |= folder.file(shard).content
            return tensors
        if index.is_file():
            absent = next(shard for shard in shards if shard not in folder)
            raise InputError(f"{index} lists {absent}, which is not in the folder; copy all files of the model")
    return None
