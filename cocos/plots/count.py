"""How many negatives contribute per query, drawn."""

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

__all__ = ["count"]


def count(dataset: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Draw the distribution of contributing negatives per query, one line and one mean for each direction.

    Args:
        dataset: of `cocos.measures.count`.
        ax: where to draw; None is the current Axes.
    """
    ax = ax or plt.gca()
    counted = dataset["contributing"]
    edges = np.arange(-0.5, float(counted.max()) + 1.5)
    names = dataset["direction"].values
    for name, style, colour in zip(names, ("-", "--"), sns.color_palette("colorblind", 2), strict=False):
        values = counted.sel(direction=name).values
        values = values[np.isfinite(values)]
        part = 100 * np.histogram(values, edges)[0] / len(values)
        ax.stairs(part, edges, color=colour, linestyle=style, linewidth=1.6, label=f"{name}, mean {values.mean():.2f}")
        ax.axvline(values.mean(), color=colour, linestyle=style, linewidth=0.8, alpha=0.7)
    ax.set(
        xlabel="contributing negatives per query",
        ylabel="queries (%)",
        title=dataset.attrs["loss_repr"],
        xlim=(-0.5, edges[-1]),
        ylim=(0, None),
    )
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend(frameon=False)
    sns.despine(ax=ax)
    return ax
