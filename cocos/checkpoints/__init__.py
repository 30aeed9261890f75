"""Frozen checkpoints and files of embeddings: open them, or say what they are. Nothing in a file is ever executed.

A format is one file of `cocos.checkpoints.formats`. Content decides, never a suffix.
"""

import logging
from dataclasses import replace
from pathlib import Path

from cocos.checkpoints import inspection, routes
from cocos.checkpoints.checkpoint import EXAMPLE, EXAMPLE_FILE, Checkpoint, one_sentence
from cocos.checkpoints.files import File
from cocos.checkpoints.formats import Format, load, names
from cocos.embeddings import Embeddings

__all__ = [
    "EXAMPLE",
    "EXAMPLE_FILE",
    "Checkpoint",
    "File",
    "Format",
    "distractors",
    "inspect",
    "names",
    "open",
]

logger = logging.getLogger(__name__)


def open(path, data=None, model=None) -> Checkpoint:
    """Open a frozen checkpoint, a folder of one, or a file of embeddings. Nothing in it is executed.

    Args:
        path: the file or folder; or training data, where `model` encodes them; `example` is the embedded checkpoint.
        data: file or folder of the training data, where the checkpoint does not carry or name them; or your own
            `load(split)`, or its name as `file.py:function` or `package.module:function`, which returns a
            `cocos.data.TrainingSet` or a dictionary (`cocos.data.training_set`).
        model: a checkpoint or folder that encodes `path`, which is then data. Or your own function, or its name:
            `build(content)` returns an encoder (`cocos.encoders.own`); where `path` is data, it is the encoder, or
            builds it without an argument. It is your code, named by you; a file can never name it.

    Raises:
        InputError: the file cannot be read; the sentence says what it is and what to do.
        UnsafeFile: it asks for code to be run.

    Examples:
        >>> cocos.open("example").format
        'native'
    """
    if Path(path) == EXAMPLE:
        found = routes.route(EXAMPLE_FILE, data, model).open()
        found = replace(found, path=EXAMPLE, notes=(_embedded(), *found.notes))
    else:
        found = routes.route(Path(path), data, model).open()
    for note in found.notes:
        logger.info("note: %s", note)
    return found


def _embedded() -> str:
    """Describe the embedded checkpoint in a note."""
    note = "example: the embedded checkpoint, two small towers trained with NT-Xent on 2,497 emoji and their captions"
    return f"{note}; it is not the path {EXAMPLE.absolute()}" if EXAMPLE.exists() else note


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
            if (found := load("embeddings").candidates(File(Path(path)))) is not None:
                return found
    return routes.route(Path(path), None, None).open()


def inspect(path, data=None) -> dict:
    """Say what a file or folder is and what is in it, also where cocos cannot count on it. Nothing in it is executed.

    Args:
        path: the file, the folder of a model, or that of a training run; `example` is the embedded checkpoint.
        data: file or folder of the training data.

    Returns:
        Plain data: path, sha256, container, format and why it was recognised, contents known to the format, towers with
        their parameters, class weights, the training, its loss and settings, what is missing, what is refused, the
        `next` command, and `advice` where nothing can be counted as it is; of a run, its checkpoints by their steps.

    Raises:
        InputError: the file cannot be read, or is of no kind that could hold a checkpoint.
        UnsafeFile: it asks for code to be run.
    """
    return inspection.about(Path(path), data)
