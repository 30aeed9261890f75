"""Text from files of strangers: JSON whose memory is bounded before it is parsed, and the length of a name."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from cocos.base.errors import InputError

# Bytes of memory that a JSON document may take; the tokenizers with the largest vocabularies take 460 million.
MAX_MEMORY = 480_000_000
# Bytes of memory of the smallest list, dictionary with an entry, half a text, and number with its place in a list or
# dictionary: at least what CPython 3.11 to 3.14 takes, measured over documents that repeat each of them.
COSTS = {"[": 76, "{": 192, '"': 28, ",": 40, ":": 64}
COSTS_OF_BYTES = {mark.encode(): cost for mark, cost in COSTS.items()}
# Bytes of memory of a character: of ASCII alone; and where one character of four bytes widens the text that is parsed
# and the text that comes of it.
NARROW, WIDE = 2, 8
# Characters of the longest name of a tensor, array or file. Patterns look at each of them more than once.
MAX_NAME = 1000


def memory(text: str | bytes) -> int:
    """Bound the memory that parsing a JSON document takes, in bytes, by counting its brackets, commas and quotes.

    Args:
        text: the document, or its bytes in UTF-8.

    Examples:
        >>> from cocos.base import untrusted
        >>> untrusted.memory("[[],[]]") < 500 < untrusted.memory("[[],[],[],[],[],[]]")
        True
    """
    escape, costs = (b"\\u", COSTS_OF_BYTES) if isinstance(text, bytes) else ("\\u", COSTS)
    given: Any = text
    needed = len(given) * (NARROW if given.isascii() and escape not in given else WIDE)
    return needed + sum([cost * given.count(mark) for mark, cost in costs.items()])


def parsed(text: str | bytes, most: int = MAX_MEMORY, *, constant: Callable[[str], Any] | None = None) -> Any:
    """Parse a JSON document of a stranger; nothing is allocated before its size is known.

    Args:
        text: the document, or its bytes in UTF-8.
        most: bytes of memory that it may take, by `memory`.
        constant: called with NaN, Infinity or -Infinity, as `json.loads` does; None: they are numbers.

    Raises:
        ValueError: it is no JSON, nested too deeply, or takes more memory.

    Examples:
        >>> from cocos.base import untrusted
        >>> untrusted.parsed('{"epoch": 3}')
        {'epoch': 3}
        >>> untrusted.parsed("[" * 100_000)
        Traceback (most recent call last):
        ...
        ValueError: nested too deeply
    """
    # The dearest character is a bracket, so that short documents need not be counted.
    if len(text) * max(COSTS.values()) > most and (needed := memory(text)) > most:
        raise ValueError(f"it would take about {needed / 1e6:,.0f} MB of memory, expected at most {most / 1e6:,.0f} MB")
    try:
        return json.loads(text.decode("utf-8-sig") if isinstance(text, bytes) else text, parse_constant=constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def refuse_long(path: Path, names: Iterable[object]) -> None:
    """Refuse a file with a name of a tensor, array or file that no honest file has."""
    for name in names:
        if isinstance(name, str) and len(name) > MAX_NAME:
            raise InputError(
                f"{path} holds a name of {len(name):,} characters, {name[:40]!r}..., expected at most {MAX_NAME:,}"
            )
