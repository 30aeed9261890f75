"""Which pairs four losses compare in one batch of pairs: all of their weights.

A row is a query, a column a candidate, and the positives are on the diagonal. A pairwise loss weighs every pair by
itself, a triplet loss the negatives of a row that come too near to its positive, softmax all negatives of the row, and
cross-example softmax all negatives of the batch for each positive.
"""

import cocos
from cocos import losses, measures, plots

PUBLISHED = "Veit & Wilber 2020, Figs. 1 and 2"
LOSSES = {
    "contrastive_cosine": "pairwise",
    "triplet": "triplet",
    "sampled_softmax": "softmax",
    "ce_softmax": "cross-example softmax",
}
BATCH = 24
SIZE = (7.0, 6.6)


def data():
    """Weigh the first batch of seed 0 with each loss; any weight counts."""
    frozen = cocos.open("example")
    about = frozen.identity()
    embeddings = frozen.embed(device="cpu")
    drawn = {"sample": "pairs", "batch_size": BATCH, "order": "batch"}
    return {name: measures.weight_map(embeddings, losses.load(name), 0, **drawn).assign_attrs(about) for name in LOSSES}


def _weighed(part):
    """Number of negatives with a weight."""
    return int(part["weighed"].sum())


def title(parts):
    """The claim."""
    every = int(parts["triplet"]["negatives"].sum())
    weighed = ", ".join(f"{LOSSES[name]} {_weighed(part)}" for name, part in parts.items())
    return f"Negatives with a weight, of {every} in a batch: {weighed}"


def draw(parts, figure):
    """Draw one panel per loss, on one scale and with one legend."""
    shared = max(float(part["share"].where(part["negative"], 0).max()) for part in parts.values())
    entries = {}
    for ax, (name, part) in zip(figure.subplots(2, 2).flat, parts.items(), strict=True):
        plots.weight_map(part, most=shared, last=name in {"triplet", "ce_softmax"}, ax=ax)
        for bar in (each for each in ax.child_axes if each.get_ylabel().startswith("share")):
            bar.set_ylabel("share of a negative: weight / unit of the loss")
        legend = ax.get_legend()
        entries |= {text.get_text(): each for text, each in zip(legend.get_texts(), legend.legend_handles, strict=True)}
        legend.remove()
        ax.title.set_text(f"{LOSSES[name]}: {_weighed(part)} weighed negatives")
    figure.legend(entries.values(), entries, loc="outside lower center", ncols=len(entries), frameon=False)
    figure.suptitle(title(parts))
