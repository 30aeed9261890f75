"""Plot of a replay: the paired change that each variant makes."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from cocos import results
from cocos.base.errors import InputError, nearest
from cocos.counting.statistics import Difference
from cocos.plots.labels import SIDE_LENGTH, palette, single, titled
from cocos.plots.wording import number, plain

# Grey level of a difference that is not resolved.
UNRESOLVED_GREY = "0.55"
# Characters of the longest name of a variant beside its row.
VARIANT_LENGTH = 34
# Inches of a row, and of the axis and the title.
ROW_INCHES, REST_INCHES = 0.32, 1.9
# Why several Datasets cannot share the plot.
ALONE = "its rows are the variants of one setting"


def replay(
    dataset: xr.Dataset | Sequence[xr.Dataset],
    *,
    direction: str | None = None,
    metric: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the mean paired change of each variant with its interval, grey where it is not resolved.

    Behind the name of a variant stands the mean that it has.

    Args:
        dataset: of `cocos.measures.replay`.
        direction: None: the first.
        metric: value whose change is drawn; None: the one that the replay compares by.
        ax: where to draw; None is the current Axes.

    Examples:
        >>> rows = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
        >>> data = cocos.measures.replay(cocos.Embeddings(rows, rows + 0.5), what="temperature=0.05,0.2")
        >>> cocos.plots.replay(data).has_data()
        True
    """
    dataset = single(dataset, ALONE)
    ax, by = ax or plt.gca(), metric or str(dataset.attrs["by"])
    known = [str(name) for name in dataset["metric"].values]
    if by not in known:
        raise InputError(nearest("value of a replay", by, known))
    side = results.direction(direction, [str(name) for name in dataset["direction"].values])
    one = dataset.sel(direction=side, metric=by)
    shown = one.isel(variant=slice(1, None)).fillna({"pairs": 0})
    places = -np.arange(shown.sizes["variant"], dtype=float)
    level, found = float(dataset.attrs["level"]), []
    for place in range(shown.sizes["variant"]):
        each = shown.isel(variant=place)
        mean, low, high, p = (float(each[key]) for key in ("difference", "low", "high", "p"))
        low, high = (mean, mean) if np.isnan(low) else (low, high)  # all differences are equal
        found.append(Difference(mean, low, high, p, int(each["pairs"]), level))
    forest(found, [[]] * len(found), at=places.tolist(), ax=ax)
    means = [_written(value) for value in shown["mean"].values]
    names = [plain(str(name), VARIANT_LENGTH) for name in shown["variant"].values]
    ax.set_yticks(places, [f"{name}: {mean}" for name, mean in zip(names, means, strict=True)])
    ax.set_ylim(places.min(initial=0) - 0.7, 0.7)
    units = dataset["metric"].attrs.get("units", "")
    ax.set_xlabel(f"change of {plain(by)}{plain(units)} per query, {100 * level:g} % interval")
    titled(ax, title(one))
    return ax


def forest(
    differences: Sequence[Difference],
    points: Sequence[Sequence[float]],
    *,
    at: Sequence[float],
    published: Sequence[float] | None = None,
    resolved: Sequence[bool] | None = None,
    upright: bool = False,
    colour: object | None = None,
    offset: float = 0.3,
    ax: Axes,
) -> Axes:
    """Draw differences of `cocos.statistics.paired` as points with a bar for the interval, grey if not resolved.

    Each pair of `points` is a small dot on one side of the bar, a published difference (NaN: none) an open diamond on
    the other side. `colour` is that of the resolved ones; None: blue. `upright` puts the names, which are `at` these
    places, on the x axis; `offset` is in the same units.
    """
    blue, orange = palette(2)

    def put(values, places, *args, **style):
        ax.plot(*((places, values) if upright else (values, places)), *args, **style)

    (ax.axhline if upright else ax.axvline)(0, color="black", linewidth=0.9, zorder=1)
    told = [one.resolved for one in differences] if resolved is None else resolved
    for k, (one, pairs, place, clear) in enumerate(zip(differences, points, at, told, strict=True)):
        own = (colour or blue) if clear else UNRESOLVED_GREY
        put(pairs, np.full(len(pairs), place + offset), "o", color=own, markersize=3.2, alpha=0.6, markeredgewidth=0)
        put((one.low, one.high), (place, place), color=own, linewidth=2.4, solid_capstyle="butt")
        put(one.mean, place, "o", color=own, markersize=7, markeredgecolor="white", zorder=4)
        if published is not None and np.isfinite(published[k]):
            diamond = {"color": "none", "markeredgecolor": orange, "markeredgewidth": 1.6, "markersize": 6}
            put(published[k], place - offset, "D", **diamond)
    return ax


def _written(value: float) -> str:
    return number(float(value)) if np.isfinite(value) else "none"


def title(one: xr.Dataset) -> str:
    """State the value as it is and that of the largest resolved change, of one direction and one metric."""
    by, side = str(one["metric"].item()), plain(one["direction"].item(), SIDE_LENGTH)
    said = f"{plain(one.attrs['loss_repr'], 80)}, {side}: {plain(by)} {_written(one['mean'].values[0])} as it is"
    clear = (one["low"].values > 0) | (one["high"].values < 0)
    if not clear.any():
        return f"{said},\nno change is resolved; embeddings frozen"
    away = np.where(clear, np.abs(one["difference"].values), -1)
    most = one.isel(variant=int(away.argmax()))
    label = plain(str(most["variant"].item()), VARIANT_LENGTH)
    return f"{said},\n{_written(most['mean'].item())} for {label}; embeddings frozen"


def size(dataset: xr.Dataset) -> tuple[float, float]:
    """Width and height of one panel in inches."""
    return 7.2, REST_INCHES + ROW_INCHES * max(3, dataset.sizes["variant"] - 1)
