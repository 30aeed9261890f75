"""Errors that the caller can put right; the command line prints their sentence and nothing else."""

import difflib
import errno
import re
from collections.abc import Generator, Iterable
from contextlib import contextmanager

# Line breaks, tabs and other blanks that are no spaces.
BREAKS = re.compile(r"[^\S ]+")


def printable(text: object) -> str:
    """Replace each character that is not printable by `?`.

    Names, paths and notes of a stranger's file may contain control sequences of a terminal: escape sequences, carriage
    returns, C1 controls, changes of the direction of writing, or line breaks that forge a row.
    """
    return "".join(each if each.isprintable() else "?" for each in str(text))


class InputError(ValueError):
    """An input that cannot be used: the sentence names the thing, its value and a right one (exit 2).

    The sentence is one printable line, whatever names of a file it repeats.

    Examples:
        >>> try:
        ...     cocos.losses.load("triplett")
        ... except cocos.InputError as error:
        ...     print("triplet" in str(error))
        True
    """

    def __init__(self, *sentence: object):
        super().__init__(*(printable(BREAKS.sub(" ", x)) if isinstance(x, str) else x for x in sentence))


class Unfit(InputError):
    """Rows that a loss cannot use, because labels, proxies or matching rows are missing; other rows may fit."""


class NotFinite(InputError):
    """Numbers that are NaN or infinite: in a training run, the model has diverged."""


class UnsafeFile(InputError):
    """A file that asks for the execution of code, which was refused (exit 3).

    Examples:
        >>> issubclass(cocos.UnsafeFile, cocos.InputError)
        True
    """


def nearest(kind: str, name: str, names: Iterable[str]) -> str:
    """Make the sentence for an unknown name: it suggests the nearest known name, or lists all."""
    names = sorted(names)
    close = [k for k in names if name and k.startswith(name)] or difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    choices = f"there {'are' if len(names) > 1 else 'is'} {', '.join(names) or 'none'}"
    hint = f"did you mean {close[0]!r}?" if close else choices
    return f"unknown {kind} {name!r}: {hint}"


@contextmanager
def prefixed(name: str) -> Generator[None]:
    """Put the name of a source before the message of an error."""
    try:
        yield
    except InputError as error:
        raise type(error)(f"{name}: {error}") from None


def rows(indices: Iterable[int], limit: int = 5) -> str:
    """Make a list of row numbers for a message: at most `limit` of them, and how many more there are."""
    indices = list(indices)
    shown = ", ".join(str(i) for i in indices[:limit])
    more = f" and {len(indices) - limit} more" if len(indices) > limit else ""
    return f"row{'s' if len(indices) > 1 else ''} {shown}{more}"


def unreachable(error: OSError, *, made: bool = False) -> str:
    """Make the end of a sentence that says why a path cannot be used, or no file be `made` in a folder."""
    if error.errno == errno.ENOENT:
        return "no file can be made in it" if made else "file not found"
    return "the name is too long for a file" if error.errno == errno.ENAMETOOLONG else f"{error.strerror}"
