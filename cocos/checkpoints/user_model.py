"""A model of the user: `--model file.py:build`, a function from the content of a checkpoint to an encoder."""

from collections.abc import Mapping
from dataclasses import replace
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


def open(path: Path, model: Any, training: Source | None, *, is_data: bool) -> Checkpoint:
    """Open a checkpoint with the user's `build(content)`, or training data with an encoder or `build()`.

    The content of a folder is its path.
    """
    name = f"model {model if isinstance(model, str) else getattr(model, '__name__', type(model).__name__)!r}"
    user_object = user_code.load(model, "model") if isinstance(model, str) else model
    checkpoint = Checkpoint(path, "", "own", {"model": str(model)}, training=training)
    content = None
    if not is_data:
        file = File(path)
        content = path if file.kind == "folder" else file.content
        if content is None:
            raise InputError(f"{path}: a {file.kind} file has no tensors for --model; expected torch or safetensors")
        settings, vectors = recorded.read_file(file), class_vectors.find(file)
        checkpoint = replace(checkpoint, sha256=file.sha256, settings=settings, notes=settings.notes)
        if vectors is not None and vectors.in_loss:
            checkpoint = replace(checkpoint, proxies=vectors.vectors, proxy_labels=vectors.labels)

    def encoder() -> nn.Module:
        code = getattr(user_object, "__code__", None)
        arguments = () if is_data and code and not code.co_argcount else (content,)
        if isinstance(user_object, nn.Module) or (is_data and arguments):
            return encoding.user_encoder(user_object, name)
        with user_code.reported(name):
            built = user_object(*arguments)
        return encoding.user_encoder(built, name)

    return replace(checkpoint, encoder=encoder)
