"""Folders of models that a library builds: code and pickles in them are refused before."""

import importlib
import json
from typing import Any

from cocos.base.errors import InputError, UnsafeFile
from cocos.checkpoints.files import File, weight_files

# Keys with which a folder requests its own code.
CODE_KEYS = {"auto_map", "trust_remote_code", "custom_pipelines"}
# Files without settings: tokens and their numbers.
TOKENS = ("tokenizer.json", "vocab.json", "added_tokens.json", ".index.json")


def import_library(name: str, extra: str) -> Any:
    """Import an optional library; a message names the extra that installs it."""
    try:
        return importlib.import_module(name)
    except Exception as error:  # a broken installation raises anything
        problem = f"{name} builds this model and cannot be imported ({str(error)[:120]})"
        raise InputError(f"{problem}: pip install 'cocos-metric[{extra}]'") from None


def check_folder(folder: File) -> list[str]:
    """Return the names of the weight files in a folder; refuse code and pickles of more than tensors as unsafe."""
    for name in folder.names:
        if name.endswith(".json") and not name.endswith(TOKENS):
            folder.json(name)  # refuses a damaged file
            keys: set[str] = set()
            json.loads((folder.path / name).read_bytes(), object_hook=keys.update)
            if code := keys & CODE_KEYS:
                raise UnsafeFile(f"{folder.path / name} has {code}: the model requires code that cocos does not run")
    names = weight_files(folder)
    if not names:
        raise InputError(f"{folder.path} has no model.safetensors or pytorch_model.bin; copy the weights too")
    for name in names:
        if name.endswith(".bin"):
            folder.file(name).content  # noqa: B018
    return names
