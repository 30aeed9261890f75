"""Distance to proxy over the checkpoints of some runs, drawn."""

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
import xarray as xr
from matplotlib.axes import Axes

__all__ = ["dtp"]

STYLES = ("-", "--", "-.", ":")


def dtp(dataset: xr.Dataset, *, band: bool = True, ax: Axes | None = None) -> Axes:
    """Draw AvgDTP, one line a run with its name at the end, its band over the classes, and its alpha as a dotted line.

    The line of a run that has diverged ends in a cross at its last checkpoint with numbers, and its name says so.

    Args:
        dataset: of `cocos.measures.dtp`.
        band: draw the 5th to 95th percentile over the classes.
        ax: where to draw; None is the current Axes.
    """
    ax = ax or plt.gca()
    names, steps = dataset["run"].values, dataset["step"].values
    colours = sns.color_palette("colorblind", len(names))
    for k, (name, colour) in enumerate(zip(names, colours, strict=True)):
        one = dataset.sel(run=name)
        ax.plot(steps, one["average"], color=colour, linestyle=STYLES[k % len(STYLES)], linewidth=1.8, label=str(name))
        if band:
            ax.fill_between(steps, one["low"], one["high"], color=colour, alpha=0.12, linewidth=0)
        last = int(np.isfinite(one["average"].values).sum()) - 1
        end, diverged = (steps[last], float(one["average"][last])), last + 1 < len(steps)
        if diverged:
            ax.plot(*end, color=colour, marker="x", markersize=7, markeredgewidth=1.8)
        ax.annotate(f"{name}: diverged" if diverged else str(name), end, xytext=(7 if diverged else 5, 0),
                    textcoords="offset points", va="center", fontsize="small", color=colour)  # fmt: skip
        if np.isfinite(one["alpha"]):
            ax.axhline(float(one["alpha"]), color=colour, linewidth=0.8, linestyle=":")
            ax.annotate("α", (0, float(one["alpha"])), xycoords=("axes fraction", "data"), xytext=(3, 2),
                        textcoords="offset points", fontsize="small", color=colour)  # fmt: skip
    ax.margins(x=0.02)
    ax.set(
        xlabel=dataset["step"].attrs["long_name"],
        ylabel=f"mean distance to the own proxy ({dataset.attrs['metric'].replace('_', ' ')})",
        title="Distance to proxy, mean over classes",
        ylim=(0, None),
    )
    sns.despine(ax=ax)
    return ax
