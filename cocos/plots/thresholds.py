"""Plot of the consequences of one cut-off for each query."""

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from cocos.plots._labels import below, logarithmic, palette, plain
from cocos.plots._wording import between

# Bottom and height of the three strips, as fractions of the axes.
STRIPS = ((0.56, 0.44), (0.29, 0.22), (0.0, 0.24))
DIRECTION_STYLES = ("-", "--")
# Width of the name of a cut-off, as a fraction of the axis.
NAME_WIDTH = 0.02


def thresholds(dataset: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Draw what each cut-off returns, in three strips above the same axis of cut-offs.

    At the top, the candidates per query: median, and a ribbon from the 5th to the 95th percentile. In the middle, the
    parts of the queries without any candidate, and without a positive. At the bottom, precision and recall over all
    pairs. Chosen cut-offs are vertical lines with their names.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> data = cocos.measures.thresholds(embeddings)
        >>> len(cocos.plots.thresholds(data).figure.axes) > 1
        False
    """
    ax = ax or plt.gca()
    ax.set_axis_off()
    level = dataset["level"].values
    strips = [ax.inset_axes([0, low, 1, high]) for low, high in STRIPS]
    many, idle, whole = strips
    handles = _curves(dataset, *strips)
    top = max(10.0, float(dataset["level_returned"].max()))
    logarithmic(many, top)
    many.set(ylabel="candidates\nper query", ylim=(-0.1, 8 * top))
    idle.set(ylabel="queries with\n(%)", ylim=(-3, 103), yticks=[0, 50, 100])
    whole.set(ylabel="all pairs\n(%)", ylim=(-3, 103), yticks=[0, 50, 100], xlabel="cut-off: cosine (L2 below it)")
    for strip in strips:
        strip.minorticks_off()
        strip.spines[["top", "right"]].set_visible(False)
        strip.set_xlim(level[0], level[-1])
        strip.vlines(dataset["cutoff"], 0, 1, transform=strip.get_xaxis_transform(), color="0.5", linewidth=0.7,
                     linestyle=":")  # fmt: skip
    for strip in (many, idle):
        strip.tick_params(labelbottom=False)
    _named(dataset, many)
    ticks = [tick for tick in whole.get_xticks() if level[0] <= tick <= level[-1]]
    distance = np.interp(ticks, level, dataset["level_distance"])
    whole.set_xticks(ticks, [f"{tick:.2g}\n({far:.2f})" for tick, far in zip(ticks, distance, strict=True)])
    ax.set_title(title(dataset), fontsize="medium")
    below(ax, lines=4, handles=handles, ncols=3)
    return ax


def _curves(dataset: xr.Dataset, many: Axes, idle: Axes, whole: Axes) -> list:
    """Draw the curves of the three strips, and return the handles of the legend."""
    level, names, handles = dataset["level"].values, [str(name) for name in dataset["direction"].values], []
    for name, style, colour in zip(names, DIRECTION_STYLES, palette(len(names)), strict=False):
        one, said = dataset.sel(direction=name), plain(name, 20)
        low, middle, high = one["level_returned"].transpose("percentile", "level").values
        many.fill_between(level, low, high, color=colour, alpha=0.18, linewidth=0, label="_ribbon")
        handles += many.plot(level, middle, color=colour, linestyle=style, linewidth=1.8, label=said)
        idle.plot(level, one["level_none"], color=colour, linestyle=style, linewidth=1.8, label="_nothing")
        idle.plot(level, one["level_no_positive"], color=colour, linestyle=style, linewidth=0.9, marker=".",
                  markersize=5, markevery=5, label="_no positive")  # fmt: skip
    handles += [
        Patch(color="0.85", label="5 % to 95 % of the queries"),
        Line2D([], [], color="0.3", linewidth=1.8, label="nothing returned"),
        Line2D([], [], color="0.3", linewidth=0.9, marker=".", label="no positive returned"),
    ]
    for key, style in (("precision", "-"), ("recall", "--")):
        line = whole.plot(
            level, 100 * dataset[f"level_{key}"], color="0.15", linestyle=style, label=f"{key}, all pairs"
        )
        handles += line
    return handles


def _named(dataset: xr.Dataset, ax: Axes) -> None:
    """Write the criterion of each cut-off along its line, at the top or, beside a near one, at the bottom."""
    (low, high), last, top = ax.get_xlim(), -np.inf, False
    for cut, chosen in zip(dataset["cutoff"].values, dataset["chosen"].values, strict=True):
        place = (cut - low) / (high - low)
        top, last = not top if place - last < NAME_WIDTH else True, place
        if str(chosen) != "given":
            ax.annotate(str(chosen), (cut, 1.0 if top else 0.0), xycoords=("data", "axes fraction"), rotation=90,
                        xytext=(-1, -2 if top else 2), textcoords="offset points", ha="right",
                        va="top" if top else "bottom", fontsize="x-small", color="0.2")  # fmt: skip


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


def size(dataset: xr.Dataset) -> tuple[float, float]:
    """Width and height of one panel in inches."""
    return 7.2, 6.6
