"""Pickles of texts, numbers and bytes: nothing is imported, and nothing but empty dictionaries is built."""

import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cocos.base.errors import InputError, UnsafeFile

DICTIONARIES = ("collections.defaultdict", "builtins.dict", "__builtin__.dict")


def load_plain(path: Path, remedy: str, stand_ins: Mapping[str, Callable] | None = None) -> Any:
    """Load a pickle; the only classes are dictionaries, and those with a stand-in for their name.

    Raises:
        UnsafeFile: the pickle asks for another class.
        InputError: it is damaged.
    """

    class Unpickler(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            if f"{module}.{name}" in DICTIONARIES:
                return lambda *_: {}
            if stand_ins and name in stand_ins:
                return stand_ins[name]
            raise UnsafeFile(
                f"{path}: contains unsafe class {module}.{name}, expected texts, numbers and bytes. Nothing was "
                f"imported or run; {remedy}"
            )

    try:
        with open(path, "rb") as stream:
            return Unpickler(stream, encoding="utf-8").load()
    except InputError:
        raise
    except Exception as error:  # a damaged pickle may fail anywhere
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{path} is a damaged pickle ({reason}); {remedy}") from None
