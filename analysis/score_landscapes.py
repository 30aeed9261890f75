"""Weight of a negative (colour) and loss (lines) over the scores of one positive and one negative."""

from cocos import measures, plots

PUBLISHED = "none; asked for by users. The triplet panel is the picture behind Bleeker & de Rijke 2022, eqs. 1 and 6"
AGREES = (
    "A triplet weighs 1 or 0, with an edge at the margin; NT-Xent fades with the difference of the scores; the circle "
    "loss weighs by where a score stands, not only by the difference."
)
LOSSES = ("triplet", "ntxent", "circle", "contrastive_cosine")
SIZE = (10.4, 8.6)


def data(progress):
    """A landscape for each loss."""
    return {name: measures.score_landscape(name, points=101) for name in LOSSES}


def draw(parts, figure):
    """A panel each."""
    for part, ax in zip(parts.values(), figure.subplots(2, 2).flat, strict=True):
        plots.score_landscape(part, ax=ax)
