"""Distance to proxy over the checkpoints of some runs, drawn."""

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
import xarray as xr
from matplotlib.axes import Axes

__all__ = ["dtp"]

STYLES = ("-", "--", "-.", ":")
LINE = 10.0  # height of a name, in points


def dtp(dataset: xr.Dataset, *, band: bool = True, log: bool = False, ax: Axes | None = None) -> Axes:
    """Draw AvgDTP, one line a run with its name at the end, its band over the classes, and its alpha as a dotted line.

    The line of a run that has diverged ends in a cross at its last checkpoint with numbers, and its name says so.

    Args:
        dataset: of `cocos.measures.dtp`.
        band: draw the 5th to 95th percentile over the classes.
        log: distances on a logarithmic axis.
        ax: where to draw; None is the current Axes.
    """
    ax = ax or plt.gca()
    names, steps = dataset["run"].values, dataset["step"].values
    colours, ends = sns.color_palette("colorblind", len(names)), {}
    for k, (name, colour) in enumerate(zip(names, colours, strict=True)):
        one = dataset.sel(run=name)
        ax.plot(steps, one["average"], color=colour, linestyle=STYLES[k % len(STYLES)], linewidth=1.8, label=str(name),
                marker="o" if len(steps) == 1 else None)  # fmt: skip
        if band:
            ax.fill_between(steps, one["low"], one["high"], color=colour, alpha=0.12, linewidth=0)
        last = int(np.isfinite(one["average"].values).sum()) - 1
        end, text = float(one["average"][last]), str(name)
        if last + 1 < len(steps):
            ax.plot(steps[last], end, color=colour, marker="x", markersize=7, markeredgewidth=1.8)
            text += ": diverged"
        ends.setdefault(steps[last], []).append((end, text, colour))
        if np.isfinite(alpha := float(one["alpha"])):
            ax.plot((steps[0], steps[-1]), [alpha] * 2, color=colour, linewidth=0.8, linestyle=":")
            ax.annotate(f"α = {alpha:g}", (0, alpha), xycoords=("axes fraction", "data"), xytext=(3, 2),
                        textcoords="offset points", fontsize="small", color=colour)  # fmt: skip
    ax.margins(x=0.02)
    ax.set(
        xlabel=dataset["step"].attrs["long_name"],
        ylabel=f"mean distance to the own proxy ({dataset.attrs['metric'].replace('_', ' ')})",
        title="Distance to proxy, mean over classes",
    )
    ax.set(yscale="log") if log else ax.set_ylim(0, None)
    for step, named in ends.items():
        _name(ax, step, sorted(named))
    sns.despine(ax=ax)
    return ax


def _name(ax: Axes, step: float, named: list[tuple]) -> None:
    """Write the names of the lines that end at a step, from the lowest up, as near to their ends as they fit."""
    points = 72 / ax.figure.dpi
    height = np.array([ax.transData.transform((step, end))[1] * points for end, _, _ in named])
    order = np.arange(len(named))
    free = height - LINE * order  # names may not come nearer than a line: least squares with this rising is isotonic
    place = [max(min(free[j : k + 1].mean() for k in order[i:]) for j in order[: i + 1]) for i in order] + LINE * order
    for (end, text, colour), moved in zip(named, place - height, strict=True):
        ax.annotate(text, (step, end), xytext=(7, moved), textcoords="offset points", va="center", fontsize="small",
                    color=colour)  # fmt: skip
