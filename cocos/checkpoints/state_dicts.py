"""State dicts in the content of a file, under the keys of training scripts and without the prefixes of wrappers."""

import re
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from cocos.base.errors import InputError
from cocos.checkpoints.files import File

# Keys of the weights in training scripts, in the order of the search.
KNOWN_KEYS = ("state_dict", "model", "model_state_dict", "net", "state_dict_backbone", "model_state", "network")
# Beginnings of keys that contain the state of the training.
NOT_OF_THE_MODEL = ("optimizer", "optim", "lr_scheduler", "scheduler", "loops", "callbacks", "amp", "scaler")
# Prefixes of DataParallel, torch.compile, FSDP and activation checkpointing, anywhere in a name.
WRAPPERS = re.compile(r"(?:^|(?<=\.))(module|_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
MAX_DEPTH = 4  # nested containers that are searched
WEIGHT_FILE = re.compile(r"(model(-\d+-of-\d+)?\.safetensors|pytorch_model(-\d+-of-\d+)?\.bin)$")


def state_dicts(content: Any, depth: int = 0) -> Iterator[dict[str, Tensor]]:
    """Yield the state dicts in the content of a file, those under known keys first, without prefixes of wrappers.

    Examples:
        >>> from cocos.checkpoints.state_dicts import state_dicts
        >>> content = {"epoch": 3, "state_dict": {"module.weight": torch.ones(2, 2)}}
        >>> [list(tensors) for tensors in state_dicts(content)]
        [['weight']]
    """
    values = content if isinstance(content, list | tuple) else []
    if isinstance(content, dict):
        tensors = {key: value for key, value in content.items() if isinstance(key, str) and isinstance(value, Tensor)}
        if any(tensor.ndim for tensor in tensors.values()):
            bare = {WRAPPERS.sub("", name): tensor for name, tensor in tensors.items()}
            yield bare if len(bare) == len(tensors) else tensors  # two names would become one
        keys = [key for key in KNOWN_KEYS if key in content]
        keys += [key for key in content if key not in KNOWN_KEYS and not str(key).lower().startswith(NOT_OF_THE_MODEL)]
        values = [content[key] for key in keys]
    for value in values if depth < MAX_DEPTH else ():
        yield from state_dicts(value, depth + 1)


def weight_files(folder: File) -> list[str]:
    """Return the names of the weight files in a folder and its subfolders; only the safetensors files if both exist."""
    files: dict[str, list[str]] = {}
    for name in folder.names:
        if match := WEIGHT_FILE.search(name):
            files.setdefault(name[: match.start()], []).append(name)
        elif name.endswith((".safetensors.index.json", ".bin.index.json")):
            place = name.rpartition("/")[0]
            shards = {f"{place}/{shard}".lstrip("/") for shard in folder.json(name).get("weight_map", {}).values()}
            if missing := sorted(shards - set(folder.names)):
                raise InputError(f"{folder.path / name} lists {missing[0]}, which is not in the folder; copy all files")
    safe = {place: [name for name in names if name.endswith(".safetensors")] for place, names in files.items()}
    return [name for place, names in files.items() for name in safe[place] or names]
