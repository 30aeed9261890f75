"""Plot of the distance to proxy over the checkpoints of some runs."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke

from cocos.base.errors import InputError
from cocos.plots.labels import STYLES, palette, series
from cocos.plots.wording import plain

# Height of a line of text, in points.
LINE_POINTS = 10.0
# Characters of the longest name of a run.
RUN_NAME_LENGTH = 28
# Grey level of an alpha that several runs share.
SHARED_GREY = "0.3"

SIZE = (7.2, 4.6)  # inches


def dtp(
    dataset: xr.Dataset | Sequence[xr.Dataset],
    *,
    names: Sequence[str] | None = None,
    band: bool = True,
    log: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw AvgDTP: a line per run with its name at the end, a band over the classes, and alpha as a dotted line.

    The line of a diverged run ends in a cross at its last finite checkpoint, and its name says so. Long names are
    shortened; an alpha that several runs share is drawn once, in grey. One that changes is drawn as a step, those of
    classes as the smallest and the largest.

    Args:
        dataset: of `cocos.measures.dtp`, or several, whose runs share the plot.
        names: of several, which precede the names of their runs; None: none, unless runs have the same name.
        band: draw the 5th to 95th percentile over the classes.
        log: distances on a logarithmic axis.
        ax: where to draw; None is the current Axes.

    Examples:
        >>> samples, proxies = torch.tensor([[3.0, 0.0], [0.0, 1.0]]), torch.eye(2)
        >>> embeddings = cocos.Embeddings(samples, proxies, [0, 1], [0, 1], directions=("s2p",))
        >>> cocos.plots.dtp(cocos.measures.dtp({"run": [embeddings, embeddings]})).has_data()
        True
    """
    ax = ax or plt.gca()
    runs, first = _runs(dataset, names)
    colours, ends, alphas, marked = palette(len(runs)), {}, {}, []
    reached = [step for one in runs.values() for step in one["step"].values[[0, -1]]]
    for k, ((name, one), colour) in enumerate(zip(runs.items(), colours, strict=True)):
        steps = one["step"].values
        ax.plot(steps, one["average"], color=colour, linestyle=STYLES[k % len(STYLES)], linewidth=1.8, label=str(name),
                marker="o" if len(steps) == 1 else None)  # fmt: skip
        if band:
            ax.fill_between(steps, one["low"], one["high"], color=colour, alpha=0.12, linewidth=0)
        last = int(np.isfinite(one["average"].values).sum()) - 1
        end, text = float(one["average"][last]), plain(name, RUN_NAME_LENGTH)
        if last + 1 < len(steps):
            ax.plot(steps[last], end, color=colour, marker="x", markersize=7, markeredgewidth=1.8)
            text += ": diverged"
        ends.setdefault(steps[last], []).append((end, text, colour))
        if np.isfinite(alpha := float(one["alpha"])):
            alphas[alpha] = SHARED_GREY if alpha in alphas else colour
            changing = one["alpha_each"].values if "alpha_each" in one else np.zeros((0, 1))
            if np.unique(changing).size > 1:
                del alphas[alpha]
                low, high = changing.min(axis=1), changing.max(axis=1)
                for bound in [low] if (low == high).all() else [low, high]:
                    ax.step(steps, bound, where="post", color=colour, linewidth=0.8, linestyle=":")
                    marked.append((float(bound[0]), f"α = {', '.join(f'{b:g}' for b in dict.fromkeys(bound))}", colour))
    for alpha, colour in alphas.items():
        ax.plot((min(reached), max(reached)), [alpha] * 2, color=colour, linewidth=0.8, linestyle=":")
    ax.margins(x=0.02)
    ax.set(
        xlabel=plain(first["step"].attrs["long_name"], 80),
        ylabel=f"mean distance to the own proxy ({plain(first.attrs['metric']).replace('_', ' ')})",
        title="Distance to proxy, mean over classes",
    )
    ax.set(yscale="log") if log else ax.set_ylim(0, None)
    for step, named in ends.items():
        _name(ax, step, sorted(named, key=lambda each: each[0]), xytext=7, va="center")
    marks = sorted(
        [*marked, *((alpha, f"α = {alpha:g}", colour) for alpha, colour in alphas.items())], key=lambda m: m[0]
    )
    halo = [withStroke(linewidth=2, foreground="white")]
    _name(ax, 0, marks, xytext=3, above=2, xycoords=("axes fraction", "data"), path_effects=halo)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _runs(
    dataset: xr.Dataset | Sequence[xr.Dataset], names: Sequence[str] | None
) -> tuple[dict[str, xr.Dataset], xr.Dataset]:
    """Runs of all Datasets by their names, and the first Dataset."""
    several = series(dataset, names)
    every = list(several.values())
    if len(metrics := {each.attrs["metric"] for each in every}) > 1:
        raise InputError(f"distances of {' and '.join(sorted(metrics))}: measure the runs with one metric")
    own = [str(run) for each in every for run in each["run"].values]
    prefixed = len(several) > 1 and (names is not None or len(set(own)) < len(own))
    found = {
        f"{name}, {run}" if prefixed else str(run): each.sel(run=run)
        for name, each in several.items()
        for run in each["run"].values
    }
    return found, every[0]


def _name(ax: Axes, x: float, named: list[tuple], *, xytext: float, above: float = 0.0, **style) -> None:
    """Write names, ascending (height, name, colour), at one x, moved apart as little as possible where they overlap."""
    points = 72 / ax.figure.dpi
    height = np.array([ax.transData.transform((x, end))[1] * points for end, *_ in named])
    order = np.arange(len(named))
    free = height - LINE_POINTS * order  # names at least a line apart: an isotonic regression
    place = [
        max(min(free[j : k + 1].mean() for k in order[i:]) for j in order[: i + 1]) for i in order
    ] + LINE_POINTS * order
    for (end, text, colour), moved in zip(named, place - height, strict=True):
        ax.annotate(text, (x, end), xytext=(xytext, moved + above), textcoords="offset points", fontsize="small",
                    color=colour, parse_math=False, **style)  # fmt: skip
