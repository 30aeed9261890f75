"""Safetensors files, read and never mapped: a mapped file that shrinks ends the process.

Source: the format as its library checks it, github.com/huggingface/safetensors, README.md.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import IO, Any

import torch
from torch import Tensor

from cocos.base.untrusted import parsed

MAX_HEADER = 2**24  # bytes of the header
DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2": "float8_e5m2",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
}


@dataclass(frozen=True)
class Header:
    """The header of a safetensors file.

    Args:
        begin: bytes of the file before its tensors.
        metadata: texts by their names.
        places: name -> (dtype, shape, first byte after `begin`, bytes), in the order of the bytes.
    """

    begin: int
    metadata: dict[str, str]
    places: dict[str, tuple[torch.dtype, tuple[int, ...], int, int]]


def header(stream: IO[bytes], size: int, most: int = MAX_HEADER) -> Header:
    """Read the header, up to a size in bytes, at the beginning of a file, and check it against the file's size.

    Raises:
        ValueError: it is damaged, too large, or does not describe every byte of the file once.
    """
    length = int.from_bytes(stream.read(8), "little")
    if not 2 <= length <= most or 8 + length > size:
        raise ValueError(f"a header of {length} bytes")
    content = parsed(stream.read(length))
    if not isinstance(content, dict):
        raise ValueError(f"a header that is a {type(content).__name__}")
    metadata = content.pop("__metadata__", None) or {}
    if not isinstance(metadata, dict) or not all(isinstance(each, str) for each in metadata.values()):
        raise ValueError("metadata that are no texts")
    places, end = {}, 0
    for name, about in sorted(content.items(), key=_begin):
        dtype, shape, start, stop = _layout(name, about)
        if start != end or stop - start != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"{name[:40]!r} of shape {shape} at bytes {start} to {stop}, expected to begin at {end}")
        places[name], end = (dtype, shape, start, stop - start), stop
    if 8 + length + end != size:
        raise ValueError(f"{size - 8 - length} bytes of tensors, of which its header describes {end}")
    return Header(8 + length, metadata, places)


def _begin(entry: tuple[str, Any]) -> tuple[int, int]:
    try:
        start, stop = entry[1]["data_offsets"]
        return int(start), int(stop)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise ValueError(f"no place of {entry[0][:40]!r}") from None


def _layout(name: str, about: Any) -> tuple[torch.dtype, tuple[int, ...], int, int]:
    """The dtype, shape, first byte and end of a tensor."""
    kind, shape, offsets = about.get("dtype"), about.get("shape"), about["data_offsets"]
    dtype = getattr(torch, DTYPES.get(kind, ""), None) if isinstance(kind, str) else None
    if dtype is None:
        raise ValueError(f"{name[:40]!r} of dtype {str(kind)[:40]}")
    numbers = [*shape, *offsets] if isinstance(shape, list) else [None]
    if len(numbers) > 66 or not all(type(each) is int and 0 <= each < 2**63 for each in numbers):
        raise ValueError(f"{name[:40]!r} of shape {str(shape)[:40]} at {str(offsets)[:40]}")
    return dtype, tuple(shape), *offsets


def tensors(stream: IO[bytes], size: int, wanted: Collection[str] | None = None) -> dict[str, Tensor]:
    """Read the tensors of a file, in the order of their bytes.

    Args:
        stream: at the beginning of the file.
        size: bytes of the file.
        wanted: names of those that are read; None: all.

    Raises:
        ValueError: it is damaged, or shorter than it was.

    Examples:
        >>> import io
        >>> import safetensors.torch
        >>> from cocos.base import tensor_files
        >>> raw = safetensors.torch.save({"a": torch.arange(3), "b": torch.zeros(0, 2, dtype=torch.bfloat16)})
        >>> tensor_files.tensors(io.BytesIO(raw), len(raw), {"a"})
        {'a': tensor([0, 1, 2])}
    """
    about = header(stream, size)
    found = {}
    for name, (dtype, shape, start, length) in about.places.items():
        if wanted is not None and name not in wanted:
            continue
        try:
            made = torch.empty(shape, dtype=dtype)
        except RuntimeError:  # without a number, yet with sides whose product overflows
            raise ValueError(f"{name[:40]!r} of shape {str(shape)[:40]}") from None
        if length:
            stream.seek(about.begin + start)
            fill(stream, made)
        found[name] = made
    return found


def fill(stream: IO[bytes], made: Tensor) -> None:
    """Read the numbers of a tensor from a stream, in place."""
    numbers: Any = made.reshape(-1).view(torch.uint8).numpy()
    into = memoryview(numbers)
    at = 0
    while at < len(into):
        read = stream.readinto(into[at:])  # type: ignore[attr-defined]
        if not read:
            raise ValueError(f"{at} bytes where {len(into)} were expected")
        at += read
