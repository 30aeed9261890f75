"""The weights of one batch, drawn."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.patheffects import withStroke

from cocos import results

__all__ = ["together", "weight_map"]

DECADES = 4  # of shares, below the largest one, that have colours of their own
NONE = "0.93"  # negatives without any weight
OUT = "white"  # pairs that take no part


def weight_map(dataset: xr.Dataset, *, most: float | None = None, ax: Axes | None = None) -> Axes:
    """Draw the share of each negative of one batch as a heat map, queries downwards.

    Positives are outlined: a circle where one is pulled, an empty square where it has no weight or is pushed. Negatives
    without weight are light grey, pairs that take no part are white. A line in the colour bar is eps.

    Args:
        dataset: of `cocos.measures.weight_map`.
        most: share at the top of the colours, which makes pictures comparable; None: the largest of a negative.
        ax: where to draw; None is the current Axes.
    """
    ax = ax or plt.gca()
    share, positive, negative = (dataset[name].values for name in ("share", "positive", "negative"))
    weighed = negative & (share > 0)
    queries, candidates = share.shape
    extent = (-0.5, candidates - 0.5, queries - 0.5, -0.5)
    ax.set_facecolor(OUT)
    ax.imshow(np.where(negative & ~weighed, 1.0, np.nan), cmap=ListedColormap([NONE]),
              extent=extent, aspect="auto", interpolation="nearest")  # fmt: skip
    most = most or _most(dataset) or 1.0
    norm = LogNorm(most * 10.0**-DECADES, most, clip=True)
    image = ax.imshow(np.where(weighed, share, np.nan), cmap=sns.color_palette("cividis", as_cmap=True), norm=norm,
                      extent=extent, aspect="auto", interpolation="nearest")  # fmt: skip
    bar = ax.figure.colorbar(image, ax=ax, label="share of a negative", shrink=0.85, extend="min")
    eps = dataset.attrs["eps"]
    if norm.vmin < eps < norm.vmax:
        bar.ax.axhline(eps, color="black", linewidth=1.6, path_effects=[withStroke(linewidth=3, foreground="white")])
        bar.ax.annotate("eps", (0, eps), xycoords=("axes fraction", "data"), xytext=(-3, 0), ha="right", va="center",
                        textcoords="offset points", fontsize="small")  # fmt: skip
    size = max(1.0, min(9.0, 240 / max(queries, candidates)))
    pulled = positive & (dataset["weight"].values < 0)
    for mask, marker, said in ((pulled, "o", "positive"), (positive & ~pulled, "s", "positive that is not pulled")):
        if mask.any():
            y, x = np.nonzero(mask)
            ax.plot(x, y, marker, markersize=size, markerfacecolor="none", markeredgecolor="black",
                    markeredgewidth=0.9, linestyle="none", rasterized=True, label=said)  # fmt: skip
    how = {"batch": "in the order of the batch", "group": "by group"}[dataset.attrs["order"]]
    ax.set(
        xlabel=f"candidate, {how}", ylabel="query", title=f"{results.heading(dataset)}, {dataset.attrs['direction']}"
    )
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2, frameon=False, fontsize="small")
    return ax


def together(datasets: Sequence[xr.Dataset]) -> dict[str, float | None]:
    """What panels that stand side by side have in common: the largest share of all of them."""
    return {"most": max(map(_most, datasets)) or None}


def _most(dataset: xr.Dataset) -> float:
    return float(dataset["share"].where(dataset["negative"], 0).max())
