"""A model that a function of the user's builds, or whose embeddings it makes."""

import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from cocos.base.errors import InputError
from cocos.checkpoints import data as shelf
from cocos.checkpoints import encoders, inventory
from cocos.checkpoints.checkpoint import Checkpoint
from cocos.checkpoints.encoders import device_of
from cocos.checkpoints.files import File, Folder
from cocos.embeddings import Embeddings
from cocos.losses.external.guard import guarded
from cocos.losses.external.own import located

# Arguments of a function that makes embeddings.
ARGUMENTS = ("content", "data", "split", "device")


@dataclass(frozen=True)
class Model:
    """The target of `--model`: a function, with the files and folders given to it, or a checkpoint.

    Args:
        function: of the user's, or its name; None where a checkpoint or folder is named.
        paths: files and folders that come with the function; or the checkpoint alone.
    """

    function: Callable | str | None
    paths: tuple[Path, ...] = ()

    @property
    def name(self) -> str:
        """Name of the function, for messages."""
        return f"model {self.function!r}"

    def found(self) -> Any:
        """Import the function."""
        for path in reversed(self.code):
            if (folder := str((path if path.is_dir() else path.parent).resolve())) not in sys.path:
                sys.path.insert(0, folder)
        return located(self.function, "model") if isinstance(self.function, str) else self.function

    @property
    def encodes(self) -> bool:
        """Whether the function is an encoder or builds one; otherwise it makes embeddings."""
        return _required(self.found()) < 2

    @property
    def code(self) -> list[Path]:
        """Folders, and those of `.py` files, to import from."""
        return [path for path in self.paths if path.is_dir() or path.suffix == ".py"]

    def content(self, file: File | Folder) -> Any:
        """Load the content of a file, and of those that come with the function, by path."""
        content = _content(file)
        others = [path for path in self.paths if path not in self.code]
        return {str(file.path): content} | {str(path): _content(File(path)) for path in others} if others else content

    def read(self, file: File | Folder, data: Any) -> Checkpoint:
        """Make a checkpoint of a file whose content the function takes.

        A function that makes embeddings gets the data as they are; for one that builds an encoder they are the source
        of the training data, or None.
        """
        function, content = self.found(), self.content(file)
        recorded, loss, _ = ({}, None, {}) if isinstance(file, Folder) else inventory.recorded(file)
        keys = list(content) if isinstance(content, dict) else []
        beside: dict[str, Any] = {"recorded": recorded, "trained_with": loss}
        if self.encodes:
            if not _required(function) and not isinstance(function, nn.Module):
                raise InputError(f"{self.name} takes no argument; it must take the content of {file.path}")
            beside |= {"encoder": lambda: self._built(function, content), "training": data}
        else:
            made: dict[str, Embeddings] = {}  # the last split, so that its rows can be shown

            def embedder(split: str, device: str, progress: Any = None) -> Embeddings:
                made.clear()
                return made.setdefault(split, self._embedded(function, content, data, split, device))

            def rows(split: str) -> shelf.AnnotatedRows | None:
                found = made.get(split) or embedder(split, "auto")
                return shelf.AnnotatedRows(found) if found.names or found.pictures else None

            beside |= {"embedder": embedder, "rows": rows}
        return Checkpoint.of(
            file,
            "own",
            {"kind": file.kind, "keys": ", ".join(map(str, keys[:12])), "model": str(self.function)},
            **beside,
        )

    def of_data(self, training: shelf.Source) -> Checkpoint:
        """Make a checkpoint of training data that the function encodes: it is the encoder, or builds it."""
        function = self.found()
        if not isinstance(function, nn.Module | dict) and _required(function) > 1:
            raise InputError(
                f"{self.name} takes {_required(function)} arguments: {training.path} is training data, and its encoder "
                "takes a batch of rows; or no argument, and returns the encoder"
            )
        whole = isinstance(function, nn.Module) or not callable(function) or _required(function)
        path = training.path or Path()
        return Checkpoint(
            path=path,
            sha256=File(path).sha256 if path.is_file() else "",
            format="own",
            contents={"model": str(self.function)},
            encoder=lambda: encoders.own(function, self.name) if whole else self._built(function),
            training=training,
        )

    def _built(self, function: Any, *content: Any) -> nn.Module:
        if isinstance(function, nn.Module):
            return encoders.own(function, self.name)
        with guarded(self.name, dtypes=False):
            found = function(*content)
        return encoders.own(found, self.name)

    def _embedded(self, function: Callable, content: Any, data: Any, split: str, device: str) -> Embeddings:
        with guarded(self.name, dtypes=False):
            found = function(content, data, split, device_of(device))
        if not isinstance(found, Embeddings):
            raise InputError(f"{self.name} returned a {type(found).__name__}, expected cocos.Embeddings")
        return found.to(device_of(device))


def _required(function: Any) -> int:
    """Number of arguments that a function needs; four where it does not say."""
    if isinstance(function, nn.Module):
        return 1
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return len(ARGUMENTS)
    if {*ARGUMENTS} <= parameters.keys() or any(each.kind is each.VAR_POSITIONAL for each in parameters.values()):
        return len(ARGUMENTS)
    return sum(each.default is each.empty and each.kind is not each.VAR_KEYWORD for each in parameters.values())


def parted(model: object | Sequence[object]) -> Model:
    """Tell a function from a checkpoint, and from the files and folders that come with it."""
    given = [model] if isinstance(model, str | Path) or callable(model) else list(model)
    functions = [
        each for each in given if callable(each) or (isinstance(each, str) and ":" in each and not Path(each).exists())
    ]
    paths = [Path(each) for each in given if each not in functions]
    if not functions and len(paths) == 1 and paths[0].suffix != ".py" and paths[0].exists():
        return Model(None, tuple(paths))
    if len(functions) != 1:
        said = ", ".join(repr(str(each)) for each in given)
        many = "more than one function; name one" if functions else "no function is named; write it"
        raise InputError(
            f"model {said}: {many} as file.py:function or package.module:function, or name one checkpoint or folder "
            "that is there"
        )
    for path in paths:
        if not path.exists():
            raise InputError(f"model {str(path)!r}: there is no such file or folder, and it names no function")
    return Model(functions[0], tuple(paths))


def _content(file: File | Folder) -> Any:
    """Load the content of a file for the user's function; of a folder it gets the path."""
    if isinstance(file, Folder):
        return file.path
    file.pickles.refuse_code()
    if file.content is None:
        raise InputError(
            f"{file.path}: a {file.kind} file has no tensors to hand to --model; it must be torch or safetensors"
        )
    return file.content
