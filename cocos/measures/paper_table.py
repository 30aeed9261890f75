"""What do the tables of the papers look like for your own runs?"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import xarray as xr

from cocos import results
from cocos.base.errors import InputError
from cocos.counting.statistics import Difference, holm, paired
from cocos.measures._papers import PAPER_TABLES, PaperColumn, PaperTable, known
from cocos.measures._papers import published as printed_numbers
from cocos.measures._table_runs import TableRun, read

# Chance that a column, or a row of a table across settings, has a bold value although none is better.
BOLD_CHANCE = 0.05
# Sources of a row.
OUR_ROWS, PUBLISHED_ROWS = "runs", "published"


@dataclass(frozen=True)
class _Cell:
    """A value in the table.

    Args:
        mean: over the runs, or printed.
        std: its deviation; NaN where there is none.
        digits: decimals of both.
        seeds: seed -> value; empty where seeds are not known.
        number: of runs.
        mark: name of the footnote, or empty.
    """

    mean: float
    std: float = math.nan
    digits: tuple[int, int] = (1, 1)
    seeds: dict[int, float] = field(default_factory=dict)
    number: int = 1
    mark: str = ""


@dataclass(frozen=True)
class _Row:
    """A row of the table: a setting of our runs, or a printed one."""

    label: str
    source: str
    convention: str
    number: int
    cells: dict[str, _Cell]


def _cell(found: list[tuple[int | None, tuple[float, float]]], column: PaperColumn) -> _Cell:
    """Mean and sample deviation over runs; of a single run, the deviation over its batches."""
    values = np.array([column.scale * value for _, (value, _) in found])
    over = column.scale * found[0][1][1]
    seeds = {} if any(seed is None for seed, _ in found) else dict(zip((s for s, _ in found), values, strict=True))
    std = float(values.std(ddof=1)) if len(values) > 1 else over
    seeds = seeds if len(seeds) == len(values) else {}  # two runs of one seed cannot be told apart
    return _Cell(float(values.mean()), std, (column.digits, column.digits), seeds, len(values))


def _of_settings(runs: list[TableRun], table: PaperTable) -> list[_Row]:
    """A row for each setting and convention."""
    grouped: dict[tuple[str, str], list[TableRun]] = {}
    for run in runs:
        grouped.setdefault((run.label, run.convention), []).append(run)
    rows = []
    for (label, convention), own in grouped.items():
        cells = {}
        for column in table.columns:
            if found := [(run.seed, run.values[column.key]) for run in own if column.key in run.values]:
                cells[column.key] = _cell(found, column)
        rows.append(_Row(label, OUR_ROWS, convention, len(own), cells))
    return rows


def _across(runs: list[TableRun], table: PaperTable) -> list[_Row]:
    """A row for each value of a coordinate, in which each setting is a column."""
    first, grouped = table.columns[0], {}
    for run in runs:
        grouped.setdefault(run.place, {}).setdefault(run.label, []).append((run.seed, run.values[first.key]))
    return [
        _Row(
            place, OUR_ROWS, "", max(map(len, own.values())), {name: _cell(found, first) for name, found in own.items()}
        )
        for place, own in grouped.items()
    ]


def _printed(table: PaperTable) -> list[_Row]:
    """Rows of the paper."""
    rows = []
    for row in table.printed["rows"]:
        cells = {}
        for key, (mean, digits, *more) in row["values"].items():
            std, std_digits = more or (math.nan, digits)
            cells[key] = _Cell(mean, std, (digits, std_digits), mark=row.get("marks", {}).get(key, ""))
        rows.append(
            _Row(row["label"], PUBLISHED_ROWS, "ecir2022" if table.counts else "", table.printed["runs"] or 0, cells)
        )
    return rows


def _order(rows: list[_Row], runs: list[TableRun], table: PaperTable) -> list[_Row]:
    """Our rows before the printed ones of the same loss or of the same name, in the order of the paper."""
    families = {run.label: run.family for run in runs}
    places = {}
    for number, row in enumerate(table.printed["rows"]):
        for key in ("loss", "of"):
            places.setdefault(row.get(key), number)

    def place(row: _Row) -> int:
        if row.source == PUBLISHED_ROWS:
            own = table.printed["rows"][[each["label"] for each in table.printed["rows"]].index(row.label)]
            return places[own.get("loss") or own.get("of")]
        return min(places.get(row.label, len(places)), places.get(families.get(row.label) or "?", len(places)))

    return sorted(rows, key=lambda row: (place(row), row.source == PUBLISHED_ROWS))


def _best(cells: list[_Cell]) -> int | None:
    """Place of a value that is above all others by paired differences of the seeds; None: there is none.

    The chance that none of the differences is real is below `BOLD_CHANCE` by Holm's method.
    """
    top = max(range(len(cells)), key=lambda place: cells[place].mean, default=None)
    if top is None or len(cells) < 2 or len(cells[top].seeds) < 2:
        return None
    gains: list[Difference] = []
    for place, cell in enumerate(cells):
        if place == top:
            continue
        if cell.seeds.keys() != cells[top].seeds.keys():
            return None
        gains.append(paired([cells[top].seeds[seed] for seed in cell.seeds], list(cell.seeds.values())))
    clear = [p < BOLD_CHANCE and gain.mean > 0 for p, gain in zip(holm([g.p for g in gains]), gains, strict=True)]
    return top if all(clear) else None


def _bold(rows: list[_Row], table: PaperTable) -> set[tuple[int, str]]:
    """Our values that are better than all of ours that they stand beside: (row, key of the column)."""
    ours = [(place, row) for place, row in enumerate(rows) if row.source == OUR_ROWS]
    found = set()
    if table.across is not None:
        for place, row in ours:
            if (best := _best(list(row.cells.values()))) is not None:
                found.add((place, list(row.cells)[best]))
        return found
    for column in table.columns:
        held = [(place, row.cells[column.key]) for place, row in ours if column.key in row.cells]
        if column.ranked and (best := _best([cell for _, cell in held])) is not None:
            found.add((held[best][0], column.key))
    return found


def _notes(table: PaperTable, rows: list[_Row], bold: bool, more: Sequence[str]) -> list[str]:
    """Sentences below the table: what ± is, what bold is, how the printed numbers differ."""
    ours = [row for row in rows if row.source == OUR_ROWS]
    printed = any(row.source == PUBLISHED_ROWS for row in rows)
    notes = list(table.notes)
    if any(row.number > 1 for row in ours):
        notes.append("runs: mean ± sample standard deviation over n runs")
    if any(row.number == 1 and not math.isnan(cell.std) for row in ours for cell in row.cells.values()):
        notes.append("runs with n = 1: ± is the deviation over their batches or folds")
    if printed:
        about = table.printed
        notes.append(f"published: {about['cited']}; {about['data']}")
        notes += [f"published ±: {about['spread']}"] if about["spread"] and not table.counts else []
        notes += table.beside
    if bold:
        notes.append(
            "bold: above all other runs of its column (of its row, where settings are columns) by paired differences "
            f"of the seeds, each below {BOLD_CHANCE:g} after Holm's correction"
        )
    elif len(ours) > 1 and any(column.ranked for column in table.columns):
        notes.append("nothing is bold: no value is above all others by paired differences of the seeds")
    return [*notes, *more]


def _of_runs(runs: Sequence[xr.Dataset], rows: list[_Row], table: PaperTable) -> list[str]:
    """Notes that tables of runs have for this table, and the paired differences that they name as `A minus B`."""
    found = []
    for line in (line for data in runs if "run" in data.dims for line in str(data.attrs.get("notes", "")).splitlines()):
        name, sign, note = line.partition(": ")
        found += [note] if name == table.name else [] if sign and name in PAPER_TABLES else [line]
    for said in (each for data in runs for each in str(data.attrs.get("compared", "")).split("; ")):
        first, _, second = said.partition(" minus ")
        pair = [row.cells for label in (first, second) for row in rows if row.source == OUR_ROWS and row.label == label]
        for column in table.columns if len(pair) == 2 else ():
            if column.ranked and all(column.key in cells for cells in pair):
                one, other = (cells[column.key].seeds for cells in pair)
                if one.keys() == other.keys() and len(one) > 1:
                    gain = paired(list(one.values()), [other[seed] for seed in one])
                    found.append(f"{column.key}, {first} minus {second}: {gain.said()}")
    return found


def _dataset(rows: list[_Row], keys: list[str], bold: set[tuple[int, str]]) -> xr.Dataset:
    """The table as arrays, (row, column)."""
    size = (len(rows), len(keys))
    mean, std = np.full(size, np.nan), np.full(size, np.nan)
    digits, std_digits = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    marks, best = np.full(size, "", dtype=object), np.zeros(size, dtype=bool)
    for i, row in enumerate(rows):
        for j, key in enumerate(keys):
            if key in row.cells:
                cell = row.cells[key]
                mean[i, j], std[i, j], marks[i, j] = cell.mean, cell.std, cell.mark
                digits[i, j], std_digits[i, j] = cell.digits
                best[i, j] = (i, key) in bold
    dims = ("row", "column")
    return results.labelled(
        {
            "mean": (dims, mean, "value, or mean over the runs"),
            "std": (dims, std, "standard deviation"),
            "digits": (dims, digits, "decimals of the mean"),
            "std_digits": (dims, std_digits, "decimals of the deviation"),
            "bold": (dims, best, "above all other runs by paired differences"),
            "mark": (dims, marks.astype(str), "name of the footnote"),
            "column": ("column", keys),
            "label": ("row", [row.label for row in rows]),
            "source": ("row", [row.source for row in rows]),
            "counted": ("row", [row.convention for row in rows], "convention of the counts"),
            "number": ("row", [row.number for row in rows], "runs; 0 where the paper does not say", "runs"),
        },
        {},
    )


def paper_table(
    name: str,
    runs: Sequence[xr.Dataset] = (),
    *,
    labels: Sequence[str | None] | None = None,
    names: Sequence[str] | None = None,
    published: bool | None = None,
) -> xr.Dataset:
    """Make a table of a paper from runs, from the printed numbers, or from both.

    A row is a setting, with the mean and the sample standard deviation over its runs. A result of `count` or `evaluate`
    is one run; results with the same label are runs of one row. A value of ours is bold where it is above all others of
    its column by paired differences of the seeds, corrected by Holm's method; printed values are never bold.

    Args:
        name: of the table: `cocos.measures.paper_table` knows 1 to 5 (Bleeker & de Rijke 2022), III, IV and ablations
            (DeMoor & Prevost 2024), and cross_example (Table 1 of Veit & Wilber 2020).
        runs: tables of runs (`cocos.results.concat`), or results of `count`, with `metrics`, and of `evaluate`.
        labels: of the rows, one for each of `runs`; None: the settings that a table of runs names, or the name.
        names: of `runs`, for messages and as labels; None: their numbers.
        published: whether the printed numbers stand beside; None: only where there are no runs.

    Returns:
        A Dataset with dims row and column: `mean`, `std`, their decimals, `bold`, and the `mark` of a footnote.

    Raises:
        InputError: an unknown name, or a result that has nothing for the table.

    Examples:
        >>> table = cocos.measures.paper_table("1")
        >>> table["mean"].sel(column="rsum").values[:2].tolist()
        [309.4, 353.8]
    """
    table = known(name)
    published = not runs if published is None else published
    names = [f"result {place}" for place in range(1, len(runs) + 1)] if names is None else names
    labels = [None] * len(runs) if labels is None else labels
    if not len(runs) == len(names) == len(labels):
        raise InputError(f"{len(runs)} results, {len(names)} names, {len(labels)} labels: expected one of each")
    if not runs and not table.printed["rows"]:
        where = f"{table.printed['place']} of the paper, {table.printed['data']}"
        raise InputError(f"table {table.name}: {where}; give runs, as in cocos table {table.name} FILE")
    for one in names:
        if names.count(one) > 1:
            raise InputError(f"{one} is named {names.count(one)} times; name each result once, for each is one run")
    read_runs = [run for each in zip(runs, names, labels, strict=True) for run in read(each[0], table, *each[1:])]
    for label in filter(None, dict.fromkeys(labels)):
        families = list(dict.fromkeys(run.family for run in read_runs if run.label == label))
        if len(families) > 1:
            raise InputError(f"{label}: runs of {' and '.join(families)}, expected runs of one loss in a row")
    rows = _of_settings(read_runs, table) if table.across is None else _across(read_runs, table)
    more = _of_runs(runs, rows, table)
    rows = _order([*rows, *(_printed(table) if published else [])], read_runs, table) if runs else _printed(table)
    keys = [column.key for column in table.columns]
    keys += [key for key in dict.fromkeys(key for row in rows for key in row.cells) if key not in keys]
    keys = [key for key in keys if any(key in row.cells for row in rows)]
    bold = _bold(rows, table)
    made = _dataset(rows, keys, bold)
    used = dict.fromkeys(mark for mark in made["mark"].values.ravel().tolist() if mark)
    return made.assign_attrs(
        results.versions()
        | {
            "title": table.title,
            "table": table.name,
            "groups": json.dumps({column.key: [column.group, column.name] for column in table.columns}),
            "notes": "\n".join(_notes(table, rows, bool(bold), more)),
            "footnotes": json.dumps({mark: printed_numbers()["footnotes"][mark] for mark in used}),
        }
    )


def document(data: xr.Dataset) -> dict:
    """The table as plain data: rows with their values, footnotes, notes."""
    rows = []
    for place in range(data.sizes["row"]):
        one, values = data.isel(row=place), {}
        for key in data["column"].values:
            cell = one.sel(column=key)
            if not math.isnan(float(cell["mean"])):
                std = float(cell["std"])
                values[str(key)] = {"mean": float(cell["mean"]), "std": None if math.isnan(std) else std}
                values[str(key)] |= {"bold": True} if bool(cell["bold"]) else {}
                values[str(key)] |= {"footnote": str(cell["mark"].item())} if str(cell["mark"].item()) else {}
        about = {
            "label": str(one["label"].item()),
            "source": str(one["source"].item()),
            "n": int(one["number"]) or None,
        }
        convention = str(one["counted"].item())
        rows.append(about | ({"convention": convention} if convention else {}) | {"values": values})
    return {
        "cocos": data.attrs["cocos"],
        "table": data.attrs["table"],
        "title": data.attrs["title"],
        "rows": rows,
        "footnotes": json.loads(data.attrs["footnotes"]),
        "notes": [line for line in data.attrs["notes"].splitlines() if line],
    }
