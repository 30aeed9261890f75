"""Training data: one module per format, tried in order, or a dictionary or function of the user.

A format has `sniff(path) -> bool`, `splits(path) -> tuple[str, ...]` and `load(split, path) -> TrainingSet`. The
keyword arguments of its `load` are listed in its `OPTIONS`. A new format is one module and its name in `FORMATS`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from cocos.base.errors import InputError, nearest, unreachable
from cocos.data import (
    arrays,
    beir,
    bleeker,
    captions,
    emoji_captions,
    image_folders,
    image_lists,
    pairs,
    precomputed,
    saved_datasets,
)
from cocos.data.training_set import (
    KINDS,
    AnnotatedRows,
    Items,
    PictureOf,
    Rows,
    Side,
    TextOf,
    TrainingSet,
    image_captions,
)
from cocos.data.user_data import training_set, user_loader

__all__ = [
    "FORMATS",
    "KINDS",
    "AnnotatedRows",
    "Items",
    "PictureOf",
    "Rows",
    "Side",
    "Source",
    "TextOf",
    "TrainingSet",
    "find",
    "from_user",
    "image_captions",
    "is_user_data",
    "load",
    "names",
    "sniff",
    "source",
    "training_set",
]

# The first format that recognises a path loads it: the most specific come first, tables of texts last.
FORMATS: tuple[ModuleType, ...] = (
    emoji_captions,
    precomputed,
    beir,
    saved_datasets,
    arrays,
    bleeker,
    image_lists,
    captions,
    image_folders,
    pairs,
)
NAMES = {module.__name__.rpartition(".")[2]: module for module in FORMATS}


@dataclass(frozen=True)
class Source:
    """Training data that can be loaded by split.

    Args:
        kind: name of the format, or `own` for data of the user.
        splits: names; empty if any name is accepted.
        loader: split -> training set.
        path: of the file or folder, if any.

    Examples:
        >>> cocos.data.source("emoji_captions").splits
        ('train', 'val', 'test')
    """

    kind: str
    splits: tuple[str, ...]
    loader: Callable[[str], TrainingSet]
    path: Path | None = None

    def load(self, split: str = "train") -> TrainingSet:
        """Load one split."""
        if self.splits and split not in self.splits:
            raise InputError(nearest(f"split of {self.path or self.kind}", split, self.splits))
        return self.loader(split)


def names() -> list[str]:
    """Return the names of all formats."""
    return list(NAMES)


def sniff(path: Path, options: Mapping[str, Any] | None = None) -> str | None:
    """Return the name of the first format that recognises a path and has these options, or None."""
    wanted = set(options or {})
    for name, module in NAMES.items():
        if wanted <= set(getattr(module, "OPTIONS", ())) and module.sniff(path):
            return name
    return None


def find(path: Path | str, options: Mapping[str, Any] | None = None) -> Source:
    """Find training data in a file or folder, in the first format that recognises it.

    Args:
        path: of the file or folder.
        options: `columns` of a table of texts, or `images`, the folder of the images of a list.
    """
    path = Path(path)
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise InputError(f"data {path}: file not found") from None
    except OSError as error:
        raise InputError(f"data {path}: {unreachable(error)}") from None
    if path.is_file() and not size:
        raise InputError(f"data {path} is empty (0 bytes), expected training data")
    name = sniff(path, options) or sniff(path)
    if name is None:
        raise InputError(
            f"data {path}: unknown format, expected one of {', '.join(NAMES)}, or a function: --data file.py:load"
        )
    return source(name, path, **(options or {}))


def source(name: str, path: Path | None = None, **options: Any) -> Source:
    """Return the training data in a file or folder of a known format; no rows are read."""
    if name not in NAMES:
        raise InputError(nearest("data", name, NAMES))
    module = NAMES[name]
    for option in options:
        if option not in getattr(module, "OPTIONS", ()):
            raise InputError(nearest(f"option of data {name}", option, getattr(module, "OPTIONS", ())))
    if path is None and module is not emoji_captions:
        raise InputError(f"data {name}: no path, expected a file or folder")
    return Source(name, module.splits(path), lambda split: module.load(split, path, **options), path)


def load(name: str, split: str = "train", path: Path | None = None, **options: Any) -> TrainingSet:
    """Load one split of a known format."""
    return source(name, path, **options).load(split)


def from_user(data: Callable | str | TrainingSet | Mapping) -> Source:
    """Return training data of the user: a `TrainingSet`, a dictionary, a function `load(split)`, or its name.

    Examples:
        >>> cocos.data.from_user(lambda split: {"query": ["a cat"], "candidate": ["it purrs"]}).load("train").directions
        ('q2c', 'c2q')
    """
    if isinstance(data, TrainingSet | Mapping):
        rows = data if isinstance(data, TrainingSet) else training_set(data, "data")
        return Source("own", (rows.split,), lambda split: rows)
    return Source("own", (), user_loader(data))


def is_user_data(data: Any) -> bool:
    """Return whether training data are in memory or a function, rather than a path."""
    if isinstance(data, str):
        return ":" in data and not Path(data).exists()
    return callable(data) or isinstance(data, TrainingSet | Mapping)
