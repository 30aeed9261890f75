"""Part of the push on the heaviest negatives of a query, for four losses: means over the queries with any push.

Queries without any push are left out. Batches are drawn as in training with each loss.
"""

import cocos
from analysis.example import LOSSES
from cocos import measures, plots
from cocos.plots.labels import dark, spread

TOPS = (10, 1)
# Left end of the axis, which leaves room for the names of the lines; least distance of two names, of its height.
FIRST_K, NAME_GAP = 0.36, 0.045
SIZE = (7.0, 4.0)


def data():
    """Weigh one pass over the training set for each loss."""
    frozen = cocos.open("example")
    about = frozen.identity()
    embeddings = frozen.embed(device="cpu")
    parts = {}
    for name in LOSSES:
        found = measures.lorenz(embeddings, frozen.loss(name, {})[0]).assign_attrs(about)
        parts[name] = found.drop_vars("gini_per_query")
    return parts


def _top(part, heaviest):
    """Percent of the push on the heaviest negatives, for image queries."""
    return 100 * part["held"].sel(direction="i2t", k=heaviest).item()


def title(parts):
    """The claim."""
    soft, hinge = (_top(parts[name], TOPS[0]) for name in ("ntxent", "triplet"))
    return f"The {TOPS[0]} heaviest negatives carry {soft:.0f} % of the push under NT-Xent, {hinge:.0f} % under triplet"


def draw(parts, figure):
    """A line a loss."""
    ax = plots.lorenz(list(parts.values()), names=[LOSSES[name] for name in parts], ax=figure.subplots())
    ax.set_title(title(parts))
    ax.set_xlim(left=FIRST_K)
    lines = {str(line.get_label()): line for line in ax.lines}
    ax.get_legend().remove()
    starts = spread([line.get_ydata()[0] / 100 for line in lines.values()], NAME_GAP)
    for (name, line), start in zip(lines.items(), starts, strict=True):
        ax.annotate(name, (1, 100 * start), xytext=(-6, 0), textcoords="offset points", ha="right", va="center",
                    fontsize="small", color=dark(line.get_color()),
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})  # fmt: skip
