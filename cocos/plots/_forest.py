"""Forest plot: paired differences with their intervals, against a line at zero."""

from collections.abc import Sequence

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes

from cocos.counting.statistics import Difference

# Grey level of a difference that is not resolved.
UNRESOLVED_GREY = "0.55"


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
    """Draw differences of `cocos.statistics.paired` as points with a bar for the interval, blue if resolved, else grey.

    Each pair of `points` is a small dot on one side of the bar, a published difference (NaN: none) an open diamond on
    the other side. `upright` puts the names, which are `at` these places, on the x axis; `offset` is in the same units.
    """
    blue, orange = sns.color_palette("colorblind")[0], sns.color_palette("colorblind")[1]

    def put(values, places, *args, **style):
        ax.plot(*((places, values) if upright else (values, places)), *args, **style)

    (ax.axhline if upright else ax.axvline)(0, color="black", linewidth=0.9, zorder=1)
    told = [one.resolved for one in differences] if resolved is None else resolved
    for k, (one, pairs, place, clear) in enumerate(zip(differences, points, at, told, strict=True)):
        colour = blue if clear else UNRESOLVED_GREY
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
