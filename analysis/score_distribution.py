"""Negatives of each query against their score, one thin line per query.

Queries differ in how near their neighbours are. The hatched area is the positives. Green bars extend from the 5th to
the 95th percentile, over the queries, of the score of the k-th neighbour: the shorter they are, the better one
threshold serves every query.
"""

from matplotlib.lines import Line2D

from cocos import checkpoints, measures, plots
from cocos.plots.labels import palette

PUBLISHED = "Veit & Wilber 2020, arXiv:2011.08824, Fig. 4, right (lines of queries with their 5th and 95th percentile)"
DIFFERS = (
    "it is drawn the other way round: scores rise to the right, where the paper has its highest scores on the left. "
    "Lines are counts per bin of score, where the paper draws all neighbours of a query, with percentiles in orange. "
    "Another model (two small towers trained with NT-Xent) and other data (emoji with captions in four languages); see "
    "cross_example for the effect of the losses of the paper"
)
TENTH, NEAR = 10, 0.7
ASKS = {"i2t": "images (i2t)", "t2i": "captions (t2i)"}
INPUTS = (checkpoints.EXAMPLE_FILE,)
SIZE, PRINTED = (7.0, 4.6), True


def data(progress):
    """Measure 400 queries of each direction against the whole training set."""
    frozen = checkpoints.open(checkpoints.EXAMPLE_FILE)
    about = {"checkpoint_path": f"cocos/example/{frozen.path.name}"}
    return {"train": measures.score_distribution(frozen, queries=400, device="cpu").assign_attrs(about)}


def title(parts):
    """The claim."""
    low, high = parts["train"]["kth_band"].sel(direction="i2t", k=TENTH, percentile=[5, 95]).values
    return (
        f"A score means different things to different queries: for nine images in ten, the {TENTH}th neighbour "
        f"has one between {low:.2f} and {high:.2f}"
    )


def alt(parts):
    """One sentence."""
    asked = parts["train"].sizes["query"]
    return (
        f"Number of negatives against their score, a thin line for each of {asked} queries per direction, and the "
        "range of the scores of some neighbours."
    )


def agrees(parts):
    """Bands of the tenth neighbour and of the number of negatives."""
    data, told = parts["train"], []
    for name in data["direction"].values:
        low, high = data["kth_band"].sel(direction=name, k=TENTH, percentile=[5, 95]).values
        told.append(
            f"{low:.2f} to {high:.2f} ({name}, spread {float(data['spread'].sel(direction=name, k=TENTH)):.2f})"
        )
    few, many = data["band"].sel(direction="i2t", percentile=[5, 95]).sel(bin=NEAR, method="nearest").values
    return (
        f"For nine queries in ten, the {TENTH}th neighbour has a score from {' and from '.join(told)}; the spread "
        "is the deviation of the score of neighbour k between queries, in units of that within a query. "
        f"At a score of {NEAR}, a bin of width {data.attrs['bin_width']:g} "
        f"contains {few:.0f} to {many:.0f} negatives of an image (5th to 95th percentile). n = {data.sizes['query']} "
        "queries per direction of one model; bands are over queries and not an uncertainty."
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
