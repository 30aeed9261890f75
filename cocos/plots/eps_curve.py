"""Plot of the contributing negatives against the threshold."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from cocos.counting import shares
from cocos.plots.labels import STYLES, beside, curves, drawn, empty, palette, series
from cocos.plots.wording import between, number

# Range of the thresholds in use, which is shaded.
USUAL_EPS = (1e-3, 1e-1)
# Thresholds whose counts the title compares.
COMPARED_EPS = (1e-4, 1e-2)
# Smallest count on the axis of counts.
SMALLEST_COUNT = 1e-3
# Width and height of one panel in inches.
SIZE = (7.2, 4.6)


def eps_curve(
    dataset: xr.Dataset | Sequence[xr.Dataset],
    *,
    names: Sequence[str] | None = None,
    mark: float = 0.01,
    ax: Axes | None = None,
) -> Axes:
    """Draw the mean number of contributing negatives against eps, both axes logarithmic, a line for each loss or file.

    Directions that agree within 2 % share a line. The range of thresholds in use is shaded. A line ends where no
    negative contributes.

    Args:
        dataset: of `cocos.measures.eps_curve`, or several.
        names: of several; None: their losses.
        mark: the eps to mark; 0.01 is the published one.
        ax: where to draw; None is the current Axes.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> cocos.plots.eps_curve(cocos.measures.eps_curve(embeddings)).has_data()
        True
    """
    ax = ax or plt.gca()
    several = series(dataset, names)
    most = max(float(each["contributing_all"].max()) for each in several.values())
    ax.set(
        xscale="log", yscale="log", ylim=(max(SMALLEST_COUNT, 0.01 * min(1, most)) if most else 0.1, 1.6 * most or 1)
    )
    lines = curves(several, ["contributing_all"])
    named = []
    for place, ((name, one), colour) in enumerate(zip(lines, palette(len(lines)), strict=True)):
        counts = one["contributing_all"].values
        at = one["eps"].values[counts > 0]
        ax.plot(at, counts[counts > 0], color=colour, linestyle=STYLES[place % len(STYLES)], linewidth=1.8,
                marker="o" if at.size == 1 else None, label=name or "all directions")  # fmt: skip
        if at.size and (name or len(lines) > 1):
            named.append((float(counts[0]), name, colour))
    _thresholds(several, mark, ax)
    kind = {shares.kind_of_weights(each.attrs)[0] for each in several.values()} - {""}
    ax.set(
        xlabel=f"eps: smallest share that contributes\n{drawn(several)}",
        ylabel="contributing negatives per query",
    )
    for axis in (ax.xaxis, ax.yaxis):  # formulae of powers and small ticks take longer than the rest of the figure
        axis.set_major_formatter(lambda value, _: f"{value:g}".replace("e-0", "e-"))
        axis.set_minor_locator(NullLocator())
    if not most:
        empty(ax, "no negative contributes at any eps")
    left = beside(ax, named, left=True)
    ax.set_title(
        title(list(several.values()), list(several)) + "".join(f" ({each})" for each in kind),
        fontsize="medium",
    )
    ax.spines[["top", "left" if left else "right"]].set_visible(False)
    return ax


def _thresholds(several: dict[str, xr.Dataset], mark: float, ax: Axes) -> None:
    """Set the axis of thresholds, shade those in use, and mark one."""
    smallest = min(float(each["eps"][each["eps"].values > 0].min()) for each in several.values())
    largest = max(float(each["eps"].max()) for each in several.values())
    ax.set_xlim(smallest / 1.3, largest * 1.3)
    ax.axvspan(*USUAL_EPS, color="0.94", zorder=0)
    if smallest <= USUAL_EPS[0] and USUAL_EPS[1] <= largest:
        ax.annotate("in use", (USUAL_EPS[0], 1), xycoords=("data", "axes fraction"), xytext=(3, -3), va="top",
                    textcoords="offset points", fontsize="small", color="0.3")  # fmt: skip
    ax.axvline(mark, color="0.4", linewidth=0.8)
    ax.annotate(f"eps = {mark:g}", (mark, 0), xycoords=("data", "axes fraction"), xytext=(3, 4),
                textcoords="offset points", fontsize="small", color="0.3")  # fmt: skip


def title(datasets: Sequence[xr.Dataset], names: Sequence[str]) -> str:
    """State the counts at two thresholds of the loss whose count changes most, and of the one that changes least."""
    counts = [data["contributing_all"].mean("direction") for data in datasets]
    ends = [[each.sel(eps=eps, method="nearest") for eps in COMPARED_EPS] for each in counts]
    change = [float(low - high) for low, high in ends]
    most, least = int(np.argmax(change)), int(np.argmin(change))
    low, high = ends[most]
    if float(low["eps"]) == float(high["eps"]):
        return f"{names[most]}: {number(float(low))} negatives contribute at eps = {float(low['eps']):g}"
    text = (
        f"{names[most]}: {number(float(low))} negatives contribute at eps = {float(low['eps']):.2g}, "
        f"{number(float(high))} at {float(high['eps']):.2g}"
    )
    if len(datasets) > 1:
        text += f"; {names[least]}: {between([float(each) for each in ends[least]], number)}"
    return text
