"""Training data that a function of the user's loads."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from cocos.base import annotations
from cocos.base.errors import InputError, nearest
from cocos.base.matrices import matrix
from cocos.checkpoints.data._items import KINDS, Side, TrainingSet
from cocos.losses.external.guard import guarded
from cocos.losses.external.own import located

__all__ = ["is_own", "loader", "training_set"]

TWO_SIDED = ("query", "candidate", "query_group", "candidate_group", "negatives", "directions")
LABELLED = ("items", "labels", "proxies", "proxy_labels")
MORE = ("kind", "name", "image")  # of a side, behind its name, as in query_kind


def is_own(given: Any) -> bool:
    """Whether training data are in memory, a function of the user's, or the name of one; otherwise they are a path."""
    if isinstance(given, str):
        return ":" in given and not Path(given).exists()
    return callable(given) or isinstance(given, TrainingSet | Mapping)


def loader(given: Callable | str) -> Callable[[str], TrainingSet]:
    """Make a loader of a function of the user's.

    Args:
        given: `load(split)`, or its name as `file.py:function` or `package.module:function`. It returns a `TrainingSet`
            or a dictionary (`training_set`). A function without arguments has the split `train` alone.
    """
    function = located(given, "data") if isinstance(given, str) else given
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
        with guarded(name, dtypes=False):
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
