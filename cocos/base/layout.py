"""Tables as aligned text that fits a terminal."""

import io
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from cocos.base import terminal

# Spaces between two columns.
COLUMN_GAP = 2
# Characters that the first column keeps where columns of numbers take the rest of the line.
FIRST_COLUMN = 24
# Characters of a heading that is not folded.
HEADING = 12
# Width of a table without a limit.
MOST_COLUMNS = 10_000


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
        columns: headings.
        rows: cells.
        head: lines above.
        notes: lines below.
        left: whether all columns are text, aligned left; otherwise only the first is, and the others are numbers.
        typed: commands to type next, on one line each between the lines above and the rows.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    head: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    left: bool = False
    typed: tuple[Step | str, ...] = ()

    def __str__(self):
        return replace(self, typed=()).text()

    def text(self, width: int | None = None) -> str:
        """Align the table as printable text.

        Args:
            width: characters per line: text is folded, and columns of numbers that do not fit go below the others.
                None: no limit.
        """
        head, notes = (
            [line for text in _cells(lines) for line in ([text] if width is None else terminal.wrapped(text, width))]
            for lines in (self.head, self.notes)
        )
        head += _cells(filter(str.isprintable, map(str, self.typed)))
        blocks = [head, *self._blocks(width), notes]
        return "\n\n".join("\n".join(line.rstrip() for line in block) for block in blocks if block)

    def _blocks(self, width: int | None) -> Iterator[list[str]]:
        """Yield the lines of the table: one block, or several with the first column where the columns do not fit."""
        from rich.console import Console
        from rich.table import Table as Grid
        from rich.text import Text

        columns, rows = _cells(self.columns), [_cells(row) for row in self.rows]
        widths = []
        for place, heading in enumerate(columns):
            longest = max((len(row[place]) for row in rows), default=0)
            words = max(map(len, heading.split()), default=0)
            widths.append(max(longest, words, min(len(heading), HEADING)))
        blocks = [list(range(len(columns)))]
        if width is not None and not self.left and columns:
            blocks, used = [[0]], 0
            for place in range(1, len(columns)):
                if len(blocks[-1]) > 1 and used + COLUMN_GAP + widths[place] > width - min(widths[0], FIRST_COLUMN):
                    blocks.append([0])
                    used = 0
                blocks[-1].append(place)
                used += COLUMN_GAP + widths[place]
        console = Console(width=width or MOST_COLUMNS, file=io.StringIO(), color_system=None, markup=False)
        for block in blocks if rows or any(columns) else ():
            grid = Grid(box=None, padding=(0, COLUMN_GAP, 0, 0), pad_edge=False, show_header=any(columns))
            for place in block:
                text = self.left or place == 0
                grid.add_column(
                    Text(columns[place]),
                    justify="left" if text else "right",
                    overflow="fold",
                    width=None if text else widths[place],
                )
            for row in rows:
                grid.add_row(*(Text(row[place]) for place in block))
            with console.capture() as capture:
                console.print(grid)
            yield capture.get().splitlines()


def _cells(texts: Iterable[str]) -> tuple[str, ...]:
    """Make texts printable, and bound their length."""
    return tuple(terminal.bounded(terminal.clean(text)) for text in texts)
