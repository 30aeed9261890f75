"""Figures on disk: plots in one style, laid out, and written whole or not at all."""

import io
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter
from matplotlib.transforms import blended_transform_factory

import cocos
from cocos.base import writing
from cocos.base.errors import InputError
from cocos.plots.labels import BELOW, CHARACTERS_PER_INCH, column, in_columns, part_labels
from cocos.plots.wording import DOLLAR, ESCAPED, middle, wrapped

SUFFIXES = (".png", ".pdf", ".svg")
COLUMN_WIDTHS = {"one": 3.3, "two": 6.9}  # inches of one and of two columns of a paper
NARROWEST_FIGURE, WIDEST_FIGURE = 2.0, 40.0  # inches
PANEL_INCHES, PANEL_SIZE = 3.0, (4.0, 3.4)  # smallest width in a row of panels; size of one among several
NAMES_PART = 0.33  # largest part of the width of a panel that names at the ticks of its y axis take
RESOLUTION = 160  # dots per inch of a raster figure
# Text of 8 points, and lines to match, in a figure with a given width.
PRINTED = {
    **dict.fromkeys(("font.size", "axes.labelsize", "axes.titlesize", "figure.titlesize"), 8.0),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), 7.0),
    **{"axes.linewidth": 0.7, "lines.linewidth": 1.2, "xtick.major.size": 3.0, "ytick.major.size": 3.0},
}
# The style `ticks` of seaborn. Text stays text: a PDF embeds whole fonts (publishers refuse Type 3), an SVG names them.
STYLE = {
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "text.color", "xtick.color", "ytick.color"), ".15"),
    **{"axes.axisbelow": True, "grid.color": ".8", "lines.solid_capstyle": "round"},
    **{"patch.edgecolor": "w", "patch.force_edgecolor": True},
    **{"font.family": "DejaVu Sans", "pdf.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "cocos"},
}


@contextmanager
def styled(*, printed: bool = False) -> Generator[None]:
    """Draw in one style, independent of the user's `matplotlibrc`; `printed` sets text of 8 points."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE | (PRINTED if printed else {}))
        yield


def save(figure: Figure, path: Path, metadata: dict) -> Path:
    """Write a figure drawn within `styled`, with its `Title` and `Description`, whole or not at all."""
    suffix = path.suffix.lower()
    if suffix == ".pdf":
        metadata = {{"Description": "Subject"}.get(key, key): value for key, value in metadata.items()}
    metadata |= {"Creator" if suffix != ".png" else "Software": f"cocos {cocos.__version__}"}
    metadata |= {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}.get(suffix, {})
    _escape_dollars(figure)
    stream = io.BytesIO()
    figure.savefig(stream, dpi=RESOLUTION, format=suffix[1:], metadata=metadata)
    return writing.write(path, stream.getvalue(), "figure")


def _escape_dollars(figure: Figure) -> None:
    """Draw dollar signs of names and options literally; only the ticks of axes are formulae, as powers of ten."""

    def escape(text: str) -> str:
        return DOLLAR.sub(r"\\$", text)

    for text in figure.findobj(Text):
        text.set_text(escape(text.get_text()))
    for axis in (axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)):
        formatter = axis.get_major_formatter()
        if isinstance(formatter, FixedFormatter):
            axis.set_major_formatter(FixedFormatter([escape(label) for label in formatter.seq]))
        elif isinstance(formatter, FuncFormatter):
            axis.set_major_formatter(FuncFormatter(lambda *tick, formatter=formatter: escape(formatter(*tick))))


def inches(text: str | float | None) -> float | None:
    """Width of a figure in inches, from `one` or `two` columns of a paper or a number; None: the width of the plot."""
    if text is None:
        return None
    try:
        width = COLUMN_WIDTHS[text] if isinstance(text, str) and text in COLUMN_WIDTHS else float(text)
    except ValueError:
        width = 0.0
    if not NARROWEST_FIGURE <= width <= WIDEST_FIGURE:
        limits = f"inches from {NARROWEST_FIGURE:g} to {WIDEST_FIGURE:g}"
        raise InputError(f"width {text!r}: expected one or two (columns of a paper), or {limits}")
    return width


def save_panels(
    plots: Sequence[Callable],
    path: Path,
    *,
    size: tuple[float, float] = PANEL_SIZE,
    width: str | float | None = None,
    columns: int | None = None,
) -> Path:
    """Draw panels, functions of (ax=), in rows of at most `columns`, and write the figure.

    The titles of the panels are the description in the metadata of the file. A `width`, as for `inches`, comes with
    text of 8 points; otherwise `size` is the size of a panel, in inches.
    """
    path, total_width = Path(path), inches(width)
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"figure {path}: suffix {path.suffix!r}, expected one of {', '.join(SUFFIXES)}")
    path = writing.output(path, "figure")
    columns = min(len(plots), columns or len(plots))
    if total_width is not None:
        columns = min(columns, max(1, int(total_width // PANEL_INCHES)))
    rows = -(-len(plots) // columns)
    figure_size = (size[0] * columns, size[1] * rows)
    if total_width is not None:
        narrowed = total_width / columns / (0.8 * size[0])  # relative to a panel with text of 8 points
        figure_size = (total_width, rows * 0.8 * size[1] * min(1.0, narrowed) ** 0.3)
    with styled(printed=total_width is not None):
        figure = Figure(figsize=figure_size, layout="constrained")
        for place, plot in enumerate(plots, start=1):
            plot(ax=figure.add_subplot(rows, columns, place))
        _escape_dollars(figure)  # before the layout, which reads formulae as well
        finish(figure)
        titles = [figure.get_suptitle(), *(ax.get_title() for ax in figure.axes)]
        titles = [" ".join(title.split()).rstrip(".") for title in titles if title.strip()]
        return save(figure, path, {"Description": ". ".join(titles).replace(ESCAPED, "$")})


def finish(figure: Figure) -> None:
    """Lay out a finished figure: titles and labels are wrapped to their axes, equal legends below axes become one."""
    width, height = figure.get_size_inches()
    for ax in figure.axes:
        if (spec := ax.get_subplotspec()) is None:  # a colour bar
            continue
        column_width = width * len(spec.colspan) / spec.get_gridspec().ncols
        row_height = height * len(spec.rowspan) / spec.get_gridspec().nrows
        rooms = {ax.title: 0.75 * column_width, ax.xaxis.label: 0.75 * column_width, ax.yaxis.label: 0.75 * row_height}
        for text, room in rooms.items():
            text.set_text(wrapped(text.get_text(), max(8, int(CHARACTERS_PER_INCH * room / text.get_fontsize()))))
        names = [label.get_text() for label in ax.get_yticklabels()]
        longest = int(CHARACTERS_PER_INCH * NAMES_PART * column_width / text.get_fontsize())
        if isinstance(ax.yaxis.get_major_locator(), FixedLocator) and max(map(len, names), default=0) > longest:
            ax.set_yticks(ax.get_yticks(), [middle(" ".join(name.split()), longest) for name in names])
    if suptitle := figure.get_suptitle():
        above = figure.suptitle(" ".join(suptitle.split()))
        above.set_text(wrapped(above.get_text(), int(CHARACTERS_PER_INCH * width / above.get_fontsize())))
    legends = [ax.get_legend() for ax in figure.axes if ax.get_legend() is not None]
    legends = [legend for legend in legends if legend.get_gid() == BELOW]
    if len({tuple(text.get_text() for text in legend.get_texts()) for legend in legends}) == 1:
        names = [" ".join(text.get_text().split()) for text in legends[0].get_texts()]
        columns, names = in_columns(names, width, len(names))
        handlers = legends[0].get_legend_handler_map()
        figure.legend(legends[0].legend_handles, names, loc="outside lower center", ncols=columns, frameon=False,
                      fontsize="small", handler_map=handlers)  # fmt: skip
        for legend in legends:
            legend.remove()
        legends = []
    for _ in range(3):  # margins depend on the axes
        figure.get_layout_engine().execute(figure)
        for ax in (legend.axes for legend in legends):
            under = ax.xaxis.label.get_window_extent().y0 - ax.bbox.y0
            ax.get_legend().set_bbox_to_anchor(
                (sum(column(ax)) / 2, under / ax.bbox.height),
                blended_transform_factory(figure.transFigure, ax.transAxes),
            )
    for ax in figure.axes:
        part_labels(ax)
    figure.set_layout_engine(None)
