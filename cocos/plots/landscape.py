"""Plot of the loss around its proxies."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from cocos.plots.labels import below, colours, shared_bar, single
from cocos.plots.wording import plain

# Levels of the scale that panels have in common: half decades, in nats.
COMMON_LEVELS = tuple(float(f"{digit}e{power}") for power in range(-6, 2) for digit in (1, 3)) + (100.0,)
# Approximate number of levels of a landscape that spans less than three decades.
LINEAR_LEVELS = 14
# Arrows along each axis, and in panels with a common scale.
ARROWS, COMMON_ARROWS = 15, 9
# Decades of gradient, below the largest, that have an arrow.
ARROW_DECADES = 4
# Size of the marks in the legend, in points.
LEGEND_MARK = 7.0
# Why several Datasets cannot share the plot.
ALONE = "a landscape fills its plane with colour, so a second one would cover it"
SIZE = (6.6, 5.2)  # inches of a panel


def landscape(
    dataset: xr.Dataset | Sequence[xr.Dataset],
    *,
    field: bool = True,
    legend: bool = True,
    common: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw a landscape as contours, or as a surface on Axes in three dimensions.

    Arrows point along the negative gradient, which moves an embedding; their length is logarithmic in that of the
    gradient, over four decades below the largest. The own proxy is a star, the others are squares; a cross marks the
    predicted minimum, a circle the one found.

    Args:
        dataset: of `cocos.measures.landscape`.
        field: draw the arrows.
        legend: name the marks.
        common: use the colours and arrows that panels have in common (`bar`); arrows have full length from 1 on.
        ax: where to draw; None is the current Axes.

    Examples:
        >>> cocos.plots.landscape(cocos.measures.landscape("t^2", points=9)).has_data()
        True
    """
    dataset, ax = single(dataset, ALONE), ax or plt.gca()
    x, y, height = (dataset[name].values for name in ("x", "y", "height"))
    title = plain(dataset.attrs["title"].removeprefix("Landscape of "), 120)
    if ax.name == "3d":
        return _surface(dataset, title, ax)
    levels = np.array(COMMON_LEVELS) if common else _levels(height)
    filled = ax.contourf(x, y, height, levels=levels, **colours(levels, "both"))
    filled.set_rasterized(True)
    ax.contour(x, y, height, levels=levels, colors="white", linewidths=0.4, alpha=0.6)
    if not common:
        decades = [level for level in levels if np.log10(level).is_integer()] if _logarithmic(height) else levels
        place = ax.figure.colorbar(filled, ax=ax, label=_what(dataset), format="%g", shrink=0.85)
        place.set_ticks(decades if len(decades) > 2 else levels)
    if field:
        _arrows(dataset, common, ax)
    _marks(dataset, ax)
    if legend:
        for mark in below(ax).legend_handles:
            mark.set_markersize(LEGEND_MARK)
    ax.set(
        xlabel="in the plane of the proxies (distance)",
        ylabel="across (distance)",
        title=title,
        aspect="equal",
        xlim=(x[0], x[-1]),
        ylim=(y[0], y[-1]),
    )
    return ax


def bar(figure: Figure, axes: Sequence[Axes], label: str = "loss (nats)", **style) -> None:
    """Draw the colour bar that panels with `common` share."""

    def decade(level: float, _=None) -> str:
        return np.format_float_positional(level, precision=3, fractional=False, trim="-")

    shared_bar(figure, axes, COMMON_LEVELS, "both", label=label, ticks=COMMON_LEVELS[::4], format=decade, **style)


def _logarithmic(height: np.ndarray) -> bool:
    return bool(height.min() > 0 and height.max() > 1000 * height.min())


def _levels(height: np.ndarray) -> np.ndarray:
    """Levels of contours: half decades if the landscape spans three decades or more, even steps otherwise."""
    if _logarithmic(height):
        low, high = np.searchsorted(COMMON_LEVELS, height.min(), "right"), np.searchsorted(COMMON_LEVELS, height.max())
        levels = np.array(COMMON_LEVELS[max(0, low - 1) : high + 1])
        if len(levels) > 2:
            return levels
    levels = MaxNLocator(LINEAR_LEVELS).tick_values(height.min(), height.max())
    return levels if len(levels) > 1 else np.array([height.min(), height.min() + 1])


def _surface(dataset: xr.Dataset, title: str, ax: Axes) -> Axes:
    """Draw a surface seen from the side of the own proxy, with vertical lines at the proxies and at the minimum."""
    x, y, height = (dataset[name].values for name in ("x", "y", "height"))
    ax.plot_surface(  # type: ignore[attr-defined]
        *np.meshgrid(x, y), height, cmap="cividis", rcount=80, ccount=80, linewidth=0, rasterized=True, alpha=0.75
    )
    low, high = float(height.min()), float(height.max())
    places = np.stack([dataset["proxy_x"].values, dataset["proxy_y"].values], axis=1)
    marks = [(places[0], "*", "own proxy"), *((place, "s", "other proxy") for place in places[1:])]
    found = dataset["found"].values
    marks += [(found, "o", "minimum found")] if np.isfinite(found).all() else []
    for k, (place, mark, name) in enumerate(marks):
        top = float(dataset["height"].interp(x=place[0], y=place[1])) + 0.12 * (high - low)
        ax.plot(*([c, c] for c in place), [low, top], color="black", linewidth=0.8, zorder=10)
        ax.plot(*([c] for c in place), [top], mark, color="white", markeredgecolor="black", markersize=10, zorder=11,
                label=name if name not in [each[2] for each in marks[:k]] else None)  # fmt: skip
    ax.legend(loc="upper left", fontsize="small", frameon=False)
    ax.view_init(elev=38, azim=-115)  # type: ignore[attr-defined]
    ax.set(xlabel="x (distance)", ylabel="y (distance)", zlabel=_what(dataset), title=title)
    return ax


def _what(dataset: xr.Dataset) -> str:
    held = dataset.attrs["gradient"] == "stop_gradient"
    unit = plain(dataset["loss"].attrs["units"])
    return ("landscape of the gradient" if held else "loss") + (f" ({unit})" if unit != "1" else "")


def _arrows(dataset: xr.Dataset, common: bool, ax: Axes) -> None:
    step = max(1, len(dataset["x"]) // (COMMON_ARROWS if common else ARROWS))
    thin = dataset.isel(x=slice(step // 2, None, step), y=slice(step // 2, None, step))
    force = np.stack([thin["force_x"].values, thin["force_y"].values])
    length = np.hypot(*force)
    full = 1.0 if common else length.max()
    unit = np.divide(force, length, out=np.zeros_like(force), where=length > 0)
    with np.errstate(divide="ignore"):
        size = np.clip(1 + np.log10(length / (full or 1)) / ARROW_DECADES, 0, 1)
    width, scale = (0.008, 12) if common else (0.005, 21)
    ax.quiver(thin["x"], thin["y"], *(unit * size), color="0.05", edgecolor="white", linewidth=0.5, width=width,
              scale=scale, minlength=0.2, pivot="mid")  # fmt: skip


def _marks(dataset: xr.Dataset, ax: Axes) -> None:
    place = np.stack([dataset["proxy_x"].values, dataset["proxy_y"].values], axis=1)
    if len(place) == 2:
        ax.axline(*place, color="white", linestyle=":", linewidth=1)
    edge = {"markeredgecolor": "black", "linestyle": "none", "zorder": 5}
    outline = [withStroke(linewidth=3.6, foreground="black")]
    ax.plot(*place[0], marker="*", markersize=15, color="white", label="own proxy", **edge)
    ax.plot(*place[1:].T, marker="s", markersize=8, color="white", label="other proxy", **edge)
    found, predicted = dataset["found"].values, dataset["predicted"].values
    if np.isfinite(found).all():
        place = ", ".join(f"{round(value, 6) + 0:.3g}" for value in found)
        ax.plot(*found, "o", markersize=13, markerfacecolor="none", markeredgecolor="white", markeredgewidth=1.6,
                path_effects=outline, linestyle="none", label=f"minimum found, ({place})", zorder=6)  # fmt: skip
    if np.isfinite(predicted).all():
        gap = dataset.attrs.get("gap", np.nan)
        apart = f", {gap:.0e} apart" if np.isfinite(gap) else ""
        ax.plot(*predicted, "x", markersize=8, color="white", markeredgewidth=1.6, path_effects=outline,
                linestyle="none", label=f"minimum predicted{apart}", zorder=7)  # fmt: skip
