"""Contributing negatives per query of the embedded example, for four losses: the triplet loss leaves queries idle."""

from cocos import demo, measures, plots

PUBLISHED = "Bleeker & de Rijke 2022, the counts behind Tables 3 to 5 (drawn here as distributions)"
AGREES = (
    "As there, triplet-SH has one contributing negative or none, and the triplet loss leaves many queries without any "
    "(46 %) where NT-Xent leaves few (2 %). SmoothAP, by its gradient, leaves 57 % of the images and 84 % of the "
    "captions without any. The model and the data are others, so no number is comparable."
)
INPUTS = tuple((demo.checkpoint().path,))
SIZE = (9, 6.4)


def data(progress):
    """Count the whole training set once for every loss."""
    frozen = demo.checkpoint()
    about = frozen.identity() | {"checkpoint_path": f"cocos/example/{frozen.path.name}"}
    embeddings = frozen.embed(device="cpu")
    parts = {}
    for name in demo.LOSSES:
        counted = measures.count(embeddings, frozen.loss(name)[0]).assign_attrs(about)
        parts[name] = counted[["contributing"]]
    return parts


def draw(parts, figure):
    """One panel a loss."""
    for part, ax in zip(parts.values(), figure.subplots(2, 2).flat, strict=True):
        plots.count(part, ax=ax)
    figure.suptitle("Contributing negatives per query: one frozen model, four losses")
