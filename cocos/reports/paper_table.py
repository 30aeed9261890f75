"""Tables of the papers as text, Markdown, LaTeX and CSV."""

import csv
import io
import itertools
import json
import math
import re
from dataclasses import dataclass

import xarray as xr

from cocos.base import writing
from cocos.reports import terminal
from cocos.reports.latex import escaped
from cocos.reports.layout import Table

# A cell without a value.
DASH = "–"


@dataclass(frozen=True)
class _Written:
    """The parts of a table that all formats share.

    Args:
        about: headings of the columns that describe a row.
        rows: description of each row.
        cells: of each row, (mean, deviation or None, bold, letter of the footnote or empty), or None.
        groups: heading of each column, or empty, and its name.
        footnotes: letter -> text.
        notes: sentences.
        title: of the table.
    """

    about: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    cells: tuple[tuple[tuple[str, str | None, bool, str] | None, ...], ...]
    groups: tuple[tuple[str, str], ...]
    footnotes: dict[str, str]
    notes: tuple[str, ...]
    title: str


def _written(data: xr.Dataset) -> _Written:
    """Write the numbers of a table with their decimals."""
    footnotes = json.loads(data.attrs["footnotes"])
    letters = {mark: chr(ord("a") + place) for place, mark in enumerate(footnotes)}
    groups = json.loads(data.attrs["groups"])
    counted = bool(data["counted"].values.astype(bool).any())
    rows, cells = [], []
    for place in range(data.sizes["row"]):
        one = data.isel(row=place)
        about = [
            str(one["label"].item()),
            str(one["source"].item()),
            *([str(one["counted"].item())] if counted else []),
        ]
        rows.append((*about, str(int(one["number"]) or DASH)))
        cells.append(tuple(_cell(one.isel(column=k), letters) for k in range(data.sizes["column"])))
    return _Written(
        ("", "source", *(["counted"] if counted else []), "n"),
        tuple(rows),
        tuple(cells),
        tuple(tuple(groups.get(str(key), ("", str(key)))) for key in data["column"].values),
        {letters[mark]: text for mark, text in footnotes.items()},
        tuple(line for line in data.attrs["notes"].splitlines() if line),
        f"Table {data.attrs['table']}: {data.attrs['title']}",
    )


def _cell(cell: xr.Dataset, letters: dict[str, str]) -> tuple[str, str | None, bool, str] | None:
    """Mean and deviation with their decimals, whether the mean is bold, and the letter of a footnote."""
    mean, std = float(cell["mean"]), float(cell["std"])
    if math.isnan(mean):
        return None
    spread = None if math.isnan(std) else f"{std:.{int(cell['std_digits'])}f}"
    return f"{mean:.{int(cell['digits'])}f}", spread, bool(cell["bold"]), letters.get(str(cell["mark"].item()), "")


def table(data: xr.Dataset) -> Table:
    """Write a table of a paper as text; a bold value has a star, a footnote its letter in brackets."""
    found = _written(data)

    def shown(cell) -> str:
        if cell is None:
            return DASH
        mean, std, bold, mark = cell
        return f"{mean}{'*' * bold}{f' ± {std}' if std else ''}{f' [{mark}]' if mark else ''}"

    columns = (*found.about, *(f"{group} {name}".strip() for group, name in found.groups))
    rows = tuple((*about, *map(shown, cells)) for about, cells in zip(found.rows, found.cells, strict=True))
    footnotes = tuple(f"[{letter}] {text}" for letter, text in found.footnotes.items())
    notes = tuple(note.replace("bold:", "*:", 1) if note.startswith("bold:") else note for note in found.notes)
    return Table(columns, rows, (found.title,), (*footnotes, *notes))


def text(data: xr.Dataset) -> str:
    """Write a table of a paper as text no wider than the terminal."""
    return table(data).text(terminal.room())


def markdown(data: xr.Dataset) -> str:
    """Write a table of a paper in Markdown, with footnotes and notes as a list below."""
    found = _written(data)

    def plain(text: str) -> str:
        return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", terminal.clean(text))

    def shown(cell) -> str:
        if cell is None:
            return DASH
        mean, std, bold, mark = cell
        return f"{f'**{mean}**' if bold else mean}{f' ± {std}' if std else ''}{f'<sup>{mark}</sup>' if mark else ''}"

    columns = [*found.about, *(f"{group} {name}".strip() for group, name in found.groups)]
    lines = [
        [plain(name) for name in columns],
        ["---"] * len(found.about) + ["---:"] * len(found.groups),
        *([*map(plain, about), *map(shown, cells)] for about, cells in zip(found.rows, found.cells, strict=True)),
    ]
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    below = [f"<sup>{letter}</sup> {plain(text)}" for letter, text in found.footnotes.items()]
    below += [plain(note) for note in found.notes]
    return "\n\n".join([plain(found.title), body, "\n".join(f"- {line}" for line in below)]).rstrip("\n")


def _symbols(text: str) -> str:
    """Escape a text for LaTeX; symbols of counts like C^A become formulae."""
    parts = re.split(r"\b([CW]\^\w+[+-]?)", text)
    return "".join(f"${part[:2]}{{{part[2:]}}}$" if place % 2 else escaped(part) for place, part in enumerate(parts))


def latex(data: xr.Dataset) -> str:
    r"""Write a table of a paper as a LaTeX tabular, for the package booktabs; footnotes and notes stand below it."""
    found = _written(data)
    wide = len(found.about) + len(found.groups)

    def shown(cell) -> str:
        if cell is None:
            return "--"
        mean, std, bold, mark = cell
        middle = (rf"\mathbf{{{mean}}}" if bold else mean) + (rf" \pm {std}" if std else "")
        return f"${middle}{f'^{{{mark}}}' if mark else ''}$"

    heads, rules, at = [], [], len(found.about) + 1
    for group, own in itertools.groupby(group for group, _ in found.groups):
        size = len(list(own))
        heads.append(rf"\multicolumn{{{size}}}{{c}}{{{escaped(group)}}}")
        rules += [rf"\cmidrule(lr){{{at}-{at + size - 1}}}"] if group else []
        at += size
    names = [_symbols(name) for _, name in found.groups]
    below = [rf"$^{{{letter}}}$ {_symbols(text)}" for letter, text in found.footnotes.items()]
    below += [_symbols(note) for note in found.notes]
    return "\n".join([
        f"% {terminal.clean(found.title)}, cocos {data.attrs['cocos']}",
        rf"\begin{{tabular}}{{{'l' * (len(found.about) - 1)}r{'r' * len(found.groups)}}}",
        r"\toprule",
        *([f"{' & ' * (len(found.about) - 1)} & {' & '.join(heads)} \\\\", *rules] if rules else []),
        f"{' & '.join(map(escaped, found.about))} & {' & '.join(names)} \\\\",
        r"\midrule",
        *(
            f"{' & '.join(map(escaped, about))} & {' & '.join(map(shown, cells))} \\\\"
            for about, cells in zip(found.rows, found.cells, strict=True)
        ),
        r"\bottomrule",
        *(rf"\multicolumn{{{wide}}}{{p{{\linewidth}}}}{{\footnotesize {line}}} \\" for line in below),
        r"\end{tabular}",
    ])


def comma_separated(data: xr.Dataset) -> str:
    """Write a table of a paper as CSV: mean and deviation in columns of their own, in full precision; no notes.

    The last column names the values with a footnote, and what it says.
    """
    footnotes, keys = json.loads(data.attrs["footnotes"]), [str(key) for key in data["column"].values]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([
        "row",
        "source",
        "counted",
        "n",
        *(writing.cell(f"{key}{end}") for key in keys for end in ("", " std")),
        "notes",
    ])
    for place in range(data.sizes["row"]):
        one = data.isel(row=place)
        values = [float(one[name].sel(column=key)) for key in keys for name in ("mean", "std")]
        marks = [(key, str(one["mark"].sel(column=key).item())) for key in keys]
        notes = "; ".join(f"{key}: {footnotes[mark]}" for key, mark in marks if mark)
        about = [writing.cell(str(one[name].item())) for name in ("label", "source", "counted")]
        shown = ["" if math.isnan(value) else f"{value:.10g}" for value in values]
        writer.writerow([*about, int(one["number"]) or "", *shown, writing.cell(notes)])
    return stream.getvalue().rstrip("\n")


# Format -> how a table is written in it.
TABLE_FORMATS = {"text": text, "markdown": markdown, "latex": latex, "csv": comma_separated}
