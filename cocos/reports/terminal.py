"""Text for a terminal: clean, bounded, and no wider than it."""

import os
import shutil
import sys
import textwrap

from cocos.errors import InputError

__all__ = ["LONGEST", "bounded", "clean", "put", "room", "say", "silent", "wrapped"]

# Characters of the longest sentence or cell that is printed whole.
LONGEST = 2000
# Columns of a terminal that does not say how wide it is, and of a pipe.
USUAL = 80
# Columns below which no text is folded: a sentence in narrower lines cannot be read.
NARROWEST = 40


def clean(text) -> str:
    """Text on one line, in printable characters.

    Names, paths and notes of a stranger's file may hold what a terminal obeys: escape sequences, carriage returns, C1
    controls, changes of the direction of writing, or line breaks that forge a row. Each such character becomes `?`.
    """
    return "".join(c if c.isprintable() else "?" for c in str(text))


def bounded(text: str, most: int = LONGEST) -> str:
    """Text of at most so many characters, with its middle left out where it is longer."""
    if len(text) <= most:
        return text
    first = (most - 3) * 2 // 3
    return f"{text[:first]} … {text[len(text) - (most - 3 - first) :]}"


def room() -> int:
    """Columns that there are: `COLUMNS` where it is set, the terminal's own, and 80 in a pipe."""
    given = os.environ.get("COLUMNS", "").strip()
    if given.isdecimal() and len(given) < 6 and int(given) > 0:
        return max(int(given), NARROWEST)
    there = sys.stdout is not None and sys.stdout.isatty()
    return max(shutil.get_terminal_size((USUAL, 24)).columns, NARROWEST) if there else USUAL


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Text in lines of at most `width` characters; only words that are longer than a line are broken.

    Args:
        text: one line.
        width: characters of a line.
        indent: of all lines but the first one.
    """
    if len(text) <= width:
        return [text]
    return textwrap.wrap(
        text, width, subsequent_indent=indent, break_on_hyphens=False, drop_whitespace=True, replace_whitespace=True
    ) or [""]


def say(text: str) -> None:
    """One line on stderr, clean and of a bounded length; without a stderr that takes it, nothing."""
    try:
        print(bounded(clean(text)), file=sys.stderr, flush=True)
    except OSError:
        silent(2)


def put(text: str) -> None:
    """Print the result on stdout, each line clean.

    Raises:
        InputError: it cannot be written there.
    """
    if sys.stdout is None:
        raise InputError("the output cannot be written (stdout is closed)")
    try:
        print("\n".join(map(clean, text.split("\n"))), flush=True)
    except BrokenPipeError:
        os._exit(0)  # the reader has seen enough, as `head` has
    except OSError as error:
        silent(1)
        raise InputError(f"the output cannot be written ({error.strerror})") from None


def silent(descriptor: int) -> None:
    """Send a standard stream nowhere, so that what it still holds does not fail again when Python ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    if nowhere != descriptor:
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
