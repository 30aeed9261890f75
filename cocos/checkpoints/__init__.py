"""Frozen checkpoints and files of embeddings: open or inspect them. No code in a file is executed."""

import logging
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from cocos import data as training_data
from cocos.base.errors import InputError
from cocos.checkpoints import formats, runs, user_model
from cocos.checkpoints.checkpoint import EXAMPLE, EXAMPLE_FILE, Checkpoint, one_sentence
from cocos.checkpoints.files import DATA_KINDS, File, describe, plain
from cocos.checkpoints.formats import embeddings
from cocos.checkpoints.inspection import inspect
from cocos.embeddings import Embeddings

__all__ = ["EXAMPLE", "EXAMPLE_FILE", "Checkpoint", "File", "distractors", "inspect", "open"]

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
    if path == EXAMPLE:
        note = "example: two small towers in the package, trained with NT-Xent on 2,497 emoji and their captions"
        note += f"; it is not the path {EXAMPLE.absolute()}" if EXAMPLE.exists() else ""
        checkpoint = replace(open_path(EXAMPLE_FILE, data, model), path=EXAMPLE)
        checkpoint = replace(checkpoint, notes=(note, *checkpoint.notes))
    else:
        checkpoint = open_path(path, data, model)
    for note in checkpoint.notes:
        logger.info("note: %s", note)
    return checkpoint


def open_path(path: Path, data: Any, model: Any) -> Checkpoint:
    """Open a file, or data with a model, and note both if they were named."""
    source = data if isinstance(data, training_data.Source) and data.path == path else None  # `path` is data
    notes = []
    if model is None:
        checkpoint = open_format(path, data)
    elif user_model.is_code(model):
        notes.append(f"model {getattr(model, '__name__', model)}")
        if source is not None or (data is None and training_data.sniff(path)):
            checkpoint = user_model.open_data(path, model, source or training_data.find(path))
        else:
            checkpoint = user_model.open_file(path, model, find_data(data))
    else:
        if Path(model).suffix == ".py" or not Path(model).exists():
            raise InputError(f"model {str(model)!r}: expected file.py:function, or a checkpoint that exists")
        if data is not None and source is None:
            raise InputError(f"data {data}: {path} is the data that {model} encodes; name one of them")
        checkpoint = open_format(Path(model), source or path)
        notes.append(f"model {model} ({checkpoint.format})")
    training = checkpoint.training
    if training is not None and (data is not None or model is not None):
        name = getattr(data, "__name__", data)
        notes.append(f"data {training.path} ({training.kind})" if training.path else f"data {name}")
    route = (f"route: {', '.join(notes)}",) if notes else ()
    return replace(checkpoint, notes=(*route, *checkpoint.notes))


def find_data(data: Any) -> training_data.Source | None:
    """Return the training data that the user named; None if absent."""
    if data is None or isinstance(data, training_data.Source):
        return data
    return training_data.from_user(data) if training_data.is_user_data(data) else training_data.find(data)


def open_format(path: Path, data: Any) -> Checkpoint:
    """Open a checkpoint of a known format."""
    file = File(path)
    is_source = isinstance(data, training_data.Source)
    opened_by_user = is_source or training_data.is_user_data(data)
    data_path = data
    if opened_by_user:
        data_path = data.path if is_source and data.path and data.path.exists() else None
    with one_sentence(path, "is a damaged file"):
        module = formats.find(file)
        if module is None:
            raise InputError(explain_unknown(file))
        checkpoint = module.load(file, data_path)
        checkpoint = replace(checkpoint, contents=plain(checkpoint.contents))
    if opened_by_user and checkpoint.encoder is None:
        raise InputError(f"data {getattr(data, '__name__', data)}: {path} ({checkpoint.format}) has no encoder")
    if data is None or checkpoint.encoder is None or (checkpoint.training is not None and not opened_by_user):
        return checkpoint
    training = find_data(data)
    return replace(checkpoint, training=training, splits=training.splits, rows=None, embedder=None)


def explain_unknown(file: File) -> str:
    """Return the message for a file without a known format: training data, a run, or anything else."""
    name = shlex.quote(str(file.path))
    kind = training_data.sniff(file.path) if file.kind in DATA_KINDS else None
    if kind is not None:
        return f"{file.path} is training data ({kind}) without a model: cocos count {name} --model CHECKPOINT"
    if file.kind == "folder" and runs.is_run(file.path):
        return f"{file.path} is the folder of a run; name a checkpoint in it: cocos inspect {name} lists them"
    return describe(file)


def distractors(path) -> Checkpoint | Embeddings:
    """Open a file whose candidates match no query: any that `open` takes, or one that has `candidate` alone.

    Examples:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "more.pt")
        >>> torch.save({"candidate": torch.eye(3)}, path)
        >>> len(cocos.checkpoints.distractors(path).candidate)
        3
    """
    if Path(path).is_file():
        with one_sentence(Path(path), "is a damaged file"):
            if (rows := embeddings.candidates(File(Path(path)))) is not None:
                return rows
    return open_path(Path(path), None, None)
