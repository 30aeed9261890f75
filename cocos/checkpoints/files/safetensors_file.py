"""Tensors and metadata of a safetensors file, read within bounds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import safetensors
import safetensors.torch
import torch

from cocos.errors import InputError

if TYPE_CHECKING:
    from cocos.checkpoints.files.file import File

__all__ = ["metadata", "tensors"]

MAX_HEADER = 2**24  # bytes of the header of a safetensors file


def _header(file: File) -> int:
    """Bytes of the header."""
    with file.stream() as stream:
        return int.from_bytes(stream.read(8), "little")


def tensors(file: File) -> dict[str, torch.Tensor]:
    """Read the tensors of a safetensors file, copied: a mapped file that shrinks ends the process.

    Raises:
        InputError: it is damaged, or changes.
    """
    if (header := _header(file)) > MAX_HEADER:
        raise InputError(f"{file.path} is a damaged safetensors file: a header of {header} bytes")
    try:
        if file.held is not None:
            return safetensors.torch.load(file.held)
        found = {name: tensor.clone() for name, tensor in safetensors.torch.load_file(file.path).items()}
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise InputError(f"{file.path} is a damaged safetensors file: {error}") from error
    file.refuse_change()
    return found


def metadata(file: File) -> dict[str, str]:
    """Read the metadata of a safetensors file whose header was checked (`tensors`)."""
    with file.stream() as stream:
        stream.seek(8)
        return json.loads(stream.read(_header(file))).get("__metadata__") or {}
