"""Tables as aligned text that fits a terminal."""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from cocos.base import terminal

# Spaces between two columns.
COLUMN_GAP = 2
# Characters that the first column keeps where columns of numbers take the rest of the line.
FIRST_COLUMN = 24


@dataclass(frozen=True)
class Step:
    """A command to type next. `commands` adds the options that were typed and that it takes as well.

    Args:
        command: its name, and the kind of a plot.
        files: its arguments.
        options: its own options; a list is an option that is repeated, True a flag.
        carry: whether it takes the options of the command that suggests it.
        lead: text before it on the line.
    """

    command: str
    files: tuple[str, ...]
    options: Mapping[str, object] = field(default_factory=dict)
    carry: bool = True
    lead: str = "next: "

    def __str__(self):
        """Write the line as it is typed in a shell.

        Examples:
            >>> from cocos.base.layout import Step
            >>> str(Step("count", ("my file.npz",), {"param": ["temperature=0.05"], "batch_size": 64}))
            "next: cocos count 'my file.npz' -p temperature=0.05 --batch-size 64"
        """
        words = ["cocos", self.command, *map(shlex.quote, self.files)]
        for name, value in self.options.items():
            flag = "-p" if name == "param" else f"--{name.replace('_', '-')}"
            some = value if isinstance(value, list | tuple) else [value]
            words += [flag] if value is True else [f"{flag} {shlex.quote(str(one))}" for one in some]
        return self.lead + " ".join(words)


def following(attrs: Mapping, command: str, options: Mapping[str, object]) -> tuple[Step, ...]:
    """The command to type next on the file of a result; none where it is not one file."""
    path = str(attrs.get("checkpoint_path", ""))
    return (Step(command, (path,), options),) if path and "\n" not in path else ()


def given(parameters: Mapping[str, object]) -> list[str]:
    """Parameters of a loss as values of `-p`; a list is written with commas."""
    shown = {key: ",".join(map(str, value)) if isinstance(value, list | tuple) else value
             for key, value in parameters.items()}  # fmt: skip
    return [f"{name}={value}" for name, value in shown.items()]


@dataclass(frozen=True)
class Table:
    """Text in rows and columns, with lines above and below.

    Args:
        columns: their names.
        rows: their cells.
        head: lines above.
        notes: lines below.
        left: whether all columns are left-aligned text; otherwise only the first is, and the others are numbers.
        least: columns to drop where the line has no room for them, in this order.
        typed: commands to type next, between the lines above and the rows. They are copied, and so never folded, and
            left out where the name of a file cannot be printed.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    head: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    left: bool = False
    least: tuple[str, ...] = ()
    typed: tuple[Step | str, ...] = ()

    def __str__(self):
        return replace(self, typed=()).text()  # commands are for the command line

    def text(self, width: int | None = None) -> str:
        """Align the table as text without control characters, which cells from a stranger's file may contain.

        Args:
            width: characters per line. Lines above and below are wrapped, the least important columns dropped, and
                text in cells is folded; columns of numbers that still do not fit go below one another. None: no limit.
        """
        table = replace(self, columns=_cells(self.columns), rows=tuple(map(_cells, self.rows)))
        if width is not None:
            table = _fitted(table, width)
        body: list[str] = []
        for places, widths in _blocks(table, width):
            body += [""] * bool(body)
            body += [line for one in _lines(table) for line in _row([one[i] for i in places], widths, table.left)]
        head, notes = (
            [line for text in _cells(each) for line in ([text] if width is None else terminal.wrapped(text, width))]
            for each in (table.head, table.notes)
        )
        first = (*head, *_cells(filter(str.isprintable, map(str, table.typed))))
        blocks = [block for block in (first, body, notes) if block]
        return "\n\n".join("\n".join(line.rstrip() for line in block) for block in blocks)


def _cell(text: str) -> str:
    """Make a text printable and bound its length."""
    return terminal.bounded(terminal.clean(text))


def _cells(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(_cell, texts))


def _lines(table: Table) -> tuple[tuple[str, ...], ...]:
    """Rows of a table, the names of the columns first if they have any."""
    return (table.columns, *table.rows) if any(table.columns) else table.rows


def _fitted(table: Table, width: int) -> Table:
    """Drop the least important columns that do not fit, and name them in a note."""
    lines, out = (table.columns, *table.rows), []
    widths = [max(len(line[i]) for line in lines) for i in range(len(table.columns))]
    for name in table.least:
        if sum(widths) + COLUMN_GAP * (len(widths) - 1) > width and name in table.columns:
            out.append(name)
            widths[table.columns.index(name)] = -COLUMN_GAP
    if not out:
        return table
    keep = [i for i, name in enumerate(table.columns) if name not in out]
    return replace(
        table,
        columns=tuple(table.columns[i] for i in keep),
        rows=tuple(tuple(row[i] for i in keep) for row in table.rows),
        notes=(*table.notes, f"columns that do not fit: {', '.join(out)} (COLUMNS=200 or --json shows them)"),
    )


def _shares(widths: list[int], width: int) -> list[int]:
    """Widths of columns of text that fit together: only the widest columns are cut, all to one width."""
    most = max(widths)
    while most > 1 and sum(min(w, most) for w in widths) + COLUMN_GAP * (len(widths) - 1) > width:
        most -= 1
    return [min(w, most) for w in widths]


def _blocks(table: Table, width: int | None) -> list[tuple[list[int], list[int]]]:
    """Group the columns into blocks that fit side by side: (columns, widths); each begins with the first column."""
    widths = [max((len(line[i]) for line in _lines(table)), default=0) for i in range(len(table.columns))]
    every, needed = list(range(len(widths))), sum(widths) + COLUMN_GAP * (len(widths) - 1)
    if width is None or needed <= width:
        return [(every, widths)]
    if table.left:
        return [(every, _shares(widths, width))]
    first = min(widths[0], max(widths[0] - (needed - width), FIRST_COLUMN))
    blocks, taken = list[list[int]](), list[int]()
    for place in every[1:]:
        used = first + sum(COLUMN_GAP + widths[i] for i in taken)
        if taken and used + COLUMN_GAP + widths[place] > width:
            blocks.append(taken)
            taken = []
        taken.append(place)
    wide = []
    for block in (*blocks, taken):
        rest = sum(COLUMN_GAP + widths[i] for i in block)
        wide.append(([0, *block], [min(widths[0], max(width - rest, FIRST_COLUMN)), *(widths[i] for i in block)]))
    return wide


def _row(cells: list[str], widths: list[int], left: bool) -> list[str]:
    """Lines of a row: text wider than its column is folded, a number never."""
    folded = [
        terminal.wrapped(cell, w, "" if i else " " * (len(cell) - len(cell.lstrip()) + 2)) if i == 0 or left else [cell]
        for i, (cell, w) in enumerate(zip(cells, widths, strict=True))
    ]
    lines = []
    for at in range(max(map(len, folded))):
        parts = [cell[at] if at < len(cell) else "" for cell in folded]
        lines.append(
            (" " * COLUMN_GAP).join(
                part.ljust(w) if i == 0 or left else part.rjust(w)
                for i, (part, w) in enumerate(zip(parts, widths, strict=True))
            )
        )
    return lines
