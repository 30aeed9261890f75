"""Paired differences with their intervals on a zero line."""

from collections.abc import Sequence

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes

from cocos.statistics import Difference

__all__ = ["OPEN", "forest"]

OPEN = "0.55"  # of a difference that is not resolved


def forest(
    differences: Sequence[Difference],
    points: Sequence[Sequence[float]],
    *,
    at: Sequence[float],
    published: Sequence[float] | None = None,
    resolved: Sequence[bool] | None = None,
    upright: bool = False,
    offset: float = 0.3,
    ax: Axes,
) -> Axes:
    """Draw differences as points with a bar for the interval, blue where it is resolved and grey where not.

    Every pair is a small dot beside its bar; a published difference is an open diamond on the other side, so that none
    covers another.

    Args:
        differences: of `cocos.statistics.paired`.
        points: the differences of the single pairs, of each.
        at: place of each on the axis of the names.
        published: what a paper has instead of each, if any.
        resolved: which ones to draw as resolved; None is those whose interval excludes 0.
        upright: names on the x axis and differences on the y axis, instead of the other way round.
        offset: distance of the dots and of the diamonds from the bars, in units of `at`.
        ax: where to draw.
    """
    blue, orange = sns.color_palette("colorblind")[0], sns.color_palette("colorblind")[1]

    def put(values, places, *args, **style):
        ax.plot(*((places, values) if upright else (values, places)), *args, **style)

    (ax.axhline if upright else ax.axvline)(0, color="black", linewidth=0.9, zorder=1)
    told = [one.resolved for one in differences] if resolved is None else resolved
    for k, (one, pairs, place, clear) in enumerate(zip(differences, points, at, told, strict=True)):
        colour = blue if clear else OPEN
        put(pairs, np.full(len(pairs), place + offset), "o", color=colour, markersize=3.2, alpha=0.6, markeredgewidth=0)
        put((one.low, one.high), (place, place), color=colour, linewidth=2.4, solid_capstyle="butt")
        put(one.mean, place, "o", color=colour, markersize=7, markeredgecolor="white", zorder=4)
        if published is not None and np.isfinite(published[k]):
            put(
                published[k],
                place - offset,
                "D",
                color="none",
                markeredgecolor=orange,
                markeredgewidth=1.6,
                markersize=6,
            )
    return ax
