"""Table of plain data: the contents of a file or of a run, or the entry of a loss."""

from collections.abc import Iterator

from cocos.reports.tables import Table

# Largest number of lines for a list, such as the tensors of a file.
MOST_LINES = 24


def table(about: dict) -> Table:
    """Write the JSON of `cocos inspect` as a table, with the command to type next."""
    refused = [file for file in about.get("checkpoints", []) if file["container"] in {"refused", "unreadable"}]
    notes = filter(None, [about.get("advice"), *(file["advice"] for file in refused)])
    hidden = {"next", "notes", "advice", *(["tensors"] if about.get("encoder") else [])}
    rows = lines({key: value for key, value in about.items() if key not in hidden})
    typed = (about["next"],) if about["next"] else ()
    return Table(("", ""), tuple(rows), notes=tuple(notes), left=True, typed=typed)


def lines(values: dict, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the rows of plain data: dotted names of nested data, and a row for each item of a list."""
    for key, value in values.items():
        name = f"{prefix}{key}" if prefix else key.replace("_", " ")
        if isinstance(value, dict):
            yield from lines(value, f"{name}.")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for item in value[:MOST_LINES]:
                fields = {field: text for field, text in item.items() if text not in (None, "", [], {})}
                texts = fields.pop("name", ""), ", ".join(f"{field} {text}" for field, text in fields.items())
                yield name, "  ".join(filter(None, texts))
            if len(value) > MOST_LINES:
                yield "", f"and {len(value) - MOST_LINES} more {name} (--json)"
        elif value not in (None, "", [], ()):
            yield name, ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
