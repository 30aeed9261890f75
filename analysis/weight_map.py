"""All weights of one batch of 48 pairs, NT-Xent and the triplet loss: who pushes whom, and who is done."""

from cocos import demo, measures, plots

PUBLISHED = "none; the two losses of Bleeker & de Rijke 2022, Tables 3 and 4, on one batch"
AGREES = (
    "As eqs. 1 and 6 have it: under NT-Xent every negative has some weight and every positive is pulled, though only "
    "173 of 2256 negatives are above eps = 0.01; under the triplet loss 59 have a weight, all the same, and 30 of 48 "
    "queries are done (squares). Rows differ: one query has 18 of the 59, and no candidate more than 5."
)
INPUTS = tuple((demo.checkpoint().path,))
LOSSES = ("ntxent", "triplet")
SIZE = (12.4, 6)


def data(progress):
    """Weigh the first batch of seed 0 with both losses."""
    frozen = demo.checkpoint()
    about = frozen.identity() | {"checkpoint_path": f"cocos/example/{frozen.path.name}"}
    embeddings = frozen.embed(device="cpu")
    return {
        name: measures.weight_map(embeddings, frozen.loss(name, {})[0], sample="pairs").assign_attrs(about)
        for name in LOSSES
    }


def draw(parts, figure):
    """One panel a loss."""
    for part, ax in zip(parts.values(), figure.subplots(1, 2), strict=True):
        plots.weight_map(part, ax=ax)
