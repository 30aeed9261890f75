"""Heat map of the weights of one batch."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.patches import Patch

from cocos.counting import shares
from cocos.plots.labels import below, single, tiny_points
from cocos.plots.wording import plain

# Decades of share, below the largest, that have colours of their own, if eps is not above them.
SHARE_DECADES = 4
# Grey level of negatives that do not contribute, colour of pairs that take no part, grey level of the margins.
NOT_ABOVE_GREY, NO_PART_COLOUR, MARGIN_GREY = "0.88", "white", "0.35"
# Smallest part of the rows whose number of idle queries is written beside them.
NAMED_IDLE = 0.2
# Upper end of the margin above the map, over its height; size of the mark of a positive, over that of its cell.
TOP, CELL_PART = 0.12, 0.5
COLUMN_ORDER = {"hardness": "the most pushed first", "batch": "in the order of the batch", "group": "by group"}
ROW_ORDER = {"hardness": "most contributing first", "batch": "in the order of the batch", "group": "by group"}
# Why several Datasets cannot share the plot.
ALONE = "a matrix of weights fills its plane with colour, so a second one would cover it"
# Width and height of one panel in inches.
SIZE = (6.8, 5.8)


def weight_map(
    dataset: xr.Dataset | Sequence[xr.Dataset], *, most: float | None = None, last: bool = True, ax: Axes | None = None
) -> Axes:
    """Draw the share of each negative of one batch as a heat map with margins, a row for each query.

    The right margin shows the contributing negatives of each query, the top margin the part of all push that each
    candidate receives. Negatives that do not contribute are light grey, pairs that take no part white. A circle is a
    positive that is pulled, a square one that has no weight or is pushed.

    Args:
        dataset: of `cocos.measures.weight_map`.
        most: share at the top of the scale, to make panels comparable; None: the largest of a negative.
        last: whether this is the last of several panels with one scale, which has the colour bar.
        ax: where to draw; None is the current Axes.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> cocos.plots.weight_map(cocos.measures.weight_map(embeddings)).has_data()
        True
    """
    dataset, ax = single(dataset, ALONE), ax or plt.gca()
    share, positive, negative = (dataset[name].values for name in ("share", "positive", "negative"))
    eps = float(dataset.attrs["eps"])
    above, (queries, candidates) = negative & (share > eps), share.shape
    look = {"extent": (-0.5, candidates - 0.5, queries - 0.5, -0.5), "aspect": "auto", "interpolation": "nearest"}
    ax.set_facecolor(NO_PART_COLOUR)
    ax.imshow(np.where(negative & ~above, 1.0, np.nan), cmap=ListedColormap([NOT_ABOVE_GREY]), **look)
    shared, most = most is not None, most or _most(dataset) or 1.0
    norm = LogNorm(max(min(eps, most / 1.001), most * 10.0**-SHARE_DECADES), most, clip=True)
    image = ax.imshow(np.where(above, share, np.nan), cmap="cividis", norm=norm, **look)
    if last and (shared or np.unique(share[above].round(9)).size > 1):
        bar = ax.figure.colorbar(image, cax=ax.inset_axes([1.22, 0.1, 0.04, 0.8]), extend="min")
        bar.ax.yaxis.set_major_formatter(lambda value, _: np.format_float_positional(value, trim="-"))
        bar.set_label(f"share of a negative, above eps = {eps:g}")
        if eps < norm.vmin:
            bar.ax.set_xlabel(f"< {norm.vmin:.1g},\nnot 0", fontsize=tiny_points(), labelpad=7)
    wide, high = 72 * ax.figure.get_size_inches() * ax.get_position().size  # in points
    size = max(1.0, min(9.0, CELL_PART * min(high / queries, wide / candidates)))
    pulled = positive & (dataset["weight"].values < 0)
    for mask, marker, said in ((pulled, "o", "positive"), (positive & ~pulled, "s", "positive that is not pulled")):
        if mask.any():
            y, x = np.nonzero(mask)
            ax.plot(x, y, marker, markersize=size, markerfacecolor="none", markeredgecolor="black",
                    markeredgewidth=0.9, linestyle="none", rasterized=True, label=said)  # fmt: skip
    _margins(dataset, ax)
    order = dataset.attrs["order"]
    ax.set(xlabel=f"candidate, {COLUMN_ORDER[order]}", ylabel=f"query, {ROW_ORDER[order]}")
    handles = ax.get_legend_handles_labels()[0]
    if (negative & ~above).any():
        handles.append(Patch(facecolor=NOT_ABOVE_GREY, label="negative that does not contribute"))
    if (~positive & ~negative).any():
        handles.append(Patch(facecolor=NO_PART_COLOUR, edgecolor="0.5", label="takes no part"))
    below(ax, handles=handles)
    ax.set_title(title(dataset), fontsize="medium", pad=TOP * high + 1.6 * tiny_points())
    return ax


def _margins(dataset: xr.Dataset, ax: Axes) -> None:
    """Draw the contributing negatives of each query on the right, and the push that each candidate receives on top."""
    right, top = ax.inset_axes([1.02, 0, 0.12, 1], sharey=ax), ax.inset_axes([0, 1.02, 1, TOP - 0.02], sharex=ax)
    counts, received = dataset["contributing"].values, 100 * dataset["received"].values
    right.barh(np.arange(len(counts)), counts, height=1, color=MARGIN_GREY, linewidth=0)
    top.bar(np.arange(len(received)), received, width=1, color=MARGIN_GREY, linewidth=0)
    right.set(xticks=[0, int(counts.max(initial=0)) or 1])
    right.set_title("above\neps" if dataset.attrs["eps"] else "weighed", fontsize=tiny_points(), pad=3)
    top.set(yticks=[0, round(float(received.max(initial=0)), 1 if received.max(initial=0) < 10 else None) or 1])
    top.set_title("push fraction (%)", fontsize=tiny_points(), loc="left", pad=1)
    for each, axis in ((right, "y"), (top, "x")):
        each.tick_params(axis=axis, which="both", length=0, labelleft=False, labelbottom=axis == "y")
        each.tick_params(labelsize=tiny_points())
        each.spines[["top", "right", "left" if axis == "y" else "bottom"]].set_visible(False)
    idle = int((counts == 0).sum())
    if idle >= NAMED_IDLE * len(counts) and idle and dataset.attrs["order"] == "hardness":
        right.text(0.3, (len(counts) - idle + len(counts)) / 2, f"{idle} idle", rotation=90, va="center", ha="left",
                   transform=right.get_yaxis_transform(), fontsize=tiny_points())  # fmt: skip


def title(dataset: xr.Dataset) -> str:
    """State how many negatives of the batch contribute, and how many queries have none."""
    kind, _ = shares.kind_of_weights(dataset.attrs)
    name = ", ".join(filter(None, map(plain, (dataset.attrs["loss"], kind, dataset.attrs["direction"]))))
    above, idle = int(dataset["contributing"].sum()), int((dataset["contributing"] == 0).sum())
    return (
        f"{name}: {above} of {int(dataset['negatives'].sum())} negatives contribute; {idle} of "
        f"{dataset.sizes['query']} queries have none"
    )


def together(datasets: Sequence[xr.Dataset]) -> dict[str, float | None]:
    """Options that panels side by side share: the largest share of all of them."""
    return {"most": max(map(_most, datasets)) or None}


def _most(dataset: xr.Dataset) -> float:
    return float(dataset["share"].where(dataset["negative"], 0).max())
