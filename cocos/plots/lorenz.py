"""Lorenz curves of the push, drawn."""

import textwrap

import matplotlib.pyplot as plt
import seaborn as sns
import xarray as xr
from matplotlib.axes import Axes

from cocos import results

__all__ = ["lorenz"]

STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))
CURVE = "lorenz curve"
LONGEST = 40  # characters of a label


def lorenz(dataset: xr.Dataset, *, label: str | None = None, band: bool = True, ax: Axes | None = None) -> Axes:
    """Draw what part of the push the lightest negatives hold, one line for each direction.

    Called again on the same Axes it adds lines in other colours and styles.

    Args:
        dataset: of `cocos.measures.lorenz`.
        label: what the lines are of, where there are several Datasets, of which 40 characters are shown; None: the
            title says it.
        band: shade 5 % to 95 % of the queries.
        ax: where to draw; None is the current Axes.
    """
    ax = ax or plt.gca()
    before = sum(line.get_gid() == CURVE for line in ax.lines)
    if not before:
        ax.plot([0, 1], [0, 1], color="0.5", linewidth=0.8, label="all alike")
    colours = sns.color_palette("colorblind", len(STYLES))
    names = [str(name) for name in dataset["direction"].values]
    for k, name in enumerate(names, start=before):
        one, colour = dataset.sel(direction=name), colours[k % len(STYLES)]
        if band:
            ax.fill_between(one["part"], one["low"], one["high"], color=colour, alpha=0.13, linewidth=0)
        said = [textwrap.fill(label if len(label) <= LONGEST else f"{label[: LONGEST - 1]}…", 24)] if label else []
        said += [name] if len(names) > 1 or not label else []
        ax.plot(one["part"], one["push"], color=colour, linestyle=STYLES[k % len(STYLES)], linewidth=1.8, gid=CURVE,
                label=f"{' '.join(said)}, Gini {float(one['gini']):.3f}")  # fmt: skip
    ax.set(
        xlabel="part of the negatives, the lightest first",
        ylabel="part of the push that they hold",
        title="Lorenz curve of the push" if label else results.heading(dataset),
        xlim=(0, 1),
        ylim=(0, 1),
        aspect="equal",
    )
    ax.legend(frameon=False, loc="upper left")
    sns.despine(ax=ax)
    return ax
