"""Landscapes around two proxies: maps of some, and the line through both proxies for all."""

import numpy as np
import seaborn as sns
from matplotlib.lines import Line2D

from cocos import plots
from cocos.plots.labels import beside, dark
from cocos.plots.landscape import bar

__all__ = ["behind", "draw", "kept"]

POINTS = 121
# Axes of the line: distance behind the own proxy, and loss relative to that on the proxy.
WINDOW, HEIGHTS = (-2, 7.5), (0.02, 200)
LINE_STYLES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 4)), (0, (9, 4)))
ENDS = ("kept at a distance", "drawn onto the proxy", "anywhere behind", "driven away")
COLOURS = dict(zip(ENDS, ("black", *(sns.color_palette("colorblind")[k] for k in (0, 7, 1))), strict=True))

HOLLOW = {"linestyle": "", "markerfacecolor": "white", "markeredgecolor": "black", "markersize": 7}
SYMBOLS = {
    "own proxy": HOLLOW | {"marker": "*", "markersize": 10},
    "other proxy": HOLLOW | {"marker": "s"},
    "minimum found": HOLLOW | {"marker": "o", "markerfacecolor": "none", "markeredgewidth": 1.6},
    "minimum predicted": HOLLOW | {"marker": "x", "markeredgewidth": 1.6},
}


def kept(part, whole):
    """Keep the part of a landscape that is drawn: all of it in single precision, or the line of the proxies."""
    one = part.drop_vars(["binary", "loss"]).assign_attrs(unit=part["loss"].attrs["units"])
    fields = ["height", "force_x", "force_y"]
    if not whole:
        return one.sel(y=0, method="nearest").drop_vars([*fields[1:], "y"])
    return one.assign({name: one[name].astype("float32") for name in fields})


def behind(part):
    """Distance of the minimum found behind the own proxy; NaN where there is none."""
    x, y = part["found"].values - [part["proxy_x"][0].item(), part["proxy_y"][0].item()]
    return float(np.hypot(x, y))


def _along(part):
    """Distance behind the own proxy, and log10 of the loss there relative to that on the proxy."""
    height = part["height"].sel(y=0, method="nearest") if "y" in part["height"].dims else part["height"]
    away = part["proxy_x"][0].item() - height["x"].values
    with np.errstate(divide="ignore"):
        level = np.log10(height.values.astype(float))
    order = np.argsort(away)
    level = level - np.interp(0, away[order], level[order])
    return away[order], level[order]


def _end(part):
    """Name the place where an embedding ends."""
    rest = behind(part)
    if np.isfinite(rest):
        return "kept at a distance" if rest > 1e-3 else "drawn onto the proxy"
    return "driven away" if part.attrs["found_as"].startswith("none") else "anywhere behind"


def draw(parts, labels, whole, figure):
    """Draw maps above, on one scale, and below them the line of the proxies for all landscapes.

    Args:
        parts: landscapes by name.
        labels: of all of them.
        whole: names of those with a map.
        figure: where to draw.
    """
    above, below = figure.subfigures(2, 1, height_ratios=(1, 1.15))
    maps = above.subplots(1, len(whole), sharex=True, sharey=True)
    for name, ax in zip(whole, maps, strict=True):
        plots.landscape(parts[name], legend=False, common=True, ax=ax)
        ax.set(title=labels[name], xlabel="coordinates", ylabel="")
    bar(above, list(maps), shrink=0.9)
    above.legend(handles=[Line2D([], [], label=label, **style) for label, style in SYMBOLS.items()], frameon=False,
                 loc="outside lower center", ncols=len(SYMBOLS))  # fmt: skip
    ax, handles, ends = below.subplots(), [], []
    seen = dict.fromkeys(ENDS, 0)
    for end in ENDS:
        for name, part in parts.items():
            if _end(part) != end:
                continue
            away, level = _along(part)
            colour, style = COLOURS[end], LINE_STYLES[seen[end] % len(LINE_STYLES)]
            if not seen[end]:
                handles.append(Line2D([], [], color=colour, linewidth=1.6, label=end))
            seen[end] += 1
            ax.plot(away, 10.0**level, color=colour, linestyle=style, linewidth=1.6)
            last = 10.0 ** np.interp(WINDOW[1], away, level)
            if HEIGHTS[0] <= last <= HEIGHTS[1]:
                ends.append((last, labels[name], colour))
            else:  # it leaves the panel at the top or at the bottom
                up = last > HEIGHTS[1]
                edge, sign = HEIGHTS[int(up)], 1 if up else -1
                there = away >= 0
                leaves = np.interp(sign * np.log10(edge), sign * level[there], away[there])
                ax.annotate(labels[name], (leaves, edge), xytext=(8, -8 * sign), textcoords="offset points",
                            va="top" if up else "bottom", fontsize="small", color=dark(colour))  # fmt: skip
            if np.isfinite(rest := behind(part)):
                ax.plot(rest, 10.0 ** np.interp(rest, away, level), "o", markersize=10, color="none",
                        markeredgecolor=colour, markeredgewidth=1.8, zorder=5)  # fmt: skip
    ax.axvline(0, color="0.6", linewidth=0.8)
    ax.set(xlim=WINDOW, ylim=HEIGHTS, yscale="log", ylabel="loss relative to that on the own proxy",
           xlabel="distance behind the own proxy (the other one is on the left)")  # fmt: skip
    ax.yaxis.set_major_formatter("{x:g}")
    ring = Line2D([], [], linestyle="", marker="o", markersize=8, color="none", markeredgecolor="black",
                  markeredgewidth=1.6, label="minimum found")  # fmt: skip
    sns.despine(ax=ax)
    beside(ax, ends)
    below.legend(handles=[*handles, ring], loc="outside lower center", frameon=False, ncols=len(handles) + 1)
