"""Tables of plain data: the contents of a file or of a run, the built-in losses, and one loss with its formula."""

from collections.abc import Iterator

from cocos import losses
from cocos.base import docstrings
from cocos.losses.equivalences import equal_losses
from cocos.reports.documents import parameter_values
from cocos.reports.text import Step, Table

MOST_LINES = 24  # of a list, such as the tensors of a file
EMPTY = (None, "", [], (), {})
PROPERTIES = ("name", "parameters", "metric", "couples", "gradient", "balanced", "sample", "family")  # of a loss


def losses_table(entries: list[dict]) -> Table:
    """List losses, given by `entry`, by family with their parameters."""
    entries = sorted(entries, key=lambda loss: (loss["family"], loss["name"]))
    rows = ((e["name"], e["family"], ", ".join(parameter_values(e["parameters"])) or "none") for e in entries)
    head = (f"{len(entries)} losses with the default parameters of their papers",)
    return Table(("loss", "family", "parameters"), tuple(rows), head, left=True)


def entry(name: str) -> dict:
    """Describe a loss as plain data: name, parameters, properties, formula, source and equal losses."""
    loss = losses.load(name)
    sections, names = docstrings.sections(type(loss)), []
    for alias, parameters in loss.aliases.items():
        names.append(f"{alias} ({', '.join(parameter_values(parameters))})" if parameters else alias)
    equal = [(repr(losses.load(other, parameters)), where) for other, parameters, where in equal_losses(loss)]
    return {
        **{key: getattr(loss, key) for key in PROPERTIES},
        "summary": docstrings.summary(type(loss)),
        "formula": docstrings.formula(type(loss)),
        **{key.lower(): sections.get(key, "") for key in ("Counts", "Net", "Source")},
        "also_called": ", ".join(names),
        "equal_to": [{"loss": text, "where": where} for text, where in equal],
    }


def card(name: str) -> Table:
    """Return the table of one loss."""
    return Table(("", ""), tuple(lines(entry(name))), left=True, typed=(Step("count", ("example",), {"loss": name}),))


def contents(content: dict) -> Table:
    """Write the JSON of `cocos inspect` as a table, with the command to type next."""
    refused = [file for file in content.get("checkpoints", []) if file["container"] in {"refused", "unreadable"}]
    notes = filter(None, [content.get("advice"), *(file["advice"] for file in refused)])
    hidden = {"next", "notes", "advice", *(["tensors"] if content.get("encoder") else [])}
    rows = lines({key: value for key, value in content.items() if key not in hidden})
    return Table(("", ""), tuple(rows), (), tuple(notes), left=True, typed=tuple(filter(None, [content["next"]])))


def lines(values: dict, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the rows of plain data: dotted names of nested data, and a row for each item of a list."""
    for key, value in values.items():
        name = f"{prefix}{key}" if prefix else key.replace("_", " ")
        if isinstance(value, dict):
            yield from lines(value, f"{name}.")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for item in value[:MOST_LINES]:
                yield name, ", ".join(f"{field} {text}" for field, text in item.items() if text not in EMPTY)
            if len(value) > MOST_LINES:
                yield "", f"and {len(value) - MOST_LINES} more {name} (--json)"
        elif value not in EMPTY:
            yield name, ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
