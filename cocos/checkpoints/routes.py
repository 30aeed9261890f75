"""The routes from what a user types to a model and its training data; what is typed wins, then the first hit.

1. `model`: code of the user's, named as file.py:function; or a checkpoint or folder, and the file is then data.
2. A file of embeddings, 3. a checkpoint or folder that describes itself, 4. a known family: the shelf of formats.
"""

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cocos import data as shelf
from cocos.base.errors import InputError
from cocos.checkpoints import model_functions, series
from cocos.checkpoints.checkpoint import Checkpoint, one_sentence
from cocos.checkpoints.files import File, describe, plain
from cocos.checkpoints.formats import Format, format_of
from cocos.checkpoints.model_functions import Model

# Kinds of files, as `File.kind` says, that may be training data.
DATA_KINDS = ("text", "gzip", "unknown", "folder", "npz", "safetensors", "pickle")


@dataclass(frozen=True)
class Route:
    """A file to open, with the model and data that the user named.

    Args:
        file: the checkpoint, or the training data that code of the user's encodes.
        model: code of the user's; None: the file is a checkpoint.
        data: training data: a path, a function or its name, a `Source`; None: as the checkpoint says.
        swapped: the user named the data first, and the checkpoint as its model.
    """

    file: Path
    model: Model | None
    data: Any
    swapped: bool

    def open(self) -> Checkpoint:
        """Open the checkpoint, with its training data and a note on the route."""
        found = self._own() if self.model else self._of_format()
        said, training = self._said(found), found.training
        notes = ((f"route: {', '.join(said)}",) if said else ()) + found.notes + (training.notes if training else ())
        return replace(found, notes=notes)

    def _said(self, found: Checkpoint) -> list[str]:
        """List the model and data in use, where the user named them."""
        said = [f"model {_shown(self.model.function)}"] if self.model else []
        if self.swapped:
            said.append(f"model {found.path} ({found.format})")
        if found.training and (self.data is not None or self.model):
            where = f"{found.training.path} ({found.training.kind})" if found.training.path else _shown(self.data)
            said.append(f"data {where}")
        return said

    def _source(self) -> shelf.Source | None:
        """The training data that were named; None where none were."""
        if self.data is None or isinstance(self.data, shelf.Source):
            return self.data
        return shelf.from_user(self.data) if shelf.is_user_data(self.data) else shelf.find(self.data)

    def _place(self) -> Any:
        """Where the training data lie, for a format that looks for its vocabulary beside them; None of a function's."""
        if isinstance(self.data, shelf.Source):
            return self.data.path if self.data.path and self.data.path.exists() else None
        return None if shelf.is_user_data(self.data) else self.data

    def _own(self) -> Checkpoint:
        """A checkpoint whose model is code of the user's."""
        if _is_of(self.data, self.file):
            return self.model.of_data(self.data)
        if self.data is None and shelf.sniff(self.file):
            return self.model.of_data(shelf.find(self.file))
        file = File(self.file)
        return self.model.read(file, self._source())

    def _of_format(self) -> Checkpoint:
        """A checkpoint of a known format."""
        file = File(self.file)
        own = isinstance(self.data, shelf.Source) or shelf.is_user_data(self.data)
        with one_sentence(file.path, "is a damaged file"):
            format = format_of(file)
            if format is None:
                raise InputError(_unread(file))
            found = read(file, format, self._place())
        if own and found.encoder is None:
            raise InputError(f"data {_shown(self.data)}: {file.path} ({found.format}) has no encoder to read them with")
        settled = (found.training or found.embedder) and not own
        if self.data is None or found.encoder is None or settled:
            return found
        source = self._source()
        return replace(found, training=source, splits=source.splits, rows=None, embedder=None)


def _shown(given: Any) -> str:
    """Name what a user gave: its spelling, or the name of the function."""
    if isinstance(given, str | Path):
        return str(given)
    return str(getattr(given, "__name__", None) or getattr(given, "name", None) or f"of type {type(given).__name__}")


def _unread(file: File) -> str:
    """Describe a file that no format recognises."""
    kind = shelf.sniff(file.path) if file.kind in DATA_KINDS else None
    typed = shlex.quote(str(file.path))
    if kind is None and file.kind == "folder" and file.path.is_dir() and (latest := series.latest(file)):
        return (
            f"{file.path} is a folder; name a checkpoint in it, such as {shlex.quote(str(file.path / latest))}; "
            f"cocos inspect {typed} lists them"
        )
    if kind is None:
        return describe(file)
    return (
        f"{file.path} is training data ({kind}), and names no model: cocos count {typed} --model CHECKPOINT, or a "
        "function of yours, file.py:function"
    )


def _is_of(data: Any, path: Path) -> bool:
    """Whether training data are a source that was found for the path that the user typed."""
    return isinstance(data, shelf.Source) and data.path == path


def read(file: File, format: Format, data: Any) -> Checkpoint:
    """Read a file in its format."""
    found = format.read(file, data)
    return replace(found, contents=plain(found.contents))


def route(path: Path, data: Any, model: Any) -> Route:
    """Find the route to a model and its data, from what the user types: the arguments of `cocos.open`."""
    asked = None if model is None else model_functions.parted(model)
    if swapped := isinstance(asked, Path):
        if data is not None and not _is_of(data, path):
            raise InputError(f"data {_shown(data)}: {path} is the data that {asked} encodes; name one of them")
        path, data, asked = asked, data or path, None
    return Route(path, asked, data, swapped)
