"""A loss as notebooks show it: a table of formula, parameters, scores, counts with their unit, and source."""

import dataclasses
from typing import Any

from cocos.base import docstrings, html


def table(loss: Any) -> str:
    """Lay out a loss of the shelf as an HTML table.

    Examples:
        >>> cocos.losses.load("ntxent")._repr_html_().count("<tr>")
        6
    """
    cls = type(loss)
    said, documented = docstrings.sections(cls), docstrings.parameters(cls)
    rows = {"loss": docstrings.summary(cls), "formula": f"${docstrings.formula(cls)}$"}
    for field in dataclasses.fields(loss):
        name = field.name.rstrip("_")
        rows[name] = f"{getattr(loss, field.name)}: {documented.get(name) or documented.get(field.name, '')}"
    rows |= {"scores": loss.metric, "counts": said.get("Counts", ""), "source": said.get("Source", "")}
    return html.table(cls.__name__, rows)
