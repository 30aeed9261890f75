"""A figure on its own, drawn by a plot of the shelf and written whole or not at all."""

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

__all__ = ["STYLE", "draw", "drawable", "fit", "inches", "panels", "save", "settle", "share_legend", "stated", "styled"]

SUFFIXES = (".png", ".pdf", ".svg")
LONGEST = 255  # bytes of a name
PER_INCH = 108  # characters of a title in an inch, times the size of its font
WIDTHS = {"one": 3.3, "two": 6.9}  # inches of one and of two columns of a paper
NARROW, WIDE = 2.0, 40.0  # inches that a picture may be wide
TITLE = 12.0  # points of the title of a figure, at most
DOLLAR = re.compile(r"(?<!\\)\$")  # where a formula may begin or end
TURNS = 4  # of the layout of a figure
COLUMN = 3.0  # inches that a panel needs beside another
# Text of 8 points in a picture of a given width, and lines that go with it.
PRINTED = {
    **dict.fromkeys(("font.size", "axes.labelsize", "axes.titlesize", "figure.titlesize"), 8.0),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), 7.0),
    **{"axes.linewidth": 0.7, "lines.linewidth": 1.2, "xtick.major.size": 3.0, "ytick.major.size": 3.0},
}
# Text stays text: fonts are embedded whole in a PDF (publishers refuse Type 3), and are named in an SVG.
FONTS = {"font.family": "DejaVu Sans", "pdf.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "cocos"}
STYLE = sns.axes_style("ticks") | FONTS


def drawable(path: Path, *more: str) -> Path:
    """Refuse a picture before anything is computed.

    Args:
        path: of the picture.
        more: suffixes that would be right too, though of no picture.

    Raises:
        InputError: a suffix that no picture has, a name that is too long, or a folder that is missing or cannot be
            written.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"picture {path}: suffix {path.suffix!r}, expected one of {', '.join((*SUFFIXES, *more))}")
    if len(os.fsencode(path.name)) > LONGEST:
        raise InputError(f"picture {path}: the name is too long for a file")
    try:
        there = path.parent.is_dir() and not path.is_dir()
    except OSError as error:
        raise InputError(f"picture {path}: {unreachable(error)}") from None
    if not there:
        raise InputError(f"picture {path}: it must be a file in a folder that is there")
    writing.writable(path.parent, f"picture {path}")
    return path


@contextmanager
def styled(*, printed: bool = False) -> Generator[None]:
    """The same look wherever cocos draws: the defaults of matplotlib and `STYLE`, and no `matplotlibrc` of anyone's.

    Args:
        printed: with text of 8 points.
    """
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE | (PRINTED if printed else {}))
        yield


def save(figure: Figure, path: Path, about: dict) -> Path:
    """Write a figure at 160 dots per inch, made in memory and then written whole or not at all.

    Args:
        figure: drawn within `styled`.
        path: .png, .pdf or .svg.
        about: `Title` and `Description` of the file.

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
    figure.savefig(stream, dpi=160, format=suffix[1:], metadata=about)
    return writing.write(path, stream.getvalue(), "picture")


def _literal(figure: Figure) -> None:
    """Draw dollar signs as they are: a name or an option with a formula in it is a text, and may be no formula at all.

    Only axes write formulae here, as powers of ten beside their ticks.
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
    """The width of a picture: `one` or `two` columns of a paper, or a number of inches; None: as wide as it likes.

    Raises:
        InputError: anything else.
    """
    if text is None:
        return None
    try:
        found = WIDTHS[text] if isinstance(text, str) and text in WIDTHS else float(text)
    except ValueError:
        found = 0.0
    if not NARROW <= found <= WIDE:
        raise InputError(
            f"width {text!r}: expected one (3.3 inches, one column), two (6.9), or inches from {NARROW:g} to {WIDE:g}"
        )
    return found


def draw(
    plot: Callable,
    data: xr.Dataset | Sequence[xr.Dataset],
    path: Path,
    *,
    size: tuple[float, float] = (6.4, 4.4),
    width: str | float | None = None,
    projection: str | None = None,
) -> Path:
    """Write the picture of a Dataset.

    Args:
        plot: of `cocos.plots`, a function of (Dataset, ax=).
        data: what it draws.
        path: .png, .pdf or .svg.
        size: inches.
        width: `one` or `two` columns of a paper, or inches, with text of 8 points; None: `size`.
        projection: of the Axes, `3d` for a surface.

    Raises:
        InputError: the file cannot be written, or no picture has the width.
    """
    return panels([partial(plot, data)], path, size=size, width=width, projection=projection)


def panels(
    plots: Sequence[Callable],
    path: Path,
    *,
    size: tuple[float, float],
    width: str | float | None = None,
    projection: str | None = None,
) -> Path:
    """Write a picture of several panels, side by side, or below each other where the width asks for it.

    What the panels state as their titles is kept in the file as its description.

    Args:
        plots: functions of (ax=), one a panel.
        path: .png, .pdf or .svg.
        size: of the whole with all panels side by side, inches.
        width: as for `draw`.
        projection: of the Axes, `3d` for a surface.

    Raises:
        InputError: the file cannot be written, or no picture has the width.
    """
    path, wide = drawable(path), inches(width)
    columns = len(plots)
    if wide is not None:
        columns = min(columns, max(1, int(wide // COLUMN)))
        rows = -(-len(plots) // columns)
        narrowed = wide / columns / (0.8 * size[0] / len(plots))  # of what a panel likes with text of 8 points
        size = (wide, rows * 0.8 * size[1] * min(1.0, narrowed) ** 0.3)
    with styled(printed=wide is not None):
        figure = Figure(figsize=size, layout="constrained")
        for place, plot in enumerate(plots, start=1):
            plot(ax=figure.add_subplot(-(-len(plots) // columns), columns, place, projection=projection))
        fit(figure)
        share_legend(figure)
        settle(figure)
        return save(figure, path, {"Description": stated(figure)})


def fit(figure: Figure) -> None:
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
        most = int(PER_INCH * width / TITLE)
        figure.suptitle(textwrap.fill(above, most, break_on_hyphens=False))


def _wrap(text: Text, inches: float) -> None:
    """Break the lines of a text between words, where they are longer than so many inches."""
    most = max(8, int(PER_INCH * inches / text.get_fontsize()))
    lines = text.get_text().splitlines()
    text.set_text("\n".join(textwrap.fill(line, most, break_on_hyphens=False) for line in lines))


def share_legend(figure: Figure) -> None:
    """One legend below the figure in the place of those below its axes, where all of them say the same."""
    legends = [ax.get_legend() for ax in figure.axes if ax.get_legend() is not None]
    legends = [legend for legend in legends if legend.get_gid() == BELOW]
    said = {tuple(text.get_text() for text in legend.get_texts()) for legend in legends}
    if len(said) != 1:
        return
    handles, texts = legends[0].legend_handles, [text.get_text() for text in legends[0].get_texts()]
    room = PER_INCH * figure.get_size_inches()[0] / FontProperties(size="small").get_size_in_points()
    columns = max(1, min(len(texts), int(room / (max(map(len, texts)) + 8))))
    for legend in legends:
        legend.remove()
    figure.legend(handles, texts, loc="outside lower center", ncols=columns, frameon=False, fontsize="small",
                  handler_map=legends[0].get_legend_handler_map())  # fmt: skip


def settle(figure: Figure) -> None:
    """Give every part its room: margins that grow with their axes take a few turns of the layout."""
    for _ in range(TURNS):
        figure.get_layout_engine().execute(figure)


def stated(figure: Figure) -> str:
    """The titles of a figure on one line: what it states."""
    titles = [figure.get_suptitle(), *(ax.get_title() for ax in figure.axes)]
    said = [" ".join(title.split()) for title in titles if title.strip()]
    return ". ".join(each.rstrip(".") for each in said).replace(r"\$", "$")
