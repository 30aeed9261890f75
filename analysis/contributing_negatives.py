"""Contributing negatives per query of the embedded example, for four losses."""

import cocos
from analysis.example import LOSSES
from cocos import measures, plots

PUBLISHED = "Bleeker & de Rijke 2022, Tables 3 to 5"
SIZE = (7.0, 4.7)


def data():
    """Count the whole training set once for every loss."""
    frozen = cocos.open("example")
    about = frozen.identity()
    embeddings = frozen.embed(device="cpu")
    parts = {}
    for name in LOSSES:
        counted = measures.count(embeddings, frozen.loss(name)[0]).assign_attrs(about)
        parts[name] = counted[["contributing", "negatives", "relative"]]
    return parts


def _idle(part):
    """Percent of the queries of each direction without any contributing negative."""
    counts = part["contributing"]
    return 100 * (counts == 0).where(counts.notnull()).mean(("batch", "query"))


def title(parts):
    """The claim."""
    full, hinge = (float(_idle(parts[name]).mean()) for name in ("ntxent", "triplet"))
    return f"NT-Xent leaves {full:.0f} % of the queries without a contributing negative, the triplet loss {hinge:.0f} %"


def draw(parts, figure):
    """A row for each loss, on one axis."""
    ax = plots.count(list(parts.values()), names=[LOSSES[name] for name in parts], ax=figure.subplots())
    ax.set_title(title(parts))
    ax.set_yticks(ax.get_yticks(), [text.get_text().replace("\n", "\nmean: ") for text in ax.get_yticklabels()])
