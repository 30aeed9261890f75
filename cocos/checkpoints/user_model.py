"""A model of the user: `--model file.py:build`, a function from the content of a checkpoint to an encoder."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from cocos.base import user_code
from cocos.base.errors import InputError
from cocos.checkpoints import encoding, recorded
from cocos.checkpoints.checkpoint import Checkpoint
from cocos.checkpoints.files import File
from cocos.checkpoints.formats import class_vectors
from cocos.data import Source


def is_code(model: Any) -> bool:
    """Return whether `model` is code or names code; otherwise it is the path of a checkpoint."""
    if isinstance(model, str):
        return ":" in model and not Path(model).exists()
    return callable(model) or isinstance(model, Mapping)


def load(model: Any) -> tuple[Any, str]:
    """Return the user's object and its name for messages."""
    if isinstance(model, str):
        return user_code.load(model, "model"), f"model {model!r}"
    return model, f"model {getattr(model, '__name__', type(model).__name__)!r}"


def open_file(path: Path, model: Any, training: Source | None) -> Checkpoint:
    """Open a file or folder with the user's `build(content)`; a folder gets its path.

    Raises:
        InputError: the file has no tensors.
        UnsafeFile: it requires code beyond tensors and plain values.
    """
    file = File(path)
    build, name = load(model)
    if not callable(build):
        raise InputError(f"{name}: {type(build).__name__}, expected a function build(content)")
    content = file.path if file.kind == "folder" else file.content
    if content is None:
        raise InputError(f"{path}: a {file.kind} file has no tensors for --model; expected torch or safetensors")
    settings = recorded.Recorded() if file.kind == "folder" else recorded.read_file(file)
    vectors = None if file.kind == "folder" else class_vectors.find(file)
    proxies = {"proxies": vectors.vectors, "proxy_labels": vectors.labels} if vectors and vectors.in_loss else {}

    def encoder() -> nn.Module:
        if isinstance(build, nn.Module):
            return encoding.user_encoder(build, name)
        with user_code.reported(name):
            built = build(content)
        return encoding.user_encoder(built, name)

    keys = ", ".join(map(str, list(content)[:12])) if isinstance(content, dict) else ""
    contents = {"kind": file.kind, "keys": keys, "model": str(model)}
    fields = settings.fields() | proxies | {"notes": settings.notes}
    return Checkpoint.of(file, "own", contents, encoder=encoder, training=training, **fields)


def open_data(path: Path, model: Callable | str, training: Source) -> Checkpoint:
    """Open training data with the user's encoder, or with a function without arguments that builds it."""

    def encoder() -> nn.Module:
        loaded, name = load(model)
        if callable(loaded) and not isinstance(loaded, nn.Module) and not takes_arguments(loaded):
            with user_code.reported(name):
                loaded = loaded()
        return encoding.user_encoder(loaded, name)

    sha256 = File(path).sha256 if path.is_file() else ""
    return Checkpoint(
        path=path,
        sha256=sha256,
        format="own",
        contents={"model": str(model)},
        encoder=encoder,
        training=training,
    )


def takes_arguments(function: Callable) -> bool:
    """Return whether a function takes positional arguments; true if it has no readable signature."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(parameter.kind not in {parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD} for parameter in parameters)
