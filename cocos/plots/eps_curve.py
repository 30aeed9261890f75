"""COCOS against the threshold, drawn."""

import matplotlib.pyplot as plt
import seaborn as sns
import xarray as xr
from matplotlib.axes import Axes

from cocos import results

__all__ = ["eps_curve"]


def eps_curve(dataset: xr.Dataset, *, mark: float = 0.01, ax: Axes | None = None) -> Axes:
    """Draw the mean number of contributing negatives against eps, one line for each direction.

    Args:
        dataset: of `cocos.measures.eps_curve`.
        mark: the eps to mark; 0.01 is the published one.
        ax: where to draw; None is the current Axes.
    """
    ax = ax or plt.gca()
    ax.set_xscale("log")
    names = dataset["direction"].values
    for name, style, colour in zip(names, ("-", "--"), sns.color_palette("colorblind", 2), strict=False):
        one = dataset["contributing_all"].sel(direction=name)
        ax.plot(one["eps"], one, color=colour, linestyle=style, label=name, marker="o" if one.size == 1 else None)
    ax.axvline(mark, color="0.4", linewidth=0.8)
    ax.annotate(f"eps = {mark:g}", (mark, 1), xycoords=("data", "axes fraction"), xytext=(3, -10),
                textcoords="offset points", fontsize="small", color="0.3")  # fmt: skip
    ax.set(
        xlabel="eps: smallest share that contributes",
        ylabel="contributing negatives per query",
        title=results.heading(dataset),
        ylim=(0, None if dataset["contributing_all"].any() else 1),
    )
    if not dataset["contributing_all"].any():
        ax.text(0.5, 0.5, "no negative contributes at any eps", transform=ax.transAxes, ha="center", va="center",
                color="0.3", bbox={"facecolor": "white", "edgecolor": "none"})  # fmt: skip
    ax.legend(frameon=False)
    sns.despine(ax=ax)
    return ax
