"""The loss and the weight of a negative over the scores of a positive and a negative, drawn."""

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from cocos import results

__all__ = ["score_landscape"]

DARK, HALO = "0.05", [withStroke(linewidth=2.4, foreground=(1, 1, 1, 0.85))]  # seen on any colour, and in grey


def score_landscape(dataset: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Draw the weight of the negatives as colour, and the loss as lines; both scores are equal on the dashed line.

    Args:
        dataset: of `cocos.measures.score_landscape`.
        ax: where to draw; None is the current Axes.
    """
    ax = ax or plt.gca()
    score = dataset["positive"].values
    mesh = ax.pcolormesh(
        score,
        dataset["negative"],
        dataset["push"].transpose("negative", "positive"),
        cmap=sns.color_palette("cividis", as_cmap=True),
        shading="nearest",
        rasterized=True,
    )
    many = int(dataset.attrs["negatives"])
    label = "weight of the negative" if many == 1 else f"weight of the {many} negatives"
    ax.figure.colorbar(mesh, ax=ax, label=label, shrink=0.85)
    height = dataset["loss"].transpose("negative", "positive")
    if float(height.max()) > float(height.min()):
        levels = np.linspace(float(height.min()), float(height.max()), 9)[1:-1]
        lines = ax.contour(score, dataset["negative"], height, levels=levels, colors=DARK, linewidths=0.9)
        lines.set(path_effects=HALO)
        for text in ax.clabel(lines, fontsize="x-small", fmt="%.3g"):
            text.set_bbox({"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "pad": 0.6})
    ax.plot(score[[0, -1]], score[[0, -1]], color=DARK, linestyle="--", linewidth=0.9, path_effects=HALO)
    ax.annotate("dashed: equal scores", (1, 1), xycoords="axes fraction", xytext=(0, 3), textcoords="offset points",
                ha="right", fontsize="small", color="0.3")  # fmt: skip
    metric = dataset.attrs["metric"].replace("_", " ")
    ax.set(
        xlabel=f"score of the positive ({metric})",
        ylabel="score of the negative" + ("s" if many > 1 else ""),
        aspect="equal",
        xlim=score[[0, -1]],
        ylim=score[[0, -1]],
    )
    ax.set_title(results.heading(dataset), fontsize="medium", pad=17)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(5))
    return ax
