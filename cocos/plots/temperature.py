"""Plot of the temperature at which a learned one settles against the batch size."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from cocos.plots.labels import SIDE_LENGTH, below, dark, empty, palette, series, titled, whole
from cocos.plots.wording import listed, plain

# Room above and below the temperatures, as a ratio.
ROOM = 1.25
# Width and height of one panel in inches.
SIZE = (6.4, 4.4)


def temperature(
    dataset: xr.Dataset | Sequence[xr.Dataset],
    *,
    names: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the equilibrium of the temperature against the batch size, with its 95 % interval, a colour for each file.

    Thin lines are the directions alone, where there are two; an open triangle on the clip is a batch size at which the
    scale runs to it. Horizontal lines are the clip, and the temperature of the training, or of the loss.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(4), torch.eye(4) + 0.1)
        >>> cocos.plots.temperature(cocos.measures.temperature(embeddings, batch_sizes=[4])).has_data()
        True
    """
    ax = ax or plt.gca()
    several = series(dataset, names)
    ax.set(xscale="log", yscale="log")
    for (name, data), colour in zip(several.items(), palette(len(several)), strict=True):
        _line(data, f"{name}: equilibrium" if len(several) > 1 else "equilibrium of both directions", colour, ax)
    sizes = sorted({int(size) for data in several.values() for size in data["batch_size"].values})
    whole(ax.xaxis, sizes)
    ax.set_xlim(sizes[0] / ROOM, sizes[-1] * ROOM)
    _levels(several, ax)
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.yaxis.set_minor_formatter(lambda value, _: "")
    if not ax.lines:
        empty(ax, "no temperature settles")
    ax.set(xlabel="rows of a batch", ylabel="temperature")
    titled(ax, title(list(several.values()), list(several)))
    below(ax, ncols=2)
    return ax


def _line(data: xr.Dataset, name: str, colour, ax: Axes) -> None:
    """Draw one Dataset: its equilibria, their intervals, the directions, and the batch sizes that run to the clip."""
    size, there = data["batch_size"].values, data["equilibrium_temperature"].values
    runs = np.isfinite(data["held_temperature"].values) & ~(data["state"].values == "settles")
    ends = np.stack([there - data["low"].values, data["high"].values - there])
    known = np.isfinite(there)
    if known.any():
        ax.errorbar(size[known], there[known], yerr=np.nan_to_num(ends[:, known]), color=colour, marker="o",
                    markersize=5, linewidth=2, capsize=3, label=name)  # fmt: skip
    if data.sizes["direction"] > 1:
        for side, style in zip(data["direction"].values, ("--", ":"), strict=True):
            values = data["direction_temperature"].sel(direction=side).values
            if np.isfinite(values).any():
                said = f"{plain(side, SIDE_LENGTH)} alone"
                ax.plot(size, values, color=colour, linestyle=style, linewidth=1, alpha=0.8, label=said)
    if runs.any():
        ax.plot(size[runs], np.full(runs.sum(), 1 / data.attrs["clip"]), linestyle="", marker="v", markersize=8,
                color=colour, markerfacecolor="white", label="runs to the clip")  # fmt: skip
    if "wanted_temperature" in data:
        ax.plot(size, data["wanted_temperature"], color=colour, marker="s", markersize=4, linewidth=1, alpha=0.6,
                label=f"{data.attrs['wanted']:g} effective negatives")  # fmt: skip


def _levels(several: dict[str, xr.Dataset], ax: Axes) -> None:
    """Mark the clip and the temperatures of the training, or of the losses, by horizontal lines."""
    marks = {}
    for data in several.values():
        trained = data.attrs.get("trained_temperature")
        marks.setdefault(1 / data.attrs["clip"], f"clip, scale {data.attrs['clip']:g}")
        own = data.attrs["own_temperature"] if trained is None else trained
        marks.setdefault(own, f"{'trained with' if trained is not None else 'of the loss'}: {own:.4g}")
    for value, text in marks.items():
        ax.axhline(value, color="0.5", linewidth=0.8, zorder=0)
        ax.annotate(text, (1, value), xycoords=("axes fraction", "data"), xytext=(0, 2), textcoords="offset points",
                    ha="right", fontsize="small", color=dark("0.4"))  # fmt: skip
    heights = [*marks, *(each for line in ax.lines for each in np.atleast_1d(line.get_ydata()) if each > 0)]
    known = [float(each) for each in heights if np.isfinite(each)]
    ax.set_ylim(min(known) / ROOM, max(known) * ROOM)


def title(datasets: Sequence[xr.Dataset], names: Sequence[str]) -> str:
    """State the equilibrium of the smallest and of the largest batch, and the clip where it has none."""
    parts = []
    for data in datasets:
        ends = data.isel(batch_size=[0, -1] if data.sizes["batch_size"] > 1 else [0])
        said = [
            f"{float(one['equilibrium_temperature']):.3g} at batch {int(one['batch_size'])}"
            if np.isfinite(one["equilibrium_temperature"])
            else f"the clip at batch {int(one['batch_size'])}"
            for one in (ends.isel(batch_size=k) for k in range(ends.sizes["batch_size"]))
        ]
        parts.append(", ".join(said))
    return f"A learned temperature settles at {listed(names, parts)}"
