"""The built-in losses: one file each, found by the name of the file, the class or an alias."""

import dataclasses
import functools
import importlib
import pkgutil
import re
from pathlib import Path
from typing import Any

from cocos.base.errors import InputError, nearest
from cocos.losses.base import Loss

FOLDERS = (str(Path(__file__).parent),)
# Files of this folder that are not a loss.
COMMON_FILES = set(
    "base catalogue combined equivalences foreign intercept libraries parameters recognise spelling".split()
)
# Losses that cannot be counted, by their simplified names, and the reason.
UNCOUNTABLE = {
    "osap": "unspecified; only its abstract could be read, and it has no published code",
    "ibc": "not a function of the scores; a message-passing network refines the embeddings of a batch",
    "aoq": "not a function of the scores; it adds scores of rows that were drawn offline",
    "vicreg barlowtwins wmse byol simsiam": (
        "without negatives; cocos evaluate FILE gives alignment, uniformity and effective rank"
    ),
}


def names() -> list[str]:
    """Return the names of all built-in losses, which are the names of their files.

    Examples:
        >>> "ntxent" in cocos.losses.names()
        True
    """
    return list(list_files(FOLDERS))


@functools.cache
def list_files(folders: tuple[str, ...]) -> list[str]:
    """Return the sorted names of the files of losses in these folders."""
    files = [module.name for module in pkgutil.iter_modules(folders) if not module.ispkg]
    return sorted(name for name in files if name not in COMMON_FILES)


@functools.cache
def class_in_file(file: str) -> Any:  # a subclass of Loss, called with its own parameters
    """Import the loss that a file defines."""
    module = importlib.import_module(f"cocos.losses.{file}")
    classes = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Loss)]
    (loss_class,) = (
        value for value in classes if value.__module__ == module.__name__ and dataclasses.is_dataclass(value)
    )
    return loss_class


def simplify(name: str) -> str:
    """Drop the differences between spellings of a name: case, punctuation, the word loss at its end.

    Examples:
        >>> simplify("NT-Xent loss"), simplify("ProxyNCA++")
        ('ntxent', 'proxyncapp')
    """
    letters = re.sub(r"[^a-z0-9]", "", name.lower().replace("++", "pp"))
    return letters.removesuffix("loss") or letters


def find(name: str) -> tuple[str, dict[str, Any]]:
    """Return the file of a loss and the parameters that its name implies, by the file's name or any alias.

    Raises:
        InputError: an unknown loss (the message contains the nearest one), or one that cannot be counted.

    Examples:
        >>> find("InfoNCE"), find("ClipLoss")
        (('ntxent', {}), ('ntxent', {'temperature': 0.07}))
    """
    files, letters = names(), simplify(name)
    file = name.strip().lower().replace("-", "_")
    if file in files:
        return file, {}
    for spellings, reason in UNCOUNTABLE.items():
        if letters in spellings.split():
            raise InputError(f"loss {name!r}: {reason}")
    if file.endswith(".py"):
        raise InputError(f"loss {name!r}: a file; add the name of a function or class in it, such as {name}:my_loss")
    for file in files:
        if letters == simplify(file):
            return file, {}
    for file in files:
        for alias, implied in class_in_file(file).aliases.items():
            if letters == simplify(alias):
                return file, dict(implied)
    raise InputError(nearest("loss", name, files))


def find_file(name: str) -> str:
    """Return the file of a loss by its name or any alias; a hyphen may replace an underscore.

    Raises:
        InputError: as `find`.

    Examples:
        >>> cocos.losses.find_file("InfoNCE")
        'ntxent'
    """
    return find(name)[0]
