"""Negatives against the temperature, drawn."""

import matplotlib.pyplot as plt
import seaborn as sns
import xarray as xr
from matplotlib.axes import Axes

from cocos import results
from cocos.errors import InputError, nearest

__all__ = ["temperature_curve"]

SHOWN = {"negatives": ("effective", "contributing_all"), "idle": ("idle_fraction",)}


def temperature_curve(dataset: xr.Dataset, *, show: str = "negatives", ax: Axes | None = None) -> Axes:
    """Draw numbers of negatives against the temperature or scale, a colour for each direction; its own value is marked.

    Args:
        dataset: of `cocos.measures.temperature_curve`.
        show: `negatives`, the effective number and the contributing ones; or `idle`, queries without any of these.
        ax: where to draw; None is the current Axes.

    Raises:
        InputError: something else is to be shown.
    """
    if show not in SHOWN:
        raise InputError(nearest("show", show, SHOWN))
    ax = ax or plt.gca()
    ax.set_xscale("log")
    above = results.above(dataset.attrs)
    said = {"effective": "effective number", "contributing_all": above, "idle_fraction": "idle"}
    names = dataset["direction"].values
    looks = ({"linewidth": 3.2, "alpha": 0.6}, {"linewidth": 1.1, "marker": "o", "markersize": 4, "markevery": 2})
    for name, look, colour in zip(names, looks, sns.color_palette("colorblind", 2), strict=False):
        for key, style in zip(SHOWN[show], ("-", "--"), strict=False):
            one = dataset[key].sel(direction=name)
            ax.plot(one["value"], 100 * one if show == "idle" else one, color=colour, linestyle=style,
                    markerfacecolor="white", label=f"{name}, {said[key]}", **look)  # fmt: skip
    own, parameter = dataset.attrs["own"], dataset.attrs["parameter"]
    ax.axvline(own, color="0.4", linewidth=0.8)
    ax.annotate(f"{parameter} = {own:g}", (own, 1), xycoords=("data", "axes fraction"), xytext=(3, -10),
                textcoords="offset points", fontsize="small", color="0.3")  # fmt: skip
    ax.set(
        xlabel=f"{parameter} ({dataset['value'].attrs['units']})",
        ylabel=f"queries without any: {above} (%)" if show == "idle" else "negatives per query",
        title=results.heading(dataset),
        ylim=(0, None),
    )
    ax.legend(frameon=False)
    sns.despine(ax=ax)
    return ax
