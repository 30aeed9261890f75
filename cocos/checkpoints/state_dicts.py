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
MAX_CONTAINERS, MAX_ATTRIBUTES, MAX_STATE_DICTS = 4, 3, 64
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

    @property
    def origin(self) -> str:
        """Describe the place and the removed prefixes."""
        place = f"under {self.place}" if self.place else "at the top"
        return f"{place}, without {' and '.join(self.stripped)}" if self.stripped else place


def state_dicts(content: Any) -> list[StateDict]:
    """Return the state dicts in the content of a file, whole ones first, then their parts, the largest first.

    The parts are those of one attribute (`model.`, `backbone.`), up to three attributes deep.

    Examples:
        >>> from cocos.checkpoints.state_dicts import state_dicts
        >>> content = {"epoch": 3, "state_dict": {"module.net.weight": torch.ones(2, 2)}}
        >>> [(state.place, list(state.tensors), state.stripped) for state in state_dicts(content)]
        [('state_dict', ['net.weight'], ('module.',)), ('state_dict', ['weight'], ('module.', 'net.'))]
    """
    found = level = whole_state_dicts(content)
    for _ in range(MAX_ATTRIBUTES):
        parts = (part for state in level[:MAX_STATE_DICTS] for part in split_by_attribute(state))
        level = sorted(parts, key=lambda part: -len(part.tensors))
        found = found + level
    return found[:MAX_STATE_DICTS]


def whole_state_dicts(content: Any) -> list[StateDict]:
    """Return the state dicts in the content of a file, each once, without the prefixes of wrappers."""
    return [remove_wrappers(StateDict(place, tensors)) for place, tensors in find(content, "", 0, set())]


def find(value: Any, place: str, depth: int, seen: set[int]) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield the dictionaries of tensors in a value and their places, those under known keys first, each once."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, dict):
        tensors = {key: item for key, item in value.items() if isinstance(key, str) and isinstance(item, Tensor)}
        if any(item.ndim for item in tensors.values()):
            yield place, tensors
        inner = [(key, item) for key, item in value.items() if isinstance(item, dict | list | tuple)]
        inner.sort(key=lambda pair: KNOWN_KEYS.index(pair[0]) if pair[0] in KNOWN_KEYS else len(KNOWN_KEYS))
    elif isinstance(value, list | tuple):
        inner = [pair for pair in enumerate(value[:MAX_STATE_DICTS]) if isinstance(pair[1], dict)]
    else:
        return
    if depth < MAX_CONTAINERS:
        for key, item in inner[:MAX_STATE_DICTS]:
            if not str(key).lower().startswith(NOT_OF_THE_MODEL):
                yield from find(item, f"{place}.{key}" if place else str(key), depth + 1, seen)


def remove_wrappers(state: StateDict) -> StateDict:
    """Remove the prefixes of wrappers from all names, unless two names would become one."""
    bare = {WRAPPERS.sub("", name): tensor for name, tensor in state.tensors.items()}
    if len(bare) < len(state.tensors) or bare.keys() == state.tensors.keys():
        return state
    prefixes = dict.fromkeys(f"{match[1]}." for name in state.tensors for match in WRAPPERS.finditer(name))
    return StateDict(state.place, bare, tuple(prefixes))


def split_by_attribute(state: StateDict) -> Iterator[StateDict]:
    """Yield the parts of a state dict under one attribute each."""
    parts: dict[str, dict[str, Tensor]] = {}
    for name, tensor in state.tensors.items():
        attribute, dot, rest = name.partition(".")
        if dot:
            parts.setdefault(attribute, {})[rest] = tensor
    for attribute, tensors in parts.items():
        yield StateDict(state.place, tensors, (*state.stripped, f"{attribute}."))


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
