"""Precision against recall, drawn: one threshold for all queries, and each query with its own."""

import matplotlib.pyplot as plt
import seaborn as sns
import xarray as xr
from matplotlib.axes import Axes

from cocos.errors import InputError, nearest

__all__ = ["precision_recall"]


def precision_recall(dataset: xr.Dataset, *, direction: str | None = None, ax: Axes | None = None) -> Axes:
    """Draw precision against recall of one threshold over all pairs, and of the queries of one direction.

    These have thresholds of their own: their mean and their 5th to 95th percentile are drawn.

    Args:
        dataset: of `cocos.measures.precision_recall`.
        direction: whose queries; None: the first.
        ax: where to draw; None is the current Axes.

    Raises:
        InputError: a direction that is not in the dataset.
    """
    ax = ax or plt.gca()
    names = [str(name) for name in dataset["direction"].values]
    direction = names[0] if direction is None else direction
    if direction not in names:
        raise InputError(nearest("direction", direction, names))
    one, level = dataset.sel(direction=direction), dataset["level"]
    blue = sns.color_palette("colorblind", 1)[0]
    low, high = one["band"].isel(percentile=0), one["band"].isel(percentile=-1)
    ax.fill_between(level, low, high, step="pre", facecolor=(*blue, 0.15), linewidth=0,
                    label=f"queries of {direction}: 5th to 95th percentile")  # fmt: skip
    for edge in (low, high):
        ax.plot(level, edge, color=blue, linestyle=":", linewidth=1.2, drawstyle="steps-pre", label="_edge")
    ax.plot(level, one["mean"], color=blue, linestyle="--", linewidth=2, drawstyle="steps-pre",
            label=f"queries of {direction}: mean (mAP {float(one['mAP']):.1f} %)")  # fmt: skip
    ax.plot(dataset["recall"], dataset["precision"], color="0.1", linewidth=1.8,
            label=f"all pairs, one threshold (PR-AUC {dataset.attrs['pr_auc']:.1f} %)")  # fmt: skip
    ax.set(
        xlabel="recall",
        ylabel="precision",
        xlim=(0, 1),
        ylim=(0, 1.02),
        title=f"{direction}: {dataset.attrs['metric'].replace('_', ' ')} scores",
    )
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), frameon=False, fontsize="small")
    sns.despine(ax=ax)
    return ax
