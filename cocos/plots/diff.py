"""Plot of the change of every query between two results."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from cocos.base.errors import InputError, nearest
from cocos.measures.diff import COMPARED
from cocos.plots.labels import SIDE_LENGTH, STYLES, below, palette, series, titled
from cocos.plots.wording import listed, plain

# Width and height of one panel in inches.
SIZE = (6.6, 4.4)


def diff(
    dataset: xr.Dataset | Sequence[xr.Dataset],
    *,
    names: Sequence[str] | None = None,
    metric: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the change of every query, ordered from the largest fall to the largest rise, a line for each direction.

    The line crosses 0 where queries stop to fall and begin to rise.

    Args:
        dataset: of `cocos.measures.diff`, or several.
        names: of several; None: the names of the results that each compares.
        metric: value that is drawn; None: the one that queries are compared by.
        ax: where to draw; None is the current Axes.

    Examples:
        >>> sides = [cocos.Embeddings(torch.eye(4), k * torch.eye(4) + torch.ones(4, 4)) for k in (1, 9)]
        >>> cocos.plots.diff(cocos.measures.diff(*sides)).has_data()
        True
    """
    every = [dataset] if isinstance(dataset, xr.Dataset) else list(dataset)
    ax, several = ax or plt.gca(), series(every, names or [" - ".join(each["version"].values[::-1]) for each in every])
    for each in every:
        metric = _chosen(metric, each)
    assert metric is not None
    _over_queries(several, metric, ax)
    unit = COMPARED.get(metric, ("", ""))[1].replace("1", "")
    ax.set_ylabel("change of " + plain(metric) + (f" ({unit})" if unit else ""))
    titled(ax, title(every, list(several), metric))
    if len(ax.get_legend_handles_labels()[0]) > 1:
        below(ax)
    return ax


def _chosen(metric: str | None, data: xr.Dataset) -> str:
    """The value that is drawn."""
    known = [str(each) for each in data["metric"].values]
    if metric is not None and metric not in known:
        raise InputError(nearest("value of a comparison", metric, known))
    return metric or next(name for name in (data.attrs.get("by"), *known) if name in known)


def _sides(data: xr.Dataset, metric: str) -> list[tuple[str, np.ndarray]]:
    """Values of each direction that has any, (name, (2, n)), in the order of the two."""
    one = data["value"].sel(metric=metric).transpose("direction", "version", ...)
    found = [(str(side), one.sel(direction=side).values) for side in one["direction"].values]
    return [(side, values) for side, values in found if np.isfinite(values).any()]


def _over_queries(several: dict[str, xr.Dataset], metric: str, ax: Axes) -> None:
    """Draw the sorted changes of the queries of every direction of every Dataset."""
    lines = [(name, *each) for name, data in several.items() for each in _sides(data, metric)]
    for place, ((name, side, values), colour) in enumerate(zip(lines, palette(len(lines)), strict=True)):
        away = np.sort(values[1] - values[0])
        away = away[np.isfinite(away)]
        part = 100 * (np.arange(len(away)) + 0.5) / max(1, len(away))
        said = ", ".join(filter(None, (name if len(several) > 1 else "", plain(side, SIDE_LENGTH))))
        ax.plot(part, away, color=colour, linestyle=STYLES[place % len(STYLES)], linewidth=1.8, label=said)
        if len(lines) == 1:
            ax.fill_between(part, away, 0, color=colour, alpha=0.15, linewidth=0)
    ax.axhline(0, color="0.3", linewidth=0.8)
    ax.set(xlabel="queries, from the largest fall to the largest rise (%)", xlim=(0, 100))


def title(datasets: Sequence[xr.Dataset], names: Sequence[str], metric: str) -> str:
    """State how many queries rise and fall."""
    parts = []
    for data in datasets:
        one, said = data.sel(metric=metric), []
        for side, _ in _sides(data, metric):
            each = one.sel(direction=side)
            fall, rise = int(each["decreased"]), int(each["increased"])
            said.append(f"{fall} of {int(each['pairs'])} {plain(side, SIDE_LENGTH)} queries fall, {rise} rise")
        parts.append("; ".join(said))
    return f"{metric}: {listed(names, parts)}"
