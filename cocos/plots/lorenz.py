"""Plot of the part of the push on the heaviest negatives."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import xarray as xr
from matplotlib.axes import Axes

from cocos.plots.labels import STYLES, curves, drawn, palette, series, titled, whole
from cocos.plots.wording import between, listed

# Identifier of the curves among the lines of the axes.
CURVE = "push of the heaviest"
# Width and height of one panel in inches.
SIZE = (6.4, 4.4)


def lorenz(
    dataset: xr.Dataset | Sequence[xr.Dataset],
    *,
    names: Sequence[str] | None = None,
    band: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Draw the part of the push on the k heaviest negatives against log k, a line for each loss or file.

    Directions that agree within 2 % share a line.

    Args:
        dataset: of `cocos.measures.lorenz`, or several.
        names: of several; None: their losses.
        band: shade the 5th to 95th percentile over the queries, if there is one Dataset.
        ax: where to draw; None is the current Axes.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> cocos.plots.lorenz(cocos.measures.lorenz(embeddings)).has_data()
        True
    """
    ax = ax or plt.gca()
    several = series(dataset, names)
    lines = curves(several, ["held"])
    most = max(int(each["k"].max()) for each in several.values())
    for place, ((name, one), colour) in enumerate(zip(lines, palette(len(lines)), strict=True)):
        if band and len(several) == 1:
            low, high = 100 * one["held_low"], 100 * one["held_high"]
            ax.fill_between(one["k"], low, high, color=colour, alpha=0.13, linewidth=0)
        ax.plot(one["k"], 100 * one["held"], color=colour, linestyle=STYLES[place % len(STYLES)], linewidth=1.8,
                gid=CURVE, label=name or "all directions")  # fmt: skip
    ax.set(xscale="log", xlim=(0.94, most * 1.06), ylim=(0, 103))
    ticks = [tick for tick in (1, 2, 5, 10, 20, 50, 100, 1000, 10_000, 100_000) if tick < 0.75 * most] + [most]
    whole(ax.xaxis, ticks)
    ax.set(
        xlabel=f"heaviest negatives of a query (logarithmic axis)\n{drawn(several)}",
        ylabel="push fraction (%)",
    )
    ax.grid(axis="y", color="0.92")
    ax.set_axisbelow(True)
    titled(ax, title(list(several.values()), list(several)))
    if len(lines) > 1:
        at = [float(one["held"].sel(k=min(3, most), method="nearest")) for _, one in lines]
        order = sorted(range(len(lines)), key=lambda k: -at[k])
        handles = [[each for each in ax.lines if each.get_gid() == CURVE][k] for k in order]
        ax.legend(handles=handles, frameon=False, loc="lower right", fontsize="small")
    return ax


def title(datasets: Sequence[xr.Dataset], names: Sequence[str]) -> str:
    """State the part of the push on the ten heaviest negatives, or on the heaviest of fewer than twenty."""
    k = 10 if min(int(data["k"].max()) for data in datasets) >= 20 else 1
    held = [between(data["held"].sel(k=k).values) for data in datasets]
    heaviest = f"{k} heaviest negatives carry" if k > 1 else "heaviest negative carries"
    return f"The {heaviest} {listed(names, held)} of a query's push"
