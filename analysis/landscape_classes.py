"""The warped softmax around three and five proxies: the landscape of many classes is composed of binary ones.

Star: the own proxy; squares: the others; circle: the minimum found. The length of an arrow is logarithmic in that of
the gradient, full from 1 on.
"""

import numpy as np
from matplotlib.lines import Line2D

from analysis import along_proxies
from cocos import measures, plots
from cocos.plots.landscape import bar

PUBLISHED = "DeMoor & Prevost 2024, Fig. 5"
# Height of the measure between the own proxy and the minimum, as a part of the height above the line of the proxies.
MEASURE = 0.22
SIZE = (7.0, 3.7)


def data():
    """Compute landscapes of three and five classes, and the largest difference from eq. 5."""
    parts = {}
    for number in (3, 5):
        part = measures.landscape("warp", proxies=number, points=101)
        gap = float(abs(np.log1p(np.expm1(part["binary"]).sum("other")) - part["loss"]).max())
        part = part.drop_vars(["binary", "loss"]).assign_attrs(eq_5=gap, unit=part["loss"].attrs["units"])
        fields = ("height", "force_x", "force_y")
        parts[f"classes_{number}"] = part.assign({name: part[name].astype("float32") for name in fields})
    return parts


def title(parts):
    """The claim."""
    behind = [along_proxies.behind(part) for part in parts.values()]
    numbers = " and ".join(str(part.attrs["proxies"]) for part in parts.values())
    told = " and ".join(dict.fromkeys(f"{one:.2f}" for one in behind))
    return f"With {numbers} classes, too, the minimum lies α = {told} behind the own proxy"


def draw(parts, figure):
    """A panel each, on one scale."""
    panels = figure.subplots(1, len(parts))
    for part, ax in zip(parts.values(), panels, strict=True):
        plots.landscape(part, common=True, legend=False, ax=ax)
        star, ring, high = part["proxy_x"][0].item(), part["found"].values[0], part["y"].values.max()
        place = MEASURE * high
        for x in (star, ring):
            ax.plot((x, x), (0, 1.15 * place), color="black", linewidth=0.9, zorder=2)
        ax.annotate("", (star, place), xytext=(ring, place),
                    arrowprops={"arrowstyle": "<->", "color": "black", "shrinkA": 0, "shrinkB": 0})  # fmt: skip
        ax.annotate(f"α = {star - ring:.2g}", ((star + ring) / 2, 1.15 * place), xytext=(0, 2), ha="center",
                    textcoords="offset points",
                    bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 1})  # fmt: skip
        ax.set(
            title=f"{part.attrs['proxies']} classes",
            xlabel="first coordinate",
            ylabel="" if ax is panels[1] else "second coordinate",
        )
    bar(figure, list(panels), shrink=0.9)
    found = {label: style for label, style in along_proxies.SYMBOLS.items() if label != "minimum predicted"}
    figure.legend(handles=[Line2D([], [], label=label, **style) for label, style in found.items()], frameon=False,
                  loc="outside lower center", ncols=len(found))  # fmt: skip
    figure.suptitle(title(parts))
