"""Plot of the consequences of one cut-off for each query."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from cocos.plots.labels import SIDE_LENGTH, below, logarithmic, palette, series, small_points, tiny_points
from cocos.plots.wording import between, listed, percent, plain

# Bottom and height of the three strips, as fractions of the axes.
STRIPS = ((0.62, 0.38), (0.32, 0.19), (0.0, 0.21))
# Names of the strips, above them.
STRIP_NAMES = (
    "candidates per query (logarithmic, linear below 1)",
    "queries without a candidate, or a positive (%)",
    "precision and recall over all pairs (%)",
)
# Inches of the figure for each tick of the axis of cut-offs.
TICK_INCHES = 0.7
DIRECTION_STYLES = ("-", "--")
# Width of the name of a cut-off, as a fraction of the axis.
NAME_WIDTH = 0.02
# Width and height of one panel in inches.
SIZE = (7.2, 6.6)


def thresholds(
    dataset: xr.Dataset | Sequence[xr.Dataset], *, names: Sequence[str] | None = None, ax: Axes | None = None
) -> Axes:
    """Draw what each cut-off returns, in three strips above the same axis of cut-offs.

    At the top, the candidates per query: median, and a ribbon from the 5th to the 95th percentile. In the middle, the
    parts of the queries without any candidate, and without a positive. At the bottom, precision and recall over all
    pairs. Chosen cut-offs are vertical lines with their names; of several files, a colour each without ribbons, the
    lines alone.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> data = cocos.measures.thresholds(embeddings)
        >>> len(cocos.plots.thresholds(data).figure.axes) > 1
        False
    """
    ax, several = ax or plt.gca(), series(dataset, names)
    ax.set_axis_off()
    every, single = list(several.values()), len(several) == 1
    ends = min(float(each["level"][0]) for each in every), max(float(each["level"][-1]) for each in every)
    strips = [ax.inset_axes([0, low, 1, high]) for low, high in STRIPS]
    many, idle, whole = strips
    handles = []
    for (name, each), colour in zip(several.items(), palette(len(several)), strict=True):
        handles += _curves(each, *strips) if single else _curves(each, *strips, name=name, colour=colour)
    handles += _meanings(single)
    top = max(10.0, *(float(each["level_returned"].max()) for each in every))
    logarithmic(many, top)
    many.set(ylim=(-0.1, 8 * top))
    idle.set(ylim=(-3, 103), yticks=[0, 50, 100])
    whole.set(
        ylim=(-3, 103),
        yticks=[0, 50, 100],
        xlabel="cut-off: cosine (Euclidean distance)",
    )
    for strip, name in zip(strips, STRIP_NAMES, strict=True):
        strip.set_title(name, loc="left", fontsize="small", pad=2)
        strip.xaxis.set_major_locator(MaxNLocator(int(ax.figure.get_size_inches()[0] / TICK_INCHES)))
        strip.minorticks_off()
        strip.spines[["top", "right"]].set_visible(False)
        strip.set_xlim(*ends)
        for each, colour in zip(every, ["0.5"] if single else palette(len(every)), strict=True):
            strip.vlines(each["cutoff"], 0, 1, transform=strip.get_xaxis_transform(), color=colour, linewidth=0.7,
                         linestyle=":")  # fmt: skip
    for strip in (many, idle):
        strip.tick_params(labelbottom=False)
    if single:
        _named(every[0], many)
    ticks = [tick for tick in whole.get_xticks() if ends[0] <= tick <= ends[1]]
    known = np.concatenate([np.stack([each["level"], each["level_distance"]]) for each in every], axis=1)
    distance = np.interp(ticks, *known[:, known[0].argsort()])
    whole.set_xticks(ticks, [f"{tick:.2g}\n({far:.2f})" for tick, far in zip(ticks, distance, strict=True)])
    ax.set_title(title(every[0]) if single else title_of(several), fontsize="medium", pad=2 * small_points())
    below(ax, lines=4, handles=handles, ncols=3)
    return ax


def _curves(dataset: xr.Dataset, many: Axes, idle: Axes, whole: Axes, *, name: str = "", colour=None) -> list:
    """Draw the curves of one Dataset in the three strips, and return handles of the legend: its directions.

    Several Datasets have a `name` and a `colour` each, and no ribbons.
    """
    level, names, handles = dataset["level"].values, [str(side) for side in dataset["direction"].values], []
    colours = palette(len(names)) if colour is None else [colour] * len(names)
    for side, style, own in zip(names, DIRECTION_STYLES, colours, strict=False):
        one, said = dataset.sel(direction=side), ", ".join(filter(None, (name, plain(side, SIDE_LENGTH))))
        low, middle, high = one["level_returned"].transpose("percentile", "level").values
        if not name:
            many.fill_between(level, low, high, color=own, alpha=0.18, linewidth=0, label="_ribbon")
        handles += many.plot(level, middle, color=own, linestyle=style, linewidth=1.8, label=said)
        idle.plot(level, one["level_none"], color=own, linestyle=style, linewidth=1.8, label="_nothing")
        idle.plot(level, one["level_no_positive"], color=own, linestyle=style, linewidth=0.9, marker=".",
                  markersize=5, markevery=5, label="_no positive")  # fmt: skip
    for key, style in (("precision", "-"), ("recall", "--")):
        whole.plot(level, 100 * dataset[f"level_{key}"], color=colour or "0.15", linestyle=style,
                   label=f"{key}, all pairs")  # fmt: skip
    return handles


def _meanings(single: bool) -> list:
    """Legend entries of what is the same for all Datasets."""
    return [
        *([Patch(color="0.85", label="5 % to 95 % of the queries")] if single else []),
        Line2D([], [], color="0.3", linewidth=1.8, label="no candidate"),
        Line2D([], [], color="0.3", linewidth=0.9, marker=".", label="no positive"),
        Line2D([], [], color="0.15", linestyle="-", label="precision, all pairs"),
        Line2D([], [], color="0.15", linestyle="--", label="recall, all pairs"),
    ]


def _named(dataset: xr.Dataset, ax: Axes) -> None:
    """Write the criterion of each cut-off along its line, at the top or, beside a near one, at the bottom."""
    (low, high), last, top = ax.get_xlim(), -np.inf, False
    for cut, chosen in zip(dataset["cutoff"].values, dataset["chosen"].values, strict=True):
        place = (cut - low) / (high - low)
        top, last = not top if place - last < NAME_WIDTH else True, place
        if str(chosen) != "given":
            ax.annotate(str(chosen), (cut, 1.0 if top else 0.0), xycoords=("data", "axes fraction"), rotation=90,
                        xytext=(-1, -2 if top else 2), textcoords="offset points", ha="right",
                        va="top" if top else "bottom", fontsize=tiny_points(), color="0.2")  # fmt: skip


def title(dataset: xr.Dataset) -> str:
    """State how unequally the cut-off of the best F1 treats the queries; without one, the first cut-off."""
    chosen = [str(each) for each in dataset["chosen"].values]
    place = chosen.index("best F1") if "best F1" in chosen else 0
    one = dataset.isel(cutoff=place)
    low, _, high = one["returned_band"].transpose("percentile", "direction").values
    none = between(one["none_returned"].values / 100)
    return (
        f"The cut-off of {chosen[place]} (cosine {float(one['cutoff']):.2f}) returns {min(low):.0f} to {max(high):.0f} "
        f"candidates to nine queries in ten, and nothing to {none}"
    )


def title_of(several: dict[str, xr.Dataset]) -> str:
    """State the recall at the cut-off of the best F1 of each Dataset; without one, at its first cut-off."""
    parts = []
    for data in several.values():
        chosen = [str(each) for each in data["chosen"].values]
        one = data.isel(cutoff=chosen.index("best F1") if "best F1" in chosen else 0)
        parts.append(f"{percent(one['global_recall'])} at cosine {float(one['cutoff']):.2f}")
    return f"Positive pairs above the chosen cut-off: {listed(list(several), parts)}"
