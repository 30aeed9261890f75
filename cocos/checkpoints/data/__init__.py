"""The shelf of training data: one file per kind, each a `Kind`."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from cocos.base import reading
from cocos.base.errors import InputError, nearest, unreachable
from cocos.checkpoints.data._items import (
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
from cocos.checkpoints.data._own import is_own, loader, training_set

__all__ = [
    "KINDS",
    "AnnotatedRows",
    "Items",
    "Kind",
    "PictureOf",
    "Rows",
    "Side",
    "Source",
    "TextOf",
    "TrainingSet",
    "find",
    "image_captions",
    "load",
    "is_own",
    "names",
    "own",
    "recognised",
    "source",
    "splits",
    "training_set",
]


class Kind(Protocol):
    """A file of this shelf, found by its name.

    The first argument of `splits` and the second of `load` is the path of the data. Instead of the function `splits` a
    kind may have a tuple `SPLITS`. A kind without `recognises` is never found by a path.
    """

    def splits(self, path: Path | None = None, **arguments: Any) -> tuple[str, ...]:
        """Return the names of the splits."""

    def load(self, split: str, path: Path | None = None, **arguments: Any) -> TrainingSet:
        """Load one split; the arguments are those that a checkpoint records of its data, or a user gives.

        Raises:
            InputError: files that are missing or damaged.
        """

    def recognises(self, path: Path) -> bool:
        """Whether a file or folder holds data of this kind, by its content; no error where it holds anything else."""


@dataclass(frozen=True)
class Source:
    """Where training data are, and how to load them.

    Args:
        kind: name of their kind on the shelf, or `own` for a function of the user's.
        splits: names of their splits; empty where any name may be asked for.
        loader: split -> training set.
        path: of the file or folder; None where there is none.
        notes: what the user should know of how they were found.

    Examples:
        >>> cocos.data.source("emoji_captions").splits
        ('train', 'val', 'test')
    """

    kind: str
    splits: tuple[str, ...]
    loader: Callable[[str], TrainingSet]
    path: Path | None = None
    notes: tuple[str, ...] = ()

    def load(self, split: str = "train") -> TrainingSet:
        """Load one split.

        Raises:
            InputError: no such split (the nearest one is named), or its files cannot be read.
        """
        if self.splits and split not in self.splits:
            raise InputError(nearest(f"split of {self.path or self.kind}", split, self.splits))
        return self.loader(split)


def names() -> list[str]:
    """Return the names of all kinds of data on the shelf."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not (m.ispkg or m.name.startswith("_")))


def _module(name: str) -> Any:
    if name not in names():
        raise InputError(nearest("data", name, names()))
    return importlib.import_module(f"{__name__}.{name}")


def _check(name: str, load: Callable, path: tuple[Path, ...], arguments: dict[str, Any]) -> None:
    """Refuse arguments that the `load` of a kind does not take (the nearest one is named), or lacks."""
    signature = inspect.signature(load)
    if not any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values()):
        for argument in arguments:
            if argument not in signature.parameters:
                raise InputError(nearest(f"option of data {name}", argument, list(signature.parameters)[1:]))
    try:
        signature.bind("train", *path, **arguments)
    except TypeError as error:
        raise InputError(f"data {name}: {error}") from None


def splits(name: str, *path: Path, **arguments: Any) -> tuple[str, ...]:
    """Return the splits of a kind of data.

    Args:
        name: of the kind.
        *path: of the data, where the kind needs one.
        **arguments: of its `load`; its `splits` gets those that it takes.

    Raises:
        InputError: no such data, or its files cannot be read.
    """
    module = _module(name)
    if not hasattr(module, "splits"):
        return module.SPLITS
    takes = inspect.signature(module.splits).parameters
    return tuple(module.splits(*path, **{key: value for key, value in arguments.items() if key in takes}))


def load(name: str, split: str = "train", *path: Path, **arguments: Any) -> TrainingSet:
    """Load one split of a kind of data.

    Args:
        name: of the kind.
        split: of the data.
        *path: of the data, where the kind needs one.
        **arguments: of its `load`.

    Raises:
        InputError: no such data or split (the nearest one is named), or its files cannot be read.
    """
    return source(name, *path, **arguments).load(split)


def source(name: str, *path: Path, **arguments: Any) -> Source:
    """Find the splits of a kind of data; nothing else is read.

    Args:
        name: of the kind.
        *path: of the data, where the kind needs one.
        **arguments: of its `load`, as a checkpoint records them, or a user gives them.

    Raises:
        InputError: no such data, or its files cannot be read.
    """
    load = _module(name).load
    _check(name, load, path, arguments)
    place = list(inspect.signature(load).parameters)[1:2]  # of the path, which a checkpoint records as text
    arguments |= {key: Path(arguments[key]) for key in place if isinstance(arguments.get(key), str)}
    return Source(
        kind=name,
        splits=splits(name, *path, **arguments),
        loader=lambda split: load(split, *path, **arguments),
        path=path[0] if path else None,
    )


def own(given: Callable | str | TrainingSet | Mapping) -> Source:
    """Training data of the user's: as they are, or as a function loads them.

    Args:
        given: a `TrainingSet`, or a dictionary (`training_set`); or `load(split)`, which returns one of these, or its
            name as `file.py:function` or `package.module:function`.

    Raises:
        InputError: it is not there.

    Examples:
        >>> cocos.data.own(lambda split: {"query": ["a cat"], "candidate": ["it purrs"]}).load("train").directions
        ('q2c', 'c2q')
    """
    if isinstance(given, TrainingSet | Mapping):
        found = given if isinstance(given, TrainingSet) else training_set(given, "data")
        return Source("own", (found.split,), lambda split: found)
    return Source("own", (), loader(given))


def recognised(path: Path) -> str | None:
    """Name the kind that recognises a file or folder; None where none does."""
    return next((name for name in names() if getattr(_module(name), "recognises", lambda _: False)(path)), None)


def find(path: Path | str, options: dict | None = None) -> Source:
    """Find out of which kind a file or folder of training data is.

    Args:
        path: of the file or folder.
        options: of its kind, such as the names of its columns; `kind` names the kind itself.

    Raises:
        InputError: it is not there, or no kind recognises it.
    """
    path, options = Path(path), dict(options or {})
    try:
        reading.regular(path)
    except FileNotFoundError:
        raise InputError(f"data {path}: there is no such file or folder") from None
    except OSError as error:
        raise InputError(f"data {path}: {unreachable(error)}") from None
    name = options.pop("kind", None) or recognised(path)
    if name is None and path.is_file() and not path.stat().st_size:
        raise InputError(f"data {path} is empty (0 bytes); copy it again")
    if name is None:
        known = ", ".join(each for each in names() if hasattr(_module(each), "recognises"))
        raise InputError(
            f"data {path}: no known kind of training data; there are {known}, and your own function: "
            "--data file.py:load"
        )
    return source(name, path, **options)
