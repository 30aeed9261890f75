"""The shelf of training data: one file per kind, each a `Kind`."""

import importlib
import pkgutil
from typing import Protocol

from cocos.data._items import AnnotatedRows, ImageCaptions, Items, PictureOf, TextOf
from cocos.errors import InputError, nearest

__all__ = ["AnnotatedRows", "ImageCaptions", "Items", "Kind", "PictureOf", "TextOf", "load", "names", "splits"]


class Kind(Protocol):
    """A file of this shelf, found by its name."""

    SPLITS: tuple[str, ...]

    def load(self, split: str, **arguments) -> ImageCaptions:
        """Load one split; the arguments are those that a checkpoint records of its data.

        Raises:
            InputError: files that are missing or damaged.
        """


def names() -> list[str]:
    """Return the names of all kinds of data on the shelf."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not (m.ispkg or m.name.startswith("_")))


def _module(name: str) -> Kind:
    if name not in names():
        raise InputError(nearest("data", name, names()))
    return importlib.import_module(f"{__name__}.{name}")


def splits(name: str) -> tuple[str, ...]:
    """Return the splits of a kind of data."""
    return _module(name).SPLITS


def load(name: str, split: str = "train", **arguments) -> ImageCaptions:
    """Load one split of a kind of data.

    Raises:
        InputError: no such data or split (the nearest one is named), or its files cannot be read.
    """
    module = _module(name)
    if split not in module.SPLITS:
        raise InputError(nearest(f"split of {name}", split, module.SPLITS))
    return module.load(split, **arguments)
