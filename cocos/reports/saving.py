"""Figures on disk: plots drawn in one style, laid out, and written whole or not at all."""

import io
import os
import re
import textwrap
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import matplotlib
import seaborn as sns
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.text import Text
from matplotlib.ticker import FixedFormatter, FuncFormatter

import cocos
from cocos import writing
from cocos.errors import InputError, unreachable
from cocos.plots._labels import BELOW

SUFFIXES = (".png", ".pdf", ".svg")
# Bytes of the longest file name that common file systems accept.
NAME_BYTES = 255
# Width in characters of an inch of text, times the font size in points.
CHARACTERS_PER_INCH = 108
# Width of one and of two columns of a paper, in inches.
COLUMN_WIDTHS = {"one": 3.3, "two": 6.9}
# Narrowest and widest figure, in inches.
NARROWEST_FIGURE, WIDEST_FIGURE = 2.0, 40.0
# Largest font of the title of a figure, in points.
TITLE_POINTS = 12.0
# A dollar sign that is not escaped: a formula may begin or end there.
DOLLAR = re.compile(r"(?<!\\)\$")
# Iterations of the layout until margins that depend on the axes have settled.
LAYOUT_ROUNDS = 4
# Narrowest panel beside another, in inches.
PANEL_INCHES = 3.0
# Resolution of a raster figure, in dots per inch.
RESOLUTION = 160
# Text of 8 points, and lines to match, in a figure whose width is given.
PRINTED = {
    **dict.fromkeys(("font.size", "axes.labelsize", "axes.titlesize", "figure.titlesize"), 8.0),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), 7.0),
    **{"axes.linewidth": 0.7, "lines.linewidth": 1.2, "xtick.major.size": 3.0, "ytick.major.size": 3.0},
}
# Text stays text: a PDF embeds whole fonts (publishers refuse Type 3), an SVG names them.
FONTS = {"font.family": "DejaVu Sans", "pdf.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "cocos"}
STYLE = sns.axes_style("ticks") | FONTS


def writable(path: Path, *more: str) -> Path:
    """Check that a figure can be written, before anything is computed; the message names `more` suffixes.

    Raises:
        InputError: not a suffix of a figure, a name that is too long, or a folder that is missing or cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"figure {path}: suffix {path.suffix!r}, expected one of {', '.join((*SUFFIXES, *more))}")
    if len(os.fsencode(path.name)) > NAME_BYTES:
        raise InputError(f"figure {path}: the name is too long for a file")
    try:
        there = path.parent.is_dir() and not path.is_dir()
    except OSError as error:
        raise InputError(f"figure {path}: {unreachable(error)}") from None
    if not there:
        raise InputError(f"figure {path}: it must be a file in a folder that is there")
    writing.writable(path.parent, f"figure {path}")
    return path


@contextmanager
def styled(*, printed: bool = False) -> Generator[None]:
    """Draw in one style everywhere: the defaults of matplotlib with `STYLE`, whatever the user's `matplotlibrc` says.

    `printed` sets text of 8 points.
    """
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE | (PRINTED if printed else {}))
        yield


def save(figure: Figure, path: Path, about: dict) -> Path:
    """Write a figure drawn within `styled`, with its `Title` and `Description`, whole or not at all.

    Raises:
        InputError: the file cannot be written.
    """
    suffix = path.suffix.lower()
    if suffix == ".pdf":
        about = {{"Description": "Subject"}.get(key, key): value for key, value in about.items()}
    about |= {"Creator" if suffix != ".png" else "Software": f"cocos {cocos.__version__}"}
    about |= {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}.get(suffix, {})
    _literal(figure)
    stream = io.BytesIO()
    figure.savefig(stream, dpi=RESOLUTION, format=suffix[1:], metadata=about)
    return writing.write(path, stream.getvalue(), "figure")


def _literal(figure: Figure) -> None:
    """Draw dollar signs literally: they come from names and options, and may not form a valid formula.

    Only the ticks of axes are formulae here, as powers of ten.
    """

    def literal(text: str) -> str:
        return DOLLAR.sub(r"\\$", text)

    for text in figure.findobj(Text):
        text.set_text(literal(text.get_text()))
    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            made = axis.get_major_formatter()
            if isinstance(made, FixedFormatter):
                axis.set_major_formatter(FixedFormatter([literal(each) for each in made.seq]))
            elif isinstance(made, FuncFormatter):
                axis.set_major_formatter(FuncFormatter(lambda *at, made=made: literal(made(*at))))


def inches(text: str | float | None) -> float | None:
    """Width of a figure in inches, from `one` or `two` columns of a paper or a number; None: the width of the plot.

    Raises:
        InputError: anything else.
    """
    if text is None:
        return None
    try:
        found = COLUMN_WIDTHS[text] if isinstance(text, str) and text in COLUMN_WIDTHS else float(text)
    except ValueError:
        found = 0.0
    if not NARROWEST_FIGURE <= found <= WIDEST_FIGURE:
        one, two = COLUMN_WIDTHS.values()
        raise InputError(
            f"width {text!r}: expected one (column, {one} inches), two (columns, {two} inches), or a number of inches "
            f"from {NARROWEST_FIGURE:g} to {WIDEST_FIGURE:g}"
        )
    return found


def save_plot(
    plot: Callable,
    data: xr.Dataset | Sequence[xr.Dataset],
    path: Path,
    *,
    size: tuple[float, float] = (6.4, 4.4),
    width: str | float | None = None,
    projection: str | None = None,
) -> Path:
    """Draw a Dataset by a function of `cocos.plots` and write the figure: see `save_panels`."""
    return save_panels([partial(plot, data)], path, size=size, width=width, projection=projection)


def save_panels(
    plots: Sequence[Callable],
    path: Path,
    *,
    size: tuple[float, float],
    width: str | float | None = None,
    projection: str | None = None,
    columns: int | None = None,
) -> Path:
    """Draw panels, functions of (ax=), and write the figure: side by side, or in rows where they have no room.

    At most `columns` panels stand side by side; None: all.

    The titles of the panels are the description in the metadata of the file. A `width`, as for `inches`, comes with
    text of 8 points; otherwise `size` is that of the whole figure, in inches.

    Raises:
        InputError: the file cannot be written, or the width is out of range.
    """
    path, wide = writable(path), inches(width)
    columns = min(len(plots), columns or len(plots))
    across, down = columns, -(-len(plots) // columns)
    if wide is not None:
        columns = min(columns, max(1, int(wide // PANEL_INCHES)))
        rows = -(-len(plots) // columns)
        narrowed = wide / columns / (0.8 * size[0] / across)  # against a panel with text of 8 points
        size = (wide, rows * 0.8 * size[1] / down * min(1.0, narrowed) ** 0.3)
    with styled(printed=wide is not None):
        figure = Figure(figsize=size, layout="constrained")
        for place, plot in enumerate(plots, start=1):
            plot(ax=figure.add_subplot(-(-len(plots) // columns), columns, place, projection=projection))
        finish(figure)
        return save(figure, path, {"Description": _titles(figure)})


def finish(figure: Figure) -> None:
    """Lay out a figure whose plots are drawn: wrap its texts, share one legend, and let the margins settle."""
    _fit(figure)
    _share_legend(figure)
    for _ in range(LAYOUT_ROUNDS):
        figure.get_layout_engine().execute(figure)


def _fit(figure: Figure) -> None:
    """Wrap the titles and labels of a figure so that each stays beside its own axes."""
    width, height = figure.get_size_inches()
    for ax in figure.axes:
        spec = ax.get_subplotspec()
        if spec is None:
            continue
        columns, rows = spec.get_gridspec().ncols, spec.get_gridspec().nrows
        _wrap(ax.title, width * len(spec.colspan) / columns)
        _wrap(ax.xaxis.label, 0.85 * width * len(spec.colspan) / columns)
        _wrap(ax.yaxis.label, 0.85 * height * len(spec.rowspan) / rows)
    if above := figure.get_suptitle():
        most = int(CHARACTERS_PER_INCH * width / TITLE_POINTS)
        figure.suptitle(textwrap.fill(above, most, break_on_hyphens=False))


def _wrap(text: Text, inches: float) -> None:
    """Break lines of a text that are longer than `inches` between words."""
    most = max(8, int(CHARACTERS_PER_INCH * inches / text.get_fontsize()))
    lines = text.get_text().splitlines()
    text.set_text("\n".join(textwrap.fill(line, most, break_on_hyphens=False) for line in lines))


def _share_legend(figure: Figure) -> None:
    """Replace the legends below the axes by one below the figure, where all of them are equal."""
    legends = [ax.get_legend() for ax in figure.axes if ax.get_legend() is not None]
    legends = [legend for legend in legends if legend.get_gid() == BELOW]
    said = {tuple(text.get_text() for text in legend.get_texts()) for legend in legends}
    if len(said) != 1:
        return
    handles, texts = legends[0].legend_handles, [text.get_text() for text in legends[0].get_texts()]
    room = CHARACTERS_PER_INCH * figure.get_size_inches()[0] / FontProperties(size="small").get_size_in_points()
    columns = max(1, min(len(texts), int(room / (max(map(len, texts)) + 8))))
    for legend in legends:
        legend.remove()
    figure.legend(handles, texts, loc="outside lower center", ncols=columns, frameon=False, fontsize="small",
                  handler_map=legends[0].get_legend_handler_map())  # fmt: skip


def _titles(figure: Figure) -> str:
    """Join the titles of a figure to one line."""
    titles = [figure.get_suptitle(), *(ax.get_title() for ax in figure.axes)]
    said = [" ".join(title.split()) for title in titles if title.strip()]
    return ". ".join(each.rstrip(".") for each in said).replace(r"\$", "$")
