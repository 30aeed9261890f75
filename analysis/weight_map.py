"""Which pairs four losses compare in one batch of pairs: all of their weights.

A row is a query, a column a candidate, and the positives are on the diagonal. A pairwise loss weighs every pair by
itself, a triplet loss the negatives of a row that come too near to its positive, softmax all negatives of the row, and
cross-example softmax all negatives of the batch for each positive.
"""

from cocos import checkpoints, losses, measures, plots
from cocos.reports.captions import holds

PUBLISHED = (
    "Veit & Wilber 2020, arXiv:2011.08824, Figs. 1 and 2 (the pairs that a pairwise loss, a triplet loss, softmax and "
    "cross-example softmax compare). We did not have the figures themselves, so the layout is ours"
)
DIFFERS = "drawn from the weights of a trained model on one real batch, where the paper has a sketch"
INPUTS = (checkpoints.EXAMPLE_FILE,)
LOSSES = {
    "contrastive_cosine": "pairwise",
    "triplet": "triplet",
    "sampled_softmax": "softmax",
    "ce_softmax": "cross-example softmax",
}
BATCH = 24
# Share of a weight that is not small.
LARGE = 0.01
SIZE, PRINTED = (7.0, 6.6), True


def data(progress):
    """Weigh the first batch of seed 0 with each loss; any weight counts."""
    frozen = checkpoints.open(checkpoints.EXAMPLE_FILE)
    about = frozen.identity() | {"checkpoint_path": f"cocos/example/{frozen.path.name}"}
    embeddings = frozen.embed(device="cpu")
    drawn = {"sample": "pairs", "batch_size": BATCH, "order": "batch"}
    return {name: measures.weight_map(embeddings, losses.load(name), 0, **drawn).assign_attrs(about) for name in LOSSES}


def _weighed(part):
    """Number of negatives with a weight."""
    return int(part["weighed"].sum())


def _large(part):
    """Number of negatives with more than a small share."""
    return int((part["share"].where(part["negative"], 0) > LARGE).sum())


def _balanced(part):
    """Whether the push of each row is as large as its pull."""
    return bool(abs(part["weight"].sum("candidate")).max() < 1e-9 * float(abs(part["weight"]).max()))


def title(parts):
    """The claim."""
    number, every = {name: _weighed(part) for name, part in parts.items()}, int(parts["triplet"]["negatives"].sum())
    return holds(
        max(number["contrastive_cosine"], number["triplet"])
        < number["sampled_softmax"]
        == number["ce_softmax"]
        == every,
        f"A pairwise loss weighs {number['contrastive_cosine']} of {every} negatives, triplet "
        f"{number['triplet']}, softmax all, few of them strongly",
    )


def alt(parts):
    """One sentence."""
    return f"Matrices of the weights of all queries and candidates of one batch, for {len(parts)} losses."


def agrees(parts):
    """What each loss compares a positive with."""
    triplet, pairwise = parts["triplet"], parts["contrastive_cosine"]
    apart = holds(
        not _balanced(pairwise), "Under the pairwise loss the weights of a row do not cancel: each pair stands alone."
    )
    within = holds(
        _balanced(triplet) and _balanced(parts["sampled_softmax"]),
        "Under the triplet loss and under softmax those of each row do: a positive meets negatives of its own row.",
    )
    across = holds(
        not _balanced(parts["ce_softmax"]) and abs(float(parts["ce_softmax"]["weight"].sum())) < 1e-6,
        "Under cross-example softmax only those of the whole batch do: it is compared with negatives of every row.",
    )
    idle = int((triplet["weighed"] == 0).sum())
    large = f"Under softmax {_large(parts['sampled_softmax'])} negatives have a share above {100 * LARGE:g} %."
    return (
        f"{apart} {within} {across} {idle} of {BATCH} queries have no weight under the triplet loss. {large} n = one "
        f"batch of {BATCH} pairs: an example."
    )


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
