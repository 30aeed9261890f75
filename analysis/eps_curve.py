"""COCOS(eps): contributing negatives against the threshold for four losses.

The triplet losses count every nonzero weight, which any eps below 1 does: their curves are flat.
"""

import numpy as np

import cocos
from analysis.example import LOSSES
from cocos import measures, plots
from cocos.plots.labels import dark

PUBLISHED = "Bleeker & de Rijke 2022, Eqs. 6 and 7"
SIZE = (7.0, 4.0)
MARKS = (0.01, 0.0001)
# Thresholds; the smallest stands for 0.
EPS = (*np.logspace(-6, 0, 61)[:-1], 0.9999, 1)


def data():
    """Count one pass over the training set at 62 thresholds for each loss."""
    frozen = cocos.open("example")
    about = frozen.identity()
    embeddings = frozen.embed(device="cpu")
    return {name: measures.eps_curve(embeddings, frozen.loss(name, {})[0], EPS).assign_attrs(about) for name in LOSSES}


def _at(part, eps):
    return part["contributing_all"].mean("direction").sel(eps=eps, method="nearest").item()


def title(parts):
    """The claim."""
    soft = parts["ntxent"]
    counts = " and ".join(f"{_at(soft, eps):.0f}" for eps in MARKS)
    return f"NT-Xent's count depends on eps ({counts} negatives at eps = {' and '.join(map(str, MARKS))})"


def draw(parts, figure):
    """A line a loss, on one axis."""
    ax = plots.eps_curve(list(parts.values()), names=[LOSSES[name] for name in parts], ax=figure.subplots())
    ax.set_title(title(parts))
    end, low = ax.get_xlim()[1], ax.get_ylim()[0]
    for line in (each for each in ax.lines if len(each.get_xdata()) > len(MARKS)):
        at, count = line.get_xdata()[-1], line.get_ydata()[-1]
        if count > low and at < max(part["eps"].values[-2] for part in parts.values()) < end:
            arrow = {"arrowstyle": "->", "color": line.get_color(), "linewidth": 1.2, "shrinkA": 0}
            ax.annotate("", (at, low), xytext=(at, count), arrowprops=arrow)
            ax.annotate("0 beyond", (at, count), xytext=(-6, -12), textcoords="offset points", ha="right", va="top",
                        fontsize="small", color=dark(line.get_color()))  # fmt: skip
