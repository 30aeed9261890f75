"""Plot of the distance to proxy over the checkpoints of some runs."""

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke

from cocos.plots._labels import STYLES
from cocos.plots._wording import middle

# Height of a line of text, in points.
LINE_POINTS = 10.0
# Characters of the longest name of a run.
RUN_NAME_LENGTH = 28
# Grey level of an alpha that several runs share.
SHARED_GREY = "0.3"


def dtp(dataset: xr.Dataset, *, band: bool = True, log: bool = False, ax: Axes | None = None) -> Axes:
    """Draw AvgDTP: a line per run with its name at the end, a band over the classes, and alpha as a dotted line.

    The line of a diverged run ends in a cross at its last finite checkpoint, and its name says so. Long names are
    shortened; an alpha that several runs share is drawn once, in grey.

    Args:
        dataset: of `cocos.measures.dtp`.
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
    names, steps = dataset["run"].values, dataset["step"].values
    colours, ends, alphas = sns.color_palette("colorblind", len(names)), {}, {}
    for k, (name, colour) in enumerate(zip(names, colours, strict=True)):
        one = dataset.sel(run=name)
        ax.plot(steps, one["average"], color=colour, linestyle=STYLES[k % len(STYLES)], linewidth=1.8, label=str(name),
                marker="o" if len(steps) == 1 else None)  # fmt: skip
        if band:
            ax.fill_between(steps, one["low"], one["high"], color=colour, alpha=0.12, linewidth=0)
        last = int(np.isfinite(one["average"].values).sum()) - 1
        end, text = float(one["average"][last]), middle(str(name), RUN_NAME_LENGTH)
        if last + 1 < len(steps):
            ax.plot(steps[last], end, color=colour, marker="x", markersize=7, markeredgewidth=1.8)
            text += ": diverged"
        ends.setdefault(steps[last], []).append((end, text, colour))
        if np.isfinite(alpha := float(one["alpha"])):
            alphas[alpha] = SHARED_GREY if alpha in alphas else colour
    for alpha, colour in alphas.items():
        ax.plot((steps[0], steps[-1]), [alpha] * 2, color=colour, linewidth=0.8, linestyle=":")
    ax.margins(x=0.02)
    ax.set(
        xlabel=dataset["step"].attrs["long_name"],
        ylabel=f"mean distance to the own proxy ({dataset.attrs['metric'].replace('_', ' ')})",
        title="Distance to proxy, mean over classes",
    )
    ax.set(yscale="log") if log else ax.set_ylim(0, None)
    for step, named in ends.items():
        _name(ax, step, sorted(named, key=lambda each: each[0]), xytext=7, va="center")
    marks = [(alpha, f"α = {alpha:g}", colour) for alpha, colour in sorted(alphas.items())]
    halo = [withStroke(linewidth=2, foreground="white")]
    _name(ax, 0, marks, xytext=3, above=2, xycoords=("axes fraction", "data"), path_effects=halo)
    sns.despine(ax=ax)
    return ax


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
