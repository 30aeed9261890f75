"""A model that a function of the user's builds."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from cocos import data as shelf
from cocos.base import user_code
from cocos.base.errors import InputError
from cocos.checkpoints import encoders, recorded
from cocos.checkpoints.checkpoint import Checkpoint
from cocos.checkpoints.files import File
from cocos.checkpoints.formats import class_vectors


@dataclass(frozen=True)
class Model:
    """Code of the user's behind `--model`: a function that builds an encoder, or its name."""

    function: Callable | str

    @property
    def name(self) -> str:
        """Name of the function, for messages."""
        return f"model {self.function!r}"

    def found(self) -> Any:
        """Import the function."""
        return user_code.load(self.function, "model") if isinstance(self.function, str) else self.function

    def read(self, file: File, data: shelf.Source | None) -> Checkpoint:
        """Make a checkpoint of a file from whose content the function builds an encoder, which encodes the data."""
        function, content = self.found(), _content(file)
        settings = recorded.Recorded() if file.kind == "folder" else recorded.read_file(file)
        vectors = None if file.kind == "folder" else class_vectors.find_in_loss(file)
        keys = list(content) if isinstance(content, dict) else []
        if not isinstance(function, nn.Module) and (number := _required(function)) != 1:
            takes = f"{number} arguments" if number else "no argument"
            raise InputError(f"{self.name} takes {takes}; it must take the content of {file.path}")
        return Checkpoint.of(
            file,
            "own",
            {"kind": file.kind, "keys": ", ".join(map(str, keys[:12])), "model": str(self.function)},
            **settings.fields(),
            notes=settings.notes,
            proxies=vectors and vectors.vectors,
            proxy_labels=vectors and vectors.labels,
            encoder=lambda: self._built(function, content),
            training=data,
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
        with user_code.reported(self.name):
            found = function(*content)
        return encoders.own(found, self.name)


def _required(function: Any) -> int:
    """Number of arguments that a function needs; one where it does not say."""
    if isinstance(function, nn.Module):
        return 1
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return 1
    if any(each.kind is each.VAR_POSITIONAL for each in parameters.values()):
        return 1
    return sum(each.default is each.empty and each.kind is not each.VAR_KEYWORD for each in parameters.values())


def parted(model: Callable | str | Path) -> Model | Path:
    """Tell a function from a checkpoint or folder."""
    if callable(model) or (isinstance(model, str) and ":" in model and not Path(model).exists()):
        return Model(model)
    path = Path(model)
    if path.suffix == ".py" or not path.exists():
        raise InputError(
            f"model {str(path)!r}: no function is named; write it as file.py:function or package.module:function, or "
            "name one checkpoint or folder that is there"
        )
    return path


def _content(file: File) -> Any:
    """Load the content of a file for the user's function; of a folder it gets the path."""
    if file.kind == "folder":
        return file.path
    if file.content is None:
        raise InputError(
            f"{file.path}: a {file.kind} file has no tensors to hand to --model; it must be torch or safetensors"
        )
    return file.content
