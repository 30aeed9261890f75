"""Tables of Datasets for a terminal: labels, numbers, units.

A measure with a layout of its own has a function here; all others have the generic tables.
"""

import io
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import xarray as xr
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from cocos import results
from cocos.base import terminal
from cocos.counting import findings, shares
from cocos.measures.diff import COMPARED, EQUAL_VALUES
from cocos.reports import documents
from cocos.reports.documents import ATTRIBUTES, coordinate, plain, thinned

# Variables in the tables of a measure that has more than a line holds; documents have all.
SHOWN = {
    "contributors": ("positive", "score", "share", "part", "contributes"),
    "thresholds": ("chosen", "global_precision", "global_recall", "returned_band", "precision_band", "recall_band"),
    "retrievals": ("candidate", "score", "positive", "best_rank", "best_score", "positives"),
    "weight_map": ("negatives", "weighed", "contributing", "pulled"),
    "dtp": ("average", "low", "high", "alpha"),
    "landscape": ("predicted", "found"),
    "solve": ("value", "effective"),
    "temperature": ("equilibrium_temperature", "low", "high", "effective", "effective_own"),
}
# Where a learned scale ends without an equilibrium.
STATES = {
    "clipped": "grows to its largest value",
    "grows": "grows to its largest value",
    "falls": "falls towards 0",
    "flat": "has no effect",
}
# Headings of the numbers that `replay` compares, and their digits.
REPLAYED = {
    "contributing": ("count", 1),
    "idle": ("idle %", 1),
    "relative": ("relative", 1),
    "effective": ("effective", 1),
    "push": ("push", 2),
    "hardest_share": ("heaviest", 2),
}
# Columns of the rules and of the filters of an audit.
RULE_COLUMNS = {"share": "of negatives", "push_share": "of push", "placebo": "random", "met": "queries"}
FILTER_COLUMNS = {
    "filter_share": "of negatives",
    "filter_push": "of push",
    "filter_left": "kept",
    "push_precision": "precision",
    "push_recall": "recall",
    "emptied": "emptied",
}
# The rule whose pairs are known to belong together, so that they need no reading.
KNOWN_RULE = "group"
# Metrics among samples alone.
RECALL = re.compile("R@|average_recall")
# Units of numbers with two decimals.
TWO_DIGITS = ("%", "candidates", "queries", "rank", "dimensions")
# Spaces between two columns, and characters that the first column keeps where numbers take the rest of the line.
COLUMN_GAP, FIRST_COLUMN = 2, 24
# Width of a table without a limit.
NO_LIMIT = 10_000
TextOfRow = Callable[[int], str]
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
        grids = []
        for block in self._blocks(cells, console.width) if self.rows or any(self.columns) else ():
            grid = Grid(box=None, padding=(0, COLUMN_GAP, 0, 0), pad_edge=False, show_header=any(self.columns))
            for place in block:
                text = self.left or place == 0
                grid.add_column(
                    Text(cells[0][place]), justify="left" if text else "right", overflow="fold", no_wrap=not text
                )
            for row in cells[1:]:
                grid.add_row(*(Text(row[place]) for place in block))
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

    def _blocks(self, cells: list[list[str]], width: int) -> list[list[int]]:
        """Return the columns of each block: columns of numbers that do not fit follow below, after the first column."""
        blocks: list[list[int]] = [[]]
        room = 0
        for place in range(len(self.columns)):
            longest = max(len(row[place]) for row in cells)
            if room < longest + COLUMN_GAP and not self.left and len(blocks[-1]) > 1:
                blocks.append([])
            if not blocks[-1]:
                blocks[-1], room = [0], width - min(max(len(row[0]) for row in cells), FIRST_COLUMN)
            if place:
                blocks[-1].append(place)
                room -= longest + COLUMN_GAP
        return blocks


def _clean(text: object) -> str:
    """Make a text printable, and bound its length."""
    return terminal.bounded(terminal.clean(str(text)))


def generic(data: xr.Dataset) -> list[Table]:
    """Return a table of the variables along each set of axes, and one of the numbers of each direction.

    A variable over queries is given by its mean, or its median, and its 5th to 95th percentile; of a long axis, a few
    places are listed.
    """
    columns = [str(name) for name in data["direction"].values] if "direction" in data.dims else [""]
    rows, notes = [], {}
    for key, about in ATTRIBUTES.items():
        if isinstance(value := data.attrs.get(key), str):
            notes[key] = f"{about[0]}: {value}"
        elif value is not None:
            rows.append((_label(*about), number(value), *[""] * (len(columns) - 1)))
    groups: dict[tuple, dict[str, xr.DataArray]] = {}
    for key in SHOWN.get(data.attrs["measure"], map(str, data.data_vars)):
        values = thinned(data, key) if key in data else None
        if values is None:
            continue
        for axis, middle in (("quantile", "mean"), ("percentile", "median")):
            if axis in values.dims:
                notes[axis] = f"over queries: {middle} (5th to 95th percentile)"
        cells = _cells(values)
        if axes := tuple(str(axis) for axis in cells.dims if axis != "direction"):
            groups.setdefault((axes, "direction" in cells.dims), {})[key] = cells
        else:
            texts = cells.sel(direction=columns).values.tolist() if "direction" in cells.dims else [cells.item()]
            rows.append((_label(*_described(data, key)), *texts, *[""] * (len(columns) - len(texts))))
    tables = [_along(data, axes, variables) for (axes, _), variables in groups.items()]
    tables += [Table(("", *columns), tuple(rows))] if rows or not tables else []
    tables[0] = replace(tables[0], head=head(data))
    tables[-1] = replace(tables[-1], notes=(*tables[-1].notes, *notes.values()))
    return tables


def _along(data: xr.Dataset, axes: tuple[str, ...], variables: dict[str, xr.DataArray]) -> Table:
    """Return the table of variables along the same axes: a row for each direction and place, a column for each."""
    first = next(iter(variables.values()))
    sides = data["direction"].values.tolist() if "direction" in first.dims else [None]
    rows = []
    for side in sides:
        arrays = [cells if side is None else cells.sel(direction=side) for cells in variables.values()]
        for places in np.ndindex(*(first.sizes[axis] for axis in axes)):
            at = dict(zip(axes, places, strict=True))
            keys = [coordinate(first[axis].values[place]) for axis, place in at.items()]
            if "candidate_index" in data and axes == ("candidate",):
                row = data.isel(at)
                keys = [str(int(row["candidate_index"])) + (f"  {number(row['text'])}" if "text" in row else "")]
            rows.append((*([str(side)] if len(sides) > 1 else []), *keys, *(cells.isel(at).item() for cells in arrays)))
    legend = [f"{name}: {label}" for name in (*axes, *variables) if (label := _label(*_described(data, name))) != name]
    names = (*(["direction"] if len(sides) > 1 else []), *axes, *variables)
    return Table(names, tuple(rows), notes=("; ".join(legend),))


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


def _described(data: xr.Dataset, name: str) -> tuple[str, str]:
    """Return the label and the unit of a variable or an axis."""
    attrs = data[name].attrs if name in data.variables else {}
    return attrs.get("long_name", name), attrs.get("units", "1")


def _label(label: str, units: str) -> str:
    return f"{label} (%)" if units == "%" else label


def head(data: xr.Dataset) -> tuple[str, ...]:
    """Return the title, the loss, and the batches or queries of a Dataset."""
    attrs = data.attrs
    side = str(attrs.get("direction", ""))
    lines = [attrs["title"] if side in attrs["title"] else f"{attrs['title']}, {side}", *findings.first(attrs)]
    if "loss_repr" in attrs:
        lines.append(f"{attrs['loss_repr']}{f', {shares.above(attrs)}' if 'eps' in attrs else ''}")
    where = f" on {attrs['device']}" if "device" in attrs else ""
    if "batch_size" in attrs:
        count = attrs.get("batches", data.sizes.get("batch", 1))
        batches = f"{count} batches" if count > 1 else "one batch"
        lines.append(
            f"{batches} of {attrs['batch_size']} {attrs['sample']}, seed {attrs['seed']}; {attrs['dtype']}{where}"
        )
    elif "seed" in attrs:
        queries = ""
        if "query_index" in data:  # padded to the direction with the most
            counts = np.atleast_1d(data["query_index"].notnull().sum("query")).tolist()
            queries = f"{' and '.join(map(str, dict.fromkeys(counts)))} queries, "
        lines.append(f"{attrs.get('metric', 'given').replace('_', ' ')} scores; {queries}seed {attrs['seed']}{where}")
    if about := shares.about_weights(attrs) if "gradient" in attrs else "":
        lines.append(about)
    return tuple(lines)


def replay(data: xr.Dataset) -> list[Table]:
    """Return the means of each variant, and the paired change of the number by which variants are compared."""
    by = data.attrs["by"]
    label, digits = REPLAYED[by]
    hidden = ("contributing", "idle") if data.attrs.get("share") == "unknown" else ("relative",)
    metrics = [name for name in REPLAYED if name == by or name not in {*hidden, "push"}]
    rows, lines = [], []
    for side, one in results.sides(data).items():
        for variant in one["variant"].values:
            means = one["mean"].sel(variant=variant)
            cells = [f"{float(means.sel(metric=name)):.{REPLAYED[name][1]}f}" for name in metrics]
            cells = ["-" if cell == "nan" else cell for cell in cells]
            rows.append((f"{side} {variant}", *cells, _change(one.sel(variant=variant, metric=by), digits)))
        compared = one.sel(metric=by)
        change = abs(compared["difference"]).where((compared["low"] > 0) | (compared["high"] < 0))
        if change.notnull().any():
            most = compared.isel(variant=int(np.nanargmax(change.values)))
            before, after = (
                f"{float(value):.{digits}f}" for value in (most["base"], most["base"] + most["difference"])
            )
            lines.append(f"{side}: largest change at {most['variant'].item()}, {label} {before} -> {after}")
        else:
            lines.append(f"{side}: no significant change of {label}")
    notes = (
        f"count: contributing negatives per query ({shares.above(data.attrs)}); idle: queries without any; effective: "
        "effective number of negatives; heaviest: push fraction of the heaviest negative; change: mean paired "
        f"difference of {label} with its {100 * data.attrs['level']:g} % interval, not "
        "adjusted for the number of rows",
        data.attrs["frozen"],
    )
    columns = ("", *(REPLAYED[name][0] for name in metrics), "change")
    return [Table(columns, tuple(rows), (*lines, *head(data)), notes)]


def _change(one: xr.Dataset, digits: int) -> str:
    """Write a paired difference with its interval; nothing for the setting that others are compared with."""
    difference, low, high = (float(one[key]) for key in ("difference", "low", "high"))
    if not np.isfinite(difference) or (difference == 0 and not np.isfinite(low)):
        return ""
    return f"{difference:+.{digits}f}" + (f" [{low:+.{digits}f}, {high:+.{digits}f}]" if np.isfinite(low) else "")


def solve(data: xr.Dataset) -> list[Table]:
    """Return the value of the parameter with the effective number of negatives there, and the count to type next."""
    table, *rest = generic(data)
    parameter, value = data.attrs["parameter"], f"{float(data['value']):.6g}"
    effective, target = float(data["effective_mean"]), float(data.attrs["target"])
    line = f"{parameter} {value}: {effective:.5g} effective negatives (requested: {target:g})"
    parameters = parameter_values(documents.about_loss(data.attrs)["parameters"] | {parameter: value})
    step = next_steps(data.attrs, "count", {"loss": data.attrs["loss"], "param": parameters})
    return [replace(table, head=(line, *table.head), typed=step), *rest]


def temperature(data: xr.Dataset) -> list[Table]:
    """Return the equilibrium of each batch size, and the count to type next."""
    table, *rest = generic(data)
    own, lines, steps = float(data.attrs["own_temperature"]), [], ()
    for size in data["batch_size"].values.tolist():
        one = data.sel(batch_size=size)
        equilibrium, state = float(one["equilibrium_temperature"]), str(one["state"].item())
        found = f"no equilibrium, the scale {STATES.get(state, state)} (at most {data.attrs['clip']:g})"
        if state == "settles":
            current = f"scale {1 / equilibrium:.4g}, current {1 / own:.4g}"
            if trained := data.attrs.get("trained_temperature"):
                current += f", trained with temperature {trained:.4g}"
            found = f"equilibrium temperature {equilibrium:.4g} ({current})"
        lines.append(f"batch size {size}: {found}")
        if np.isfinite(held := float(one["held_temperature"])):
            loss = documents.about_loss(data.attrs)
            name = "scale" if "scale" in loss["parameters"] else "temperature"
            changed = {name: f"{held if name == 'temperature' else 1 / held:.6g}"}
            if "equilibrium_bias" in one and np.isfinite(bias := float(one["equilibrium_bias"])):
                changed["bias"] = f"{bias:.6g}"
            options = {
                "loss": loss["name"],
                "param": parameter_values(loss["parameters"] | changed),
                "batch_size": size,
            }
            steps = next_steps(data.attrs, "count", options)
    return [replace(table, head=(*lines, *table.head), typed=steps), *rest]


def evaluate(data: xr.Dataset) -> list[Table]:
    """Return a row for each metric, a column for each direction, with distractors, and for members of an ensemble."""
    entries = documents.evaluate(data)
    columns = {}
    for mark, block in (("", entries), (" + distractors", entries.get("with_distractors", {"directions": {}}))):
        sides = [side for side in block["directions"] if not mark or entries["directions"][side]["unmatched"]]
        for place, side in enumerate(sides):  # metrics of no direction are in the first column
            columns[f"{side}{mark}"] = block["directions"][side] | (block if place == 0 else {})
    if "accuracy" in entries:  # recall is among samples; of proxies it is accuracy
        columns = {
            name: {key: value for key, value in column.items() if not (name.startswith("s2p") and RECALL.match(key))}
            for name, column in columns.items()
        }
    folds = entries["folds"]
    alone = {} if folds > 1 else {"std": None}
    members = entries.get("aggregate", {"directions": {}})["directions"]
    names = [str(key) for key in data if data[key].dims[-1] == "fold" and key not in {"queries", "candidates", "tied"}]
    rows = []
    for key in names:
        digits = 1 if key.endswith("_rank") else 2
        cells = [spread(column[key] | alone, digits) if key in column else "" for column in columns.values()]
        cells += [spread(member[key], digits) if key in member else "" for member in members.values()]
        unit = " (%)" if data[key].attrs["units"] == "%" else ""
        rows.append((f"{key.replace('_', ' ')}{unit}", *cells))
    sizes = [
        f"{name}: {column['queries']['mean']:g} queries, {column['candidates']['mean']:g} candidates"
        for name, column in columns.items()
    ]
    split = f"split {entries['split']}, " if entries["split"] else ""
    lines = [f"{split}{entries['metric'].replace('_', ' ')} scores on {entries['device']}", *sizes]
    lines += [f"mean ± standard deviation over {folds} folds, sizes of one fold"] if folds > 1 else []
    if members:
        lines.append(
            f"ensemble of {entries['members']}, concatenated; members: mean ± standard deviation of each alone"
        )
    ties = entries["ties"]
    notes = [f"{ties[0].upper()}{ties[1:]}."]
    notes += [
        f"{name}: the best positive of {column['tied']['mean']:.2f} % of the queries ties with a negative"
        for name, column in columns.items()
        if column["tied"]["mean"]
    ]
    heading = ("", *columns, *(f"{name}, members" for name in members))
    return [Table(heading, tuple(rows), (*findings.first(data.attrs), *lines), (*notes, *geometry(entries["health"])))]


def geometry(health: dict) -> list[str]:
    """Return a line on alignment, uniformity and effective rank of the embeddings, or none."""
    sides = {name: side for name, side in health["sides"].items() if side.get("uniformity") is not None}
    parts = [] if health.get("alignment") is None else [f"alignment {health['alignment']:.3f}"]
    for name, side in sides.items():
        parts.append(f"uniformity {side['uniformity']:.2f} ({name})")
        parts.append(f"effective rank {side['effective_rank']:.1f} of {side['dimensions']} ({name})")
    return [f"health: {', '.join(parts)}"] if parts else []


def spread(value: Mapping[str, float | None], digits: int | None = None, *, sign: str = "±") -> str:
    """Write a mean with its standard deviation; without `digits` to 3 decimals below one, and to 2 above."""
    mean, deviation = value["mean"], value["std"]
    if mean is None:
        return "-"
    if digits is None:
        digits = 3 if abs(mean) < 1 and mean != int(mean) else 2
    return f"{mean:.{digits}f}" + ("" if deviation is None else f" {sign} {deviation:.{digits}f}")


def audit(data: xr.Dataset, texts: tuple[TextOfRow, TextOfRow] | None = None, top: int = 10) -> list[Table]:
    """Return the rules, the filters if there are any, and the suspected pairs with the largest push.

    Args:
        data: of `cocos.measures.audit`.
        texts: row -> text of the queries and of the candidates; None: no texts.
        top: number of pairs.
    """
    entries = documents.audit(data)
    rules = [
        (f"{side} {name}", str(rule["suspects"]), *map(percent, (rule[key] for key in RULE_COLUMNS)))
        for side, direction in entries["directions"].items()
        for name, rule in direction["rules"].items()
        if rule["suspects"]
    ]
    checked = findings.of_audit(data)
    lines = [finding.sentence for finding in checked if finding.kind == "suspected"]
    lines += [finding.text for finding in checked if finding.kind == "no rule"]
    for side, direction in entries["directions"].items():
        if not list(direction["rules"].values())[-1]["suspects"]:
            lines.append(f"{side}: likely false negatives: none")
    tried = [name for name in data["rule"].values if name != data["rule"].values[-1]]
    notes = [f"rules tried: {', '.join(tried)}; a rule without suspects has no row"]
    notes += ["random: push fraction of as many random negatives; queries: those with a suspect"] if rules else []
    notes += [finding.text for finding in checked if finding.kind not in {"suspected", "no rule"}]
    step = next_steps(data.attrs, "audit", {"out": "suspects.csv"}) if rules else ()
    columns = ("suspected by", "pairs", *RULE_COLUMNS.values()) if rules else ()
    tables = [Table(columns, tuple(rules), (*lines, *head(data)), tuple(notes), typed=step)]
    filters = [
        (f"{side} {name}{'*' if each['published'] else ''}", *map(percent, (each[key] for key in FILTER_COLUMNS)))
        for side, direction in entries["directions"].items()
        for name, each in direction["filters"].items()
        if each["filter_share"]
    ]
    if filters:
        columns = ("filter", *FILTER_COLUMNS.values())
        if not entries["known"]:
            places = [place for place, name in enumerate(columns) if name not in {"precision", "recall"}]
            columns, *filters = (tuple(row[place] for place in places) for row in (columns, *filters))
        note = "*: published threshold; kept: push fraction that the removed negatives keep; emptied: queries without "
        note += "a negative left"
        note += "; precision, recall: against the known positives, by push" if entries["known"] else ""
        tables.append(Table(columns, tuple(filters), notes=(note,)))
    pairs = [pair for pair in documents.suspects(data) if KNOWN_RULE not in pair["rules"]]
    rows = []
    for pair in pairs[:top]:
        sides = [str(pair[side]) for side in ("query", "candidate")]
        if texts:
            sides = [f"{row} {terminal.one_line(text(int(row)), 24)}" for row, text in zip(sides, texts, strict=True)]
        rules = [*pair["rules"], *(["own hard negative"] if pair["own_hard"] else [])]
        numbers = f"{pair['pair_push']:.3g}", percent(pair["pair_part"]), f"{pair['score']:.3f}"
        rows.append((*sides, *numbers, ", ".join(rules)))
    if rows:
        note = f"{len(rows)} of {len(pairs)} pairs with the largest push; of push: fraction of the query's push"
        columns = ("query", "candidate", "push", "of push", "score", "suspected by")
        tables.append(Table(columns, tuple(rows), notes=(note,), left=True))
    return tables


def percent(value: float | None) -> str:
    """Write a fraction in percent with one decimal, or the first digit of a small one."""
    if value is None:
        return ""
    return f"{100 * value:.1g} %" if 0 < 100 * value < 0.05 else f"{100 * value:.1f} %"


def verify(datasets: Sequence[xr.Dataset]) -> list[Table]:
    """Return a row for each loss with its verdict and its largest differences, and its faults and notes below."""
    rows, notes = [], []
    for data in datasets:
        entries = documents.verify(data)
        name, gap, peer = entries["loss"]["name"], entries["gap"], entries["peer"]
        numbers = gap["float64"], gap["float32"], entries["error"]["float32"]
        numbers += entries["finite_difference"], peer["value"], peer["gradient"]
        rows.append((name, entries["verdict"], *map(difference, numbers)))
        notes += [f"FAULT: {name}: {line}" for line in entries["faults"]]
        notes += [f"note: {name}: {line}" for line in entries["notes"]]
    columns = ("loss", "verdict", "gap 64", "gap 32", "error 32", "slope", "pml", "pml grad")
    legend = (
        "largest differences over all inputs, relative to the largest weight of the input. gap: closed form and "
        "torch.func, in float64 and float32; error: float32 and float64; slope: finite differences; pml: value and "
        "gradient of pytorch-metric-learning"
    )
    return [Table(columns, tuple(rows), (), (*notes, legend))]


def difference(value: float | None) -> str:
    """Write a relative difference; nothing if it was not measured."""
    return "" if value is None else "0" if value == 0 else f"{value:.1e}"


def same_gradient(data: xr.Dataset) -> list[Table]:
    """Return the verdict on two gradients, and a row for each kind of pair by the rows that its gradient reaches."""
    entries = documents.same_gradient(data)
    rows = []
    for kind in entries["kinds"]:
        ratio = "only in B" if kind["ratio"] is None else f"{kind['ratio']:.4g}"
        rows.append((kind["reaches"], kind["kind"], percent(kind["part"]), ratio, difference(kind["gap"])))
    hard = f", {entries['hard_negatives']} hard negatives each" if entries["hard_negatives"] else ""
    lines = [f"A  {entries['a']}", f"B  {entries['b']}", f"verdict: {entries['verdict']}"]
    lines += [f"next: {entries['next']}"] if entries["next"] else []
    lines.append(
        f"{entries['pairs']} pairs{hard}; largest difference {difference(entries['gap'])} of the largest gradient, "
        f"cosine {entries['cosine']:.6g}; tolerance {entries['tolerance']:g} in {entries['dtype']}"
    )
    note = "part of A: of its weights |dL/d cosine|; difference: from the ratio, relative to the largest weight"
    columns = ("gradient of", "pairs", "part of A", "B / A", "difference")
    return [Table(columns, tuple(rows), tuple(lines), (note,))]


def diff(data: xr.Dataset) -> list[Table]:
    """Return a row for each number that changed: both means, the paired difference and its p-value; and the queries."""
    first, second = (str(name) for name in data["version"].values)
    names = (first, second) if max(len(first), len(second)) <= 6 else ("A", "B")
    rows, unchanged, lines = [], [], []
    for side, one in results.sides(data).items():
        for metric in map(str, data["metric"].values):
            values = one.sel(metric=metric)
            label, unit = COMPARED.get(metric, (metric, ""))
            digits = 2 if unit in TWO_DIGITS else 3
            label = f"{side} {metric}{' (%)' if unit == '%' else ''}"
            before, after = values["value"].values
            largest = np.nanmax(np.abs(values["value"].values), initial=0.0)
            if np.nanmax(np.abs(after - before), initial=0.0) <= EQUAL_VALUES * largest:
                unchanged += [label] if float(values["pairs"]) > 0 else []
                continue
            if not np.isfinite(values["difference"]):
                continue
            means = [f"{float(mean):.{digits}f}" for mean in values["mean"]]
            change, p = _change(values, digits), float(values["p_holm"])
            counts = [str(int(values[key])) for key in ("increased", "decreased")]
            rows.append((label, *means, change, "" if np.isnan(p) else "<0.0001" if p < 1e-4 else f"{p:.4f}", *counts))
            if metric == data.attrs.get("by") and np.isfinite(values["low"]):
                verdict = "changed" if p <= 1 - float(data.attrs["level"]) else "no significant change"
                lines.append(
                    f"{side}: {metric} {verdict}, {means[0]} -> {means[1]}, {change}, n = {int(values['pairs'])}"
                )
    lines += [f"A: {first}; B: {second}"] if names != (first, second) else []
    if "loss" in data.attrs and "eps" in data.attrs:
        lines.append(f"{data.attrs.get('loss_repr', data.attrs['loss'])}, {shares.above(data.attrs)}")
    columns = ("", *names, f"change, {100 * data.attrs['level']:g} %", "p", "up", "down") if rows else ()
    notes = [*results.lines(data.attrs)]
    notes += [f"unchanged: {', '.join(unchanged)}"] if unchanged else []
    notes.append(
        "change: mean paired difference with its interval (paired t, by groups of queries); p: adjusted by Holm's "
        "method; up, down: queries whose value rises, falls"
    )
    tables = [Table(columns, tuple(rows), tuple(lines), tuple(notes))]
    for side, one in results.sides(data).items() if "changed" in data.dims else ():
        by = data.attrs["by"]
        digits = 2 if COMPARED.get(by, ("", ""))[1] in TWO_DIGITS else 3
        changed = []
        for query in documents.changed_queries(one):
            label = terminal.one_line(f"{query['row']} {query.get('name', '')}".strip(), TEXT_LENGTH)
            versions = [query[first], query[second]]
            ranks = [
                "-" if np.isnan(each["best_rank"]) else f"{each['best_rank']:.0f}"
                for each in versions
                if "best_rank" in each
            ]
            changed.append((label, *(f"{each['value']:.{digits}f}" for each in versions), *ranks))
        if changed:
            more = [f"rank {name}" for name in names] if "best_rank" in one else []
            columns = ("query", *(f"{by} {name}" for name in names), *more)
            tables.append(Table(columns, tuple(changed), (f"{side}: queries whose {by} changed most",)))
    return tables


# Measures with tables of their own.
TABLES: dict[str, Callable[..., list[Table]]] = {
    "audit": audit,
    "diff": diff,
    "evaluate": evaluate,
    "replay": replay,
    "same_gradient": same_gradient,
    "solve": solve,
    "temperature": temperature,
    "verify": verify,
}
