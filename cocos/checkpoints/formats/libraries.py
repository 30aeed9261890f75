"""Checks of a model folder before a library builds its model: code and pickles in the folder are refused."""

import importlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

from cocos.base.errors import InputError, UnsafeFile
from cocos.checkpoints.files import File, explain_refusal

# Keys with which a folder requests its own code.
CODE_KEYS = ("auto_map", "trust_remote_code", "custom_pipelines")
# Files without settings: tokens and their numbers.
TOKENS = ("tokenizer.json", "vocab.json", "added_tokens.json", ".index.json")
PICKLES = (".bin", ".pt", ".pth")


def import_library(name: str, extra: str) -> Any:
    """Import an optional library.

    Raises:
        InputError: it is absent or cannot be imported; the message contains the extra that installs it.
    """
    try:
        return importlib.import_module(name)
    except Exception as error:  # a broken installation raises anything
        reason = "is not installed" if isinstance(error, ModuleNotFoundError) and error.name == name else str(error)
        raise InputError(
            f"{name} builds this model and cannot be imported ({' '.join(reason.split())[:120]}): "
            f"pip install 'cocos-metric[{extra}]'"
        ) from None


def refuse_code(folder: File) -> None:
    """Refuse a folder that requests code: keys of its settings, and pickles of more than tensors.

    Raises:
        UnsafeFile: the folder requests code.
    """
    for name in folder.names:
        if name.endswith(".json") and not name.endswith(TOKENS):
            for key in keys_of(folder.json(name)):
                if key in CODE_KEYS:
                    raise UnsafeFile(f"{folder.path / name} has {key}: the model requires code that cocos does not run")
        elif name.endswith(PICKLES) and folder.file(name).wanted_names and "training_args" not in name:
            raise UnsafeFile(explain_refusal(folder.file(name), ""))


def keys_of(value: Any) -> Iterator[str]:
    """Yield the keys in a JSON document, at any depth."""
    stack = [value]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            yield from value
            stack += value.values()
        elif isinstance(value, list):
            stack += value


@contextmanager
def building(folder: File, library: str) -> Generator[None]:
    """Turn the exceptions of a library that builds a model into one sentence."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # libraries raise almost anything for a folder that they do not fit
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{folder.path}: {library} cannot build it ({type(error).__name__}: {reason})") from None
