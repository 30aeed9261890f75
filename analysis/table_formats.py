"""Tables of the papers in Markdown and LaTeX."""

import itertools
import json
import math
import re
from collections.abc import Callable

import xarray as xr

from cocos import results
from cocos.base import terminal

# A cell without a value.
DASH = "–"
# Signs that a font of pdfLaTeX lacks.
SIGNS = {
    **{"α": r"$\alpha$", "λ": r"$\lambda$", "τ": r"$\tau$", "Δ": r"$\Delta$", "δ": r"$\delta$"},
    **{"√": r"$\surd$", "²": r"$^2$", "±": r"$\pm$", "−": "$-$"},
}


# Mean and deviation, as a cell of a format.
Shown = Callable[[str, str], str]


def _written(data: xr.Dataset, shown: Shown, dash: str = DASH) -> tuple[list[str], list[list[str]]]:
    """Headings of the columns that describe a row, and the rows, whose values `shown` writes."""
    counted = ["counted"] if data["counted"].values.astype(bool).any() else []
    rows = []
    for place in range(data.sizes["row"]):
        one, cells = data.isel(row=place), []
        for k in range(data.sizes["column"]):
            cell = one.isel(column=k)
            mean, std = f"{float(cell['mean']):.{int(cell['digits'])}f}", float(cell["std"])
            spread = "" if math.isnan(std) else f"{std:.{int(cell['std_digits'])}f}"
            cells.append(dash if math.isnan(float(cell["mean"])) else shown(mean, spread))
        about = [str(one[name].item()) for name in ("label", "source", *counted)]
        rows.append([*about, str(int(one["number"]) or DASH), *cells])
    return ["", "source", *counted, "n"], rows


def _groups(data: xr.Dataset) -> list[tuple[str, str]]:
    """Heading of each column, or empty, and its name."""
    groups = json.loads(data.attrs["groups"])
    return [tuple(groups.get(str(key), ("", str(key)))) for key in data["column"].values]


def _title(data: xr.Dataset) -> str:
    return f"Table {data.attrs['table']}: {data.attrs['title']}"


def markdown(data: xr.Dataset) -> str:
    """Write a table of a paper in Markdown, with notes as a list below."""

    def plain(text: str) -> str:
        return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", terminal.clean(text))

    def shown(mean: str, std: str) -> str:
        return f"{mean}{f' ± {std}' if std else ''}"

    about, rows = _written(data, shown)
    groups, own = _groups(data), len(about)
    lines = [
        [plain(name) for name in (*about, *(f"{group} {name}".strip() for group, name in groups))],
        ["---"] * own + ["---:"] * len(groups),
        *([*map(plain, row[:own]), *row[own:]] for row in rows),
    ]
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    below = map(plain, results.lines(data.attrs))
    return "\n\n".join([plain(_title(data)), body, "\n".join(f"- {line}" for line in below)]).rstrip("\n")


def escaped(text: str) -> str:
    """Escape a text so that LaTeX prints it literally; the signs of these tables become formulae."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | SIGNS
    return "".join(special.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in terminal.clean(text))


def _symbols(text: str) -> str:
    """Escape a text for LaTeX; symbols of counts like C^A become formulae."""
    parts = re.split(r"\b([CW]\^\w+[+-]?)", text)
    return "".join(f"${part[:2]}{{{part[2:]}}}$" if place % 2 else escaped(part) for place, part in enumerate(parts))


def latex(data: xr.Dataset) -> str:
    r"""Write a table of a paper as a LaTeX tabular, for the package booktabs; notes stand below it."""

    def shown(mean: str, std: str) -> str:
        return rf"${mean} \pm {std}$" if std else f"${mean}$"

    about, rows = _written(data, shown, "--")
    groups, own = _groups(data), len(about)
    heads, rules, at = [], [], own + 1
    for group, same in itertools.groupby(group for group, _ in groups):
        size = len(list(same))
        heads.append(rf"\multicolumn{{{size}}}{{c}}{{{escaped(group)}}}")
        rules += [rf"\cmidrule(lr){{{at}-{at + size - 1}}}"] if group else []
        at += size
    names = [_symbols(name) for _, name in groups]
    below = map(_symbols, results.lines(data.attrs))
    return "\n".join([
        f"% {terminal.clean(_title(data))}, cocos {data.attrs['cocos']}",
        rf"\begin{{tabular}}{{{'l' * (own - 1)}r{'r' * len(groups)}}}",
        r"\toprule",
        *([f"{' & ' * (own - 1)} & {' & '.join(heads)} \\\\", *rules] if rules else []),
        f"{' & '.join(map(escaped, about))} & {' & '.join(names)} \\\\",
        r"\midrule",
        *(f"{' & '.join([*map(escaped, row[:own]), *row[own:]])} \\\\" for row in rows),
        r"\bottomrule",
        *(rf"\multicolumn{{{own + len(groups)}}}{{p{{\linewidth}}}}{{\footnotesize {line}}} \\" for line in below),
        r"\end{tabular}",
    ])


# Format -> how a table is written in it.
TABLE_FORMATS = {"markdown": markdown, "latex": latex}
