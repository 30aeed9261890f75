"""Names and numbers in the titles of plots."""

import re
import textwrap
from collections.abc import Callable, Sequence
from pathlib import PurePath

import xarray as xr

from cocos.base.errors import printable

# Characters of a name in a sentence.
NAME_LENGTH = 40
# A dollar sign that is not escaped: a formula may begin or end there.
DOLLAR = re.compile(r"(?<!\\)\$")
# What stays on one line: a number with its percent sign, an interval, and n or p with its value.
TOGETHER = re.compile(r"\d %|\b\w [=<] [\d.]+|\[[^][ ]{1,12}, [^][ ]{1,12}\]")
HARD_SPACE = "\u00a0"
# How matplotlib reads a dollar sign that is no formula.
ESCAPED = r"\$"


def plain(text: object, most: int = NAME_LENGTH) -> str:
    r"""Make a text of unknown origin safe to draw: one printable line, no formula, at most `most` characters.

    Every name that comes from a file or a user passes through here on its way to a title, label, tick or legend. Line
    breaks become blanks; control characters and changes of the direction of writing become question marks; a dollar
    sign, of which two would make a formula of matplotlib, is escaped. A plain text stays as it is.

    Examples:
        >>> plain("$\\frac{$\nand more")
        '\\$\\frac{\\$ and more'
    """
    return middle(DOLLAR.sub(r"\\$", printable(" ".join(str(text).split()))), most)


def middle(text: str, most: int = NAME_LENGTH) -> str:
    """Shorten a text to `most` characters by cutting its middle: both ends of a name tell it from others.

    An escaped dollar sign is one character, and stays whole.
    """
    shown = text.replace(ESCAPED, "$")
    if len(shown) <= most:
        return text
    half = (most - 1) // 2
    cut = f"{shown[: most - 1 - half]}…{shown[len(shown) - half :]}"
    return cut if shown == text else cut.replace("$", ESCAPED)


def wrapped(text: str, most: int) -> str:
    """Break a text between words into lines of at most `most` characters; a longer word loses its middle."""
    lines = []
    for line in text.splitlines():
        words = " ".join(middle(word, most) for word in line.split())
        words = TOGETHER.sub(lambda found: found[0].replace(" ", HARD_SPACE), words)
        lines += textwrap.wrap(words, most, break_on_hyphens=False, break_long_words=False) or [""]
    return "\n".join(lines).replace(HARD_SPACE, " ")


def percent(part: float) -> str:
    """Write a fraction as a percentage; only exactly 0 is written as 0 %, only exactly 1 as 100 %."""
    value = 100 * float(part)
    if 0 < value < 0.1:
        return "under 0.1 %"
    if 99.9 < value < 100:
        return "over 99.9 %"
    whole = value in {0, 100} or (value >= 10 and round(value) < 100)
    return f"{value:.0f} %" if whole else f"{value:.1f} %"


def number(value: float) -> str:
    """Write a mean count to at most three digits, an integer without decimals."""
    return f"{value:.0f}" if value >= 100 or value == round(value) else f"{value:.2g}" if value < 1 else f"{value:.1f}"


def names_of(datasets: Sequence[xr.Dataset]) -> list[str]:
    """Name Datasets that share a plot by their losses, with parameters or their files where a loss occurs twice."""
    names = [plain(data.attrs.get("loss", data.attrs.get("title", ""))) for data in datasets]
    whole = [plain(data.attrs.get("loss_repr", name)) for data, name in zip(datasets, names, strict=True)]
    paths = [str(data.attrs.get("checkpoint_path", "")) for data in datasets]
    stems = ["" if "\n" in path else PurePath(path).stem for path in paths]  # none where it is of several files
    files = [plain(stem or name) for stem, name in zip(stems, whole, strict=True)]
    for longer in (whole, files):
        names = [long if names.count(name) > 1 else name for name, long in zip(names, longer, strict=True)]
    return names


def numbered(names: Sequence[str]) -> list[str]:
    """Tell equal names apart by numbers."""
    return [
        f"{name} ({names[: place + 1].count(name)})" if names.count(name) > 1 else name
        for place, name in enumerate(names)
    ]


def between(values: Sequence[float], written: Callable[[float], str] = percent) -> str:
    """Write the range of some values, or one value where both ends are written alike."""
    low, high = written(min(values)), written(max(values))
    return low if low == high else f"{low.removesuffix(' %')} to {high}"


def listed(names: Sequence[str], values: Sequence[str]) -> str:
    """List values, each with its name in parentheses; a single value stands alone."""
    if len(names) == 1:
        return values[0]
    return ", ".join(f"{value} ({name})" for value, name in zip(values, names, strict=True))
