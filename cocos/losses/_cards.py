"""Other names of a loss, as the docstring of its class lists them."""

import re

from cocos.base import docstrings


def plain(name: str) -> str:
    """Drop the differences between spellings of a name: case, hyphens, spaces, the word loss at its end.

    Examples:
        >>> plain("NT-Xent loss"), plain("ProxyNCA++")
        ('ntxent', 'proxyncapp')
    """
    letters = re.sub(r"[^a-z0-9]", "", name.lower().replace("++", "pp"))
    return letters.removesuffix("loss") or letters


def also_called(cls: type) -> list[tuple[str, dict[str, str]]]:
    """List the other names of a loss, with the parameters that each implies.

    A docstring lists them after `Also called:`; parentheses after a name contain its parameters, or a remark.

    Examples:
        >>> ("CLIP loss", {"temperature": "0.07"}) in also_called(cocos.losses.ntxent.NTXent)
        True
    """
    said = docstrings.sections(cls).get("Also called", "")
    return [(name, dict(re.findall(r"(\w+)=([\w.]+)", remark))) for name, remark in docstrings.listed(said)]
