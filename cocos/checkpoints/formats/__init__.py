"""The shelf of checkpoint formats: one file per format, found by its name, each a `Format`."""

import importlib
import inspect
import pkgutil
from types import ModuleType
from typing import Any, Protocol

from cocos.checkpoints.checkpoint import Checkpoint
from cocos.checkpoints.files import File

__all__ = ["Format", "format_of", "load", "name_of", "names", "why"]


class Format(Protocol):
    """A file of this shelf. No two formats may recognise the same file: the first one, by name, would read it.

    A format with `LAST = True` reads a part of what a file of another format may hold: it is asked about files that no
    other format recognises. `LIBRARIES` names what its encoder imports on use.

    A family of networks is one file too. It has `build(**arguments)`, and is an encoder by its name as those of
    `cocos.encoders` are. `arguments(state)` reads them off the names and shapes of weights, or is None for those of
    another network; `dimensions` among them is the width of its embeddings. `describe(arguments)` names the network.
    """

    def recognises(self, file: File) -> bool:
        """Whether the file has this format, by its content."""

    def read(self, file: File, data=None) -> Checkpoint:
        """Read a file that the format recognises.

        Args:
            file: the file; nothing in it is executed.
            data: folder of the training data, instead of the one that the file names.
        """


def names() -> list[str]:
    """Return the names of all formats on the shelf."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not (m.ispkg or m.name.startswith("_")))


def load(name: str) -> ModuleType:
    """Import a file of the shelf."""
    return importlib.import_module(f"{__name__}.{name}")


def format_of(file: File) -> Format | None:
    """Find the format of a file; None where no format recognises it."""
    shelf: list[Any] = sorted(map(load, names()), key=lambda each: getattr(each, "LAST", False))
    return next((each for each in shelf if each.recognises(file)), None)


def name_of(format: Format) -> str:
    """Return the name of a format, which is the name of its file."""
    return vars(format)["__name__"].rpartition(".")[2]


def why(format: Format) -> str:
    """Say why a format recognises its files: the first line of the function that does."""
    return inspect.cleandoc(format.recognises.__doc__ or "").partition("\n")[0].rstrip(".")
