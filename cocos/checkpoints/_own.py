"""A file of any architecture, encoded by a function that the user names."""

import importlib
import sys
from pathlib import Path

from cocos.checkpoints import Checkpoint
from cocos.checkpoints._content import File
from cocos.embeddings import Embeddings
from cocos.encoders import device_of
from cocos.errors import InputError

__all__ = ["read"]


def _function(name: str):
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise InputError(f"model {name!r}: write it as package.module:function")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        raise InputError(f"model {name!r}: there is no module {error.name!r} here or in the environment") from None
    except AttributeError:
        raise InputError(f"model {name!r}: module {module!r} has no {attribute!r}") from None


def read(file: File, data, model) -> Checkpoint:
    """Hand the file's content to the user's function.

    Args:
        file: the file.
        data: passed on as it is.
        model: `function(content, data, split, device) -> Embeddings`, or its name.

    Raises:
        InputError: the function is not there, or does not return Embeddings.
    """
    function = _function(model) if isinstance(model, str) else model
    file.refuse_code()
    content = file.content
    if content is None:
        raise InputError(
            f"{file.path}: a {file.kind} file has no tensors to hand to --model; it must be torch or safetensors"
        )

    def embedder(split, device, progress):
        found = function(content, data, split, device_of(device))
        if not isinstance(found, Embeddings):
            raise InputError(f"model {model!r} returned a {type(found).__name__}, expected cocos.Embeddings")
        return found.to(device_of(device))

    keys = list(content) if isinstance(content, dict) else []
    return Checkpoint(
        path=file.path,
        sha256=file.sha256,
        format="own",
        contents={"kind": file.kind, "keys": ", ".join(map(str, keys[:12])), "model": str(model)},
        embedder=embedder,
    )
