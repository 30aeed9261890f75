"""Pickles of texts, numbers and bytes: nothing is imported, and nothing but empty dictionaries is built."""

import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cocos.base.errors import UnsafeFile
from cocos.data import tables

DICTIONARIES = ("collections.defaultdict", "builtins.dict", "__builtin__.dict")


def load_plain(path: Path, remedy: str, stand_ins: Mapping[str, Callable] | None = None) -> Any:
    """Load a pickle; the only classes are dictionaries, and those with a stand-in for their name.

    Raises:
        UnsafeFile: the pickle asks for another class; the message ends with the remedy.
        InputError: it is damaged.
    """

    class Unpickler(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            if f"{module}.{name}" in DICTIONARIES:
                return lambda *_: {}
            if stand_ins and name in stand_ins:
                return stand_ins[name]
            raise UnsafeFile(f"{path}: contains unsafe class {module}.{name}; nothing was imported or run; {remedy}")

    with tables.readable(path), open(path, "rb") as stream:
        return Unpickler(stream, encoding="utf-8").load()
