"""Training data: one module per format, tried in order, or a dictionary or function of the user.

A format has `splits(path) -> tuple[str, ...]`, empty if it does not recognise the path, and `load(split, path) ->
TrainingSet`. The keyword arguments of its `load` are listed in its `OPTIONS`. A new format is one module and its name
in `FORMATS`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cocos.base.errors import InputError, nearest
from cocos.data import arrays, beir, bleeker, captions, emoji_captions, image_folders, image_lists, pairs, precomputed
from cocos.data.training_set import Side, Source, TrainingSet
from cocos.data.user_data import from_user, is_user_data, training_set

__all__ = ["FORMATS", "Side", "Source", "TrainingSet", "find", "from_user", "is_user_data", "load", "sniff", "source"]
__all__ += ["training_set"]

# The first format that recognises a path loads it: the most specific come first, tables of texts last.
FORMATS = (emoji_captions, precomputed, beir, arrays, bleeker, image_lists, captions, image_folders, pairs)
NAMES = {module.__name__.rpartition(".")[2]: module for module in FORMATS}


def sniff(path: Path, options: Mapping[str, Any] | None = None) -> str | None:
    """Return the name of the first format that recognises a path and has these options, or None."""
    for name, module in NAMES.items():
        if set(options or {}) <= set(getattr(module, "OPTIONS", ())) and module.splits(path):
            return name
    return None


def find(path: Path | str, options: Mapping[str, Any] | None = None) -> Source:
    """Find training data in a file or folder, in the first format that recognises it.

    Args:
        path: of the file or folder.
        options: `columns` of a table of texts, or `images`, the folder of the images of a list.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"data {path}: file not found")
    name = sniff(path, options)
    if name is None:
        with_options = f" with {' and '.join(options)}" if options else ""
        formats = f"expected one of {', '.join(NAMES)}, or a function: --data file.py:load"
        raise InputError(f"data {path}: unknown format{with_options}, {formats}")
    return source(name, path, **(options or {}))


def source(name: str, path: Path | None = None, **options: Any) -> Source:
    """Return the training data in a file or folder of a known format; no rows are read."""
    if name not in NAMES:
        raise InputError(nearest("data", name, NAMES))
    module = NAMES[name]
    if path is None and module is not emoji_captions:
        raise InputError(f"data {name}: no path, expected a file or folder")
    return Source(name, module.splits(path), lambda split: module.load(split, path, **options), path)


def load(name: str, split: str = "train", path: Path | None = None, **options: Any) -> TrainingSet:
    """Load one split of a known format."""
    return source(name, path, **options).load(split)
