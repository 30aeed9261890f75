"""The operations of a pickle, one after the other, in linear time and bounded memory; nothing is built."""

import pickletools
from collections.abc import Iterator
from typing import IO

__all__ = ["TooMuch", "budget", "operations"]

# Operations of the pickles of one file: 40 for a tensor, 4 for a word, so 20,000 tensors or 200,000 words.
MAX_OPERATIONS = 800_000
# Bytes of one argument that are read; longer ones are skipped where their length is given, refused where it is not.
MAX_ARGUMENT = 2**20

FIXED, COUNTED, LINES = {}, {}, {}
for _each in pickletools.opcodes:
    _code, _width = _each.code.encode("latin-1"), 0 if _each.arg is None else _each.arg.n
    if _width >= 0:
        FIXED[_code] = _width
    elif _width == pickletools.UP_TO_NEWLINE:
        LINES[_code] = 2 if _code in {b"c", b"i"} else 1
    else:
        COUNTED[_code] = {-2: 1, -3: 4, -4: 4, -5: 8}[_width]


class TooMuch(ValueError):
    """A file that asks for more memory or work than its size explains."""


def budget() -> Iterator[int]:
    """Operations that the pickles of one file may have in all."""
    return iter(range(MAX_OPERATIONS))


def operations(stream: IO[bytes], left: Iterator[int]) -> Iterator[tuple[bytes, bytes]]:
    """Operations of the pickle at the start of a stream, which then stands behind its end.

    Args:
        stream: that can seek.
        left: one of it is taken for each operation.

    Yields:
        The code of one byte, and the bytes of its argument; those of a very long text are left out.

    Raises:
        TooMuch: more operations than were left.
        ValueError: no pickle, or one that ends too early.
    """
    read = stream.read
    for _ in left:
        code = read(1)
        if (width := FIXED.get(code)) is not None:
            argument = read(width) if width else b""
        elif (width := COUNTED.get(code)) is not None:
            width = int.from_bytes(read(width), "little")
            if width > MAX_ARGUMENT:
                stream.seek(width - 1, 1)
                width, argument = 1, read(1)
                if argument:
                    yield code, b""
                    continue
            else:
                argument = read(width)
        elif (lines := LINES.get(code)) is not None:
            argument = b"".join(stream.readline(MAX_ARGUMENT) for _ in range(lines))
            width = len(argument) if argument.count(b"\n") == lines else len(argument) + 1
        else:
            raise ValueError(f"no pickle operation {code!r}")
        if len(argument) < width:
            raise ValueError("a pickle that ends too early")
        yield code, argument
        if code == b".":
            return
    raise TooMuch(f"a pickle of more than {MAX_OPERATIONS:,} operations")
