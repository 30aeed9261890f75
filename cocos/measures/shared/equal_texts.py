"""Texts that are equal up to spelling."""

import re
import unicodedata
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

__all__ = ["cut", "normal", "numbered"]

# Everything that is no letter or digit in any script, and the underscore.
BETWEEN_WORDS = re.compile(r"[\W_]+")
# Characters of a text that `cocos encode` writes as the name of a row.
CUT_CHARACTERS = 300


def normal(text: str) -> str:
    """Reduce a text to its words: compatible characters, case, punctuation and white space are made alike.

    A text without any letter or digit, such as an emoji, stays as it is.

    Examples:
        >>> normal("  What's THAT?") == normal("what’s that")
        True
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    return BETWEEN_WORDS.sub(" ", folded).strip() or " ".join(folded.split())


def numbered(texts: Iterable[str]) -> npt.NDArray[np.int64]:
    """Number texts, (n,): equal ones alike, up to `normal`; -1 for an empty text.

    Examples:
        >>> numbered(["A cat.", "a dog", "a cat", ""]).tolist()
        [0, 1, 0, -1]
    """
    number: dict[str, int] = {}
    normalized = (normal(text) for text in texts)
    return np.array([number.setdefault(text, len(number)) if text else -1 for text in normalized], dtype=np.int64)


def cut(texts: Iterable[str]) -> int:
    """Count the texts that `cocos encode` has cut to `CUT_CHARACTERS`: what was behind that is not compared.

    Examples:
        >>> cut(["short", "x" * 299 + "…"])
        1
    """
    return sum(len(text) >= CUT_CHARACTERS and text.endswith("…") for text in texts)
