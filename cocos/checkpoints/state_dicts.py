"""State dicts in the content of a file, under the keys of training scripts and without the prefixes of wrappers."""

import re
from collections.abc import Iterator
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


def state_dicts(content: Any) -> list[dict[str, Tensor]]:
    """Return the state dicts in the content of a file, those under known keys first, without prefixes of wrappers.

    Examples:
        >>> from cocos.checkpoints.state_dicts import state_dicts
        >>> content = {"epoch": 3, "state_dict": {"module.weight": torch.ones(2, 2)}}
        >>> [list(tensors) for tensors in state_dicts(content)]
        [['weight']]
    """
    return [remove_wrappers(tensors) for tensors in find(content, 0, set())]


def find(value: Any, depth: int, seen: set[int]) -> Iterator[dict[str, Tensor]]:
    """Yield the dictionaries of tensors in a value, each once: content may refer to itself."""
    if id(value) in seen or not isinstance(value, dict | list | tuple):
        return
    seen.add(id(value))
    if isinstance(value, dict):
        tensors = {key: item for key, item in value.items() if isinstance(key, str) and isinstance(item, Tensor)}
        if any(tensor.ndim for tensor in tensors.values()):
            yield tensors
        order = {key: number for number, key in enumerate(KNOWN_KEYS)}
        items = sorted(value.items(), key=lambda item: order.get(item[0], len(order)))
        values = [item for key, item in items if not str(key).lower().startswith(NOT_OF_THE_MODEL)]
    else:
        values = [item for item in value if isinstance(item, dict)]
    for item in values if depth < MAX_DEPTH else ():
        yield from find(item, depth + 1, seen)


def remove_wrappers(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Remove the prefixes of wrappers from all names, unless two names would become one."""
    bare = {WRAPPERS.sub("", name): tensor for name, tensor in tensors.items()}
    return bare if len(bare) == len(tensors) else tensors


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
