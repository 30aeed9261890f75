"""Frozen checkpoints and files of embeddings: open them, or say what they are. Nothing in a file is ever executed.

A format is one file of `cocos.checkpoints.formats`. Content decides, never a suffix.
"""

import logging
from pathlib import Path

from cocos.checkpoints import _inventory, _routes
from cocos.checkpoints._checkpoint import Checkpoint, one_sentence
from cocos.checkpoints.files import File, Folder, describe, file_or_folder, plain
from cocos.checkpoints.files.kinds import TENSOR_KINDS
from cocos.checkpoints.formats import Format, format_of, names
from cocos.errors import InputError

__all__ = ["Checkpoint", "File", "Folder", "Format", "inspect", "names", "open"]

logger = logging.getLogger(__name__)


def open(path, data=None, model=None, trust: bool = False, recipe=None) -> Checkpoint:
    """Open a frozen checkpoint, a folder of one, or a file of embeddings. Nothing in it is executed.

    Args:
        path: the file or folder; or training data, where `model` encodes them.
        data: file or folder of the training data, where the checkpoint does not carry or name them; or your own
            `load(split)`, or its name as `file.py:function` or `package.module:function`, which returns a
            `cocos.data.TrainingSet` or a dictionary (`cocos.data.training_set`).
        model: a checkpoint or folder that encodes `path`, which is then data. Or your own function, or its name:
            `build(content)` returns an encoder (`cocos.encoders.own`), `function(content, data, split, device)` returns
            Embeddings; where `path` is data, it is the encoder, or builds it without an argument. Or a list of a
            function and of files and folders that it needs. It is your code, named by you; a file can never name it.
        trust: read a file that holds objects of unknown classes, with an inert placeholder for each; their code is
            not imported or run either. Only `model` sees the placeholders.
        recipe: file that names model, data and loss, where they are not given here (`cocos.checkpoints._recipe`).

    Raises:
        InputError: the file cannot be read; the sentence says what it is and what to do.
        UnsafeFile: it asks for code to be run.

    Examples:
        >>> from importlib import resources
        >>> cocos.open(resources.files("cocos") / "example" / "emoji_ntxent.pt").format
        'native'
    """
    if trust and model is None:
        raise InputError("trust: placeholders are only of use to a model function of your own; name one (--model)")
    found = _routes.route(Path(path), data, model, recipe, trust).open()
    for note in found.notes:
        logger.info("note: %s", note)
    return found


def inspect(path, data=None) -> dict:
    """Say what a file is and what is in it, also where cocos cannot count on it. Nothing in the file is executed.

    Args:
        path: the file.
        data: folder of the training data.

    Returns:
        Plain data: path, sha256, format, contents known to the format, tensors, class weights, hyperparameters, hints,
        and `advice` where nothing can be counted as it is.

    Raises:
        InputError: the file cannot be read, or is of no kind that could hold a checkpoint.
        UnsafeFile: it asks for code to be run.
    """
    file = file_or_folder(Path(path))
    with one_sentence(file.path, "is a damaged file"):
        format = format_of(file)
        if format is not None:
            about = _of_format(_routes.read(file, format, data)) | {
                "hyper_parameters": _inventory.hyperparameters(file)
            }
        else:
            advice = describe(file)
            if file.kind not in TENSOR_KINDS:
                raise InputError(advice)
            about = _of_kind(file) | {"advice": advice}
        every = _inventory.tensors(file)
        about |= {
            "path": str(file.path),
            "sha256": file.sha256,
            "data": data and str(data),
            "hints": _inventory.recorded(file)[2],
            "class_weights": _inventory.class_weights(every),
            "tensors_in_all": len(every),
            "tensors": [vars(each) | {"shape": list(each.shape)} for each in every[: _inventory.MAX_LISTED]],
        }
        file.refuse_change()
    return plain(about)


def _of_format(found: Checkpoint) -> dict:
    return {
        "format": found.format,
        "trained_with": found.trained_with,
        "recorded": found.recorded,
        "splits": list(found.splits),
        "contents": found.contents,
        "notes": list(found.notes),
        "advice": None,
    }


def _of_kind(file: File) -> dict:
    """Describe a file that no format recognises."""
    recorded, loss, _ = _inventory.recorded(file)
    return {
        "format": file.kind,
        "trained_with": loss,
        "recorded": recorded,
        "splits": [],
        "contents": _inventory.values(file),
        "notes": [],
        "hyper_parameters": _inventory.hyperparameters(file),
    }
