"""Plot of the number of candidates of each query at each score."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke

from cocos import results
from cocos.base.errors import InputError
from cocos.plots.labels import STYLES, below, logarithmic, palette, series, tiny_points
from cocos.plots.wording import listed, plain

# Smallest number of queries whose percentiles are drawn.
FEWEST_QUERIES = 40
SPREAD_MEANING = "spread of neighbour k: deviation of its score between queries, in units of that within a query"
# Width and height of one panel in inches.
SIZE = (6.4, 5.4)
# Height of the strip of the positives, as a fraction of the axes.
STRIP_HEIGHT = 0.16
# Width of the text beside the bar of a neighbour, as a fraction of the axis.
TEXT_WIDTH = 0.4
# Line style and width of each percentile.
PERCENTILE_STYLES = {5: (":", 1.8), 50: ("-", 2.2), 95: ("--", 1.8)}


def score_distribution(
    dataset: xr.Dataset | Sequence[xr.Dataset],
    *,
    names: Sequence[str] | None = None,
    direction: str | None = None,
    ends: Sequence[float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the negatives of each query against their score, and the 5th, 50th and 95th percentile over the queries.

    With fewer than 40 queries there are no percentiles. Bars below the axis show the score of the k-th neighbour from
    the 5th to the 95th percentile. The strip above has the positives of all queries. Several files have a colour each:
    the median of their queries, a band from the 5th to the 95th percentile, and the outline of their positives.

    Args:
        dataset: of `cocos.measures.score_distribution`, or several.
        names: of several; None: their titles.
        direction: of the queries; None: the first.
        ends: lowest and highest score to draw; None: those over all directions, so that panels are comparable.
        ax: where to draw; None is the current Axes.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> cocos.plots.score_distribution(cocos.measures.score_distribution(embeddings)).has_data()
        True
    """
    ax, several = ax or plt.gca(), series(dataset, names)
    every = list(several.values())
    for each in every:
        direction = results.direction(direction, [str(name) for name in each["direction"].values])
    assert direction is not None
    dataset, width = every[0], every[0].attrs["bin_width"]
    score = dataset["bin"].values
    edges = np.append(score - width / 2, score[-1] + width / 2)
    single = len(every) == 1
    # Without one metric and one width of bins there is no common axis.
    for key, what in (("metric", "scores are"), ("bin_width", "bins are of")):
        found = {name: each.attrs[key] for name, each in several.items()}
        if len(set(found.values())) > 1:
            said = " and ".join(f"{value if isinstance(value, str) else f'{value:.3g}'} in {name}"
                                for name, value in found.items())  # fmt: skip
            raise InputError(f"{what} {said}: draw those with one metric and one number of bins over the same range")
    reach = [_ends(each, edges) for each in every]
    lowest, highest = (min(low for low, _ in reach), max(high for _, high in reach)) if ends is None else ends
    strip, low = ax.inset_axes([0, 1 - STRIP_HEIGHT, 1, STRIP_HEIGHT], sharex=ax), 0.0
    if single:
        handles, top, low = _alone(dataset.sel(direction=direction), edges, (lowest, highest), ax, strip)
    else:
        handles, top = _overlaid(several, direction, edges, ax, strip)
    logarithmic(ax, top)
    spread = single and bool(np.isfinite(dataset["spread"].sel(direction=direction)).any())
    meant = f"\n{SPREAD_MEANING}" if spread else ""
    ax.set(
        xlabel=f"{plain(dataset.attrs['metric']).replace('_', ' ')} score{meant}",
        ylabel=f"negatives of a query in a bin of {width:.2g}\n(logarithmic, linear below 1)",
        xlim=(lowest, highest),
        ylim=(low, top * (3 * top) ** STRIP_HEIGHT * 4),
    )
    ax.set_title(title(dataset, direction) if single else title_of(several, direction), fontsize="medium")
    ax.minorticks_off()
    most = max(1.0, *(float(each["positives"].sel(direction=direction).max()) for each in every))
    strip.set(ylim=(0, 1.1 * most), yticks=[0, most])
    strip.annotate("positive pairs", (0, 1), xycoords="axes fraction", xytext=(4, 0), textcoords="offset points",
                   va="top", fontsize="small", color="0.3")  # fmt: skip
    strip.tick_params(labelbottom=False, bottom=False, labelsize=tiny_points())
    strip.patch.set_visible(False)
    below(ax, lines=3, handles=handles, ncols=3)
    import seaborn as sns  # takes as long to import as a picture to draw

    sns.despine(ax=ax)
    sns.despine(ax=strip)
    return ax


def _overlaid(
    several: dict[str, xr.Dataset], direction: str, edges: np.ndarray, ax: Axes, strip: Axes
) -> tuple[list, float]:
    """Draw median, band and outline of the positives of each Dataset; return handles and the most negatives."""
    handles, top = [], 10.0
    for place, ((name, each), colour) in enumerate(zip(several.items(), palette(len(several)), strict=True)):
        one = each.sel(direction=direction)
        low, middle, high = one["band"].transpose("percentile", "bin").values
        ax.fill_between(one["bin"], low, high, step="mid", color=colour, alpha=0.15, linewidth=0)
        handles += ax.plot(one["bin"], middle, color=colour, linestyle=STYLES[place % len(STYLES)], linewidth=2,
                           label=f"{name}: median query")  # fmt: skip
        strip.stairs(one["positives"], edges, color=colour, linestyle=":", linewidth=1.6, label=name)
        top = max(top, float(high.max()))
    handles += [Patch(color="0.85", label="5 % to 95 % of the queries")]
    return [*handles, Line2D([], [], color="0.3", linestyle=":", label="positives, above")], top


def _alone(
    one: xr.Dataset, edges: np.ndarray, ends: tuple[float, float], ax: Axes, strip: Axes
) -> tuple[list, float, float]:
    """Draw queries, percentiles, neighbours and positives; return handles, and the ends of the axis of negatives."""
    score = one["bin"].values
    blue, orange, green = palette(3)
    lines = one["negatives"].dropna("query", how="all").transpose("query", "bin").values
    strip.stairs(one["positives"], edges, fill=True, facecolor=(*orange, 0.25), edgecolor=(*orange, 0.9), hatch="///",
                  linewidth=0.8, label="positives")  # fmt: skip
    thin = [np.column_stack([score, line]) for line in lines]
    ax.add_collection(LineCollection(thin, colors=[(*blue, min(0.5, 12 / len(thin)))], linewidths=0.6, rasterized=True))
    outline = [withStroke(linewidth=3.4, foreground="white")]
    for percentile in one["percentile"].values if len(lines) >= FEWEST_QUERIES else ():
        style, thick = PERCENTILE_STYLES.get(int(percentile), ("-.", 1.4))
        band = one["band"].sel(percentile=percentile)
        ax.plot(score, band, color="0.1", linestyle=style, linewidth=thick, path_effects=outline,
                label="median" if percentile == 50 else f"{percentile:g}th percentile")  # fmt: skip
    low = _neighbours(one, green, ends, ax)
    handles = [Line2D([], [], color=blue, linewidth=0.8, label="a query"), *ax.get_legend_handles_labels()[0]]
    return [*handles, *strip.get_legend_handles_labels()[0]], max(10.0, float(np.nanmax(lines))), low


def _ends(dataset: xr.Dataset, edges: np.ndarray) -> tuple[float, float]:
    """Range of scores in which any direction has candidates, with room for the texts of the neighbours."""
    there = (dataset["negatives"] > 0).any(["direction", "query"]) | (dataset["positives"] > 0).any("direction")
    places, width = np.flatnonzero(there.values), dataset.attrs["bin_width"]
    left, right = edges[places[0]] - 2 * width, edges[places[-1] + 1] + 2 * width
    bands = dataset["kth_band"].stack(each=("direction", "k")).transpose("each", "percentile").values
    for low, _, high in bands[np.isfinite(bands).all(axis=1)]:
        if max(low - left, right - high) < TEXT_WIDTH * (right - left):  # neither side has room for its text
            left = (low - TEXT_WIDTH * right) / (1 - TEXT_WIDTH)
    return left, right


def _neighbours(one: xr.Dataset, colour, ends: tuple[float, float], ax: Axes) -> float:
    """Draw a bar below the axis for the score of each k-th neighbour, 5th to 95th percentile; return the lowest place.

    The text of a bar is on the side with more room between the ends of the axis.
    """
    place = -0.35
    for k in one["k"].values:
        low, middle, high = (float(value) for value in one["kth_band"].sel(k=k))
        if not np.isfinite(middle):
            continue
        ax.plot([low, high], [place] * 2, color=colour, linewidth=3, solid_capstyle="butt", label=f"_k = {k}")
        ax.plot([middle], [place], marker="|", markersize=9, markeredgewidth=2, color="0.1", label=f"_median {k}")
        spread = float(one["spread"].sel(k=k))
        text = f"neighbour {k}, spread {spread:.2f}" if np.isfinite(spread) else f"neighbour {k}"
        at, ha, shift = (low, "right", -4) if low - ends[0] >= ends[1] - high else (high, "left", 4)
        ax.annotate(text, (at, place), xytext=(shift, 0), textcoords="offset points", ha=ha, va="center",
                    fontsize=tiny_points(), color="0.15")  # fmt: skip
        place -= 0.35
    ax.axhline(0, color="0.6", linewidth=0.6)
    return place


def title_of(several: dict[str, xr.Dataset], direction: str) -> str:
    """State the median score of the middle one of the neighbours, of each Dataset."""
    parts, at = [], 0
    for data in several.values():
        one = data.sel(direction=direction)
        at = int(one["k"][one.sizes["k"] // 2])
        parts.append(f"{float(one['kth_band'].sel(k=at).isel(percentile=1)):.2f}")
    return f"{plain(direction, 24)}: neighbour {at} of the median query has a score of {listed(list(several), parts)}"


def title(dataset: xr.Dataset, direction: str) -> str:
    """State the range of the score of the k-th neighbour over the queries, for the middle one of the ks."""
    one = dataset.sel(direction=direction)
    queries = one["negatives"].dropna("query", how="all").sizes["query"]
    number = f"({queries} {'query' if queries == 1 else 'queries'})"
    one = one.dropna("k", how="all", subset=["kth_band"])
    if not one.sizes["k"]:
        return f"{plain(direction)} {number}"
    one = one.isel(k=one.sizes["k"] // 2)
    low, high = float(one["kth_band"].isel(percentile=0)), float(one["kth_band"].isel(percentile=-1))
    return f"{plain(direction, 24)}: neighbour {int(one['k'])} has a score from {low:.2f} to {high:.2f} {number}"
