"""Training data of the user: a dictionary, or a function that returns one."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from cocos.base import user_code
from cocos.base.errors import InputError, nearest, prefixed
from cocos.data.training_set import Side, TrainingSet
from cocos.embeddings import annotations
from cocos.embeddings.matrices import matrix

TWO_SIDED = ("query", "candidate", "query_group", "candidate_group", "negatives", "directions")
LABELLED = ("items", "labels", "proxies", "proxy_labels")
SIDE_KEYS = ("kind", "name", "image")  # as in query_kind


def user_loader(function: Callable | str) -> Callable[[str], TrainingSet]:
    """Return a loader that calls a function of the user with the split.

    Args:
        function: `load(split)`, which returns a `TrainingSet` or a dictionary (`training_set`); or its name as
            `file.py:load` or `package.module:load`.
    """
    name = f"data {function if isinstance(function, str) else getattr(function, '__name__', function)!r}"
    call = user_code.load(function, "data") if isinstance(function, str) else function
    if not callable(call):
        raise InputError(f"{name}: {type(call).__name__}, expected a function load(split)")

    def load(split: str) -> TrainingSet:
        with user_code.reported(name):
            rows = call(split)
        return rows if isinstance(rows, TrainingSet) else training_set(rows, name, split)

    return load


def training_set(rows: Any, name: str, split: str = "train") -> TrainingSet:
    """Build a training set from a dictionary.

    Two sides have `query` and `candidate`, optionally `query_group` and `candidate_group` (by default row i matches
    row i), `negatives` and `directions`. A labelled set has `items` and `labels`, optionally `proxies` and
    `proxy_labels`. Rows are texts or arrays; `query_kind`, `candidate_kind`, `items_kind` are needed only if the type
    does not show them: four dimensions of uint8 are `image`, other numbers `features`. `query_name` and `query_image`
    (and so on) are texts and pictures of the rows.

    Args:
        rows: the dictionary.
        name: of its source, for messages.
        split: of the data.

    Examples:
        >>> from cocos.data import training_set
        >>> training_set({"query": ["a cat"], "candidate": ["it purrs"]}, "my data").query.kind
        'text'
    """
    if not isinstance(rows, Mapping):
        raise InputError(f"{name} returned {type(rows).__name__}, expected cocos.data.TrainingSet or a dictionary")
    sides, keys = (("items",), LABELLED) if "items" in rows else (("query", "candidate"), TWO_SIDED)
    keys = (*keys, *(f"{side}_{key}" for side in sides for key in SIDE_KEYS))
    if unknown := [key for key in rows if key not in keys]:
        raise InputError(f"{name} returned a dictionary: {nearest('key', str(unknown[0]), keys)}")
    for key in ("items", "labels") if "items" in rows else sides:
        if rows.get(key) is None:
            raise InputError(f"{name} returned a dictionary without {key!r}; it has {', '.join(map(str, rows))}")
    with prefixed(name):
        items = {side: read_items(side, rows[side]) for side in sides}
        if "items" in rows:
            ids = annotations.number_texts({key: rows.get(key) for key in ("labels", "proxy_labels")})
            side = read_side(rows, "items", items["items"], ids["labels"])
            proxies = None if rows.get("proxies") is None else matrix("proxies", rows["proxies"])
            return TrainingSet(side, None, name, split, proxies=proxies, proxy_labels=ids["proxy_labels"])
        groups = annotations.both_groups(
            rows.get("query_group"), rows.get("candidate_group"), len(items["query"]), len(items["candidate"])
        )
        query, candidate = (
            read_side(rows, side, items[side], group) for side, group in zip(sides, groups, strict=True)
        )
        negatives = annotations.negatives("negatives", rows.get("negatives"), *groups, sides)
        directions = annotations.directions(rows.get("directions", ("q2c", "c2q")))
        return TrainingSet(query, candidate, name, split, directions, negatives)


def read_side(rows: Mapping, side: str, items: Any, group: Any) -> Side:
    """Return one side, whose kind follows from the type of its rows unless it is given."""
    kind = rows.get(f"{side}_kind")
    if kind is None:
        is_image = isinstance(items, Tensor | np.ndarray) and items.ndim == 4 and str(items.dtype).endswith("uint8")
        kind = "text" if isinstance(items, tuple) else "image" if is_image else "features"
    return Side(items, kind, group, rows.get(f"{side}_name"), rows.get(f"{side}_image"))


def read_items(side: str, values: Any) -> Any:
    """Return texts as a tuple, columns of data frames as arrays, and other rows unchanged."""
    if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__getitem__"):
        raise InputError(f"{side} is {type(values).__name__}, expected rows: texts, an array or a tensor")
    if (texts := annotations.texts(values)) is not None:
        return tuple(annotations.decode_texts(side, texts))
    if hasattr(values, "to_numpy") and not isinstance(values, Tensor):
        values = values.to_numpy()
    if isinstance(values, np.ndarray) and values.dtype.kind not in "fiub":
        raise InputError(f"{side} is an array of {values.dtype}, expected numbers, or texts")
    return values
