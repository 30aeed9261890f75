"""Part of the push on the heaviest negatives of a query, for four losses: means over the queries with any push.

Queries without any push are left out. Batches are drawn as in training with each loss.
"""

import numpy as np

from cocos import checkpoints, measures, plots
from cocos.plots.labels import dark, spread
from study_tables import LOSSES

PUBLISHED = "none; Bleeker & de Rijke 2022 count contributing negatives at one threshold"
DIFFERS = "the paper has no such curve"
TOPS = (10, 1)
INPUTS = (checkpoints.EXAMPLE_FILE,)
# Left end of the axis, which leaves room for the names of the lines; least distance of two names, of its height.
FIRST_K, NAME_GAP = 0.36, 0.045
SIZE, PRINTED = (7.0, 4.0), True


def data(progress):
    """Weigh one pass over the training set for each loss."""
    frozen = checkpoints.open(checkpoints.EXAMPLE_FILE)
    about = frozen.identity() | {"checkpoint_path": f"cocos/example/{frozen.path.name}"}
    embeddings = frozen.embed(device="cpu")
    parts = {}
    for name in ("ntxent", "triplet", "triplet_sh", "smoothap"):
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


def alt(parts):
    """One sentence."""
    return f"Part of the push on the heaviest negatives against their number, for {len(parts)} losses."


def agrees(parts):
    """Parts of the push, coefficients and idle queries."""
    told = [
        f"{LOSSES[name]} {_top(part, TOPS[0]):.0f} % and {_top(part, TOPS[1]):.0f} %, Gini "
        f"{float(part['gini'][0]):.3f}, {100 * float(part['without_push'][0]):.0f} % of the queries have no push and "
        "are left out"
        for name, part in parts.items()
    ]
    both = max(float(abs(np.subtract(*part["gini"].values))) for part in parts.values())
    return (
        f"Push of the {TOPS[0]} heaviest negatives and of the heaviest one, for image queries: {'; '.join(told)}. The "
        f"Gini coefficients of captions differ by at most {both:.3f}. n = {parts['ntxent'].attrs['batches']} batches "
        "of one model, means over queries."
    )


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
