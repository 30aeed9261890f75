"""Plot of the lengths of pull, push and their sum."""

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
import xarray as xr
from matplotlib.axes import Axes

STAGES = {
    "pull_norm": "pull",
    "push_norm": "push",
    "net_norm": "pull + push",
    "tangential_norm": "left by the\nnormalisation",
}
# Percentiles at the ends of the whiskers.
WHISKERS = (5, 95)


def decomposition(dataset: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Draw the lengths of pull and push, of their sum, and of the part of it that the normalisation leaves.

    Boxes are quartiles, whiskers the middle 90 % of the queries, diamonds their mean, one colour for each direction.
    Queries without a gradient are left out, and a note gives their part.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> cocos.plots.decomposition(cocos.measures.decomposition(embeddings)).has_data()
        True
    """
    ax = ax or plt.gca()
    stages = [name for name in STAGES if name in dataset]
    moved = dataset["pull_norm"] + dataset["push_norm"] > 0
    names = dataset["direction"].values
    wide = 0.7 / len(names)
    looks = zip(names, ("-", "--"), sns.color_palette("colorblind", 2), strict=False)
    for place, (name, style, colour) in enumerate(looks):
        one = dataset.sel(direction=name).where(moved.sel(direction=name))
        lengths = [one[stage].values[np.isfinite(one[stage].values)] for stage in stages]
        drawn = ax.boxplot(
            lengths,
            positions=np.arange(len(stages)) + (place - (len(names) - 1) / 2) * wide,
            widths=0.8 * wide,
            whis=WHISKERS,
            showfliers=False,
            patch_artist=True,
            manage_ticks=False,
            showmeans=True,
            boxprops={"facecolor": (*colour, 0.35), "edgecolor": colour, "linestyle": style},
            medianprops={"color": colour, "linewidth": 2.4},
            meanprops={"marker": "D", "markersize": 5, "markerfacecolor": "white", "markeredgecolor": "0.15"},
            whiskerprops={"color": colour, "linestyle": style},
            capprops={"color": colour},
        )
        drawn["boxes"][0].set_label(str(name))
    ax.set_xticks(np.arange(len(stages)), [STAGES[stage] for stage in stages])
    ax.set(
        xlabel="quartiles, middle 90 % and mean (diamond) of the queries",
        ylabel="length (loss / length of the embedding)",
        title=dataset.attrs["loss_repr"],
        xlim=(-0.5, len(stages) - 0.5),
        ylim=(0, None),
    )
    still = 100 * (1 - float(moved.sum() / dataset["queries"].sum()))
    if still > 0:
        ax.text(0.98, 0.02, f"{still:.1f} % of the queries have no gradient and are left out", transform=ax.transAxes,
                ha="right", va="bottom", fontsize="small", color="0.3")  # fmt: skip
    ax.legend(frameon=False)
    sns.despine(ax=ax)
    return ax
