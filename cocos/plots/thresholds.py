"""What one cut-off means for each query, drawn."""

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
import xarray as xr
from matplotlib.axes import Axes

__all__ = ["size", "thresholds"]

LINE = 15  # points of a line of the legend, which stands between the axes and the title


def thresholds(dataset: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Draw how many candidates the queries get at each cut-off: the median and the 5th to the 95th percentile.

    Above them stand the part of the queries that gets nothing, and the part that gets no positive.

    Args:
        dataset: of `cocos.measures.thresholds`.
        ax: where to draw; None is the current Axes.
    """
    ax = ax or plt.gca()
    names = [str(name) for name in dataset["direction"].values]
    cuts = np.arange(dataset.sizes["cutoff"])
    looks = zip(names, "os", ("-", "--"), sns.color_palette("colorblind", 2), strict=False)
    for turn, (name, marker, style, colour) in enumerate(looks):
        one = dataset.sel(direction=name)
        low, middle, high = one["returned_band"].transpose("percentile", "cutoff").values
        place = cuts + 0.46 * (turn - (len(names) - 1) / 2)
        ax.vlines(
            place, low, high, color=colour, linestyle=style, linewidth=2.5, label=f"{name}: 5th to 95th percentile"
        )
        ax.plot(place, middle, marker, color=colour, markersize=8, markeredgecolor="0.1", label=f"{name}: median")
        for x, y, none, missed in zip(place, high, one["none_returned"].values, one["no_positive"].values, strict=True):
            ax.annotate(f"none {_tenth(none)}\nno pos. {_tenth(missed)}", (x, y), xytext=(0, 5), fontsize="x-small",
                        textcoords="offset points", ha="center", va="bottom", color="0.15")  # fmt: skip
    ticks = []
    for place in cuts:
        one = dataset.isel(cutoff=place)
        precision, recall = (100 * float(one[f"global_{key}"]) for key in ("precision", "recall"))
        said = f"{_tenth(precision)} %" if np.isfinite(precision) else "none"
        ticks.append(f"cosine {float(one['cutoff']):.3f}\nL2 {float(one['distance']):.3f}\n"
                     f"precision {said}\nrecall {_tenth(recall)} %")  # fmt: skip
    top = max(10.0, float(dataset["returned_band"].max()))
    ax.set_yscale("symlog", linthresh=1)
    powers = [10.0**n for n in range(int(np.log10(top)) + 1)]
    ax.set_yticks([0, *powers], ["0", *(f"{power:g}" for power in powers)])
    ax.set_xticks(cuts, ticks, fontsize="small")
    ax.set(
        xlabel="cut-off, with precision and recall over all pairs\n"
        "(none, no pos.: % of the queries with nothing, no positive)",
        ylabel="candidates returned to a query",
        xlim=(-0.6, len(cuts) - 0.4),
        ylim=(-0.15, 4 * top),
    )
    ax.minorticks_off()
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False, fontsize="small")
    ax.set_title(dataset.attrs["title"], pad=14 + LINE * len(names))
    sns.despine(ax=ax)
    return ax


def size(dataset: xr.Dataset) -> tuple[float, float]:
    """Width and height of a picture in inches: numbers of two directions stand beside each other at each cut-off."""
    return min(40.0, max(6.4, 1.0 + 0.85 * dataset.sizes["cutoff"] * dataset.sizes["direction"])), 5.2


def _tenth(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
