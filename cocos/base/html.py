"""A small HTML table, as notebooks show an object; all text in it is escaped."""

import html
from collections.abc import Mapping

MAX_CELL = 500  # characters of a cell


def table(title: str, rows: Mapping[str, object]) -> str:
    """Lay out an object as a caption and a table of two columns.

    Args:
        title: of the table.
        rows: name -> value, shown as text; None and empty text leave the row out.

    Examples:
        >>> from cocos.base import html
        >>> html.table("Embeddings", {"rows": 3, "notes": ""})
        '<table><caption>Embeddings</caption><tr><th>rows</th><td>3</td></tr></table>'
    """
    shown = ((name, str(value)) for name, value in rows.items() if value is not None and str(value))
    short = ((name, text if len(text) <= MAX_CELL else f"{text[:MAX_CELL]}...") for name, text in shown)
    lines = (f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>" for name, text in short)
    return f"<table><caption>{html.escape(title)}</caption>{''.join(lines)}</table>"
