"""The shelf of training data: one file per kind, each a `Kind`."""

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from cocos.base import annotations, user_code
from cocos.base.errors import InputError, nearest, unreachable
from cocos.base.matrices import matrix
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

__all__ = [
    "AnnotatedRows",
    "Items",
    "KINDS",
    "Kind",
    "PictureOf",
    "Rows",
    "Side",
    "Source",
    "TextOf",
    "TrainingSet",
    "describe",
    "find",
    "image_captions",
    "is_own",
    "load",
    "loader",
    "names",
    "own",
    "recognised",
    "source",
    "splits",
    "training_set",
]

FORMATS = (
    "arrays",
    "beir",
    "caption_tables",
    "coco_captions",
    "emoji_captions",
    "flickr_captions",
    "image_folders",
    "image_lists",
    "karpathy_captions",
    "pairs",
    "pickled_captions",
    "precomp",
    "saved_datasets",
)
TWO_SIDED = ("query", "candidate", "query_group", "candidate_group", "negatives", "directions")
LABELLED = ("items", "labels", "proxies", "proxy_labels")
MORE = ("kind", "name", "image")  # of a side, behind its name, as in query_kind


class Kind(Protocol):
    """A file of this shelf, found by its name.

    The first argument of `splits` and the second of `load` is the path of the data. Instead of the function `splits` a
    kind may have a tuple `SPLITS`. A kind without `recognises` is never found by a path. A function
    `describe` of the path may say what `cocos inspect` shows.
    """

    def splits(self, path: Path | None = None, **arguments: Any) -> tuple[str, ...]:
        """Return the names of the splits."""

    def load(self, split: str, path: Path | None = None, **arguments: Any) -> TrainingSet:
        """Load one split; the arguments are those that a checkpoint records of its data, or a user gives.

        Args:
            split: one of `splits`.
            path: of the file or folder.
            **arguments: of the kind; `images` is the folder of the images, None: one that is found beside the file.
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
        """Load one split."""
        if self.splits and split not in self.splits:
            raise InputError(nearest(f"split of {self.path or self.kind}", split, self.splits))
        return self.loader(split)


def names() -> list[str]:
    """Return the names of all kinds of data on the shelf."""
    return list(FORMATS)


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
    """Return the splits of a kind of data; its `splits` takes some of the arguments of its `load`."""
    module = _module(name)
    if not hasattr(module, "splits"):
        return module.SPLITS
    takes = inspect.signature(module.splits).parameters
    return tuple(module.splits(*path, **{key: value for key, value in arguments.items() if key in takes}))


def load(name: str, split: str = "train", *path: Path, **arguments: Any) -> TrainingSet:
    """Load one split of a kind of data, with the arguments of its `load`."""
    return source(name, *path, **arguments).load(split)


def source(name: str, *path: Path, **arguments: Any) -> Source:
    """Find the splits of a kind of data; nothing else is read.

    The arguments are those of its `load`, as a checkpoint records them, or a user gives them, with the path where the
    kind needs one.
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

    Examples:
        >>> cocos.data.own(lambda split: {"query": ["a cat"], "candidate": ["it purrs"]}).load("train").directions
        ('q2c', 'c2q')
    """
    if isinstance(given, TrainingSet | Mapping):
        found = given if isinstance(given, TrainingSet) else training_set(given, "data")
        return Source("own", (found.split,), lambda split: found)
    return Source("own", (), loader(given))


def recognised(path: Path, options: Iterable[str] = ()) -> str | None:
    """Name the kind that recognises a file or folder; None where none does.

    Where several do, the first that has options of these names: captions in a table are texts to who names its columns.
    """
    first = None
    for name in names():
        module = _module(name)
        if getattr(module, "recognises", lambda _: False)(path):
            if {*options} <= inspect.signature(module.load).parameters.keys():
                return name
            first = first or name
    return first


def describe(name: str, path: Path) -> dict[str, str]:
    """Say what a kind of data knows of a file or folder without reading its rows, such as the name of a data set."""
    module = _module(name)
    return module.describe(path) if hasattr(module, "describe") else {}


def find(path: Path | str, options: dict | None = None) -> Source:
    """Find out of which kind a file or folder of training data is.

    Args:
        path: of the file or folder.
        options: of its kind, such as the names of its columns; `kind` names the kind itself.
    """
    path, options = Path(path), dict(options or {})
    try:
        path.stat()
    except FileNotFoundError:
        raise InputError(f"data {path}: there is no such file or folder") from None
    except OSError as error:
        raise InputError(f"data {path}: {unreachable(error)}") from None
    name = options.pop("kind", None) or recognised(path, options)
    if name is None and path.is_file() and not path.stat().st_size:
        raise InputError(f"data {path} is empty (0 bytes); copy it again")
    if name is None:
        known = ", ".join(each for each in names() if hasattr(_module(each), "recognises"))
        raise InputError(
            f"data {path}: no known kind of training data; there are {known}, and your own function: "
            "--data file.py:load"
        )
    return source(name, path, **options)


def is_own(given: Any) -> bool:
    """Whether training data are in memory, a function of the user's, or the name of one; otherwise they are a path."""
    if isinstance(given, str):
        return ":" in given and not Path(given).exists()
    return callable(given) or isinstance(given, TrainingSet | Mapping)


def loader(given: Callable | str) -> Callable[[str], TrainingSet]:
    """Make a loader of a function of the user's."""
    function = user_code.load(given, "data") if isinstance(given, str) else given
    name = f"data {given!r}" if isinstance(given, str) else f"data {getattr(given, '__name__', given)!r}"
    if not callable(function):
        raise InputError(f"{name}: {type(function).__name__}, expected a function load(split)")
    try:
        takes = len(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        takes = 1

    def load(split: str) -> TrainingSet:
        if not takes and split != "train":
            raise InputError(f"{name}: it takes no split, and split {split!r} is asked for")
        with user_code.reported(name):
            found = function(split) if takes else function()
        return found if isinstance(found, TrainingSet) else training_set(found, name, split)

    return load


def training_set(found: Any, name: str, split: str = "train") -> TrainingSet:
    """Make a training set of a dictionary.

    Two sides have `query` and `candidate`, optionally `query_group` and `candidate_group` (row i matches row i without
    them), `negatives` and `directions`. A labelled set has `items` and `labels`, optionally `proxies` and
    `proxy_labels`. Rows are texts, or arrays; `query_kind`, `candidate_kind`, `items_kind` say which they are where the
    type does not: texts are `text`, four dimensions of uint8 are `image`, other numbers `features`. `query_name` and
    `query_image` (and so on) are texts and pictures of the rows.

    Args:
        found: the dictionary.
        name: of the function, for messages.
        split: that was loaded.

    Examples:
        >>> from cocos.data import training_set
        >>> found = training_set({"query": ["a cat"], "candidate": ["it purrs"]}, "my data")
        >>> found.query.kind
        'text'
    """
    if not isinstance(found, Mapping):
        raise InputError(
            f"{name} returned {type(found).__name__}, expected cocos.data.TrainingSet, or a dictionary with query and "
            "candidate, or with items and labels"
        )
    labelled = "items" in found
    sides = ("items",) if labelled else ("query", "candidate")
    known = (*(LABELLED if labelled else TWO_SIDED), *(f"{side}_{more}" for side in sides for more in MORE))
    for key in found:
        if key not in known:
            raise InputError(f"{name} returned a dictionary: {nearest('key', str(key), known)}")
    needed = ("items", "labels") if labelled else sides
    if missing := [key for key in needed if found.get(key) is None]:
        raise InputError(f"{name} returned a dictionary without {missing[0]!r}; it has {', '.join(map(str, found))}")
    rows = {side: _rows(name, side, found[side]) for side in sides}
    try:
        return _labelled(found, rows, name, split) if labelled else _two_sided(found, rows, name, split)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def _side(found: Mapping, side: str, rows: Any, group: Any) -> Side:
    kind = found.get(f"{side}_kind")
    if not isinstance(kind, str | None):
        raise InputError(f"{side}_kind is {type(kind).__name__}, expected one of {', '.join(KINDS)}")
    kind = kind or _kind(rows)
    return Side(rows, kind, group, found.get(f"{side}_name"), found.get(f"{side}_image"))


def _labelled(found: Mapping, rows: dict, name: str, split: str) -> TrainingSet:
    ids = annotations.numbered({key: found.get(key) for key in ("labels", "proxy_labels")})
    annotations.groups("labels", ids["labels"], "items", len(rows["items"]))
    proxies = found.get("proxies")
    return TrainingSet(
        _side(found, "items", rows["items"], ids["labels"]),
        None,
        name,
        split,
        proxies=None if proxies is None else matrix("proxies", proxies),
        proxy_labels=ids["proxy_labels"],
    )


def _two_sided(found: Mapping, rows: dict, name: str, split: str) -> TrainingSet:
    given = found.get("query_group"), found.get("candidate_group")
    groups = annotations.both_groups(*given, len(rows["query"]), len(rows["candidate"]))
    query, candidate = (_side(found, side, rows[side], group) for side, group in zip(rows, groups, strict=True))
    negatives = annotations.negatives("negatives", found.get("negatives"), *groups, ("query", "candidate"))
    directions = found.get("directions", ("q2c", "c2q"))
    if not isinstance(directions, list | tuple) or not directions or not all(isinstance(e, str) for e in directions):
        raise InputError(f"directions are {type(directions).__name__}, expected names, like ('q2c', 'c2q')")
    return TrainingSet(query, candidate, name, split, tuple(directions), negatives)


def _rows(name: str, key: str, values: Any) -> Any:
    """Rows that can be sliced: texts as a tuple, columns of tables as arrays."""
    if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__getitem__"):
        raise InputError(f"{name}: {key} is {type(values).__name__}, expected rows: texts, an array or a tensor")
    if (said := annotations.texts(values)) is not None:
        if other := [row for row, each in enumerate(said) if not isinstance(each, str)]:
            raise InputError(f"{name}: {key} has {type(said[other[0]]).__name__} in row {other[0]} among texts")
        return tuple(said)
    if hasattr(values, "to_numpy") and not isinstance(values, Tensor):
        values = values.to_numpy()
    if isinstance(values, np.ndarray) and values.dtype.kind not in "fiub":
        raise InputError(f"{name}: {key} is an array of {values.dtype}, expected numbers, or texts")
    return values


def _kind(rows: Any) -> str:
    """Tell the kind of rows from their type."""
    if len(rows) and isinstance(rows[0], str):
        return "text"
    image = isinstance(rows, Tensor | np.ndarray) and rows.ndim == 4 and str(rows.dtype).endswith("uint8")
    return KINDS[1] if image else KINDS[2]
