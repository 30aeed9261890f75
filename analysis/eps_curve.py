"""COCOS(eps): contributing negatives against the threshold for four losses.

The triplet losses count every nonzero weight, which any eps below 1 does: their curves are flat.
"""

import numpy as np

from cocos import checkpoints, measures, plots
from cocos.plots.labels import dark
from cocos.reports.captions import holds
from study_tables import LOSSES

PUBLISHED = (
    "none as a curve; Bleeker & de Rijke 2022 count at eps = 0.01 for NT-Xent and SmoothAP, and every nonzero weight "
    "for the triplet losses"
)
DIFFERS = "the paper gives one count per loss, at one eps"
INPUTS = (checkpoints.EXAMPLE_FILE,)
SIZE, PRINTED = (7.0, 4.0), True
MARKS = (0.01, 0.0001)
# Thresholds; the smallest stands for 0.
EPS = (*np.logspace(-6, 0, 61)[:-1], 0.9999, 1)


def data(progress):
    """Count one pass over the training set at 62 thresholds for each loss."""
    frozen = checkpoints.open(checkpoints.EXAMPLE_FILE)
    about = frozen.identity() | {"checkpoint_path": f"cocos/example/{frozen.path.name}"}
    embeddings = frozen.embed(device="cpu")
    return {
        name: measures.eps_curve(embeddings, frozen.loss(name, {})[0], EPS).assign_attrs(about)
        for name in ("ntxent", "triplet", "triplet_sh", "smoothap")
    }


def _at(part, eps):
    return part["contributing_all"].mean("direction").sel(eps=eps, method="nearest").item()


def title(parts):
    """The claim."""
    soft = parts["ntxent"]
    counts = " and ".join(f"{_at(soft, eps):.0f}" for eps in MARKS)
    return f"NT-Xent's count depends on eps ({counts} negatives at eps = {' and '.join(map(str, MARKS))})"


def alt(parts):
    """One sentence."""
    return f"Curves of the contributing negatives against eps for {len(parts)} losses, on logarithmic axes."


def agrees(parts):
    """Counts at some eps, slopes, and flat curves."""
    flat = all(float(part["contributing_all"].sel(eps=slice(None, 0.99)).std("eps").max()) < 1e-9
               for name, part in parts.items() if name.startswith("triplet"))  # fmt: skip
    smooth = parts["smoothap"]["contributing_all"].mean("direction")
    zero = float(smooth["eps"].where(smooth == 0, drop=True).min())
    both = max(float(abs(np.subtract(*parts[name]["contributing_all"].values)).max()) for name in ("ntxent", "triplet"))
    ways = ", ".join(f"{name}: {part.attrs['sample']}" for name, part in parts.items())
    count = max(part.attrs["batches"] for part in parts.values())
    soft = ", ".join(f"{_at(parts['ntxent'], eps):.0f} at {eps:g}" for eps in (*MARKS, EPS[0]))
    ranked = "; ".join(
        f"{side} " + ", ".join(f"{_at(parts['smoothap'].sel(direction=[side]), eps):.2f} at {eps:g}" for eps in MARKS)
        for side in parts["smoothap"]["direction"].values
    )
    return (
        f"NT-Xent: {soft}. "
        + holds(flat, "The triplet losses do not depend on eps: any violation counts.")
        + f" SmoothAP: {ranked}; "
        f"no share reaches {zero:.2g}. Under NT-Xent and triplet the two directions differ by at most {both:.2f}. "
        f"n = at most {count} batches, one pass over the training set of one model, drawn as in training ({ways})."
    )


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
