"""Plot of effective and contributing negatives against the temperature."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from cocos.base.errors import InputError, nearest
from cocos.counting import shares
from cocos.plots.labels import below, curves, palette, series, titled
from cocos.plots.wording import listed, number, percent, plain

# Variables of each choice of `show`.
SHOWN = {"negatives": ("effective", "contributing_all"), "effective": ("effective",), "idle": ("idle_fraction",)}
# Width of the first line and of the others, in points.
LINE_WIDTHS = (2.2, 1.4)
# Meaning of many idle queries at the end of small and of large temperatures.
REGIMES = ("solved: the push is\non one negative, or gone", "spread thin: all push,\nnone above eps")
# Smallest part of idle queries at which the regime of an end is named.
REGIME_PART = 0.25


def temperature_curve(
    dataset: xr.Dataset | Sequence[xr.Dataset],
    *,
    names: Sequence[str] | None = None,
    show: str = "negatives",
    ax: Axes | None = None,
) -> Axes:
    """Draw numbers of negatives against the temperature or scale, a colour for each loss or file.

    A vertical line marks the value of each loss. Directions that agree within 2 % share a line.

    Args:
        dataset: of `cocos.measures.temperature_curve`, or several.
        names: of several; None: their losses.
        show: `negatives`, the effective and the contributing ones; `effective` alone; or `idle`, the queries without
            any that contributes.
        ax: where to draw; None is the current Axes.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> cocos.plots.temperature_curve(cocos.measures.temperature_curve(embeddings, values=[0.1, 1])).has_data()
        True
    """
    if show not in SHOWN:
        raise InputError(nearest("show", show, SHOWN))
    ax = ax or plt.gca()
    several = series(dataset, names)
    parameters = {each.attrs["parameter"] for each in several.values()}
    if len(parameters) > 1:
        raise InputError("a temperature divides scores and a scale multiplies them: draw them in separate plots")
    (parameter,), above = parameters, plain(shares.above(next(iter(several.values())).attrs), 80)
    said = {"effective": "share the push (effective number)", "contributing_all": above, "idle_fraction": ""}
    lines = curves(several, SHOWN[show])
    for place, ((name, one), colour) in enumerate(zip(lines, palette(len(lines)), strict=True)):
        for key, style in zip(SHOWN[show], ("-", "--"), strict=False):
            label = ", ".join(filter(None, (name, said[key] if show == "negatives" or not name else ""))) or "queries"
            ax.plot(one["value"], 100 * one[key] if show == "idle" else one[key], color=colour, linestyle=style,
                    linewidth=LINE_WIDTHS[place > 0], marker=" os^Dv"[place % 6], markevery=4, markersize=4,
                    markerfacecolor="white", label=label)  # fmt: skip
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.xaxis.set_minor_locator(NullLocator())
    ax.margins(y=0.12)
    for own in dict.fromkeys(each.attrs["own"] for each in several.values()):
        ax.axvline(own, color="0.4", linewidth=0.8)
        at = (own, 0.6 if show == "idle" else 1)  # the regimes stand above
        ax.annotate(f"{own:g} as it is", at, xycoords=("data", "axes fraction"), xytext=(3, -10),
                    textcoords="offset points", fontsize="small", color="0.3")  # fmt: skip
    named = {"idle": "idle queries (%)", "effective": "effective number of negatives"}
    ax.set(xlabel=f"{plain(parameter)} (embeddings frozen)", ylabel=named.get(show, "negatives per query"))
    titled(ax, title(list(several.values()), list(several), show))
    ax.set_ylim(0, 112 if show == "idle" else None)
    if show == "idle":
        _name_idle_ends([one for _, one in lines], parameter, ax)
    if len(lines) * len(SHOWN[show]) > 1:
        below(ax, ncols=1 if len(lines) > 1 else 2)
    return ax


def _name_idle_ends(curves: list[xr.Dataset], parameter: str, ax: Axes) -> None:
    """Name the regime at each end where many queries are idle."""
    for place, text in zip((0, -1) if parameter == "temperature" else (-1, 0), REGIMES, strict=True):
        if all(float(one["idle_fraction"][place]) >= REGIME_PART for one in curves):
            ax.text(0.02 if place == 0 else 0.98, 0.98, text, transform=ax.transAxes, va="top", fontsize="small",
                    ha="left" if place == 0 else "right", color="0.2")  # fmt: skip


def title(datasets: Sequence[xr.Dataset], names: Sequence[str], show: str = "negatives") -> str:
    """State the effective negatives, or the idle queries, at the temperature of the loss and at both ends."""
    parts, idle = [], show == "idle"
    for data in datasets:
        mean = data["idle_fraction" if idle else "effective"].mean("direction").dropna("value")
        if not mean.size:
            parts.append("no push at any value")
            continue
        at = [mean["value"].values[0], data.attrs["own"], mean["value"].values[-1]]
        texts = [(percent if idle else number)(float(mean.sel(value=value, method="nearest"))) for value in at]
        parts.append(", ".join(f"{text} at {value:.2g}" for text, value in zip(texts, at, strict=True)))
    counted = "Idle queries" if idle else "Effective negatives"
    return f"{counted}: {listed(names, parts)}"
