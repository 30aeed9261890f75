"""The shelf of checkpoint formats: one file per format, found by its name, each a `Format`.

An installed distribution can add formats, as entry points of the group `cocos.checkpoints` (`cocos.plugins`). They are
asked after those of the shelf, and only about files that none of these recognises. Their code is code that the user
installed; nothing is ever executed because a file names it.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Protocol

from cocos.base import plugins
from cocos.base.errors import InputError
from cocos.checkpoints.checkpoint import Checkpoint
from cocos.checkpoints.files import File

__all__ = ["Format", "format_of", "load", "name_of", "names", "why"]


class Format(Protocol):
    """A file of this shelf. No two formats may recognise the same file: the first one, by name, would read it.

    A format with `LAST = True` reads a part of what a file of another format may hold: it is asked about files that no
    other format recognises, not even one of another distribution. `LIBRARIES` names what its encoder imports on use.

    A family of networks is one file too. It has `build(**arguments)`, and is an encoder by its name as those of
    `cocos.encoders` are. `arguments(state)` reads them off the names and shapes of weights, or is None for those of
    another network: the network is then found in checkpoints of Lightning as well. `describe(arguments)` names it;
    `width(arguments)` is that of its embeddings, unless this is the argument `dimensions`. `NOT_READ` are beginnings of
    names of tensors that it does not read, and `LOSS_NUMBERS` the names of numbers of its loss among the tensors
    (`cocos.checkpoints.inventory`).
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


@dataclass(frozen=True)
class _Provided:
    """A format of another distribution: its errors become sentences, its name and version provenance."""

    plugin: plugins.Plugin

    @contextmanager
    def _named(self, file: File) -> Generator[None]:
        """Turn what the plugin raises into a sentence that names it."""
        try:
            yield
        except InputError:
            raise
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            raise InputError(f"{file.path}: format {self.plugin.name} of {self.plugin}: {reason}") from error

    def recognises(self, file: File) -> bool:
        with self._named(file):
            return bool(self.plugin.target.recognises(file))

    def read(self, file: File, data=None) -> Checkpoint:
        with self._named(file):
            found = self.plugin.target.read(file, data)
            if not isinstance(found, Checkpoint):
                raise TypeError(f"read returned a {type(found).__name__}, expected cocos.Checkpoint")
        return replace(found, format=self.plugin.name, distribution=str(self.plugin))


def _every() -> Iterator[Format]:
    """Formats of the shelf, those of other distributions, and those of the shelf that are asked last."""
    shelf: list[Any] = [load(name) for name in names()]
    yield from (each for each in shelf if not getattr(each, "LAST", False))
    yield from map(_Provided, plugins.installed(plugins.CHECKPOINTS, needs=("recognises", "read")))
    yield from (each for each in shelf if getattr(each, "LAST", False))


def format_of(file: File) -> Format | None:
    """Find the format of a file; None where no format recognises it."""
    return next((each for each in _every() if each.recognises(file)), None)


def name_of(format: Format) -> str:
    """Name of a format: that of its file, or of the entry point of another distribution."""
    return format.plugin.name if isinstance(format, _Provided) else vars(format)["__name__"].rpartition(".")[2]


def why(format: Format) -> str:
    """Say why a format recognises its files: the first line of the function that does."""
    if isinstance(format, _Provided):
        return f"Recognised by {format.plugin}"
    return inspect.cleandoc(format.recognises.__doc__ or "").partition("\n")[0].rstrip(".")
