"""How many negatives contribute per query, drawn."""

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from cocos import results

__all__ = ["count"]

SHOWN = 0.995  # a few queries with very many negatives would squeeze all others against the axis


def count(dataset: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Draw the distribution of contributing negatives per query, one line and one mean for each direction.

    Args:
        dataset: of `cocos.measures.count`.
        ax: where to draw; None is the current Axes.
    """
    ax = ax or plt.gca()
    counted = dataset["contributing"]
    edges = np.arange(-0.5, float(counted.max()) + 1.5)
    shown = max(3.0, float(counted.quantile(SHOWN)))
    names = dataset["direction"].values
    for name, style, colour in zip(names, ("-", "--"), sns.color_palette("colorblind", 2), strict=False):
        values = counted.sel(direction=name).values
        values = values[np.isfinite(values)]
        part = 100 * np.histogram(values, edges)[0] / len(values)
        ax.stairs(
            part,
            edges,
            color=colour,
            linestyle=style,
            linewidth=1.6,
            label=f"{name}, mean {values.mean():.2f}",
        )
        ax.axvline(values.mean(), color=colour, linestyle=style, linewidth=0.8, alpha=0.7)
    ax.set(
        xlabel="contributing negatives per query",
        ylabel="queries (%)",
        title=results.heading(dataset),
        xlim=(-0.5, max(1.5, min(edges[-1], shown + 0.5))),
        ylim=(0, None),
    )
    if shown + 0.5 < edges[-1]:
        beyond = float((counted > shown + 0.5).sum() / counted.notnull().sum())
        note = f"{100 * beyond:.2f} % of the queries\nhave more, up to {counted.max():.0f}"
        ax.text(0.98, 0.72, note, transform=ax.transAxes, ha="right", va="top", fontsize="small", color="0.3")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend(frameon=False)
    sns.despine(ax=ax)
    return ax
