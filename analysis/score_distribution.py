"""Negatives of each query against their score, one thin line per query.

Queries differ in how near their neighbours are. The hatched area is the positives. Green bars extend from the 5th to
the 95th percentile, over the queries, of the score of the k-th neighbour: the shorter they are, the better one
threshold serves every query.
"""

from matplotlib.lines import Line2D

import cocos
from cocos import measures, plots
from cocos.plots.labels import palette

PUBLISHED = "Veit & Wilber 2020, Fig. 4, right"
TENTH = 10
ASKS = {"i2t": "images (i2t)", "t2i": "captions (t2i)"}
SIZE = (7.0, 4.6)


def data():
    """Measure 400 queries of each direction against the whole training set."""
    frozen = cocos.open("example")
    return {"train": measures.score_distribution(frozen, queries=400, device="cpu")}


def title(parts):
    """The claim."""
    low, high = parts["train"]["kth_band"].sel(direction="i2t", k=TENTH, percentile=[5, 95]).values
    return (
        f"A score means different things to different queries: for nine images in ten, the {TENTH}th neighbour "
        f"has one between {low:.2f} and {high:.2f}"
    )


def draw(parts, figure):
    """Draw one panel per direction."""
    data = parts["train"]
    for name, ax in zip(data["direction"].values, figure.subplots(1, data.sizes["direction"]), strict=True):
        plots.score_distribution(data, direction=str(name), ax=ax)
        ax.set(title=f"{ASKS[str(name)]}: {data.sizes['query']} queries", xlabel="score (cosine)")
        handles = ax.get_legend().legend_handles
        ax.get_legend().remove()
    ax.set_ylabel("")
    bar = Line2D([], [], color=palette(3)[2], linewidth=3, marker="|", markersize=9, markeredgecolor="0.1",
                 markeredgewidth=2, label="score of neighbour k: 5th to 95th percentile, median")  # fmt: skip
    figure.legend(handles=[*handles, bar], loc="outside lower center", ncols=3, frameon=False, fontsize="small")
    figure.suptitle(title(parts))
