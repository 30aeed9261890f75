"""The weight of a candidate against its score, drawn."""

import matplotlib.pyplot as plt
import seaborn as sns
import xarray as xr
from matplotlib.axes import Axes

__all__ = ["weight_curve"]


def weight_curve(dataset: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Draw the weight of a negative and of the positive against their own scores.

    Args:
        dataset: of `cocos.measures.weight_curve`.
        ax: where to draw; None is the current Axes.
    """
    ax = ax or plt.gca()
    colours = sns.color_palette("colorblind", 2)
    for name, style, colour in zip(("negative", "positive"), ("-", "--"), colours, strict=True):
        ax.plot(dataset["score"], dataset[name], color=colour, linestyle=style, label=dataset[name].attrs["long_name"])
    ax.axhline(0, color="0.6", linewidth=0.8)
    ax.axvline(dataset.attrs["positive_score"], color="0.6", linewidth=0.8, linestyle=":")
    ax.annotate("the positive", (dataset.attrs["positive_score"], 1), xycoords=("data", "axes fraction"),
                xytext=(-3, -10), textcoords="offset points", ha="right", fontsize="small", color="0.3")  # fmt: skip
    ax.set(
        xlabel=f"score ({dataset.attrs['metric'].replace('_', ' ')}), closer to the right",
        ylabel="weight: below 0 pulls, above 0 pushes",
        title=dataset.attrs["loss_repr"],
    )
    ax.legend(frameon=False)
    sns.despine(ax=ax)
    return ax
