"""The loss around its proxies, drawn."""

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm
from matplotlib.patheffects import withStroke

__all__ = ["landscape"]

LEVELS = 22
ARROWS = 15  # on each side


def landscape(dataset: xr.Dataset, *, field: bool = True, legend: bool = True, ax: Axes | None = None) -> Axes:
    """Draw a landscape as contours, or as a surface on Axes in three dimensions.

    Arrows point where the gradient drives an embedding. The own proxy is a star, the others are squares; a cross is the
    minimum that is predicted, a circle the one that was found.

    Args:
        dataset: of `cocos.measures.landscape`.
        field: draw the arrows.
        legend: name the marks.
        ax: where to draw; None is the current Axes.
    """
    ax = ax or plt.gca()
    x, y, height = (dataset[name].values for name in ("x", "y", "height"))
    levels = np.unique(np.quantile(height, np.linspace(0, 1, LEVELS)).round(12))
    if len(levels) < 2:
        levels = np.array([height.min(), height.min() + 1])
    colours = sns.color_palette("cividis", as_cmap=True)
    title = dataset.attrs["title"].removeprefix("Landscape of ")
    if ax.name == "3d":
        ax.plot_surface(*np.meshgrid(x, y), height, cmap=colours, rcount=80, ccount=80, linewidth=0, rasterized=True)
        ax.set(xlabel="x (distance)", ylabel="y (distance)", zlabel=_what(dataset), title=title)
        return ax
    filled = ax.contourf(x, y, height, levels=levels, cmap=colours, norm=BoundaryNorm(levels, colours.N))
    filled.set_rasterized(True)
    ax.contour(x, y, height, levels=levels[:: max(1, LEVELS // 11)], colors="white", linewidths=0.4, alpha=0.6)
    ax.figure.colorbar(filled, ax=ax, label=_what(dataset), format="%.3g", shrink=0.85)
    if field:
        _arrows(dataset, ax)
    _marks(dataset, ax)
    if legend:
        ax.legend(loc="upper right", fontsize="small", framealpha=0.9)
    ax.set(
        xlabel="in the plane of the proxies (distance)",
        ylabel="distance",
        title=title,
        aspect="equal",
        xlim=(x[0], x[-1]),
        ylim=(y[0], y[-1]),
    )
    return ax


def _what(dataset: xr.Dataset) -> str:
    held = dataset.attrs["gradient"] == "stop_gradient"
    unit = dataset["loss"].attrs["units"]
    return ("landscape of the gradient" if held else "loss") + (f" ({unit})" if unit != "1" else "")


def _arrows(dataset: xr.Dataset, ax: Axes) -> None:
    step = max(1, len(dataset["x"]) // ARROWS)
    thin = dataset.isel(x=slice(step // 2, None, step), y=slice(step // 2, None, step))
    force = np.stack([thin["force_x"].values, thin["force_y"].values])
    length = np.hypot(*force)
    unit = np.divide(force, length, out=np.zeros_like(force), where=length > 0)
    ax.quiver(
        thin["x"], thin["y"], *unit, color="0.05", edgecolor="white", linewidth=0.5, width=0.0035, scale=32, pivot="mid"
    )


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
