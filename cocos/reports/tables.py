"""Tables for a terminal: rows and columns with labels and units, and the tables of any Dataset."""

import io
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import xarray as xr
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from cocos.base import terminal
from cocos.counting import findings, shares
from cocos.reports.documents import coordinate, loss_entry, plain, results_of, thinned

# Variables in the tables of a measure that has more than a line holds; documents have all.
SHOWN = {
    "contributors": ("positive", "score", "share", "part", "contributes"),
    "thresholds": ("chosen", "global_precision", "global_recall", "returned_band", "precision_band", "recall_band"),
    "retrievals": ("candidate", "score", "positive", "best_rank", "best_score", "positives"),
    "weight_map": ("negatives", "weighed", "contributing", "pulled"),
    "dtp": ("average", "low", "high", "alpha"),
    "landscape": ("predicted", "found"),
    "replay": ("contributing", "idle", "relative", "effective", "hardest_share", "change"),
    "same_gradient": ("part", "ratio", "gap"),
    "solve": ("value", "effective"),
    "temperature": (
        "state",
        "equilibrium_temperature",
        "low",
        "high",
        "effective",
        "effective_own",
        "equilibrium_bias",
    ),
}
# Spaces between two columns, and characters that the first column keeps where numbers take the rest of the line.
COLUMN_GAP, FIRST_COLUMN = 2, 24
# Width of a table without a limit.
NO_LIMIT = 10_000
# Characters of a text in a table.
TEXT_LENGTH = 40


@dataclass(frozen=True)
class Step:
    """A command to type next; the command line adds the options that were typed and that it takes as well.

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
            >>> from cocos.reports.tables import Step
            >>> str(Step("count", ("my file.npz",), {"param": ["temperature=0.05"], "batch_size": 64}))
            "next: cocos count 'my file.npz' -p temperature=0.05 --batch-size 64"
        """
        words = ["cocos", self.command, *map(shlex.quote, self.files)]
        for name, value in self.options.items():
            flag = "-p" if name == "param" else f"--{name.replace('_', '-')}"
            values = value if isinstance(value, list | tuple) else [value]
            words += [flag] if value is True else [f"{flag} {shlex.quote(str(item))}" for item in values]
        return self.lead + " ".join(words)


def next_steps(attrs: Mapping, command: str, options: Mapping[str, object]) -> tuple[Step, ...]:
    """Return the command to type next on the file of a result; none if the result is not of one file."""
    path = str(attrs.get("checkpoint_path", ""))
    return (Step(command, (path,), options),) if path and "\n" not in path else ()


def parameter_values(parameters: Mapping[str, object]) -> list[str]:
    """Write the parameters of a loss as values of `-p`; a list is written with commas."""
    texts = {k: ",".join(map(str, v)) if isinstance(v, list | tuple) else v for k, v in parameters.items()}
    return [f"{name}={text}" for name, text in texts.items()]


@dataclass(frozen=True)
class Table:
    """Cells in rows and columns, with lines above and below.

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
        """Write the table in lines of at most `width` characters; None: no limit."""
        cells = [[_clean(cell) for cell in row] for row in (self.columns, *self.rows)]
        console = Console(width=width or NO_LIMIT, file=io.StringIO(), color_system=None, markup=False)
        numbers = [] if self.left else range(1, len(self.columns))
        narrow, full = {}, {}  # widths of columns of numbers, with headings on several lines and on one
        for place in numbers:
            words = [*cells[0][place].split(), *(row[place] for row in cells[1:])]
            narrow[place], full[place] = max(map(len, words), default=0), max(len(row[place]) for row in cells)
        first = min(max(len(row[0]) for row in cells), FIRST_COLUMN) if self.columns else 0
        widths = full if first + sum(full.values()) + COLUMN_GAP * len(full) <= console.width else narrow
        grids = []
        for block in _blocks(widths, console.width - first) if self.rows or any(self.columns) else ():
            grid = Grid(box=None, padding=(0, COLUMN_GAP, 0, 0), pad_edge=False, show_header=any(self.columns))
            places = [0, *block] if numbers else range(len(self.columns))
            for place in places:
                heading, align = Text(cells[0][place]), "right" if place in widths else "left"
                grid.add_column(heading, justify=align, overflow="fold", width=widths.get(place))
            for row in cells[1:]:
                grid.add_row(*(Text(row[place]) for place in places))
            with console.capture() as capture:
                console.print(grid)
            grids.append(capture.get())
        head, notes = (
            [line for text in map(_clean, texts) for line in terminal.wrapped(text, console.width)]
            for texts in (self.head, self.notes)
        )
        head += filter(str.isprintable, map(str, self.typed))
        parts = ["\n".join(head), *grids, "\n".join(notes)]
        lines = (line.rstrip() for part in parts if part.strip() for line in (*part.rstrip("\n").split("\n"), ""))
        return "\n".join(lines).rstrip("\n")


def _blocks(widths: Mapping[int, int], room: int) -> list[list[int]]:
    """Return the columns of numbers of each block: columns that do not fit follow below."""
    blocks: list[list[int]] = [[]]
    left = room
    for place, width in widths.items():
        if left < width + COLUMN_GAP and blocks[-1]:
            blocks.append([])
            left = room
        blocks[-1].append(place)
        left -= width + COLUMN_GAP
    return blocks


def _clean(text: object) -> str:
    """Make a text printable, and bound its length."""
    return terminal.bounded(terminal.clean(str(text)))


def generic(data: xr.Dataset) -> list[Table]:
    """Return a table of the variables along each set of axes, and one of the numbers of each direction.

    A variable over queries is given by its mean, or its median, and its 5th to 95th percentile; of a long axis, a few
    places are listed.
    """
    columns = data["direction"].values.tolist() if "direction" in data.dims else [""]
    rows, notes = [], {}
    for key, value in results_of(data.attrs).items():
        if isinstance(value, str):
            notes[key] = f"{key.replace('_', ' ')}: {value}"
        else:
            rows.append((key.replace("_", " "), number(value), *[""] * (len(columns) - 1)))
    groups: dict[tuple, dict[str, xr.DataArray]] = {}
    for key in SHOWN.get(data.attrs["measure"], map(str, data.data_vars)):
        values = thinned(data, key) if key in data else None
        if values is None:
            continue
        for axis, middle in (("quantile", "mean"), ("percentile", "median")):
            if axis in values.dims:
                notes[axis] = f"over queries: {middle} (5th to 95th percentile)"
        cells = _cells(values)
        if cells.dims in {(), ("direction",)}:
            texts = cells.sel(direction=columns).values.tolist() if cells.dims else [cells.item()]
            rows.append((label(data, key), *texts, *[""] * (len(columns) - len(texts))))
        else:
            groups.setdefault(cells.dims, {})[key] = cells
    tables = [_along(data, variables) for variables in groups.values()]
    tables += [Table(("", *columns), tuple(rows))] if rows or not tables else []
    tables[0] = replace(tables[0], head=head(data), typed=_next_count(data))
    tables[-1] = replace(tables[-1], notes=tuple(notes.values()))
    return tables


def _along(data: xr.Dataset, variables: dict[str, xr.DataArray]) -> Table:
    """Return the table of variables along the same axes: a row for each direction and place, a column for each."""
    first = next(iter(variables.values()))
    axes = [str(axis) for axis in first.dims if axis != "direction" or first.sizes[axis] > 1]
    rows = []
    for places in np.ndindex(*first.shape):
        at = dict(zip(first.dims, places, strict=True))
        keys = [coordinate(first[axis].values[at[axis]]) for axis in axes]
        if "candidate_index" in data and axes == ["candidate"]:
            row = data.isel(at)
            keys = [str(int(row["candidate_index"])) + (f"  {number(row['text'])}" if "text" in row else "")]
        numbers = [cells.isel(at).item() for cells in variables.values()]
        if data.attrs["measure"] != "same_gradient" or set(numbers) != {"-"}:  # most kinds of pairs are absent
            rows.append((" ".join(keys), *numbers))
    return Table((" ".join(axes), *(label(data, name) for name in variables)), tuple(rows))


def _cells(values: xr.DataArray) -> xr.DataArray:
    """Write each number, or the mean and the percentiles of many in one cell."""
    for axis in ("quantile", "percentile"):
        if axis in values.dims:
            ends = [0, 1, -1] if axis == "quantile" else [len(values[axis]) // 2, 0, -1]
            parts = (values.isel({axis: end}, drop=True) for end in ends)
            return xr.apply_ufunc(_band, *parts, vectorize=True)
    return xr.apply_ufunc(number, values, vectorize=True)


def _band(middle: float, low: float, high: float) -> str:
    """Write the middle and the ends of a range, or one number where they agree."""
    if not np.isfinite(middle) or middle == low == high:
        return number(middle)
    return f"{number(middle)} ({number(low, 3)} to {number(high, 3)})"


def number(value: object, digits: int = 4) -> str:
    """Write a number to a few digits; a dash if it does not exist."""
    value = plain(value)
    if value is None or isinstance(value, bool):
        return {None: "-", True: "yes", False: "no"}[value]
    return (
        f"{round(value, 12) + 0:.{digits}g}" if isinstance(value, float) else terminal.one_line(str(value), TEXT_LENGTH)
    )


def label(data: xr.Dataset, name: str) -> str:
    """Return the long name of a variable, with its unit if it is percent."""
    attrs = data[name].attrs
    return attrs.get("long_name", name.replace("_", " ")) + (" (%)" if attrs.get("units") == "%" else "")


def _next_count(data: xr.Dataset) -> tuple[Step, ...]:
    """Return the count with the solution of `solve`, or the equilibrium of the last batch size, to type next."""
    if data.attrs["measure"] not in {"solve", "temperature"}:
        return ()
    parameters, options = loss_entry(data.attrs)["parameters"], {}
    if data.attrs["measure"] == "solve":
        changed = {data.attrs["parameter"]: float(data["value"])}
    else:
        last = data.isel(batch_size=-1)
        temperature, options = float(last["held_temperature"]), {"batch_size": int(last["batch_size"])}
        changed = {"scale": 1 / temperature} if "scale" in parameters else {"temperature": temperature}
        changed |= {"bias": float(last["equilibrium_bias"])} if "equilibrium_bias" in last else {}
    values = parameter_values(parameters | {name: f"{value:.6g}" for name, value in changed.items() if value == value})
    return next_steps(data.attrs, "count", {"loss": data.attrs["loss"], "param": values} | options)


def head(data: xr.Dataset) -> tuple[str, ...]:
    """Return the title, the findings to know first, the verdict, the loss, and the batches or scores of a Dataset."""
    attrs, side = data.attrs, str(data.attrs.get("direction", ""))
    lines = [attrs["title"] if side in attrs["title"] else f"{attrs['title']}, {side}", *findings.first(attrs)]
    lines += [f"verdict: {attrs['verdict']}"] if "verdict" in attrs else []
    if "loss_repr" in attrs:
        lines.append(f"{attrs['loss_repr']}{f', {shares.above(attrs)}' if 'eps' in attrs else ''}")
    if "batch_size" in attrs:
        count = attrs.get("batches", data.sizes.get("batch", 1))
        batches = f"{count} batches" if count > 1 else "one batch"
        lines.append(f"{batches} of {attrs['batch_size']} {attrs['sample']}, seed {attrs['seed']}; {attrs['dtype']}")
    elif "seed" in attrs and "metric" in attrs:
        lines.append(f"{attrs['metric'].replace('_', ' ')} scores; seed {attrs['seed']}")
    weights = shares.about_weights(attrs) if "gradient" in attrs else ""
    return (*lines, *([weights] if weights else []))


def spread(value: Mapping[str, float | None], digits: int | None = None, *, sign: str = "±") -> str:
    """Write a mean with its standard deviation; without `digits` to 3 decimals below one, and to 2 above."""
    mean, deviation = value["mean"], value["std"]
    if mean is None:
        return "-"
    if digits is None:
        digits = 3 if abs(mean) < 1 and mean != int(mean) else 2
    return f"{mean:.{digits}f}" + ("" if deviation is None else f" {sign} {deviation:.{digits}f}")
