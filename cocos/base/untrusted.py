"""JSON of untrusted files."""

import json
from collections.abc import Callable
from typing import Any


def parsed(text: str | bytes, *, constant: Callable[[str], Any] | None = None) -> Any:
    """Parse a JSON document.

    Args:
        text: the document, or its bytes in UTF-8.
        constant: called with NaN, Infinity or -Infinity, as `json.loads` does; None: they are numbers.

    Raises:
        ValueError: it is no JSON, or nested too deeply.

    Examples:
        >>> from cocos.base import untrusted
        >>> untrusted.parsed("[" * 100_000)
        Traceback (most recent call last):
        ...
        ValueError: nested too deeply
    """
    try:
        return json.loads(text.decode("utf-8-sig") if isinstance(text, bytes) else text, parse_constant=constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None
