"""Plot of a comparison of gradients: a matrix of losses, or the cosines of all queries."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from cocos import results
from cocos.base.errors import InputError, nearest
from cocos.measures.gradients import least
from cocos.plots.labels import SIDE_LENGTH, STYLES, below, palette, single
from cocos.plots.wording import percent, plain

# Ways to draw the comparison.
GRADIENT_VIEWS = ("matrix", "queries")
# Characters of the name of a loss on an axis.
AXIS_NAME = 24
# Cosine from which on the text of a cell is white on its dark colour.
DARK_CELL = 0.65
# Why several Datasets cannot share the plot.
ALONE = "its cells are the pairs of losses of one file"


def gradients(
    dataset: xr.Dataset | Sequence[xr.Dataset],
    *,
    direction: str | None = None,
    show: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the mean cosine between the gradients of every pair of losses, or the cosines of all queries with the first.

    Args:
        dataset: of `cocos.measures.gradients`.
        direction: None: the first.
        show: `matrix`, or `queries`: the sorted cosines, a line for each other loss; None: queries for two losses.
        ax: where to draw; None is the current Axes.

    Examples:
        >>> rows = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
        >>> data = cocos.measures.gradients(cocos.Embeddings(rows, rows + 0.5))
        >>> cocos.plots.gradients(data).has_data()
        True
    """
    dataset, ax = single(dataset, ALONE), ax or plt.gca()
    if show is not None and show not in GRADIENT_VIEWS:
        raise InputError(nearest("show", show, GRADIENT_VIEWS))
    side = results.direction(direction, [str(name) for name in dataset["direction"].values])
    one = dataset.sel(direction=side)
    names = labels([str(name) for name in one["one"].values])
    usual = "queries" if one.sizes["one"] == 2 else "matrix"
    (_queries if (show or usual) == "queries" else _matrix)(one, names, ax)
    ax.set_title(title(one, names), fontsize="medium")
    return ax


def labels(names: Sequence[str]) -> list[str]:
    """Names of the losses without their parameters, unless a loss occurs twice."""
    kinds = [name.partition("(")[0] for name in names]
    return [plain(kind if kinds.count(kind) == 1 else name, AXIS_NAME) for kind, name in zip(kinds, names, strict=True)]


def _matrix(one: xr.Dataset, names: list[str], ax: Axes) -> None:
    """Draw a cell for each pair: the mean cosine, and below it the queries with one below 0."""
    import seaborn as sns  # for its map of colours alone; it takes as long to import as a picture to draw

    cosine, opposed = one["cosine"].values, one["opposed"].values
    ax.imshow(cosine, cmap=sns.color_palette("vlag_r", as_cmap=True), vmin=-1, vmax=1)
    for a, b in np.ndindex(cosine.shape):
        if a != b:
            known = np.isfinite(cosine[a, b])
            text = f"{cosine[a, b]:+.2f}\n{percent(opposed[a, b] / 100)}" if known else "none"
            dark = known and abs(cosine[a, b]) > DARK_CELL
            ax.text(b, a, text, ha="center", va="center", fontsize="small", color="white" if dark else "0.15")
    ax.set_xticks(range(len(names)), names, rotation=30, ha="right")
    ax.set_yticks(range(len(names)), names)
    ax.set_xlabel("mean cosine, and queries with one below 0")
    ax.spines[:].set_visible(False)


def _queries(one: xr.Dataset, names: list[str], ax: Axes) -> None:
    """Draw the cosines of all queries in ascending order, a line for each other loss."""
    for other, colour in zip(range(1, len(names)), palette(len(names) - 1), strict=True):
        cosines = one["query_cosine"].isel(other=other).values
        cosines = np.sort(cosines[np.isfinite(cosines)])
        part = 100 * (np.arange(len(cosines)) + 0.5) / max(1, len(cosines))
        style = STYLES[(other - 1) % len(STYLES)]
        ax.plot(part, cosines, color=colour, linestyle=style, linewidth=1.8, label=names[other])
    ax.axhline(0, color="0.3", linewidth=0.8)
    bottom = -1.05 if np.nanmin(one["query_cosine"].values, initial=0.0) < 0 else -0.05
    ax.set(xlabel="queries with both gradients, by cosine (%)", ylabel=f"cosine with {names[0]}")
    ax.set(xlim=(0, 100), ylim=(bottom, 1.05))
    ax.spines[["top", "right"]].set_visible(False)
    if len(names) > 2:
        below(ax)


def title(one: xr.Dataset, names: Sequence[str]) -> str:
    """State how far two losses agree, or which one of several agrees least with the first."""
    side, place = plain(one["direction"].item(), SIDE_LENGTH), least(one)
    if place is None:
        return f"{side}: no query has a gradient of {names[0]} and of another loss"
    each = one.isel(one=0, other=place)
    said = f"mean cosine {float(each['cosine']):+.2f}, below 0 for {percent(float(each['opposed']) / 100)}"
    those = f"{names[place]} and {names[0]}" if len(names) == 2 else f"{names[place]} agrees least with {names[0]}"
    return f"{side}: {those},\n{said}"


def size(dataset: xr.Dataset) -> tuple[float, float]:
    """Width and height of one panel in inches."""
    number = dataset.sizes["one"]
    return (6.4, 4.4) if number == 2 else (2.6 + 0.95 * number, 2.2 + 0.85 * number)
