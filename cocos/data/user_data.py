"""Training data of the user: a dictionary, or a function that returns one."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from cocos.base import user_code
from cocos.base.errors import InputError, nearest, prefixed
from cocos.data.training_set import Side, Source, TrainingSet
from cocos.embeddings import annotations
from cocos.embeddings.matrices import matrix

TWO_SIDED = ("query", "candidate", "query_group", "candidate_group", "negatives", "directions")
LABELLED = ("items", "labels", "proxies", "proxy_labels")


def is_user_data(data: Any) -> bool:
    """Return whether training data are in memory or a function, rather than a path."""
    if isinstance(data, str):
        return ":" in data and not Path(data).exists()
    return callable(data) or isinstance(data, TrainingSet | Mapping)


def from_user(data: Callable | str | TrainingSet | Mapping) -> Source:
    """Return training data of the user: a `TrainingSet`, a dictionary, a function `load(split)`, or its name."""
    if isinstance(data, TrainingSet | Mapping):
        rows = data if isinstance(data, TrainingSet) else training_set(data, "data")
        return Source("own", (rows.split,), lambda split: rows)
    name = f"data {data if isinstance(data, str) else getattr(data, '__name__', data)!r}"
    function = user_code.load(data, "data") if isinstance(data, str) else data

    def load(split: str) -> TrainingSet:
        with user_code.reported(name):
            rows = function(split)
        return rows if isinstance(rows, TrainingSet) else training_set(rows, name, split)

    return Source("own", (), load)


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
    is_labelled = "items" in rows
    names, keys = (("items",), LABELLED) if is_labelled else (("query", "candidate"), TWO_SIDED)
    required = ("items", "labels") if is_labelled else names
    keys = (*keys, *(f"{side}_{key}" for side in names for key in ("kind", "name", "image")))
    with prefixed(name):
        if unknown := [key for key in rows if key not in keys]:
            raise InputError(nearest("key", str(unknown[0]), keys))
        if missing := [key for key in required if rows.get(key) is None]:
            raise InputError(f"no {missing[0]!r} among {', '.join(map(str, rows))}")
        items = [read_items(side, rows[side]) for side in names]
        options: dict[str, Any] = {}
        if is_labelled:
            ids = annotations.number_texts({key: rows.get(key) for key in ("labels", "proxy_labels")})
            groups, options["proxy_labels"] = [ids["labels"]], ids["proxy_labels"]
            options["proxies"] = None if rows.get("proxies") is None else matrix("proxies", rows["proxies"])
        else:
            groups = annotations.both_groups(rows.get("query_group"), rows.get("candidate_group"), *map(len, items))
            options["negatives"] = annotations.negatives("negatives", rows.get("negatives"), *groups, sides=names)
            options["directions"] = annotations.directions(rows.get("directions", ("q2c", "c2q")))
        sides = []
        for side, values, group in zip(names, items, groups, strict=True):
            kind, texts, pictures = (rows.get(f"{side}_{key}") for key in ("kind", "name", "image"))
            sides.append(Side(values, kind or kind_of(values), group, texts, pictures))
    return TrainingSet(sides[0], None if is_labelled else sides[1], name, split, **options)


def kind_of(items: Any) -> str:
    """Return the kind of rows by their type."""
    is_image = isinstance(items, Tensor | np.ndarray) and items.ndim == 4 and str(items.dtype).endswith("uint8")
    return "text" if isinstance(items, tuple) else "image" if is_image else "features"


def read_items(side: str, values: Any) -> Any:
    """Return texts as a tuple, and other rows unchanged."""
    if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__getitem__"):
        raise InputError(f"{side} is {type(values).__name__}, expected rows: texts, an array or a tensor")
    if (texts := annotations.texts(side, values)) is not None:
        return tuple(texts)
    if isinstance(values, np.ndarray) and values.dtype.kind not in "fiub":
        raise InputError(f"{side} is an array of {values.dtype}, expected numbers, or texts")
    return values
