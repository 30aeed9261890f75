"""Plot of the lengths of pull, push and their sum."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from cocos import results
from cocos.measures.decomposition import ON_PROXIES, on_proxies
from cocos.plots.labels import SIDE_LENGTH, below, palette, series
from cocos.plots.wording import plain

STAGES = {
    "pull_norm": "pull",
    "push_norm": "push",
    "net_norm": "pull + push",
    "tangential_norm": "left by the\nnormalisation",
}
# Percentiles at the ends of the whiskers.
WHISKERS = (5, 95)


def decomposition(
    dataset: xr.Dataset | Sequence[xr.Dataset], *, names: Sequence[str] | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the lengths of pull and push, of their sum, and of the part of it that the normalisation leaves.

    Boxes are quartiles, whiskers the middle 90 % of the queries, diamonds their mean, one colour for each direction,
    or for each of several losses or files, whose directions have other lines. Class proxies have boxes of their own, of
    the mean over the batches for each proxy. Queries without a gradient are left out,
    and a note gives their part.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> cocos.plots.decomposition(cocos.measures.decomposition(embeddings)).has_data()
        True
    """
    ax, several = ax or plt.gca(), series(dataset, names)
    every = list(several.values())
    stages = [name for name in STAGES if any(name in each for each in every)]
    taken = {name: _sides(each) for name, each in several.items()}
    single, places = len(several) == 1, max(map(len, taken.values()))
    rows = "queries or proxies" if any(ON_PROXIES in each for each in taken.values()) else "queries"
    colours = palette(places if single else len(several))
    wide = 0.7 / (len(every) * places)
    for k, (name, each) in enumerate(taken.items()):
        for d, ((side, one), style) in enumerate(zip(each.items(), ("-", "--"), strict=False)):
            colour = colours[d if single else k]
            at = np.arange(len(stages)) + (k * places + d - (len(every) * places - 1) / 2) * wide
            drawn = _boxes(one.where(_moved(one)), stages, at, 0.8 * wide, colour, style, ax)
            drawn["boxes"][0].set_label(", ".join([*([] if single else [name]), plain(side, SIDE_LENGTH)]))
    ax.set_xticks(np.arange(len(stages)), [STAGES[stage] for stage in stages])
    ax.set(
        xlabel=f"quartiles, middle 90 % and mean (diamond) of the {rows}",
        ylabel="length (loss / length of the embedding)",
        title=plain(every[0].attrs["loss_repr"], 80) if single else "Lengths of pull and push",
        xlim=(-0.5, len(stages) - 0.5),
        ylim=(0, None),
    )
    _without(several, ax)
    below(ax, lines=3)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _sides(data: xr.Dataset) -> dict[str, xr.Dataset]:
    """Every direction by its name, and the forces on class proxies, if there are any."""
    return results.sides(data) | ({ON_PROXIES: forced} if (forced := on_proxies(data)) else {})


def _moved(data: xr.Dataset) -> xr.DataArray:
    """Which queries have a gradient."""
    return data["pull_norm"] + data["push_norm"] > 0


def _boxes(one: xr.Dataset, stages: Sequence[str], at: np.ndarray, width: float, colour, style: str, ax: Axes) -> dict:
    """Draw a box for each stage of one direction, none for a stage that it lacks."""
    lengths = [one[stage].values.ravel() if stage in one else np.zeros(0) for stage in stages]
    return ax.boxplot(
        [each[np.isfinite(each)] for each in lengths],
        positions=at,
        widths=width,
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


def _without(several: dict[str, xr.Dataset], ax: Axes) -> None:
    """Note the part of the queries that have no gradient, of each Dataset that has any such."""
    said = []
    for name, each in several.items():
        still = 100 * (1 - float(_moved(each).sum() / each["queries"].sum()))
        if still > 0:
            of = f" of {name}" if len(several) > 1 else ""
            said.append(f"{still:.1f} % of the queries{of} have no gradient and are left out")
    if said:
        ax.text(0.98, 0.02, "\n".join(said), transform=ax.transAxes, ha="right", va="bottom", fontsize="small",
                color="0.3")  # fmt: skip
