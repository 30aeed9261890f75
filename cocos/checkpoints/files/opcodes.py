"""Parse the operations of a pickle one by one, in linear time and bounded memory; nothing is built."""

import pickletools
from collections.abc import Iterator
from typing import IO

__all__ = ["TooMuch", "budget", "operations"]

# Operations that the pickles of one file may have: a tensor takes 40, a word 4, so 20,000 tensors or 200,000 words.
MAX_OPERATIONS = 800_000
# Bytes of one argument that are read; a longer one is skipped if its length is given, and refused otherwise.
MAX_ARGUMENT = 2**20

FIXED_WIDTH, COUNTED_WIDTH, LINES_READ = {}, {}, {}
for _each in pickletools.opcodes:
    _code, _width = _each.code.encode("latin-1"), 0 if _each.arg is None else _each.arg.n
    if _width >= 0:
        FIXED_WIDTH[_code] = _width
    elif _width == pickletools.UP_TO_NEWLINE:
        LINES_READ[_code] = 2 if _code in {b"c", b"i"} else 1
    else:
        COUNTED_WIDTH[_code] = {-2: 1, -3: 4, -4: 4, -5: 8}[_width]


class TooMuch(ValueError):
    """A file asks for more memory or work than its size explains."""


def budget() -> Iterator[int]:
    """Make the budget of operations that all pickles of one file share."""
    return iter(range(MAX_OPERATIONS))


def operations(stream: IO[bytes], left: Iterator[int]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the operations of the pickle at the start of a stream, which is left behind its end.

    Args:
        stream: that can seek.
        left: a budget, from which each operation takes one.

    Yields:
        The code of one byte, and the bytes of its argument, empty for a very long text.

    Raises:
        TooMuch: more operations than were left.
        ValueError: no pickle, or one that ends too early.
    """
    read = stream.read
    for _ in left:
        code = read(1)
        if (width := FIXED_WIDTH.get(code)) is not None:
            argument = read(width) if width else b""
        elif (width := COUNTED_WIDTH.get(code)) is not None:
            width = int.from_bytes(read(width), "little")
            if width > MAX_ARGUMENT:
                stream.seek(width - 1, 1)
                width, argument = 1, read(1)
                if argument:
                    yield code, b""
                    continue
            else:
                argument = read(width)
        elif (lines := LINES_READ.get(code)) is not None:
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
