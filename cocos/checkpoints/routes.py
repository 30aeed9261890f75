"""The routes from what a user types to a model and its training data; what is typed wins, then the first hit.

1. `model`: code of the user's, named as file.py:function; or a checkpoint or folder, and the file is then data.
2. `recipe`: a file that names model, data and loss; the one beside a checkpoint (`cocos.toml`) comes last.
3. A file of embeddings, 4. a checkpoint or folder that describes itself, 5. a known family: the shelf of formats.
"""

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cocos.base.errors import InputError
from cocos.checkpoints import data as shelf
from cocos.checkpoints import encoders, model_functions, recipes, series
from cocos.checkpoints.checkpoint import Checkpoint, one_sentence
from cocos.checkpoints.files import File, Folder, describe, file_or_folder, plain
from cocos.checkpoints.formats import Format, format_of
from cocos.checkpoints.model_functions import Model
from cocos.checkpoints.recipes import Recipe

# Kinds of files, as `File.kind` says, that may be training data.
DATA_KINDS = ("text", "gzip", "unknown", "folder", "npz", "pickle")


@dataclass(frozen=True)
class Route:
    """A file to open, with the model, data and recipe that the user named.

    Args:
        file: the checkpoint, or the training data that code of the user's encodes.
        model: code of the user's; None: the file is a checkpoint.
        data: training data: a path, a function or its name, a `Source`; None: as the checkpoint says.
        recipe: for the loss and the options of the kind of data.
        swapped: the user named the data first, and the checkpoint as its model.
        trust: put inert placeholders where there are objects of unknown classes.
    """

    file: Path
    model: Model | None
    data: Any
    recipe: Recipe
    swapped: bool
    trust: bool

    def open(self) -> Checkpoint:
        """Open the checkpoint, with its training data, the loss of the recipe, and a note on the route."""
        found = self._own() if self.model else self._of_format()
        if (images := self.recipe.model.get("images")) is not None:
            found = _prepared(found, images)
        if loss := self.recipe.loss:
            recorded = found.recorded | {loss["name"]: loss["parameters"]}
            found = replace(found, trained_with=loss["name"], recorded=recorded, recorder=str(self.recipe.path))
        said, training = self._said(found), found.training
        notes = ((f"route: {', '.join(said)}",) if said else ()) + found.notes + (training.notes if training else ())
        return replace(found, notes=notes)

    def _said(self, found: Checkpoint) -> list[str]:
        """List the model, data and recipe in use, where the user named them."""
        said = [f"model {_shown(self.model.function)}"] if self.model else []
        if self.swapped:
            said.append(f"model {found.path} ({found.format})")
        if found.training and (self.data is not None or self.model):
            where = f"{found.training.path} ({found.training.kind})" if found.training.path else _shown(self.data)
            said.append(f"data {where}")
        if self.recipe.path:
            said.append(f"recipe {self.recipe.path}")
        return said

    def _source(self) -> shelf.Source | None:
        """The training data that were named; None where none were."""
        if self.data is None or isinstance(self.data, shelf.Source):
            return self.data
        return shelf.own(self.data) if shelf.is_own(self.data) else shelf.find(self.data, self.recipe.options)

    def _place(self) -> Any:
        """Where the training data lie, for a format that looks for its vocabulary beside them; None of a function's."""
        if isinstance(self.data, shelf.Source):
            return self.data.path if self.data.path and self.data.path.exists() else None
        return None if shelf.is_own(self.data) else self.data

    def _own(self) -> Checkpoint:
        """A checkpoint whose model is code of the user's."""
        if _is_of(self.data, self.file):
            return self.model.of_data(self.data)
        if self.data is None and self.model.encodes and shelf.recognised(self.file):
            return self.model.of_data(shelf.find(self.file, self.recipe.options))
        file = file_or_folder(self.file, placeholders=self.trust)
        return self.model.read(file, self._source() if self.model.encodes else self.data)

    def _of_format(self) -> Checkpoint:
        """A checkpoint of a known format."""
        file = file_or_folder(self.file)
        own = isinstance(self.data, shelf.Source) or shelf.is_own(self.data)
        with one_sentence(file.path, "is a damaged file"):
            format = format_of(file)
            if format is None:
                raise InputError(_unread(file))
            found = read(file, format, self._place())
        if own and found.encoder is None:
            raise InputError(f"data {_shown(self.data)}: {file.path} ({found.format}) has no encoder to read them with")
        settled = (found.training or found.embedder) and not own and not self.recipe.options
        if self.data is None or found.encoder is None or settled:
            return found
        source = self._source()
        return replace(found, training=source, splits=source.splits, rows=None, embedder=None)


def _prepared(found: Checkpoint, images: Any) -> Checkpoint:
    """Prepare images as a recipe says, instead of as the checkpoint does."""
    if found.encoder is None:
        raise InputError(f"recipe: [model] images: {found.path} ({found.format}) holds no encoder")
    settings = None if found.settings is None else f"{found.settings} {images}"
    return replace(found, encoder=lambda: encoders.prepared(found.model, images), settings=settings)


def _shown(given: Any) -> str:
    """Name what a user gave: its spelling, or the name of the function."""
    if isinstance(given, str | Path):
        return str(given)
    return str(getattr(given, "__name__", None) or getattr(given, "name", None) or f"of type {type(given).__name__}")


def _unread(file: File | Folder) -> str:
    """Describe a file that no format recognises."""
    kind = shelf.recognised(file.path) if file.kind in DATA_KINDS else None
    typed = shlex.quote(str(file.path))
    if kind is None and isinstance(file, Folder) and file.path.is_dir() and (latest := series.latest(file)):
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


def read(file: File | Folder, format: Format, data: Any) -> Checkpoint:
    """Read a file in its format, and see that it did not change meanwhile."""
    found = format.read(file, data)
    found = replace(found, contents=plain(found.contents))
    file.refuse_change()
    return found


def route(path: Path, data: Any, model: Any, recipe: Any, trust: bool) -> Route:
    """Find the route to a model and its data, from what the user types: the arguments of `cocos.open`."""
    held = Recipe() if recipe is None else recipes.read(Path(recipe), inside=_beside(Path(recipe), path))
    asked = None if model is None else model_functions.parted(model)
    if asked is None and (named := held.named("model")):
        asked = model_functions.parted(named)
        if asked.function is None and shelf.recognised(path) is None:
            asked = None  # the file is a checkpoint itself, which the user typed
    swapped = asked is not None and asked.function is None
    if swapped:
        if data is not None and not _is_of(data, path):
            raise InputError(f"data {_shown(data)}: {path} is the data that {asked.paths[0]} encodes; name one of them")
        path, data, asked = asked.paths[0], data or path, None
    if held.path is None and (there := recipes.beside(path)):
        held = recipes.read(there, inside=True)
    if data is None and not (asked and shelf.recognised(path)):  # the data that the user typed win
        data = held.named("data")
    return Route(path, asked, data, held, swapped, trust)


def _beside(recipe: Path, path: Path) -> bool:
    """Whether a recipe lies beside a checkpoint, or in its folder; beside the user's data it does not."""
    folder = recipe.resolve().parent
    if path.is_dir():
        return folder.is_relative_to(path.resolve()) and shelf.recognised(path) is None
    return folder == path.resolve().parent and shelf.recognised(path) is None
