"""State dicts in what a file or folder holds: found under the keys of training scripts, without their prefixes."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from cocos.base.errors import InputError
from cocos.checkpoints.files.folder import Folder

# Keys under which training scripts keep the weights, in the order in which they are looked for.
KNOWN_KEYS = ("state_dict", "model", "model_state_dict", "net", "state_dict_backbone", "model_state", "network")
# Beginnings of keys whose tensors do not belong to the model.
NOT_OF_THE_MODEL = ("optimizer", "optim", "lr_scheduler", "scheduler", "loops", "callbacks", "amp", "scaler")
# Parts of a name that wrappers of torch put in, anywhere: DataParallel, torch.compile, FSDP, checkpointing.
WRAPPERS = re.compile(r"(?:^|(?<=\.))(module|_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
# Containers that a state dict may lie in, attributes in front of its names, and state dicts in one file.
MAX_CONTAINERS, MAX_ATTRIBUTES, MAX_FOUND = 4, 3, 64
# Tensors of a model of a known format: the largest encoders have about a thousand.
MAX_TENSORS = 20_000
# Names of the files of weights in a folder of Hugging Face, the safe one first; each may be split into shards.
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")
WEIGHT_FILE = re.compile(r"(model(-\d+-of-\d+)?\.safetensors|pytorch_model(-\d+-of-\d+)?\.bin)$")
MAX_SHARDS = 1000  # files that one set of weights may be split into


@dataclass(frozen=True)
class StateDict:
    """A state dict.

    Args:
        place: keys that lead to it, with dots; empty at the top.
        tensors: by their names, without the prefixes that were stripped.
        stripped: prefixes that were stripped, such as `module.`.
    """

    place: str
    tensors: dict[str, Tensor]
    stripped: tuple[str, ...] = ()

    @property
    def origin(self) -> str:
        """Say where it was found and what was stripped of its names."""
        place = f"under {self.place}" if self.place else "at the top"
        return f"{place}, without {' and '.join(self.stripped)}" if self.stripped else place


def state_dicts(content) -> list[StateDict]:
    """Find the state dicts of a file, whole ones before their parts, and large parts before small ones.

    Each is given without the prefixes of wrappers (`module.`, `_orig_mod.`), and once more for each attribute that
    parts of it lie under (`model.`, `backbone.`), up to three attributes deep. A format looks for the first that has
    its names. One of more than `MAX_TENSORS` is of no known format, and is left out.

    Examples:
        >>> from cocos.checkpoints.files import state_dicts
        >>> content = {"epoch": 3, "state_dict": {"module.net.weight": torch.ones(2, 2)}}
        >>> [(each.place, list(each.tensors), each.stripped) for each in state_dicts(content)]
        [('state_dict', ['net.weight'], ('module.',)), ('state_dict', ['weight'], ('module.', 'net.'))]
    """
    whole = (StateDict(place, tensors) for place, tensors in _held(content, "", 0, set()))
    found = level = [_unwrapped(each) for each in whole if len(each.tensors) <= MAX_TENSORS]
    for _ in range(MAX_ATTRIBUTES):
        parts = (part for each in level[:MAX_FOUND] for part in _parts(each))
        level = sorted(parts, key=lambda part: -len(part.tensors))
        found = found + level
    return found[:MAX_FOUND]


def whole_state_dicts(content) -> list[StateDict]:
    """Find the state dicts of a file, each once, without the prefixes of wrappers."""
    return [_unwrapped(StateDict(place, tensors)) for place, tensors in _held(content, "", 0, set())]


def _held(value, place: str, deep: int, seen: set[int]) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield the dictionaries of tensors in a value, and where each lies, those under known keys first, each once."""
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
        inner = [pair for pair in enumerate(value[:MAX_FOUND]) if isinstance(pair[1], dict)]
    else:
        return
    if deep < MAX_CONTAINERS:
        for key, item in inner[:MAX_FOUND]:
            if not str(key).lower().startswith(NOT_OF_THE_MODEL):
                yield from _held(item, f"{place}.{key}" if place else str(key), deep + 1, seen)


def _unwrapped(found: StateDict) -> StateDict:
    """Take the parts that wrappers put into names out of them, unless two names would become one."""
    bare = {WRAPPERS.sub("", name): tensor for name, tensor in found.tensors.items()}
    if len(bare) < len(found.tensors) or bare.keys() == found.tensors.keys():
        return found
    names = dict.fromkeys(f"{match[1]}." for name in found.tensors for match in WRAPPERS.finditer(name))
    return StateDict(found.place, bare, tuple(names))


def _parts(found: StateDict) -> Iterator[StateDict]:
    """Yield the parts of a state dict that lie under one attribute each."""
    heads: dict[str, dict[str, Tensor]] = {}
    for name, tensor in found.tensors.items():
        head, dot, rest = name.partition(".")
        if dot:
            heads.setdefault(head, {})[rest] = tensor
    for head, inner in heads.items():
        yield StateDict(found.place, inner, (*found.stripped, f"{head}."))


def weight_files(folder: Folder) -> list[str]:
    """Names of the files of weights in a folder and its folders, each shard by itself; the safe form alone, if both."""
    found: dict[str, list[str]] = {}
    for name in folder.names:
        if match := WEIGHT_FILE.search(name):
            found.setdefault(name[: match.start()], []).append(name)
    safe = {place: [name for name in names if name.endswith(".safetensors")] for place, names in found.items()}
    return [name for place, names in found.items() for name in safe[place] or names]


def weights(folder: Folder, within: str = "") -> dict[str, Tensor] | None:
    """Read the weights of a Hugging Face folder, or of a folder `within` it; None where there are none.

    They are `model.safetensors`, `pytorch_model.bin`, or the shards that the `.index.json` of either names.
    """
    for name in WEIGHT_FILES:
        if f"{within}{name}" in folder:
            found = folder.file(f"{within}{name}").content
            return _of_tensors(folder, f"{within}{name}", found)
        if f"{within}{name}.index.json" in folder:
            return _joined(folder, within, f"{within}{name}.index.json")
    return None


def _of_tensors(folder: Folder, name: str, content) -> dict[str, Tensor]:
    """Check the content of a file of weights."""
    if not isinstance(content, dict) or not all(isinstance(each, Tensor) for each in content.values()):
        raise InputError(f"{folder.path / name} holds no dictionary of tensors, as a file of weights does")
    return content


def _joined(folder: Folder, within: str, index: str) -> dict[str, Tensor]:
    """Read the shards that an index names."""
    about = folder.json(index, 2**26)
    places = about.get("weight_map") if isinstance(about, dict) else None
    if not isinstance(places, dict) or not all(isinstance(each, str) for each in places.values()):
        raise InputError(f"{folder.path / index} has no weight_map from names to files")
    shards = sorted(set(places.values()))
    absent = [name for name in shards if f"{within}{name}" not in folder]
    if absent or len(shards) > MAX_SHARDS:
        lacking = f"{absent[0][:100]!r}, which is not in the folder" if absent else f"{len(shards)} files"
        raise InputError(f"{folder.path / index} names {lacking}; copy all files of the model")
    found: dict[str, Tensor] = {}
    for name in shards:
        found |= _of_tensors(folder, name, folder.file(f"{within}{name}").content)
    if missing := sorted(places.keys() - found.keys()):
        raise InputError(f"{folder.path / index} names {missing[0][:100]!r}, which no shard holds; copy them again")
    return found
