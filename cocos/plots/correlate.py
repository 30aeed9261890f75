"""Plot of many runs: every run a point, or the way of its checkpoints, a colour and a marker for each family."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter

from cocos.base.errors import InputError, nearest
from cocos.plots.labels import below, palette, single, titled
from cocos.plots.wording import plain

# Markers of families.
FAMILY_MARKERS = "os^Dvp*XhP"
# Of each choice of `show`: what its title says, and the levels that it states.
RUN_POINTS = {
    "runs": ("at the end", {"settings": "settings", "families": "families"}),
    "checkpoints": ("along runs", {"within_run": "checkpoints"}),
}
# Ratio of the largest x to the smallest, or to the median where some are 0, from which its axis is logarithmic.
LOG_RATIO = 10.0
# Ratio of the largest x to the smallest up to which a logarithmic axis has ticks between powers of ten.
FEW_DECADES = 100.0
# Why several Datasets cannot share the plot.
ALONE = "its points are the runs of one table"
# Width and height of one panel in inches.
SIZE = (5.2, 4.2)


def correlate(
    dataset: xr.Dataset | Sequence[xr.Dataset], *, x: str | None = None, show: str = "runs", ax: Axes | None = None
) -> Axes:
    """Draw y against x: every run a point at its last checkpoint, or the way of its checkpoints to that point.

    No line is fitted, for points of several levels have no common one: the title has the rank correlations.

    Args:
        dataset: of `cocos.measures.correlate`.
        x: number that is drawn; None: the first.
        show: `runs`, or `checkpoints`.
        ax: where to draw; None is the current Axes.

    Examples:
        >>> import xarray as xr
        >>> runs = {"family": ("run", ["triplet"] * 6), "config": ("run", list("abcdef"))}
        >>> numbers = {"contributing": ("run", [1, 2, 3, 4, 5, 6]), "rsum": ("run", [3, 1, 2, 5, 4, 6])}
        >>> data = cocos.measures.correlate(xr.Dataset(numbers, runs), permutations=100, resamples=100)
        >>> cocos.plots.correlate(data).has_data()
        True
    """
    data, ax = single(dataset, ALONE), ax or plt.gca()
    names = [str(each) for each in data["x"].values]
    if x is not None and x not in names:
        raise InputError(nearest("x", x, names))
    if show not in RUN_POINTS:
        raise InputError(nearest("show", show, RUN_POINTS))
    one = data.sel(x=x or names[0])
    families, drawn = [str(each) for each in dict.fromkeys(data["family"].values.tolist())], []
    handles = []
    for place, (family, colour) in enumerate(zip(families, palette(len(families)), strict=True)):
        marker = FAMILY_MARKERS[place % len(FAMILY_MARKERS)]
        own = one.isel(run=np.flatnonzero(data["family"].values == family))
        pairs = list(zip(own["x_value"].values, own["y_value"].values, strict=True))
        ends = np.full((len(pairs), 2), np.nan)  # the last checkpoint that has either; not drawn where it lacks one
        for end, (across, up) in zip(ends, pairs, strict=True):
            if len(there := np.flatnonzero(np.isfinite(across) | np.isfinite(up))):
                end[:] = across[there[-1]], up[there[-1]]
            if show == "checkpoints":
                known = np.isfinite(across) & np.isfinite(up)
                ax.plot(across[known], up[known], color=colour, linewidth=0.6, alpha=0.45, zorder=1)
        size = 3.5 if show == "checkpoints" else 5.5
        ax.plot(*ends.T, marker, color=colour, markersize=size, alpha=0.8, linestyle="none", markeredgecolor="white",
                markeredgewidth=0.4)  # fmt: skip
        drawn.append(own["x_value"].values.ravel() if show == "checkpoints" else ends[:, 0])
        label = f"{plain(family, 26)} ({len(ends)})"
        handles.append(Line2D([], [], color=colour, marker=marker, linestyle="none", markersize=5.5, label=label))
    _scale(ax, np.concatenate(drawn))
    ax.set_xlabel(_labelled(str(one["x"].item()), str(one["x_units"].item())))
    ax.set_ylabel(_labelled(data.attrs["y"], data.attrs["y_units"]))
    titled(ax, title(data, x, show))
    if len(handles) > 1:
        below(ax, handles=handles, ncols=min(len(handles), 3))
    return ax


def _labelled(name: str, units: str) -> str:
    return plain(name, 40) + (f" ({plain(units, 30)})" if units not in {"", "1"} else "")


def _scale(ax: Axes, values: np.ndarray) -> None:
    """A logarithmic axis for numbers of several orders of magnitude, linear up to their median where some are 0."""
    known = values[np.isfinite(values)]
    above = known[known > 0]
    if not len(above) or known.min() < 0:
        return
    if len(above) == len(known) and above.max() / above.min() >= LOG_RATIO:
        ax.set_xscale("log")
        if above.max() / above.min() < FEW_DECADES:
            ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.xaxis.set_minor_formatter(NullFormatter())
    elif above.max() / np.median(above) >= LOG_RATIO:
        ax.set_xscale("symlog", linthresh=float(np.median(above)))


def title(data: xr.Dataset, x: str | None = None, show: str = "runs") -> str:
    """State the correlations of the levels that are shown."""
    one, said = data.sel(x=x or data["x"].values[0]), []
    where, levels = RUN_POINTS[show]
    for level, words in levels.items():
        each = one.sel(level=level)
        if str(each["undefined"].item()):
            continue
        low, high = float(each["low"]), float(each["high"])
        grid = plain(data.attrs.get("order", ""), 20) if level == "settings" else ""
        p = float(one["ordered_p_holm"] if grid else one["p_holm"] if level == "settings" else each["p"])
        told, number = f"{words}: {float(each['rho']):+.2f} [{low:+.2f}, {high:+.2f}]", f"n = {int(each['number'])}"
        along = [f"p = {p:.2g} against smooth curves along {grid}"] if grid else []
        said += [f"{told}, {number}", *along] if grid else [f"{told}, p = {p:.2g}, {number}"]
    start = f"{plain(str(one['x'].item()), 30)} and {plain(data.attrs['y'], 30)} {where}"
    return "\n".join([f"{start}, rank correlation", *said] if said else [f"{start}: no rank correlation is defined"])
