"""The shelf of checkpoint formats: one file per format, found by its name, each a `Format`."""

import importlib
import pkgutil
from typing import Protocol

from cocos.checkpoints._checkpoint import Checkpoint
from cocos.checkpoints.files import File

__all__ = ["Format", "format_of", "names"]


class Format(Protocol):
    """A file of this shelf.

    No two formats may recognise the same file: they are asked in the order of their names.
    """

    def recognises(self, file: File) -> bool:
        """Whether the file has this format, by its content; cheap, and quiet about damaged files."""

    def read(self, file: File, data=None) -> Checkpoint:
        """Read a file that the format recognises.

        Args:
            file: the file; nothing in it is executed.
            data: folder of the training data, instead of the one that the file names.

        Raises:
            InputError: the file cannot be used; the sentence names it and says what to do.
        """


def names() -> list[str]:
    """Return the names of all formats on the shelf."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


def format_of(file: File) -> Format | None:
    """Find the format of a file; None where no format recognises it."""
    every = (importlib.import_module(f"{__name__}.{name}") for name in names())
    return next((each for each in every if each.recognises(file)), None)
