"""Figures on disk: plots drawn in one style, laid out, and written whole or not at all."""

import io
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import matplotlib
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.category import StrCategoryLocator
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.text import Text
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter
from matplotlib.transforms import Bbox, blended_transform_factory

import cocos
from cocos.base import writing
from cocos.base.errors import InputError
from cocos.plots.labels import BELOW, CHARACTERS_PER_INCH, LINE_SPACING, column, in_columns, part_labels
from cocos.plots.wording import DOLLAR, ESCAPED, middle, wrapped

SUFFIXES = (".png", ".pdf", ".svg")
# Width of one and of two columns of a paper, in inches.
COLUMN_WIDTHS = {"one": 3.3, "two": 6.9}
# Narrowest and widest figure, in inches.
NARROWEST_FIGURE, WIDEST_FIGURE = 2.0, 40.0
# Iterations of the layout until margins that depend on the axes have settled.
LAYOUT_ROUNDS = 4
# Narrowest panel beside another, in inches, and the size of one among several.
PANEL_INCHES, PANEL_SIZE = 3.0, (4.0, 3.4)
# Largest part of the width of a column that names at the ticks of its y axis take.
NAMES_PART = 0.33
# Part of the height of a figure that its legend takes before the figure grows.
LEGEND_HEIGHT = 0.2
# Part of an empty height that is taken away, since the texts of other axes may reach into it.
TRIMMED = 0.85
# Part of the height of axes before the layout that they keep beside titles and legends.
LEFT_HEIGHT = 0.75
# Distance of a text from the edge of the column of its axes, in pixels of 1/100 inch.
EDGE = 3.0
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
# The style `ticks` of seaborn, as far as it is not that of matplotlib.
TICKS = {
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "text.color", "xtick.color", "ytick.color"), ".15"),
    **{"axes.axisbelow": True, "grid.color": ".8", "lines.solid_capstyle": "round"},
    **{"patch.edgecolor": "w", "patch.force_edgecolor": True},
    "font.sans-serif": ["Arial", "DejaVu Sans", "Liberation Sans", "Bitstream Vera Sans", "sans-serif"],
}
STYLE = TICKS | FONTS


def writable(path: Path, *more: str) -> Path:
    """Check that a figure can be written, before anything is computed; the message names `more` suffixes."""
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"figure {path}: suffix {path.suffix!r}, expected one of {', '.join((*SUFFIXES, *more))}")
    return writing.output(path, "figure")


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
    """Write a figure drawn within `styled`, with its `Title` and `Description`, whole or not at all."""
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
    """Width of a figure in inches, from `one` or `two` columns of a paper or a number; None: the width of the plot."""
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
    size: tuple[float, float] = PANEL_SIZE,
    width: str | float | None = None,
    projection: str | None = None,
    columns: int | None = None,
) -> Path:
    """Draw panels, functions of (ax=), and write the figure: side by side, or in rows where they have no room.

    At most `columns` panels stand side by side; None: all.

    The titles of the panels are the description in the metadata of the file. A `width`, as for `inches`, comes with
    text of 8 points; otherwise `size` is that of a panel, in inches.
    """
    path, wide = writable(path), inches(width)
    columns = min(len(plots), columns or len(plots))
    if wide is not None:
        columns = min(columns, max(1, int(wide // PANEL_INCHES)))
    rows = -(-len(plots) // columns)
    whole = (size[0] * columns, size[1] * rows)
    if wide is not None:
        narrowed = wide / columns / (0.8 * size[0])  # against a panel with text of 8 points
        whole = (wide, rows * 0.8 * size[1] * min(1.0, narrowed) ** 0.3)
    with styled(printed=wide is not None):
        figure = Figure(figsize=whole, layout="constrained")
        for place, plot in enumerate(plots, start=1):
            plot(ax=figure.add_subplot(rows, columns, place, projection=projection))
        _literal(figure)  # before the layout, which reads formulae as well
        _trim(figure)
        finish(figure)
        titles = [figure.get_suptitle(), *(ax.get_title() for ax in figure.axes)]
        said = [" ".join(title.split()) for title in titles if title.strip()]
        about = ". ".join(each.rstrip(".") for each in said).replace(ESCAPED, "$")
        return save(figure, path, {"Description": about})


def _trim(figure: Figure) -> None:
    """Take the height from a figure that axes of a fixed ratio leave empty."""
    axes = [ax for ax in figure.axes if _column(ax)]
    if any(ax.get_aspect() == "auto" or ax.name == "3d" for ax in axes):
        return
    _settle(figure, _wrap_texts(figure), rounds=2)
    empty = min(ax.get_position(original=True).height - ax.get_position().height for ax in axes)
    rows = axes[0].get_subplotspec().get_gridspec().nrows
    figure.set_figheight(figure.get_figheight() * (1 - TRIMMED * rows * empty))


def finish(figure: Figure) -> None:
    """Lay out a figure whose plots are drawn, so that no text leaves it and axes keep their room.

    Titles and labels are wrapped to the column of their axes, and lie inside of it even where the axes are narrower;
    names at ticks get at most a part of it; equal legends below the axes become one. The layout is final.
    """
    said = _wrap_texts(figure)
    legend = sum(each.get_window_extent().height for each in figure.legends) / figure.bbox.height
    if legend > LEGEND_HEIGHT:
        figure.set_figheight(figure.get_figheight() * (1 + legend - LEGEND_HEIGHT))
    for ax in figure.axes:
        _shorten_names(ax)
    _settle(figure, said, LAYOUT_ROUNDS)
    for ax in figure.axes:
        part_labels(ax)
    figure.set_layout_engine(None)  # "none" would leave one, with which each file is drawn twice


def _settle(figure: Figure, said: Mapping[Text, str], rounds: int) -> None:
    """Lay out a figure until margins that depend on its axes have settled; `said` as for `_align`."""
    for _ in range(rounds):
        with _thin(figure):
            figure.get_layout_engine().execute(figure)
        _align(figure, said)


def _column(ax: Axes) -> Bbox | None:
    """Part of the figure that belongs to axes, in pixels; None for a colour bar."""
    spec = ax.get_subplotspec()
    if spec is None:
        return None
    (wide, high), down = ax.figure.bbox.size, ax.figure.bbox.height / spec.get_gridspec().nrows
    left, right = column(ax)
    top, bottom = high - spec.rowspan.start * down, high - spec.rowspan.stop * down
    return Bbox([[left * wide + EDGE, bottom + EDGE], [right * wide - EDGE, top - EDGE]])


def _wrap_texts(figure: Figure) -> dict[Text, str]:
    """Wrap the titles and labels of a figure so that each stays beside its own axes; return all texts as they were."""
    said = {text: text.get_text() for text in figure.findobj(Text)}
    width, height = figure.get_size_inches()
    for ax in figure.axes:
        spec = ax.get_subplotspec()
        if spec is None:
            continue
        columns, rows = spec.get_gridspec().ncols, spec.get_gridspec().nrows
        rooms = {
            ax.title: width * len(spec.colspan) / columns,
            ax.xaxis.label: 0.85 * width * len(spec.colspan) / columns,
            ax.yaxis.label: 0.85 * height * len(spec.rowspan) / rows,
        }
        for text, room in rooms.items():
            most = max(8, int(CHARACTERS_PER_INCH * room / text.get_fontsize()))
            text.set_text(wrapped(text.get_text(), most))
    if said_above := figure.get_suptitle():
        above = figure.suptitle(said_above)
        above.set_text(wrapped(" ".join(said_above.split()), int(CHARACTERS_PER_INCH * width / above.get_fontsize())))
    _share_legend(figure)
    return said


@contextmanager
def _thin(figure: Figure) -> Generator[None]:
    """Reserve the heights of titles, labels and legends of axes, but not their widths, which may exceed the axes'."""
    axes = [ax for ax in figure.axes if _column(ax)]
    texts = [text for ax in axes for text in (ax.title, ax.xaxis.label, ax.yaxis.label)]
    whole = [text.get_text() for text in texts]
    legends = [ax.get_legend() for ax in axes if ax.get_legend() and ax.get_legend().get_gid() == BELOW]
    lower = {legend.axes: _lines_below(legend) for legend in legends}
    for text, said in zip(texts, whole, strict=True):
        text.set_text("\n".join("x" for _ in said.splitlines()))
    for legend in legends:
        legend.set_in_layout(False)
        legend.axes.xaxis.label.set_text("\n".join("x" * lower[legend.axes]))
    try:
        yield
    finally:
        for text, said in zip(texts, whole, strict=True):
            text.set_text(said)


def _lines_below(legend: Legend) -> int:
    """Number of lines of the label of the x axis that reach down to the lower end of a legend."""
    label = legend.axes.xaxis.label
    box, line = label.get_window_extent(), 1.2 * label.get_fontsize() * label.figure.dpi / 72
    return math.ceil((box.y1 - legend.get_window_extent().y0) / line)


def _align(figure: Figure, said: Mapping[Text, str]) -> None:
    """Move titles and labels into the columns of their axes; one that is too long for it gets shorter lines."""
    for ax in figure.axes:
        if (room := _column(ax)) is None or ax.name == "3d":
            continue
        for text, along in ((ax.title, 0), (ax.xaxis.label, 0), (ax.yaxis.label, 1)):
            if not text.get_text().strip():
                continue
            low, high = room.intervalx if along == 0 else room.intervaly
            if text is ax.title:  # a colour bar may reach as high
                bars = [bar.bbox.x0 - EDGE for bar in ax.figure.axes if _column(bar) is None]
                high = min([high, *(bar for bar in bars if ax.bbox.x1 < bar < high)])
            (text.set_x, text.set_y)[along](0.5)
            box = text.get_window_extent()
            while (long := (box.width, box.height)[along]) > high - low:
                longest = max(map(len, text.get_text().splitlines()))
                if longest <= 8:
                    break
                most = min(longest - 1, int(longest * (high - low) / long))
                text.set_text(wrapped(said.get(text, text.get_text()), most))
                box = text.get_window_extent()
            start, stop = (box.intervalx, box.intervaly)[along]
            if ax.bbox.min[along] <= start and stop <= ax.bbox.max[along]:
                continue
            moved = max(low - start, 0) or min(high - stop, 0)
            (text.set_x, text.set_y)[along](0.5 + moved / ax.bbox.size[along])
        legend, label = ax.get_legend(), ax.xaxis.label.get_window_extent()
        if legend is not None and legend.get_gid() == BELOW and legend.get_window_extent().y1 > label.y0 - EDGE:
            place = ((room.x0 + room.x1) / 2 / ax.figure.bbox.width, (label.y0 - EDGE - ax.bbox.y0) / ax.bbox.height)
            legend.set_bbox_to_anchor(place, blended_transform_factory(ax.figure.transFigure, ax.transAxes))


def _shorten_names(ax: Axes) -> None:
    """Give names at the ticks of a y axis a part of its column: two lines where the axes are high enough, or one."""
    own = _column(ax)
    if own is None or not isinstance(ax.yaxis.get_major_locator(), FixedLocator | StrCategoryLocator):
        return
    names, room = [name for name in ax.get_yticklabels() if name.get_text().strip()], NAMES_PART * own.width
    if not names:
        return
    tall = LINE_SPACING * names[0].get_fontsize() * ax.figure.dpi / 72
    tight = 2 * tall * len(names) > LEFT_HEIGHT * ax.bbox.height
    if tight or any(name.get_window_extent().width > room for name in names):
        probe = ax.figure.text(0, 0, "", fontsize=names[0].get_fontsize())
        labels = [_shortened(probe, name.get_text(), room, tight=tight) for name in ax.get_yticklabels()]
        ax.set_yticks(ax.get_yticks(), labels)
        probe.remove()


def _shortened(probe: Text, name: str, room: float, *, tight: bool) -> str:
    """A name in lines of at most `room` pixels: one for each that it has, or two for one if not `tight`."""
    probe.set_text(name)
    wide = probe.get_window_extent().width if name.strip() else 0
    if wide <= room:
        return name
    number = max(6, int(max(map(len, name.splitlines())) * room / wide))
    lines = wrapped(name, number).splitlines()
    if len(lines) == 2 and not tight and "\n" not in name:
        return "\n".join(lines)
    return "\n".join(middle(line, number) for line in name.splitlines())


def _share_legend(figure: Figure) -> None:
    """Replace the legends below the axes by one below the figure, where all of them are equal."""
    legends = [ax.get_legend() for ax in figure.axes if ax.get_legend() is not None]
    legends = [legend for legend in legends if legend.get_gid() == BELOW]
    said = {tuple(text.get_text() for text in legend.get_texts()) for legend in legends}
    if len(said) != 1:
        return
    handles, texts = legends[0].legend_handles, [text.get_text() for text in legends[0].get_texts()]
    columns, texts = in_columns([" ".join(text.split()) for text in texts], figure.get_size_inches()[0], len(texts))
    for legend in legends:
        legend.remove()
    figure.legend(handles, texts, loc="outside lower center", ncols=columns, frameon=False, fontsize="small",
                  handler_map=legends[0].get_legend_handler_map())  # fmt: skip
