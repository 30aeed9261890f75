"""Frozen checkpoints and files of embeddings: open or inspect them. No code in a file is executed."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from cocos import data as training_data
from cocos.base import user_code
from cocos.base.errors import InputError
from cocos.checkpoints import encoding, formats, recorded
from cocos.checkpoints.checkpoint import EXAMPLE, EXAMPLE_FILE, Checkpoint
from cocos.checkpoints.files import DATA_KINDS, File, describe, plain
from cocos.checkpoints.formats import class_vectors
from cocos.checkpoints.inspection import inspect
from cocos.data import tables

__all__ = ["EXAMPLE", "EXAMPLE_FILE", "Checkpoint", "inspect", "open"]

logger = logging.getLogger(__name__)


def open(path, data=None, model=None) -> Checkpoint:
    """Open a frozen checkpoint, a model folder, or a file of embeddings. No code in it is executed.

    Args:
        path: the file or folder; or training data that `model` encodes; `example` is the embedded checkpoint.
        data: file or folder of the training data; or your `load(split)`, or its name as `file.py:function` or
            `package.module:function`, which returns a `cocos.data.TrainingSet` or a dictionary.
        model: your `build(content)`, or its name, which returns an encoder: a function from a batch of rows to vectors,
            a module, or a dictionary `{"query": ..., "candidate": ...}`; with data as `path`, the encoder itself; or
            the path of a checkpoint that encodes them.

    Raises:
        InputError: the file cannot be read; the message contains the next step.
        UnsafeFile: the file requires code.

    Examples:
        >>> cocos.open("example").format
        'native'
    """
    path = Path(path)
    is_data = isinstance(data, training_data.Source) and data.path == path
    if model is None:
        checkpoint = open_format(EXAMPLE_FILE if path == EXAMPLE else path, data)
    elif is_code(model):
        is_data = is_data or (data is None and training_data.sniff(path) is not None)
        training = find_data(path if is_data and data is None else data)
        checkpoint = open_with_code(path, model, training, is_data=is_data)
    else:
        if Path(model).suffix == ".py" or not Path(model).exists():
            raise InputError(f"model {str(model)!r}: expected file.py:function, or a checkpoint that exists")
        if data is not None and not is_data:
            raise InputError(f"data {data}: {path} is the data that {model} encodes; name one of them")
        checkpoint = open_format(Path(model), data or path)
    training, notes = checkpoint.training, []
    if training is not None and training.path and (data is not None or model is not None):
        notes.append(f"data {training.path} ({training.kind})")
    if path == EXAMPLE:
        notes.append("example: two small towers in the package, trained with NT-Xent on 2,497 emoji and their captions")
        checkpoint = replace(checkpoint, path=EXAMPLE)
    checkpoint = replace(checkpoint, notes=(*notes, *checkpoint.notes))
    for note in checkpoint.notes:
        logger.info("note: %s", note)
    return checkpoint


def find_data(data: Any) -> training_data.Source | None:
    """Return the training data that the user named; None if absent."""
    if data is None or isinstance(data, training_data.Source):
        return data
    return training_data.from_user(data) if training_data.is_user_data(data) else training_data.find(data)


def open_format(path: Path, data: Any) -> Checkpoint:
    """Open a checkpoint of a known format."""
    file, data_path = File(path), None if training_data.is_user_data(data) else data
    if isinstance(data, training_data.Source):
        data_path = data.path if data.path and data.path.exists() else None
    with tables.readable(path):
        module = formats.find(file)
        if module is None:
            kind = training_data.sniff(path) if file.kind in DATA_KINDS else None
            problem = f"{path}: contains training data ({kind}) but no model. Add --model CHECKPOINT"
            raise InputError(problem if kind else describe(file))
        checkpoint = module.load(file, data_path)
        checkpoint = replace(checkpoint, contents=plain(checkpoint.contents))
    if data is None or checkpoint.format == "scores":  # the judgements of a run
        return checkpoint
    if checkpoint.encoder is None:
        name = getattr(data, "__name__", data)
        raise InputError(f"data {name}: {path} ({checkpoint.format}) has no encoder, and needs no data")
    if checkpoint.training is None or data_path is not data:
        checkpoint = replace(checkpoint, training=find_data(data))
    return checkpoint


def is_code(model: Any) -> bool:
    """Return whether `model` is code or names code; otherwise it is the path of a checkpoint."""
    if isinstance(model, str):
        return ":" in model and not Path(model).exists()
    return callable(model) or isinstance(model, Mapping)


def open_with_code(path: Path, model: Any, training: training_data.Source | None, *, is_data: bool) -> Checkpoint:
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
