"""Marks on pairs in a file of embeddings: labels of both sides, a matrix, rows of pairs, or sources of candidates."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cocos.base.errors import InputError

MARK_ARRAYS, SOURCE_ARRAYS = ("query_mark", "candidate_mark"), ("query_source", "candidate_source")
# Name of a mark in a file that gives it none.
DEFAULT_MARK = "look-alike"
# Name of the mark whose kinds are the sources of candidates.
SOURCE_MARK = "source"


def marks_of(path: Path | str, arrays: Mapping[str, Any], name: Any = None) -> dict[str, Any]:
    """Marks by their names, as `cocos.marks.of` takes them.

    Args:
        path: of the file.
        arrays: of the file, by their names.
        name: of the mark, as text or an array of one; None: `look-alike`.
    """
    found: dict[str, Any] = {}
    same = "embeddings" in arrays and "proxies" not in arrays  # samples are their own candidates
    needed = {MARK_ARRAYS: MARK_ARRAYS[:1] if same else MARK_ARRAYS, SOURCE_ARRAYS: (SOURCE_ARRAYS[not same],)}
    for names, wanted in needed.items():
        given, missing = [each for each in names if each in arrays], [each for each in wanted if each not in arrays]
        if given and missing:
            raise InputError(f"{path}: {given[0]} without {missing[0]}; give {missing[0]} too")
    if "query_mark" in arrays and "marked" in arrays:
        raise InputError(f"{path}: marked and query_mark both mark pairs; give one of them")
    label = _text(path, name)
    if "query_mark" in arrays:
        found[label] = arrays["query_mark"], arrays.get("candidate_mark", arrays["query_mark"])
    elif "marked" in arrays:
        found[label] = arrays["marked"]
    sides = {each.removesuffix("_source"): arrays[each] for each in SOURCE_ARRAYS if each in arrays}
    if sides:
        found[SOURCE_MARK] = sides if "candidate" in sides else {"candidate": sides["query"]}
    return found


def _text(path: Path | str, name: Any) -> str:
    """The name of a mark."""
    first = DEFAULT_MARK if name is None else next(iter(np.asarray(name).reshape(-1).tolist()), None)
    first = first.decode("utf-8", "replace") if isinstance(first, bytes) else first
    if not isinstance(first, str):
        raise InputError(f"{path}: mark_name is {first!r}, expected a text")
    return first
