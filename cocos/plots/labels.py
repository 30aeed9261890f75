"""Text in plots that covers nothing: shortened names, labels beside lines, legends below the axes."""

from collections.abc import Iterable, Sequence

import numpy as np
import xarray as xr
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.legend import Legend
from matplotlib.text import Annotation, Text
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from matplotlib.transforms import ScaledTranslation, blended_transform_factory

from cocos.base.errors import InputError
from cocos.counting import findings, shares
from cocos.plots.wording import names_of, numbered, plain, wrapped

# `colorblind` of seaborn, which takes as long to import as a picture to draw, without the yellow that is hard to see.
COLOURS = ("#0173b2", "#de8f05", "#029e73", "#d55e00", "#cc78bc", "#ca9161", "#fbafe4", "#949494", "#56b4e9")
STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))
# Identifier of a legend that a figure may move below all of its axes.
BELOW = "legend below the axes"
# Largest difference between directions that share a line, as a fraction of the largest value.
ALIKE = 0.02
# Characters of the longest label.
LABEL_LENGTH = 26
# Characters of the name of a direction.
SIDE_LENGTH = 20
# Identifier of the names beside lines.
NAME_BESIDE = "name beside a line"
# Part of the height of axes that names beside their lines take at most.
BESIDE_HEIGHT = 0.75
# Width of the mark of an entry of a legend and of the space around it, in characters.
HANDLE = 8
# Part of the width of a figure that names beside its lines take at most.
BESIDE_PART = 0.3
# Width in characters of an inch of text, times the font size in points.
CHARACTERS_PER_INCH = 108
# Smallest size of a text, in points: what journals still print.
SMALLEST_POINTS = 6.0
# Distance between the middles of two lines of text, in units of the font size.
LINE_SPACING = 1.25


def titled(ax: Axes, text: str) -> None:
    """Give axes their title, and leave out the frame at the top and on the right."""
    ax.set_title(text, fontsize="medium")
    ax.spines[["top", "right"]].set_visible(False)


def heading(data: xr.Dataset) -> str:
    """Title of a figure: the loss, the kind of weights where they are not the derivative, and a word on collapse."""
    kind, _ = shares.kind_of_weights(data.attrs)
    call = f"{data.attrs['loss_repr']}, {kind}" if kind else data.attrs["loss_repr"]
    return f"{call}\ncollapsed embeddings" if findings.collapsed(data.attrs) else call


def series(
    dataset: xr.Dataset | dict[str, xr.Dataset] | Sequence[xr.Dataset | dict[str, xr.Dataset]],
    names: Sequence[str] | None,
) -> dict[str, xr.Dataset]:
    """Datasets that share a plot by their names, by default those of their losses; equal names get numbers."""
    given = [dataset] if isinstance(dataset, xr.Dataset | dict) else list(dataset)
    several = [one for each in given for one in (each.values() if isinstance(each, dict) else [each])]
    names = names_of(several) if names is None else names
    if len(names) != len(several) or not several:
        raise InputError(
            f"names: {len(names)} of them for {len(several)} Datasets, expected one for each, and one at least"
        )
    return dict(zip(numbered([plain(str(name), LABEL_LENGTH) for name in names]), several, strict=True))


def single(dataset: xr.Dataset | Sequence[xr.Dataset], reason: str) -> xr.Dataset:
    """The one Dataset of a plot that cannot take several."""
    datasets = dataset.values() if isinstance(dataset, dict) else dataset
    several = [dataset] if isinstance(dataset, xr.Dataset) else list(datasets)
    if len(several) != 1:
        raise InputError(f"this plot takes one Dataset, got {len(several)}: {reason}; draw each on Axes of its own")
    return several[0]


def sides(data: xr.Dataset, keys: Iterable[str]) -> list[tuple[str, xr.Dataset]]:
    """Split a Dataset by direction, (name, part); directions that agree are one nameless part, their mean.

    Directions agree where no value that is drawn differs by more than 2 % of the largest one of its variable.
    """
    names = [str(name) for name in data["direction"].values]
    drawn = data[list(keys)]
    apart = drawn.max("direction") - drawn.min("direction")
    alike = all(float(apart[key].max()) <= ALIKE * float(abs(drawn[key]).max()) for key in drawn)
    if len(names) > 1 and alike:
        return [("", data.mean("direction", keep_attrs=True))]
    return [(plain(name, SIDE_LENGTH) if len(names) > 1 else "", data.sel(direction=name)) for name in names]


def curves(several: dict[str, xr.Dataset], keys: Iterable[str]) -> list[tuple[str, xr.Dataset]]:
    """List the curves of several Datasets, named by Dataset and direction as far as these differ."""
    return [
        (", ".join(filter(None, (name if len(several) > 1 else "", side))), one)
        for name, each in several.items()
        for side, one in sides(each, keys)
    ]


def drawn(several: dict[str, xr.Dataset]) -> str:
    """State the batches of the Datasets: once if all are alike, otherwise with the names of the Datasets."""
    ways = {}
    for name, data in several.items():
        ways.setdefault(f"{plain(data.attrs['batch_size'])} {plain(data.attrs['sample'])}", []).append(name)
    if len(ways) == 1:
        return f"in batches of {next(iter(ways))}"
    told = [f"{way} ({', '.join(names)})" for way, names in ways.items()]
    return f"in batches of {'; '.join(told)}"


def whole(axis: Axis, ticks: Sequence[float]) -> None:
    """Put the ticks of a logarithmic axis at given places only, written as plain numbers."""
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def palette(number: int) -> list:
    """Colours that colour-blind readers can tell apart, (number,); without the yellow that is hard to see on white."""
    return [to_rgb(COLOURS[k % len(COLOURS)]) for k in range(number)]


def dark(colour) -> tuple[float, float, float]:
    """Darken a colour for text on white, to a contrast of about 4.5."""
    red, green, blue = to_rgb(colour)
    factor = min(1.0, 0.42 / max(0.2126 * red + 0.7152 * green + 0.0722 * blue, 1e-9))
    return red * factor, green * factor, blue * factor


def below(ax: Axes, *, lines: int = 2, handles: Sequence[Artist] | None = None, ncols: int = 2) -> Legend:
    """Put a legend below the axes and their lines of text; a figure may move it below all of its axes.

    It stays in the column of the axes: long names are wrapped, and at most `ncols` of them stand side by side.
    """
    down = -(12 + 1.3 * lines * FontProperties(size="medium").get_size_in_points()) / 72
    under = ax.transAxes + ScaledTranslation(0, down, ax.figure.dpi_scale_trans)
    handles = ax.get_legend_handles_labels()[0] if handles is None else handles
    left, right = column(ax)
    names = [str(each.get_label()) for each in handles]
    ncols, names = in_columns(names, (right - left) * ax.figure.get_size_inches()[0], ncols)
    legend = ax.legend(handles, names, loc="upper center", bbox_to_anchor=((left + right) / 2, 0),
                       bbox_transform=blended_transform_factory(ax.figure.transFigure, under), frameon=False,
                       fontsize="small", ncols=ncols)  # fmt: skip
    legend.set_gid(BELOW)
    return legend


def column(ax: Axes) -> tuple[float, float]:
    """Left and right end of the column of axes, in parts of the width of the figure."""
    spec = ax.get_subplotspec()
    if spec is None:
        return ax.get_position().x0, ax.get_position().x1
    number = spec.get_gridspec().ncols
    return spec.colspan.start / number, spec.colspan.stop / number


def in_columns(names: Sequence[str], inches: float, most: int) -> tuple[int, list[str]]:
    """Number of columns in which the names of a legend fit, and the names in lines that fit into them."""
    room = CHARACTERS_PER_INCH * inches / small_points()
    ncols = max(1, min(most, len(names), int(room / (max(map(len, names), default=0) + HANDLE))))
    wide = max(12, int(room / ncols) - HANDLE)
    return ncols, [wrapped(name, wide) for name in names]


def spread(places: Sequence[float], gap: float | Sequence[float]) -> np.ndarray:
    """Move places in [0, 1] apart, as little as keeps `gap` between neighbours and their order, (n,).

    Of several gaps, one for each place, neighbours keep the mean of theirs.
    """
    order = np.argsort(places, kind="stable")
    moved = np.clip(np.asarray(places, dtype=float)[order], 0, 1)
    own = np.broadcast_to(np.asarray(gap, dtype=float), moved.shape)[order]
    between = (own[1:] + own[:-1]) / 2
    for k in range(1, len(moved)):
        moved[k] = max(moved[k], moved[k - 1] + between[k - 1])
    for k in range(len(moved) - 1, -1, -1):
        moved[k] = min(moved[k], 1 if k + 1 == len(moved) else moved[k + 1] - between[k])
    return moved[np.argsort(order, kind="stable")]


def colours(levels: Sequence[float], extend: str) -> dict:
    """Colours between levels, as arguments of `contourf`; `extend` as there."""
    colours = colormaps["cividis"]
    return {"cmap": colours, "norm": BoundaryNorm(levels, colours.N, extend=extend), "extend": extend}


def shared_bar(figure: Figure, axes: Sequence[Axes], levels: Sequence[float], extend: str, **style) -> None:
    """Draw the colour bar that panels with the same levels have in common; style is of `Figure.colorbar`."""
    held = colours(levels, extend)
    figure.colorbar(ScalarMappable(held["norm"], held["cmap"]), ax=axes, extend=extend, **style)


def logarithmic(ax: Axes, top: float) -> None:
    """Make the y axis of counts logarithmic from 1 on, with a linear part down to 0 and ticks at powers of ten."""
    ax.set_yscale("symlog", linthresh=1, linscale=0.5)
    powers = [10.0**n for n in range(int(np.log10(top)) + 1)]
    ax.set_yticks([0, *powers], ["0", *(f"{power:,.0f}" for power in powers)])


def empty(ax: Axes, text: str) -> None:
    """Write in the middle of axes why they are empty."""
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", color="0.3",
            bbox={"facecolor": "white", "edgecolor": "none"})  # fmt: skip


def beside(ax: Axes, entries: Sequence[tuple[float, str, object]], *, left: bool = False) -> bool:
    """Write the name of each line, (height, text, colour), beside finished axes; overlapping names are moved apart.

    A name gets lines of at most a part of the width of the figure. Names without room become a legend below the axes.
    Returns whether they stand beside.
    """
    if not entries:
        return False
    inches = ax.get_figure(root=True).get_size_inches()
    heights = [ax.transLimits.transform(ax.transScale.transform((ax.get_xlim()[1], each[0])))[1] for each in entries]
    most = max(10, int(BESIDE_PART * CHARACTERS_PER_INCH * inches[0] / small_points()))
    names = [wrapped(text, most) for _, text, _ in entries]
    high = LINE_SPACING * small_points() * sum(name.count("\n") + 1 for name in names) / 72
    if high > BESIDE_HEIGHT * ax.get_position().height * inches[1]:
        below(ax)
        return False
    if left:
        ax.yaxis.tick_right()
        ax.yaxis.set_label_position("right")
    at, to, side = (0, -0.04, "right") if left else (1, 1.04, "left")
    for (_, _, colour), name, was in zip(entries, names, heights, strict=True):
        ax.annotate(name, (at, min(max(was, 0), 1)), xycoords="axes fraction", xytext=(to, was),
                    textcoords="axes fraction", ha=side, va="center", fontsize="small", color=dark(colour),
                    arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.7, "shrinkA": 1, "shrinkB": 0},
                    annotation_clip=False, gid=NAME_BESIDE)  # fmt: skip
    part_labels(ax)
    return True


def part_labels(ax: Axes) -> None:
    """Move the names beside the lines of axes apart, as little as their heights ask for, at the size of the axes."""
    names = [each for each in ax.texts if isinstance(each, Annotation) and each.get_gid() == NAME_BESIDE]
    if not names:
        return
    high = [Text.get_window_extent(each).height for each in names]  # without their arrows
    gap = (LINE_SPACING - 1) * small_points() * ax.figure.dpi / 72
    edge = min(0.4, max(high) / 2 / ax.bbox.height)  # so that no name reaches above the axes
    inside = 1 - 2 * edge
    gaps = [(one + gap) / ax.bbox.height / inside for one in high]
    placed = edge + inside * spread([(each.xy[1] - edge) / inside for each in names], gaps)
    for each, now in zip(names, placed, strict=True):
        each.xyann = (each.xyann[0], now)


def small_points() -> float:
    """Size of small text in points."""
    return FontProperties(size="small").get_size_in_points()


def tiny_points() -> float:
    """Size of the smallest text in points."""
    return max(SMALLEST_POINTS, FontProperties(size="x-small").get_size_in_points())
