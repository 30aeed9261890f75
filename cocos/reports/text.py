"""Tables for a terminal, and the generic tables of a Dataset."""

import io
import shlex
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import xarray as xr
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from cocos import results
from cocos.base import terminal
from cocos.counting import findings, shares
from cocos.reports.documents import coordinate, plain, results_of, summarised

# Variables in the tables of a measure with many of them; documents have all.
SHOWN = {
    "contributors": ("text", "positive", "score", "share", "part", "contributes"),
    "thresholds": ("chosen", "global_precision", "global_recall", "returned_band", "precision_band", "recall_band"),
    "retrievals": ("candidate", "score", "positive", "best_rank", "best_score", "positives"),
    "weight_map": ("negatives", "weighed", "contributing", "pulled"),
    "dtp": ("average", "low", "high", "alpha"),
    "solve": ("value", "effective"),
    "landscape": ("predicted", "found"),
    "temperature": ("state", "equilibrium_temperature", "low", "high", "effective", "effective_own"),
}
COLUMN_GAP = 2  # spaces between columns
MOST_LABEL = 46  # characters of the first column if numbers take the rest of the line
MOST_ROWS = 24  # values of an axis of numbers that are all listed
TEXT_LENGTH = 40  # characters of a text in a table


@dataclass(frozen=True)
class Step:
    """A command to type next; the command line adds the options that were typed and that it takes as well."""

    command: str  # and the kind of a plot
    files: tuple[str, ...]
    options: Mapping[str, object] = field(default_factory=dict)  # a list is an option that is repeated, True a flag
    carry: bool = True  # whether it takes the options of the command that suggests it

    def __str__(self):
        """Write the line as it is typed in a shell."""
        words = ["cocos", self.command, *map(shlex.quote, self.files)]
        for name, value in self.options.items():
            flag = "-p" if name == "param" else f"--{name.replace('_', '-')}"
            values = value if isinstance(value, list | tuple) else [value]
            words += [flag] if value is True else [f"{flag} {shlex.quote(str(item))}" for item in values]
        return " ".join(words)


def next_steps(attrs: Mapping, command: str, options: Mapping[str, object]) -> tuple[Step, ...]:
    """Return the command to type next on the file of a result; none if the result is not of one file."""
    path = str(attrs.get("checkpoint_path", ""))
    return (Step(command, (path,), options),) if path and "\n" not in path else ()


@dataclass(frozen=True)
class Table:
    """Cells in rows and columns, with lines above and below."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    head: tuple[str, ...] = ()  # lines above
    notes: tuple[str, ...] = ()  # lines below
    left: bool = False  # all columns are text; otherwise only the first is, and the others are numbers
    typed: tuple[Step | str, ...] = ()  # commands to type next

    def __str__(self):
        return replace(self, typed=()).text()

    def text(self, width: int | None = None) -> str:
        """Write the table in lines of at most `width` characters; None: 10,000."""
        output = io.StringIO()
        console = Console(width=width or 10_000, file=output, color_system=None)
        console.print(*(Text(_clean(line)) for line in self.head), sep="\n")
        for step in (step for step in self.typed if str(step).isprintable()):
            console.print(Text(f"next: {step}"), soft_wrap=True)
        for grid in self._grids(console.width) if self.rows else ():
            console.print("", grid, sep="\n")
        console.print("", *(Text(_clean(line)) for line in self.notes), sep="\n")
        return "\n".join(map(str.rstrip, output.getvalue().strip("\n").split("\n")))

    def _grids(self, width: int) -> Iterator[Grid]:
        """Yield the rows; columns without room follow in another grid. Headings are wrapped, numbers never."""
        columns = [[_clean(cell) for cell in column] for column in zip(self.columns, *self.rows, strict=True)]
        sizes = [max(map(len, column)) for column in columns]
        room = width - min(sizes[0], MOST_LABEL)
        if sum(sizes[1:]) + COLUMN_GAP * len(sizes[1:]) > room:
            sizes = [max(map(len, (*heading.split(), *cells)), default=0) for heading, *cells in columns]
        blocks: list[list[int]] = [[0]]
        for place in range(1, len(columns)):
            block = (*blocks[-1][1:], place)
            if not self.left and len(block) > 1 and sum(sizes[column] + COLUMN_GAP for column in block) > room:
                blocks.append([0])
            blocks[-1].append(place)
        for block in blocks:
            grid = Grid(box=None, padding=(0, COLUMN_GAP, 0, 0), pad_edge=False, show_header=any(self.columns))
            for place in block:
                align, size = ("left", None) if self.left or not place else ("right", sizes[place])
                grid.add_column(Text(columns[place][0]), justify=align, overflow="fold", width=size)
            for row in zip(*(columns[place][1:] for place in block), strict=True):
                grid.add_row(*map(Text, row))
            yield grid


def _clean(text: object) -> str:
    """Make a text printable, and bound its length."""
    return terminal.bounded(terminal.clean(str(text)))


def generic(data: xr.Dataset) -> list[Table]:
    """Return the tables of the variables of a Dataset, and of the attributes with results."""
    if data.attrs["measure"] == "contributors":
        data = data.assign_coords(candidate=data["candidate_index"].values.astype(str))
    tables = from_variables(data, SHOWN.get(data.attrs["measure"], data.data_vars))
    numbers = {name: value for name, value in results_of(data.attrs).items() if value != ""}
    rows = tuple((k.replace("_", " "), number(v)) for k, v in numbers.items() if k not in {"verdict", "next"})
    tables += [Table(("", ""), rows)] if rows or not tables else []
    return [replace(tables[0], head=head(data)), *tables[1:]]


def from_variables(data: xr.Dataset, names: Iterable[Hashable]) -> list[Table]:
    """Return a table of the variables along each set of axes, and one of the numbers of each direction.

    A variable over queries is given by its mean, or its median. Of a long axis of numbers, five to nine evenly spaced
    values with both ends are listed.
    """
    groups: dict[tuple, dict] = {(): {}}
    first = {"quantile": 0, "percentile": data.sizes.get("percentile", 0) // 2}
    for name in (name for name in names if name in data):
        if (values := summarised(data, name)) is not None:
            values = values.isel(first, drop=True, missing_dims="ignore").reset_coords(drop=True)
            for dim, last in ((dim, size - 1) for dim, size in values.sizes.items() if size > MOST_ROWS):
                if values[dim].dtype.kind != "U":
                    counts = [count for count in range(9, 4, -1) if last % (count - 1) == 0] or [7]
                    values = values.isel({dim: np.linspace(0, last, counts[0]).round().astype(int)})
            groups.setdefault(values.dims if values.dims != ("direction",) else (), {})[name] = values
    numbers, tables = groups.pop(()), []
    for axes, variables in groups.items():
        frame = xr.Dataset(variables).to_dataframe(list(axes)).map(number)
        frame = frame[(frame != "-").any(axis=1)].reset_index()
        shown = [axis for axis in axes if axis != "direction" or data.sizes["direction"] > 1]
        places = (" ".join(map(coordinate, place)) for place in frame[shown].itertuples(index=False, name=None))
        rows = zip(places, *(frame[name] for name in variables), strict=True)
        tables.append(Table((" ".join(shown), *(label(data, name) for name in variables)), tuple(rows)))
    if numbers:
        directions = list(results.sides(data)) or [""]
        cells = {name: map(number, np.broadcast_to(values, len(directions))) for name, values in numbers.items()}
        tables.append(Table(("", *directions), tuple((label(data, name), *cells[name]) for name in cells)))
    return tables


def number(value: object) -> str:
    """Write a number to four digits; a dash if it does not exist."""
    value = plain(value)
    if value is None or isinstance(value, bool):
        return {None: "-", True: "yes", False: "no"}[value]
    if isinstance(value, float):
        return f"{round(value, 12) + 0:.4g}"
    return terminal.one_line(str(value), TEXT_LENGTH)


def label(data: xr.Dataset, name: Hashable) -> str:
    """Return the long name of a variable, with its unit if it is percent."""
    attrs = data[name].attrs
    return attrs.get("long_name", str(name).replace("_", " ")) + (" (%)" if attrs.get("units") == "%" else "")


def head(data: xr.Dataset) -> tuple[str, ...]:
    """Return the title, the findings to know first, the verdict, the loss, and the batches or scores of a Dataset."""
    attrs, side = data.attrs, str(data.attrs.get("direction", ""))
    lines = [attrs["title"] if side in attrs["title"] else f"{attrs['title']}, {side}", *findings.first(attrs)]
    lines += [f"{name}: {attrs[name]}" for name in ("verdict", "next") if attrs.get(name)]
    if "loss_repr" in attrs:
        lines.append(f"{attrs['loss_repr']}{f', {shares.above(attrs)}' if 'eps' in attrs else ''}")
    if "batch_size" in attrs:
        lines.append(batches(data))
    return (*lines, *filter(None, [shares.about_weights(attrs)]))


def batches(data: xr.Dataset) -> str:
    """Describe the batches of a Dataset."""
    attrs, count = data.attrs, data.attrs.get("batches", data.sizes.get("batch", 1))
    number = f"{count} batches" if count > 1 else "one batch"
    return f"{number} of {attrs['batch_size']} {attrs['sample']}, seed {attrs['seed']}; {attrs['dtype']}"


def spread(value: Mapping | None, digits: int | None = None, *, scale: float = 1, sign: str = "±") -> str:
    """Write a mean with its standard deviation, to 3 decimals below one and 2 above; if scaled to percent, to 1."""
    if value is None or value["mean"] is None:
        return "-"
    mean, deviation = scale * value["mean"], value["std"]
    if digits is None:
        digits = 1 if scale != 1 else 3 if abs(mean) < 1 and mean != int(mean) else 2
    return f"{mean:.{digits}f}" + ("" if deviation is None else f" {sign} {scale * deviation:.{digits}f}")
