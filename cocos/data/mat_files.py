"""Struct arrays of MATLAB files of version 5 to 7, as some data sets list their images.

SciPy reads such files too, but it follows nested cells in C as deep as a file says, which ends the process. Here every
part of a file lies inside the part around it, and only the fields of one struct array are looked into.
"""

import math
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cocos.base.errors import InputError, unreachable

# Bytes of a file, and of a part that is unpacked; the lists of 16,185 cars have 7e5 and 1e7.
MAX_FILE, MAX_UNPACKED = 2**24, 2**26
HEADER = 128  # bytes before the first part
# Kinds of parts, by their numbers: whole numbers, matrices, packed parts.
INT32, UINT32, MATRIX, PACKED = 5, 6, 14, 15
# Types of the numbers, and encodings of the text, of a part by its kind.
NUMBER_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
ENCODINGS = {1: "latin-1", 2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16"}
# Classes of matrices: of structs, and of characters.
STRUCTS, CHARACTERS = 2, 4


def struct_array(path: Path, name: str, wanted: Sequence[str]) -> dict[str, list[Any]]:
    """Read fields of a struct array.

    Returns:
        Name of each wanted field that the array has -> the value of each struct: text, or a number.

    Source: MAT-File Format, The MathWorks, chapter 1 (level 5).
    """
    try:
        with open(path, "rb") as stream:
            content = stream.read(MAX_FILE + 1)
    except OSError as error:
        raise InputError(f"{path}: {unreachable(error)}") from None
    if len(content) > MAX_FILE:
        raise InputError(f"{path}: more than {MAX_FILE} bytes, expected a list of images")
    if content[:10] == b"MATLAB 7.3" or content[:4] == b"\x89HDF":
        raise InputError(f"{path}: a MATLAB file of version 7.3; save it with -v7")
    order = {b"IM": "<", b"MI": ">"}.get(content[HEADER - 2 : HEADER])
    if order is None:
        raise InputError(f"{path} is no MATLAB file of version 5 to 7; copy it again")
    try:
        for kind, part in _parts(memoryview(content)[HEADER:], order):
            found = None if kind != MATRIX else _fields(part, order, name, wanted)
            if found is not None:
                return found
    except (ValueError, LookupError, TypeError, StopIteration, zlib.error) as error:
        raise InputError(f"{path} is a damaged MATLAB file ({str(error)[:80] or 'it ends too early'})") from None
    raise InputError(f"{path} has no struct array {name!r}; copy it again")


def _parts(content: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Yield the kind and the content of each part; a packed one is unpacked."""
    place = 0
    while place + 8 <= len(content):
        kind, size = (int(each) for each in np.frombuffer(content[place : place + 8], f"{order}u4"))
        if kind >> 16:  # a small part has its number of bytes and its content in the place of the number
            yield kind & 0xFFFF, content[place + 4 : place + 4 + min(kind >> 16, 4)]
            place += 8
            continue
        if size > len(content) - place - 8:
            raise ValueError(f"a part of {size} bytes, of which {len(content) - place - 8} are there")
        part = content[place + 8 : place + 8 + size]
        if kind == PACKED:
            unpacker = zlib.decompressobj()
            inner = memoryview(unpacker.decompress(part, MAX_UNPACKED))
            if unpacker.unconsumed_tail:
                raise ValueError(f"a part that unpacks to more than {MAX_UNPACKED} bytes")
            yield from ((each, own) for each, own in _parts(inner, order) if each != PACKED)
            place += 8 + size
        else:
            yield kind, part
            place += 8 + size + -size % 8


def _whole(part: tuple[int, memoryview], order: str) -> list[int]:
    """Read the whole numbers of a part."""
    return np.frombuffer(part[1], f"{order}{NUMBER_TYPES[part[0]]}").tolist() if part[0] in {INT32, UINT32} else []


def _fields(matrix: memoryview, order: str, name: str, wanted: Sequence[str]) -> dict[str, list[Any]] | None:
    """Read the fields of a struct array; None of another matrix."""
    parts = _parts(matrix, order)
    kind, shape, own = _whole(next(parts), order)[0] & 0xFF, _whole(next(parts), order), bytes(next(parts)[1])
    if kind != STRUCTS or own.decode("latin-1") != name:
        return None
    (length,), names = _whole(next(parts), order), bytes(next(parts)[1])
    known = [names[k : k + length].split(b"\0")[0].decode("latin-1") for k in range(0, len(names), max(length, 1))]
    found: dict[str, list[Any]] = {each: [] for each in wanted if each in known}
    values = 0
    for kind, part in parts:
        field = known[values % len(known)] if known else ""
        values += 1
        if kind != MATRIX:
            raise ValueError(f"a part of kind {kind} among the structs")
        if field in found:
            found[field].append(_value(part, order))
    if not known or values != math.prod(shape) * len(known):
        raise ValueError(f"{values} values, expected {len(known)} for each of {math.prod(shape)} structs")
    return found


def _value(matrix: memoryview, order: str) -> str | float | None:
    """Read one text or number; None of anything else."""
    parts = list(_parts(matrix, order))
    if len(parts) < 4:
        return None
    (kind, values), own = parts[3], _whole(parts[0], order)[0] & 0xFF
    if own == CHARACTERS and kind in ENCODINGS:
        encoding = ENCODINGS[kind] + {"<": "-le", ">": "-be"}[order] if ENCODINGS[kind] == "utf-16" else ENCODINGS[kind]
        return bytes(values).decode(encoding)
    if kind in NUMBER_TYPES and own != CHARACTERS and len(values) == np.dtype(NUMBER_TYPES[kind]).itemsize:
        return np.frombuffer(values, f"{order}{NUMBER_TYPES[kind]}").item()
    return None
