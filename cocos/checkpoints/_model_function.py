"""A file of any architecture, encoded by a function that the user names."""

import sys
from collections.abc import Sequence
from pathlib import Path

from cocos.checkpoints import _inventory
from cocos.checkpoints._checkpoint import Checkpoint
from cocos.checkpoints.files import File
from cocos.embeddings import Embeddings
from cocos.encoders import device_of
from cocos.errors import InputError
from cocos.losses.external.guard import guarded
from cocos.losses.external.own import located

__all__ = ["read"]


def _parted(model) -> tuple[object, list[Path]]:
    """Split `model` into the function, or its name, and the files and folders that come with it.

    Raises:
        InputError: no function is named, or more than one.
    """
    given = [model] if isinstance(model, str) or callable(model) else list(model)
    functions = [each for each in given if callable(each) or (":" in str(each) and not Path(each).exists())]
    paths = [Path(each) for each in given if each not in functions]
    if len(functions) != 1:
        said = ", ".join(repr(str(each)) for each in given)
        many = "more than one function; name one" if functions else "no function is named; write it"
        raise InputError(f"model {said}: {many} as file.py:function or package.module:function")
    for path in paths:
        if not path.exists():
            raise InputError(f"model {str(path)!r}: there is no such file or folder, and it names no function")
    return functions[0], paths


def _content(file: File):
    """Load the content of a file for the user's function.

    Raises:
        InputError: it holds no tensors.
    """
    file.pickles.refuse_code()
    if file.content is None:
        raise InputError(
            f"{file.path}: a {file.kind} file has no tensors to hand to --model; it must be torch or safetensors"
        )
    return file.content


def read(file: File, data, model: object | Sequence[object]) -> Checkpoint:
    """Hand the file's content to the user's function.

    Args:
        file: the file.
        data: passed on as it is.
        model: `function(content, data, split, device) -> Embeddings`, or its name; and files and folders that come
            with it. A folder, or that of a `.py` file, is one to import from; other files are read as `file` is, and
            the content is then a dictionary of theirs, by the paths as they are given, that of `file` first.

    Raises:
        InputError: the function is not there, raises, or does not return Embeddings.
    """
    named, paths = _parted(model)
    code = [path for path in paths if path.is_dir() or path.suffix == ".py"]
    for path in reversed(code):
        if (folder := str((path if path.is_dir() else path.parent).resolve())) not in sys.path:
            sys.path.insert(0, folder)
    function = located(named, "model") if isinstance(named, str) else named
    content = _content(file)
    if others := [path for path in paths if path not in code]:
        content = {str(file.path): content} | {str(path): _content(File(path)) for path in others}

    def embedder(split, device, progress):
        with guarded(f"model {named!r}", dtypes=False):
            found = function(content, data, split, device_of(device))
        if not isinstance(found, Embeddings):
            raise InputError(f"model {named!r} returned a {type(found).__name__}, expected cocos.Embeddings")
        return found.to(device_of(device))

    recorded, loss, _ = _inventory.recorded(file)
    keys = list(content) if isinstance(content, dict) else []
    return Checkpoint(
        path=file.path,
        sha256=file.sha256,
        format="own",
        contents={"kind": file.kind, "keys": ", ".join(map(str, keys[:12])), "model": str(named)},
        embedder=embedder,
        recorded=recorded,
        trained_with=loss,
    )
