"""Table of plain data: the contents of a file or of a run, or the entry of a loss."""

from collections.abc import Iterator

from cocos.base import terminal
from cocos.reports.tables import Table

# Largest number of lines for a list, such as the tensors of a file.
MOST_LINES = 24
# Keys of `cocos inspect` that are written above or below the rows, or that other rows contain.
HIDDEN = ("next", "notes", "advice")


def table(about: dict) -> Table:
    """Write the JSON of `cocos inspect` as a table, with the command to type next."""
    typed = (f"next: {about['next']}",) if about["next"] else ()
    notes = [about.get("advice") or ""]
    notes += [file["advice"] for file in about.get("checkpoints", []) if file["container"] in {"refused", "unreadable"}]
    hidden = {*HIDDEN, "tensors"} if about.get("encoder") else {*HIDDEN}
    rows = lines({key: value for key, value in about.items() if key not in hidden})
    return Table(("", ""), tuple(rows), notes=tuple(filter(None, notes)), left=True, typed=typed)


def lines(values: dict, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the rows of plain data: dotted names of nested data, and a row for each item of a list."""
    for key, value in values.items():
        name = f"{prefix}{key}".replace("_", " ") if not prefix else f"{prefix}{key}"
        if isinstance(value, dict):
            yield from lines(value, f"{name}.")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            yield from ((name, terminal.clean(text(item))) for item in value[:MOST_LINES])
            if len(value) > MOST_LINES:
                yield "", f"and {len(value) - MOST_LINES} more {name} (--json)"
        elif value not in (None, "", [], ()):
            texts = value if isinstance(value, list | tuple) else [value]
            yield name, terminal.clean(", ".join(map(str, texts)))


def text(item: dict) -> str:
    """Write the fields of an item on one line, its name first."""
    fields = {key: value for key, value in item.items() if value not in (None, "", [], {})}
    name = fields.pop("name", "")
    return "  ".join(filter(None, [str(name), ", ".join(f"{key} {value}" for key, value in fields.items())]))
