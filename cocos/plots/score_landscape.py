"""Plot of the loss and of the weight of a negative over the scores of a positive and a negative."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from cocos.plots.labels import below, colours, heading, shared_bar, single, tiny_points
from cocos.plots.wording import plain

# Levels of the scale of shares that panels have in common.
SHARE_LEVELS = tuple(k / 10 for k in range(11))
# Smallest distance between labelled lines, as a fraction of an axis.
LABEL_DISTANCE = 0.05
# Lines that are visible on any colour, and in grey: nearly black, with a white outline.
DARK_GREY, HALO = "0.05", [withStroke(linewidth=2.4, foreground=(1, 1, 1, 0.85))]
# Why several Datasets cannot share the plot.
ALONE = "a landscape of weights fills its plane with colour, so a second one would cover it"


def score_landscape(dataset: xr.Dataset | Sequence[xr.Dataset], *, share: bool = False, ax: Axes | None = None) -> Axes:
    """Draw the weight of the negatives as colour and the loss as lines; both scores are equal on the dashed line.

    Args:
        dataset: of `cocos.measures.score_landscape`.
        share: divide the weight by the unit of the loss, on a scale from 0 to 1 that panels have in common (`bar`).
        ax: where to draw; None is the current Axes.

    Examples:
        >>> cocos.plots.score_landscape(cocos.measures.score_landscape("triplet", points=9)).has_data()
        True
    """
    dataset, ax = single(dataset, ALONE), ax or plt.gca()
    score, weight = dataset["positive"].values, dataset["push"].transpose("negative", "positive").values
    levels, many = np.array(SHARE_LEVELS), int(dataset.attrs["negatives"])
    if share:
        weight = weight / dataset.attrs["unit"]
    else:
        levels = MaxNLocator(10).tick_values(weight.min(), weight.max())
    filled = ax.contourf(
        score, dataset["negative"], weight, levels=levels, **colours(levels, "max" if share else "neither")
    )
    filled.set_rasterized(True)
    if not share:
        label = "weight of the negative" if many == 1 else f"weight of the {many} negatives"
        ax.figure.colorbar(filled, ax=ax, label=label, shrink=0.85, format="%g")
    height = dataset["loss"].transpose("negative", "positive")
    if float(height.max()) > float(height.min()):
        levels = MaxNLocator(7, steps=[1, 2, 5, 10]).tick_values(float(height.min()), float(height.max()))
        levels = levels[(levels > float(height.min())) & (levels < float(height.max()))]
        lines = ax.contour(score, dataset["negative"], height, levels=levels, colors=DARK_GREY, linewidths=0.9)
        lines.set(path_effects=HALO)
        for text in ax.clabel(lines, manual=_places(height.values, levels, score), fontsize=tiny_points(), fmt="%g"):
            text.set_bbox({"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "pad": 0.6})
    ax.plot(score[[0, -1]], score[[0, -1]], color=DARK_GREY, linestyle="--", linewidth=0.9, path_effects=HALO)
    metric = plain(dataset.attrs["metric"]).replace("_", " ")
    ax.set(
        xlabel=f"score of the positive ({metric})",
        ylabel="score of the negative" + ("s" if many > 1 else ""),
        aspect="equal",
        xlim=score[[0, -1]],
        ylim=score[[0, -1]],
    )
    ax.set_title(plain(heading(dataset), 120), fontsize="medium")
    below(ax, handles=[
        Line2D([], [], color=DARK_GREY, linewidth=0.9, label="equal loss, with its value"),
        Line2D([], [], color=DARK_GREY, linewidth=0.9, linestyle="--", label="equal scores"),
    ])  # fmt: skip
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(5))
    return ax


def bar(figure: Figure, axes: Sequence[Axes], label: str, **style) -> None:
    """Draw the colour bar that panels with `share` have in common."""
    shared_bar(figure, axes, SHARE_LEVELS, "max", label=label, ticks=SHARE_LEVELS[::2], format="%g", **style)


def _places(height: np.ndarray, levels: np.ndarray, score: np.ndarray) -> list[tuple[float, float]]:
    """Places of the labels of contour lines: on the diagonal across that of equal scores, far enough apart."""
    across = np.maximum.accumulate(height[np.arange(len(height)), np.arange(len(height))[::-1]])
    kept = []
    for place in np.searchsorted(across, levels):
        inside = LABEL_DISTANCE * len(score) < place < (1 - LABEL_DISTANCE) * len(score)
        if inside and (not kept or place - kept[-1] > LABEL_DISTANCE * len(score)):
            kept.append(place)
    return [(score[-1 - place], score[place]) for place in kept]
