"""Text for a terminal: clean, bounded, and no wider than it."""

import os
import shutil
import sys
import textwrap

from cocos.base.errors import InputError, printable

# Maximum number of characters of a sentence or cell; the middle of a longer one is left out.
MOST_CHARACTERS = 2000
# Columns of a pipe, and of a terminal that does not report its width.
USUAL_COLUMNS = 80
# Minimum number of columns to fold text to; sentences in narrower lines cannot be read.
LEAST_COLUMNS = 40
# What a terminal shows of a text is what a sentence holds of it.
clean = printable


def bounded(text: str, most: int = MOST_CHARACTERS) -> str:
    """Shorten text to at most `most` characters by leaving out its middle."""
    if len(text) <= most:
        return text
    first = (most - 3) * 2 // 3
    return f"{text[:first]} … {text[len(text) - (most - 3 - first) :]}"


def one_line(text: str, most: int) -> str:
    """Put a clean text on one line, and cut its end where it has more than `most` characters."""
    text = clean(" ".join(text.split()))
    return text if len(text) <= most else f"{text[: most - 1]}…"


def room() -> int:
    """Number of columns to print in: `COLUMNS` if it is set, else the width of the terminal, else 80."""
    columns = os.environ.get("COLUMNS", "").strip()
    if columns.isdecimal() and len(columns) < 6 and int(columns) > 0:
        return max(int(columns), LEAST_COLUMNS)
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return max(shutil.get_terminal_size((USUAL_COLUMNS, 24)).columns, LEAST_COLUMNS) if is_terminal else USUAL_COLUMNS


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Fold text into lines of at most `width` characters; only words longer than a line are broken."""
    if len(text) <= width:
        return [text]
    return textwrap.wrap(
        text, width, subsequent_indent=indent, break_on_hyphens=False, drop_whitespace=True, replace_whitespace=True
    ) or [""]


def say(text: str) -> None:
    """Print one line on stderr, clean and of bounded length; a stderr that cannot be written is ignored."""
    try:
        print(bounded(clean(text)), file=sys.stderr, flush=True)
    except OSError:
        silent(2)


def put(text: str) -> None:
    """Print the result on stdout, each line clean."""
    if sys.stdout is None:
        raise InputError("the output cannot be written (stdout is closed)")
    try:
        print("\n".join(map(clean, text.split("\n"))), flush=True)
    except BrokenPipeError:
        silent(1)  # the reader has seen enough, as `head` has
    except OSError as error:
        silent(1)
        raise InputError(f"the output cannot be written ({error.strerror})") from None


def silent(descriptor: int) -> None:
    """Redirect a standard stream to the null device, so that its buffer does not fail again when Python exits."""
    os.closerange(descriptor, descriptor + 1)  # leaves a descriptor to open if there was none
    nowhere = os.open(os.devnull, os.O_WRONLY)
    if nowhere != descriptor:
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
